"""confluent-kafka's Message, as delivery callbacks get it: the original's own class where that can be made here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kafkaprod.compat.confluent_kafka.error import KafkaError
from kafkaprod.compat.originals import taken

TIMESTAMP_NOT_AVAILABLE: Final = 0
TIMESTAMP_CREATE_TIME: Final = 1
TIMESTAMP_LOG_APPEND_TIME: Final = 2
OFFSET_INVALID: Final = -1001


class OwnMessage:
    """A record that was produced, with its place in the log or its error. Immutable.

    Args:
        topic: Its name.
        partition: Where it is; negative: it was not decided.
        key, value, headers: As they were given.
        offset: Its place there; negative: unknown.
        timestamp: Kind and ms since the epoch.
        error: Why it was not delivered; None: it was.
        latency: Seconds from produce() to the outcome; None if unknown.
    """

    __slots__ = ("_error", "_headers", "_key", "_latency", "_offset", "_partition", "_timestamp", "_topic", "_value")

    def __init__(
        self,
        topic: str | None = None,
        partition: int = -1,
        offset: int = OFFSET_INVALID,
        key: Any = None,
        value: Any = None,
        headers: Any = None,
        error: KafkaError | None = None,
        timestamp: tuple[int, int] = (TIMESTAMP_NOT_AVAILABLE, 0),
        latency: float | None = None,
    ) -> None:
        self._topic = topic
        self._partition = partition
        self._offset = offset
        self._key = key
        self._value = value
        self._headers = headers
        self._error = error
        self._timestamp = timestamp
        self._latency = latency

    def topic(self) -> str | None:
        """Return the topic's name."""
        return self._topic

    def partition(self) -> int | None:
        """Return the partition; None if it was not decided."""
        return self._partition if self._partition >= 0 else None

    def offset(self) -> int | None:
        """Return the offset; None if unknown."""
        return self._offset if self._offset >= 0 else None

    def key(self) -> Any:
        """Return the key."""
        return self._key

    def value(self) -> Any:
        """Return the value."""
        return self._value

    def headers(self) -> Any:
        """Return the headers as pairs; None without."""
        return self._headers

    def error(self) -> KafkaError | None:
        """Return why it was not delivered; None if it was."""
        return self._error

    def timestamp(self) -> tuple[int, int]:
        """Return the kind of the timestamp, and ms since the epoch."""
        return self._timestamp

    def latency(self) -> float | None:
        """Return seconds from produce() to the outcome."""
        return self._latency

    def leader_epoch(self) -> int | None:
        """Return None: a producer does not learn it."""
        return None

    def __len__(self) -> int:
        return 0 if self._value is None else len(self._value)


def _known(own: type[Any]) -> type[Any]:
    """Return the original's class if it takes what a report has, which early versions do not."""
    theirs = taken("confluent_kafka", own, "Message")
    try:
        theirs("", -1, OFFSET_INVALID, None, None, None, None, (TIMESTAMP_NOT_AVAILABLE, -1), 0.0)
    except TypeError:
        return own
    return theirs


if TYPE_CHECKING:
    Message = OwnMessage
else:
    Message = _known(OwnMessage)
