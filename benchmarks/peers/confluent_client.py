"""confluent-kafka (librdkafka). Ways: ``produce``, ``produce_batch``, ``aio`` (AIOProducer).

Its documentation advises for throughput: many records in flight, so a large local queue (here a million records, as in
its own performance test); large batches (its default, 1 MB or 10,000 records, is large); lingering; poll() regularly.
A full queue is waited out in poll(), as its documentation says. Delivery reports of success are not asked for where
nobody looks at them (``delivery.report.only.error``).
"""

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import confluent_kafka
from confluent_kafka.aio import AIOProducer

from benchmarks.peers.driver import Client, main
from benchmarks.peers.task import Records, Task

_POLL_EVERY = 1_000


def _options(task: Task) -> dict[str, Any]:
    options: dict[str, Any] = {
        "acks": task.acks,
        "enable.idempotence": task.idempotence,
        "linger.ms": task.linger_ms,
        "compression.type": task.compression,
        "queue.buffering.max.messages": 1_000_000,
    }
    if task.results == "ignored" and not task.rate:
        options["delivery.report.only.error"] = True
    if task.tls_ca:
        options |= {"security.protocol": "ssl", "ssl.ca.location": task.tls_ca}
    if task.batch_bytes:
        options["batch.size"] = task.batch_bytes
    if task.buffer_bytes:
        options["queue.buffering.max.kbytes"] = task.buffer_bytes // 1024
    if task.transactional:
        options["transactional.id"] = "benchmark"
    return options


class _Reports:
    """Counts acknowledged records, keeps offsets where they are to be read, remembers the first failure."""

    def __init__(self, *, is_reading: bool) -> None:
        self.count = 0
        self.offsets: list[int] | None = [] if is_reading else None
        self.failure: object = None

    def __call__(self, error: object, message: Any) -> None:
        self.count += 1
        if error is not None:
            self.failure = self.failure or error
        elif self.offsets is not None:
            self.offsets.append(message.offset())


class _Producer:
    version = f"{confluent_kafka.__version__} (librdkafka {confluent_kafka.libversion()[0]})"

    def __init__(self, task: Task, records: Records) -> None:
        self.settings = _options(task)
        self._headers = records.headers
        self._reports = _Reports(is_reading=task.results == "read")
        self._on_delivery: dict[str, Any] = {"on_delivery": self._reports} if task.results != "ignored" else {}
        self._rows = records.rows(task.topic_names())

    def _check(self) -> None:
        if self._reports.failure is not None:
            raise RuntimeError(f"a record was not delivered: {self._reports.failure}")


class Sender(_Producer):
    """One record a call, or lists of them."""

    def __init__(self, task: Task, records: Records) -> None:
        super().__init__(task, records)
        # A failure is reported by this callback also where each record has none.
        config = {"bootstrap.servers": task.bootstrap, "on_delivery": self._reports, **self.settings}
        self._producer = confluent_kafka.Producer(config)
        for topic in task.topic_names():
            self._producer.list_topics(topic)
        if task.transactional:
            self._producer.init_transactions()
        self._poller: threading.Thread | None = None
        self._batches = []
        if task.way == "produce_batch":
            rows = task.call_records or len(records.values)
            for start in range(0, len(records.values), rows):
                topic = task.topic_names()[start // rows % task.topics]
                batch = [{"value": value, "key": key} for _, value, key in self._rows[start : start + rows]]
                self._batches.append((topic, batch))

    def send_round(self) -> None:
        if self._batches:
            self._send_batches()
        else:
            self._send_rows()

    def _send_rows(self) -> None:
        produce, poll = self._producer.produce, self._producer.poll
        options: dict[str, Any] = dict(self._on_delivery)
        if self._headers:
            options["headers"] = self._headers
        for index, (topic, value, key) in enumerate(self._rows):
            while True:
                try:
                    produce(topic, value, key, **options)
                    break
                except BufferError:
                    poll(0.01)
            if not index % _POLL_EVERY:
                poll(0)

    def _send_batches(self) -> None:
        for topic, batch in self._batches:
            waiting = [dict(row) for row in batch] if self._on_delivery else batch
            while waiting:
                self._producer.produce_batch(topic, waiting, **self._on_delivery)
                # Rows it refused carry the key "_error"; it takes none twice.
                waiting = [row for row in waiting if row.pop("_error", None) is not None]
                self._producer.poll(0.01 if waiting else 0)

    def send_one(self, index: int, on_done: Callable[[], None] | None) -> None:
        topic, value, key = self._rows[index % len(self._rows)]
        options = {} if on_done is None else {"on_delivery": lambda *_: on_done()}
        while True:
            try:
                return self._producer.produce(topic, value, key, **options)
            except BufferError:  # a pace it does not hold shows in the latencies
                self._producer.poll(0.01)

    def idle(self, seconds: float) -> None:
        if self._poller is None:
            # Serves delivery reports the moment they are there, as the other clients' own threads do.
            self._poller = threading.Thread(target=self._poll_for_ever, daemon=True)
            self._poller.start()
        time.sleep(seconds)

    def _poll_for_ever(self) -> None:
        while True:
            self._producer.poll(1)

    def begin(self) -> None:
        self._producer.begin_transaction()

    def commit(self) -> None:
        self._producer.commit_transaction()

    def flush(self) -> None:
        if self._producer.flush(120):
            raise RuntimeError("records are left after two minutes of flush()")
        self._check()


class AsyncSender(_Producer):
    """AIOProducer with its own batches of 1,000 records, its default."""

    def __init__(self, task: Task, records: Records) -> None:
        super().__init__(task, records)
        self.settings.pop("delivery.report.only.error", None)  # its futures need every report
        self._task = task
        self._runner = asyncio.Runner()
        self._producer = self._runner.run(self._start())
        self._futures: list[asyncio.Future[Any]] = []

    async def _start(self) -> AIOProducer:
        return AIOProducer({"bootstrap.servers": self._task.bootstrap, **self.settings})

    def send_round(self) -> None:
        self._runner.run(self._send_round())

    async def _send_round(self) -> None:
        produce = self._producer.produce
        futures = [await produce(topic, value=value, key=key) for topic, value, key in self._rows]
        await self._producer.flush()
        for future in futures:
            assert (await future).offset() >= -1

    def send_one(self, index: int, on_done: Callable[[], None] | None) -> None:
        raise NotImplementedError("latencies are taken of produce()")

    def idle(self, seconds: float) -> None:
        raise NotImplementedError("latencies are taken of produce()")

    def flush(self) -> None:
        self._runner.run(self._producer.flush())


def make_client(task: Task, records: Records) -> Client:
    """The client for the task's way."""
    return AsyncSender(task, records) if task.way == "aio" else Sender(task, records)


if __name__ == "__main__":
    main(make_client)
