"""What was given to a producer, where it said the records are, and whether an independent reader finds them there."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from confluent_kafka import KafkaException

from kafkaprod import BlockResult, DeliveryFuture, Headers, Producer, RecordMetadata
from tests.kafka.cluster import wait_until
from tests.kafka.reading import ReadRecord, end_offsets

HeaderList = list[tuple[str, bytes | None]]
Result = DeliveryFuture | BlockResult | RecordMetadata
UNKNOWN_OFFSET = -1
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PARTITIONS = 3  # that `send_in_every_way` writes to
RESULT_TIMEOUT_S = 60
CLOCK_TICK_MS = 10  # the producer's wall clock may be one kernel tick behind, 10 ms with CONFIG_HZ=100
COMPRESSIBLE = b"the quick brown fox jumps over the lazy dog. " * 4000


class GivenRecord(NamedTuple):
    """A record as given to a producer; `timestamp_ms` None: the producer's own time."""

    key: bytes | None
    value: bytes | None
    headers: HeaderList
    timestamp_ms: int | None


def assorted_records(count: int, seed: int = 1) -> list[GivenRecord]:
    """Records of every kind: null, empty, text and binary keys and values, repeated and null headers, old timestamps.

    A few values exceed 64 KiB, both compressible and not, so that a batch must.
    """
    rng = random.Random(seed)
    keys: list[bytes | None] = [None, b"", b"key", bytes(range(256)), "\u20ac\U0001f600".encode()]
    header_lists: list[HeaderList] = [
        [],
        [("one", b"1")],
        [("same", b"1"), ("same", b"2"), ("same", b"1")],
        [("null", None), ("empty", b""), ("", b"nameless"), ("\u00fc\u20ac", b"\xff\x00")],
    ]
    records = []
    for i in range(count):
        value: bytes | None = b"%d:" % i + rng.randbytes(rng.randrange(200))
        if i % 11 == 3:
            value = None if i % 2 else b""
        elif i % 97 == 5:
            value = COMPRESSIBLE[: 70_000 + i]
        elif i % 97 == 6:
            value = rng.randbytes(70_000 + i)
        timestamp_ms = None if i % 3 else 1_500_000_000_000 + rng.randrange(10**11)
        records.append(GivenRecord(rng.choice(keys), value, rng.choice(header_lists), timestamp_ms))
    return records


@dataclass
class Sends:
    """What one thread gave to a producer for one topic, in its order."""

    _results: list[tuple[Result, Sequence[GivenRecord]]] = field(default_factory=list)
    _started_ms: int = field(default_factory=lambda: int(time.time() * 1000))

    def add(self, result: Result, *records: GivenRecord) -> None:
        """One call of a producer returned `result` for these records."""
        self._results.append((result, records))

    def __len__(self) -> int:
        return sum(len(records) for _, records in self._results)

    def check(
        self, log: Mapping[int, Sequence[ReadRecord]], *, offsets_known: bool = True, timestamps_kept: bool = True
    ) -> None:
        """Assert that the log holds exactly the given records, in the given order, each where its result says.

        Args:
            log: Partition -> records, of a topic that nobody else wrote to.
            offsets_known: False for acks=0, where each result must say that the offset is unknown.
            timestamps_kept: False where the broker stamps records itself.
        """
        expected: dict[int, list[tuple[int, GivenRecord]]] = {}
        for result, records in self._results:
            for (partition, offset), record in zip(_places(result), records, strict=True):
                expected.setdefault(partition, []).append((offset, record))
        ended_ms = int(time.time() * 1000)
        for partition in expected.keys() | log.keys():
            given, found = expected.get(partition, []), log.get(partition, [])
            assert len(found) == len(given), f"partition {partition}: {len(found)} records, {len(given)} were sent"
            for (offset, record), read in zip(given, found, strict=True):
                assert offset == (read.offset if offsets_known else UNKNOWN_OFFSET)
                assert (read.key, read.value, read.headers) == (record.key, record.value, record.headers)
                if not timestamps_kept:
                    continue
                if record.timestamp_ms is None:
                    assert self._started_ms - CLOCK_TICK_MS <= read.timestamp <= ended_ms
                else:
                    assert read.timestamp == record.timestamp_ms


def _places(result: Result) -> Iterable[tuple[int, int]]:
    """(partition, offset) of each record, once all are delivered. Raises what the first one failed with."""
    if isinstance(result, DeliveryFuture):
        result = result.result(RESULT_TIMEOUT_S)
    if isinstance(result, RecordMetadata):
        return [(result.partition, result.offset)]
    result.result(RESULT_TIMEOUT_S)
    return zip(result.partitions.tolist(), result.offsets.tolist(), strict=True)


def wait_until_served(bootstrap: str, topic: str) -> None:
    """Return when the leader of each partition of a new topic has heard of it.

    Until then it refuses a batch or two. Idempotent producers keep the order all the same; others may not, and with
    acks=0 what was refused is gone.
    """

    def is_served() -> bool:
        try:
            end_offsets(bootstrap, topic)
        except KafkaException:
            return False
        return True

    wait_until(is_served, 30, f"leader that serves {topic}")


def arrow_column(strings: Sequence[bytes | None]) -> tuple[Any, ...]:
    """Byte strings and nulls as (offsets, data, validity), Arrow's binary layout."""
    lengths = np.array([len(each or b"") for each in strings], dtype=np.int32)
    offsets = np.concatenate([np.zeros(1, np.int32), np.cumsum(lengths, dtype=np.int32)])
    data = np.frombuffer(b"".join(each or b"" for each in strings) or b"\0", dtype=np.uint8)
    validity = np.packbits([each is not None for each in strings], bitorder="little")
    return offsets, data, validity


def send_in_every_way(producer: Producer, topic: str, sends: Sends) -> None:
    """Records one by one, as a list and as columns; in batches of one record and in such of far more than 64 KiB."""
    for i, record in enumerate(assorted_records(120, seed=1)):
        partition = i % PARTITIONS if i % 4 == 0 else None
        future = producer.send(
            topic, record.value, record.key, record.headers, partition=partition, timestamp_ms=record.timestamp_ms
        )
        sends.add(future, record)
    send_block(producer, topic, assorted_records(200, seed=2), sends)
    send_columns(producer, topic, [GivenRecord(b"key", b"%07d" % i * 20, [], None) for i in range(2000)], sends)


def send_block(producer: Producer, topic: str, records: list[GivenRecord], sends: Sends) -> None:
    """One send_many; records without a timestamp get 0."""
    records = [record._replace(timestamp_ms=record.timestamp_ms or 0) for record in records]
    result = producer.send_many(
        topic,
        [record.value for record in records],
        [record.key for record in records],
        [record.headers for record in records],
        timestamps_ms=np.array([record.timestamp_ms for record in records], dtype=np.int64),
    )
    sends.add(result, *records)


def send_columns(producer: Producer, topic: str, records: list[GivenRecord], sends: Sends) -> None:
    """One send_columns; timestamps are the producer's."""
    result = producer.send_columns(
        topic,
        arrow_column([record.value for record in records]),
        arrow_column([record.key for record in records]),
        Headers.from_python([record.headers for record in records]),
    )
    sends.add(result, *records)
