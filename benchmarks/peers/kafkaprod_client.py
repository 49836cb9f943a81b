"""kafkaprod. Ways: ``send``, ``send_many``, ``send_columns``, ``async_send`` (AsyncProducer)."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import kafkaprod
from benchmarks.peers.driver import Client, main
from benchmarks.peers.task import Records, Task
from benchmarks.workloads import Column


def _options(task: Task) -> dict[str, Any]:
    options: dict[str, Any] = {
        "acks": task.acks,
        "enable_idempotence": task.idempotence,
        "linger_ms": task.linger_ms,
        "compression_type": task.compression,
    }
    if task.tls_ca:
        options |= {"security_protocol": "SSL", "ssl_cafile": task.tls_ca}
    if task.batch_bytes:
        options["batch_size"] = task.batch_bytes
    if task.buffer_bytes:
        options["buffer_memory"] = task.buffer_bytes
    if task.transactional:
        options["transactional_id"] = "benchmark"
    return options


class _Producer:
    """The options, the producer and the metadata of the task's topics."""

    version = kafkaprod.__version__

    def __init__(self, task: Task, records: Records) -> None:
        self.settings = _options(task)
        self._task = task
        self._topics = task.topic_names()
        self._records = records
        self._producer = kafkaprod.Producer(bootstrap_servers=task.bootstrap, **self.settings)
        for topic in self._topics:
            self._producer.partitions_for(topic)
        if task.transactional:
            self._producer.init_transactions()

    def idle(self, seconds: float) -> None:
        time.sleep(seconds)

    def begin(self) -> None:
        self._producer.begin_transaction()

    def commit(self) -> None:
        self._producer.commit_transaction()

    def flush(self) -> None:
        self._producer.flush()


class Sender(_Producer):
    """One record a call."""

    def __init__(self, task: Task, records: Records) -> None:
        super().__init__(task, records)
        self._rows = records.rows(self._topics)

    def send_round(self) -> None:
        send, headers = self._producer.send, self._records.headers or None
        if self._task.results == "callback":
            acknowledged = [0]

            def count(_: object) -> None:
                acknowledged[0] += 1

            for topic, value, key in self._rows:
                send(topic, value, key, headers).add_done_callback(count)
        elif self._task.results == "read":
            futures = [send(topic, value, key, headers) for topic, value, key in self._rows]
            assert all(future.result().offset >= -1 for future in futures)
        elif headers:
            for topic, value, key in self._rows:
                send(topic, value, key, headers)
        else:
            for topic, value, key in self._rows:
                send(topic, value, key)

    def send_one(self, index: int, on_done: Callable[[], None] | None) -> None:
        topic, value, key = self._rows[index % len(self._rows)]
        future = self._producer.send(topic, value, key)
        if on_done is not None:
            future.add_done_callback(lambda _: on_done())


class BlockSender(_Producer):
    """Many records a call, as lists or as columns."""

    def __init__(self, task: Task, records: Records) -> None:
        super().__init__(task, records)
        rows = task.call_records or len(records.values)
        self._calls = []
        for start in range(0, len(records.values), rows):
            values: Any = records.values[start : start + rows]
            keys: Any = records.keys and records.keys[start : start + rows]
            if task.way == "send_columns":
                values, keys = _column(values), keys and _column(keys)
            self._calls.append((self._topics[start // rows % len(self._topics)], values, keys))
        self._send: Callable[..., kafkaprod.BlockResult] = getattr(self._producer, task.way)

    def send_round(self) -> None:
        headers = self._records.headers or None
        results = [self._send(topic, values, keys, headers) for topic, values, keys in self._calls]
        if self._task.results == "read":
            assert all((result.result().offsets >= -1).all() for result in results)


class AsyncSender(Sender):
    """One record an awaited call, on an event loop that runs while a round is sent."""

    def __init__(self, task: Task, records: Records) -> None:
        super().__init__(task, records)
        self._runner = asyncio.Runner()
        self._async_producer = self._runner.run(self._start())

    async def _start(self) -> kafkaprod.AsyncProducer:
        return kafkaprod.AsyncProducer(bootstrap_servers=self._task.bootstrap, **self.settings)

    def send_round(self) -> None:
        self._runner.run(self._send_round())

    async def _send_round(self) -> None:
        send, headers = self._async_producer.send, self._records.headers or None
        futures = [await send(topic, value, key, headers) for topic, value, key in self._rows]
        if self._task.results == "read":
            for future in futures:
                assert (await future).offset >= -1

    def flush(self) -> None:
        self._runner.run(self._async_producer.flush())


def _column(strings: list[bytes]) -> tuple[Any, Any]:
    column = Column.of(strings)
    return column.offsets, column.data


def make_client(task: Task, records: Records) -> Client:
    """The client for the task's way."""
    kinds: dict[str, Any] = {
        "send": Sender,
        "send_many": BlockSender,
        "send_columns": BlockSender,
        "async_send": AsyncSender,
    }
    client: Client = kinds[task.way](task, records)
    return client


if __name__ == "__main__":
    main(make_client)
