"""A bounded, checked load for the fault tests: threads with an ordered, idempotent producer each, and their ledgers."""

from __future__ import annotations

import contextlib
import itertools
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from kafkaprod import DeliveryFuture, Producer
from kafkaprod.errors import DeliveryTimeoutError
from tests.fault.record_checker import CheckReport, SendLedger, check_records
from tests.kafka.cluster import wait_until
from tests.kafka.reading import ReadRecord, read_all

TICK_S = 0.02
END_TIMEOUT_S = 150.0


def is_certainly_not_written(error: Exception) -> bool:
    """Whether the producer promises that a failed record is not in the log."""
    return isinstance(error, DeliveryTimeoutError) and not error.possibly_persisted


def send_stamped(
    producer: Producer, ledger: SendLedger, topic: str, partition: int | None = None, *, size: int = 100, **options: Any
) -> DeliveryFuture | None:
    """Send the ledger's next record; its completion, or refusal (then None is returned), is noted there."""
    value = ledger.make_value(topic, -1 if partition is None else partition, size)
    try:
        future = producer.send(topic, value, partition=partition, **options)
    except Exception as error:
        ledger.on_completion(value, error=error, may_be_in_log=False)
        return None
    future.add_done_callback(lambda done: note(ledger, value, done))
    return future


def send_one(producer: Producer, ledger: SendLedger, *args: Any, **options: Any) -> DeliveryFuture:
    """As `send_stamped`, of a record that must not be refused."""
    future = send_stamped(producer, ledger, *args, **options)
    assert future is not None, ledger.sends[-1].completions
    return future


def wait_for_callbacks(ledger: SendLedger, timeout_s: float = 20) -> None:
    """Who waits for a result may be woken before the callback that notes it was called; return after the latter."""
    with contextlib.suppress(TimeoutError):  # the checker reports what is missing
        wait_until(lambda: all(send.completions for send in ledger.sends), timeout_s, "completion of every send")


def note(ledger: SendLedger, value: bytes, future: DeliveryFuture) -> None:
    """Write a future's outcome into the ledger; usable as callback."""
    error = future.exception(0)
    if error is None:
        metadata = future.result(0)
        ledger.on_completion(value, topic=metadata.topic, partition=metadata.partition, offset=metadata.offset)
    else:
        ledger.on_completion(value, error=error, may_be_in_log=not is_certainly_not_written(error))


def memory_not_returned(producer: Producer, timeout_s: float = 30) -> int:
    """Bytes still held `timeout_s` after everything has its outcome; counts double frees if there are none."""
    pool = producer.accumulator.pool
    try:
        wait_until(lambda: pool.in_use == 0, timeout_s, "return of all memory")
    except TimeoutError:
        return int(pool.in_use)
    return int(pool.refused_release_count)


class LoadThread(threading.Thread):
    """One producer, one thread, one ledger at a time."""

    def __init__(
        self,
        bootstrap: str,
        topics: Mapping[str, int | None],
        *,
        records_per_s: float,
        seed: int,
        size: int,
        options: Mapping[str, Any],
    ) -> None:
        super().__init__(name=f"load-{seed}", daemon=True)
        self.ledgers = [SendLedger()]
        self.acknowledged: Counter[tuple[str, int]] = Counter()
        self.offered: Counter[tuple[str, int | None]] = Counter()
        self.errors: list[Exception] = []
        self.pool_bytes_not_returned = 0
        self.end_of_flush_error: BaseException | None = None
        self.producer = Producer(bootstrap_servers=bootstrap, **options)
        self._topics = topics
        self._size = size
        self._random = random.Random(seed)
        self._per_tick = records_per_s * TICK_S
        self._stopped = threading.Event()

    def run(self) -> None:
        """Send until stopped, then wait for every outcome."""
        due = 0.0
        for number in itertools.count():
            if self._stopped.wait(TICK_S):
                break
            due += self._per_tick
            while due >= 1:
                due -= 1
                self._send(number)
        try:
            self.producer.flush(END_TIMEOUT_S)
        except Exception as error:
            self.end_of_flush_error = error
        self.pool_bytes_not_returned = memory_not_returned(self.producer)
        self.producer.close(10)

    def stop(self) -> None:
        """End the sending; `join` waits for the outcomes."""
        self._stopped.set()

    def _send(self, number: int) -> None:
        topic = self._random.choice(list(self._topics))
        partitions = self._topics[topic]
        partition = None if partitions is None else self._random.randrange(partitions)
        # Without a partition, every other record has a key.
        key = number.to_bytes(4) if partition is None and self._random.random() < 0.5 else None
        future = send_stamped(self.producer, self.ledgers[-1], topic, partition, size=self._size, key=key)
        self.offered[topic, partition] += 1
        if future is not None:
            future.add_done_callback(self._count)

    def _count(self, future: DeliveryFuture) -> None:
        error = future.exception(0)
        if error is None:
            self.acknowledged[future.topic, future.partition] += 1
        else:
            self.errors.append(error)


class Load:
    """Several load threads on some topics.

    Args:
        bootstrap: where to.
        topics: topic to number of partitions that are asked for at random; None: keys or nothing decide.
        threads: producers.
        records_per_s: of all threads together; bounds the memory and the time to read back.
        seed: of every choice.
        size: bytes of a value.
        options: of the producers.

    Leaving the `with` block ends the sending and waits for every outcome; then `report` judges.
    """

    def __init__(
        self,
        bootstrap: str,
        topics: Mapping[str, int | None],
        *,
        threads: int = 2,
        records_per_s: float = 600,
        seed: int = 0,
        size: int = 100,
        **options: Any,
    ) -> None:
        self._topics = list(topics)
        self.threads = [
            LoadThread(
                bootstrap,
                topics,
                records_per_s=records_per_s / threads,
                seed=seed * 1000 + index,
                size=size,
                options={"linger_ms": 5, "reconnect_backoff_max_ms": 500, **options},
            )
            for index in range(threads)
        ]

    def __enter__(self) -> Self:
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for thread in self.threads:
            thread.stop()
        for thread in self.threads:
            thread.join(END_TIMEOUT_S + 60)

    def start_new_ledgers(self) -> None:
        """What is sent from now on is in new ledgers, so that it can be judged apart."""
        for thread in self.threads:
            thread.ledgers.append(SendLedger())

    def acknowledged(self, only: set[int] | None = None) -> int:
        """Records acknowledged so far, in these partitions or all."""
        return _count_of([thread.acknowledged.copy() for thread in self.threads], only)

    def offered(self, only: set[int] | None = None) -> int:
        """Records sent so far for these partitions or all, acknowledged or not."""
        return _count_of([thread.offered.copy() for thread in self.threads], only)

    def wait_for_progress(self, count: int = 100, timeout_s: float = 60, only: set[int] | None = None) -> float:
        """Return the seconds until `count` more records were acknowledged to every thread together."""
        start, started_s = self.acknowledged(only), time.monotonic()
        wait_until(lambda: self.acknowledged(only) >= start + count, timeout_s, f"{count} further acknowledgements")
        return time.monotonic() - started_s

    @property
    def errors(self) -> list[Exception]:
        """Of all records that failed."""
        return [error for thread in self.threads for error in thread.errors]

    def ledgers(self, since: int = 0) -> list[SendLedger]:
        """The ledgers of all threads, those before the `since`-th `start_new_ledgers` left out."""
        return [ledger for thread in self.threads for ledger in thread.ledgers[since:]]

    def read(self, bootstrap: str) -> dict[str, dict[int, list[ReadRecord]]]:
        """The logs of the topics."""
        return {topic: read_all(bootstrap, topic) for topic in self._topics}

    def report(self, bootstrap: str) -> CheckReport:
        """Compare what was promised with the logs."""
        return check_records(
            self.ledgers(),
            self.read(bootstrap),
            pool_bytes_not_returned=self.pool_bytes_not_returned,
        )

    @property
    def pool_bytes_not_returned(self) -> int:
        """Of all producers, after the end."""
        return sum(thread.pool_bytes_not_returned for thread in self.threads)


def _count_of(counts: Sequence[Mapping[Any, int]], only: set[int] | None) -> int:
    return sum(n for each in counts for (_, partition), n in each.items() if only is None or partition in only)


def of_ledgers(
    logs: Mapping[str, Mapping[int, Sequence[ReadRecord]]], ledgers: Sequence[SendLedger]
) -> dict[str, dict[int, list[ReadRecord]]]:
    """The logs with the records of these ledgers only."""
    prefixes = {ledger.ledger_id.to_bytes(8) for ledger in ledgers}
    return {
        topic: {
            partition: [record for record in records if (record.value or b"")[:8] in prefixes]
            for partition, records in partitions.items()
        }
        for topic, partitions in logs.items()
    }


def rounds(count: int) -> Iterator[int]:
    """0, 1, ... with a line of progress for the long runs (seen with ``pytest -s``)."""
    for number in range(count):
        print(f"round {number + 1} of {count}", flush=True)
        yield number
