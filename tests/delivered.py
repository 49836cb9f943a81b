"""What was given to a producer, where it said the records are, and whether an independent reader finds them there."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from kafkaprod import BlockResult, DeliveryFuture, RecordMetadata
from tests.kafka.reading import ReadRecord

HeaderList = list[tuple[str, bytes | None]]
Result = DeliveryFuture | BlockResult | RecordMetadata
UNKNOWN_OFFSET = -1
RESULT_TIMEOUT_S = 60
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

    def check(self, log: Mapping[int, Sequence[ReadRecord]], *, offsets_known: bool = True) -> None:
        """Assert that the log holds exactly the given records, in the given order, each where its result says.

        Args:
            log: Partition -> records, of a topic that nobody else wrote to.
            offsets_known: False for acks=0, where each result must say that the offset is unknown.
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
                if record.timestamp_ms is None:
                    assert self._started_ms <= read.timestamp <= ended_ms
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


def arrow_column(strings: Sequence[bytes | None]) -> tuple[Any, ...]:
    """Byte strings and nulls as (offsets, data, validity), Arrow's binary layout."""
    lengths = np.array([len(each or b"") for each in strings], dtype=np.int32)
    offsets = np.concatenate([np.zeros(1, np.int32), np.cumsum(lengths, dtype=np.int32)])
    data = np.frombuffer(b"".join(each or b"" for each in strings) or b"\0", dtype=np.uint8)
    validity = np.packbits([each is not None for each in strings], bitorder="little")
    return offsets, data, validity
