"""aiokafka's BatchBuilder: records gathered by the program, for one partition."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from kafkaprod.clock import wall_s

_BATCH_BYTES: Final = 61  # header of a batch
_RECORD_BYTES: Final = 21  # most of what a record takes besides its contents


class AppendedRecord(NamedTuple):
    """A record's number in its batch, size in bytes and timestamp in ms."""

    offset: int
    size: int
    timestamp: int
    crc: int | None = None


class BatchBuilder:
    """Gathers records until `max_bytes`. Made by AIOKafkaProducer.create_batch().

    Args:
        max_bytes: Its size at most.
        key_serializer, value_serializer: Callables, or None.
    """

    def __init__(self, max_bytes: int, key_serializer: Any = None, value_serializer: Any = None) -> None:
        self._max_bytes = max_bytes
        self._key_serializer = key_serializer
        self._value_serializer = value_serializer
        self._size = _BATCH_BYTES
        self._is_closed = False
        self.keys: list[Any] = []
        self.values: list[Any] = []
        self.headers: list[Any] = []
        self.timestamps_ms: list[int] = []

    def append(self, *, timestamp: int | None, key: Any, value: Any, headers: Any = ()) -> AppendedRecord | None:
        """Add a record; None if the batch is full or closed.

        Args:
            timestamp: ms since the epoch; None: now.
            key, value: Bytes, None, or what the serializers take.
            headers: Pairs of text and bytes.
        """
        if self._is_closed:
            return None
        key = key if self._key_serializer is None else self._key_serializer(key)
        value = value if self._value_serializer is None else self._value_serializer(value)
        pairs = list(headers or ())
        for name, _ in pairs:
            if not isinstance(name, str):
                raise TypeError(f"the name of a header must be str, not {type(name).__name__}")
        size = _RECORD_BYTES + len(key or b"") + len(value or b"")
        size += sum(len(name.encode()) + len(content or b"") + 10 for name, content in pairs)
        if self.values and self._size + size > self._max_bytes:
            self.close()
            return None
        timestamp_ms = int(wall_s() * 1000) if timestamp is None else int(timestamp)
        self.keys.append(key)
        self.values.append(value)
        self.headers.append(pairs)
        self.timestamps_ms.append(timestamp_ms)
        self._size += size
        return AppendedRecord(len(self.values) - 1, size, timestamp_ms)

    def close(self) -> None:
        """Take no more records."""
        self._is_closed = True

    def closed(self) -> bool:
        """Whether it takes no more records."""
        return self._is_closed

    def size(self) -> int:
        """Return its size in bytes, at most."""
        return self._size

    def record_count(self) -> int:
        """Return how many records it has."""
        return len(self.values)
