"""What the arguments of a send may be. Pure; every way into the accumulator that runs Python code goes through here.

The compiled path (`_core.queues.send_path`) converts partition and timestamp with the same function of the core.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, SupportsIndex, TypeAlias

from kafkaprod._core.columns.columns import Column
from kafkaprod._core.records.integers import checked_integer
from kafkaprod.errors import ArgumentTypeError, InvalidRecordError
from kafkaprod.text import plain_text

MAX_PARTITION: Final = (1 << 31) - 1
MAX_TIMESTAMP_MS: Final = (1 << 63) - 1
MAX_TOPIC_LENGTH: Final = 249

ColumnLike: TypeAlias = Column | tuple[Any, ...] | Sequence[Any]


def checked_partition(partition: SupportsIndex) -> int:
    """Raises InvalidRecordError for what is no partition number."""
    return checked_integer(partition, "partition", 0, MAX_PARTITION)


def checked_timestamp(timestamp_ms: SupportsIndex) -> int:
    """Raises InvalidRecordError for what is no time in ms since the epoch."""
    return checked_integer(timestamp_ms, "timestamp_ms", 0, MAX_TIMESTAMP_MS)


def checked_topic(topic: str) -> str:
    """Return a topic's name as a str that is no subclass. Raises ArgumentTypeError for what is no text."""
    if not isinstance(topic, str):
        raise ArgumentTypeError(f"topic must be str, not {type(topic).__name__}")
    return plain_text(topic)


def check_topic_name(topic: str) -> None:
    """Raises InvalidRecordError for a name that Kafka allows for no topic."""
    legal = all(c.isascii() and (c.isalnum() or c in "._-") for c in topic)
    if not 1 <= len(topic) <= MAX_TOPIC_LENGTH or topic in (".", "..") or not legal:
        raise InvalidRecordError(
            f"topic {topic[:260]!r} is not a legal name: 1 to 249 of the characters a-z A-Z 0-9 . _ -, not . or .."
        )


def as_records(items: Iterable[Any], name: str) -> list[Any]:
    """A list with one item per record. Raises InvalidRecordError for a single text or bytes object."""
    if isinstance(items, str | bytes | bytearray | memoryview):
        raise ArgumentTypeError(
            f"{name} must be a list with one item per record, not a single {type(items).__name__} object"
        )
    return list(items)


def as_column(source: ColumnLike | None, name: str) -> Column:
    """A column of bytes from what send_columns takes. Raises InvalidRecordError for anything else."""
    if isinstance(source, Column):
        return source
    if source is None:
        return Column.nulls()
    if isinstance(source, tuple) and len(source) in (2, 3):
        return Column.from_offsets(source[0], source[1], source[2] if len(source) == 3 else None, name=name)
    raise ArgumentTypeError(
        f"{name} must be a Column or a tuple (offsets, data[, validity]), not {type(source).__name__}"
    )
