"""What arrived at an embedded broker or cluster: the records of a topic, for the assertions of a test."""

from __future__ import annotations

import base64
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from kafkaprod.broker.embedding import arguments
from kafkaprod.broker.embedding.child_process import EmbeddedBrokerError
from kafkaprod.structs import INT32_MAX
from kafkaprod.text import counted

Ask = Callable[[Mapping[str, Any]], Sequence[Mapping[str, Any]]]
"""Sends a command to each broker that runs, and returns their answers."""
ExpectedRecord = bytes | str | None | tuple[bytes | str | None, bytes | str | None]
"""A value, or a key and a value; text stands for its UTF-8 bytes."""

_LOOK_S: Final = 0.01
_SHOWN_RECORDS: Final = 10
_SHOWN_BYTES: Final = 120
_SHOWN_HEADERS: Final = 8
_SHOWN_TOPICS: Final = 20


class ArrivedRecord(NamedTuple):
    """A record as it is in the log.

    Attributes:
        partition: Its number.
        offset: Where it is there.
        key: Bytes, or None for null.
        value: Bytes, or None for null.
        headers: Pairs of a name, and bytes or None.
        timestamp: ms since the epoch.
    """

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    timestamp: int


class MissingRecordsError(EmbeddedBrokerError, AssertionError):
    """A topic does not have the records that a test expects; a note shows what it has."""


class Arrivals:
    """Reads topics.

    Args:
        ask: Asks the brokers.
    """

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._noted: dict[str, int] = {}

    def records(self, topic: str, at_least: int, timeout: float) -> list[ArrivedRecord]:
        """Return a topic's records by partition and offset, when there are at least `at_least`.

        A partition without a leader is waited for, too; after `timeout` seconds its records are left out.

        Raises:
            MissingRecordsError: There are fewer after `timeout` seconds.
            ConfigError: An argument has a wrong type or value.
        """
        arguments.text("topic", topic)
        arguments.whole("at_least", at_least, 0, INT32_MAX)
        deadline = time.monotonic() + timeout
        found: dict[int, list[ArrivedRecord]] = {}
        positions: dict[str, int] = {}
        while True:
            has_more, is_whole = self._read_on(topic, positions, found)
            if has_more:
                continue
            count, is_late = sum(map(len, found.values())), time.monotonic() >= deadline
            if count >= at_least and (is_whole or is_late):
                return [record for _, records in sorted(found.items()) for record in records]
            if is_late:
                text = f"{count} of at least {at_least} records of topic {topic!r} arrived within {timeout} s"
                raise self._missing(topic, text)
            time.sleep(_LOOK_S)

    def _read_on(
        self, topic: str, positions: dict[str, int], found: dict[int, list[ArrivedRecord]]
    ) -> tuple[bool, bool]:
        """Read the next page of each partition; return whether one had anything, and whether all were shown.

        While a partition's leader changes, two brokers may show it, or none.
        """
        has_more, count = False, 0
        shown: set[str] = set()
        for answer in self._ask({"command": "records", "topic": topic, "from": positions}):
            count = max(count, answer["count"])
            shown.update(answer["partitions"])
            for number, page in answer["partitions"].items():
                position = positions.get(number, 0)
                if page["next"] > position:
                    has_more = True
                    positions[number] = page["next"]
                    records = (_record(int(number), each) for each in page["records"])
                    found.setdefault(int(number), []).extend(each for each in records if each.offset >= position)
        return has_more, len(shown) >= count

    def check(
        self, topic: str, expected: Sequence[ExpectedRecord], timeout: float, settle: float = 0.0
    ) -> list[ArrivedRecord]:
        """Wait for as many records as are expected; return them if they are those and no others, in any order.

        With `settle` it looks again after so many seconds: what is sent too often, or late, is noticed.

        Raises:
            MissingRecordsError: They are others, or fewer after `timeout` seconds, or more.
        """
        wanted = [_pair(each) for each in expected]
        records = self._checked(topic, wanted, expected, timeout)
        if settle > 0:
            time.sleep(settle)
            records = self._checked(topic, wanted, expected, timeout)
        return records

    def _checked(
        self,
        topic: str,
        wanted: Sequence[tuple[bytes | None, bytes | None]],
        expected: Sequence[ExpectedRecord],
        timeout: float,
    ) -> list[ArrivedRecord]:
        records = self.records(topic, len(wanted), timeout)
        keyed = [isinstance(each, tuple) for each in expected]
        if any(keyed) and not all(keyed):
            raise TypeError("expect values, or pairs of key and value, not both at once")
        arrived = Counter((record.key if any(keyed) else None, record.value) for record in records)
        missing, surplus = Counter(wanted) - arrived, arrived - Counter(wanted)
        if missing or surplus:
            parts = (("missing", missing), ("not expected", surplus))
            text = "; ".join(f"{word}: {_listed(list(each.elements()))}" for word, each in parts if each)
            raise self._missing(topic, f"topic {topic!r} has other records: {text}")
        return records

    def _missing(self, topic: str, text: str) -> MissingRecordsError:
        """Return the error, with a note of what the topic has: notes keep their lines."""
        failure = MissingRecordsError(text)
        names = self._topics()
        others = ", ".join(name for name in names if name != topic)
        lines = self._described(topic) if topic in names else [f"there is no topic {topic!r}"]
        failure.add_note("\n".join([*lines, f"other topics: {others or 'none'}"]))
        return failure

    def note_topics(self) -> None:
        """Note how far the topics are written now: a test begins, whose report shows what is written from here on."""
        self._noted = {name: _written(rows) for name, rows in self._overview().items()}

    def describe(self) -> str:
        """Return the last records of the topics as text, for the report of a failed test.

        They are those that were written since `note_topics`, twenty at most.
        """
        topics = self._overview()
        changed = [name for name, rows in sorted(topics.items()) if self._noted.get(name) != _written(rows)]
        shown = changed[:_SHOWN_TOPICS]
        lines = [line for name in shown for line in self._described(name, topics[name])]
        left = len(topics) - len(shown)
        if left and topics:
            why = "were not written to since the test began" if len(changed) == len(shown) else "are left out"
            lines.append(f"{counted(left, 'other topic')} {why}")
        return "\n".join(lines or ["the broker has no topics"])

    def _topics(self) -> list[str]:
        return sorted({name for answer in self._ask({"command": "topics"}) for name in answer["topics"]})

    def _overview(self) -> dict[str, list[Sequence[int]]]:
        """Return the partitions that a broker leads, by topic: number, log start, last stable offset, and further."""
        topics: dict[str, list[Sequence[int]]] = {}
        for answer in self._ask({"command": "overview"}):
            for name, is_internal, rows in answer["topics"]:
                if not is_internal:
                    topics.setdefault(name, []).extend(rows)
        return topics

    def _described(self, topic: str, rows: Sequence[Sequence[int]] | None = None) -> list[str]:
        """Describe a topic by its ends: the broker sends no more than what is shown."""
        counts = {row[0]: row[2] - row[1] for row in (self._overview().get(topic, []) if rows is None else rows)}
        total = sum(counts.values())
        parts = ", ".join(f"{number}: {count}" for number, count in sorted(counts.items()) if count)
        found = [
            _record(int(number), row[:5])
            for answer in self._ask({"command": "newest", "topic": topic, "count": _SHOWN_RECORDS, "is_cut": False})
            for number, page in answer["partitions"].items()
            for row in page["records"]
        ]
        shown = sorted(found, key=lambda record: (record.partition, record.offset))[-_SHOWN_RECORDS:]
        title = f"{topic}: {counted(total, 'record')}" + (f" (partition {parts})" if parts else "")
        lines = [
            f"  {record.partition}:{record.offset} key={_short(record.key)} value={_short(record.value)}"
            + (f" headers={_short_headers(record.headers)}" if record.headers else "")
            for record in shown
        ]
        return [title, *(["  ..."] if len(shown) < total else []), *lines]


def _record(partition: int, page: Sequence[Any]) -> ArrivedRecord:
    offset, timestamp, key, value, headers = page
    pairs = [(name, _bytes(content)) for name, content in headers]
    return ArrivedRecord(partition, offset, _bytes(key), _bytes(value), pairs, timestamp)


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def _pair(expected: ExpectedRecord) -> tuple[bytes | None, bytes | None]:
    key, value = expected if isinstance(expected, tuple) else (None, expected)
    return _encoded(key), _encoded(value)


def _encoded(data: bytes | str | None) -> bytes | None:
    return data.encode() if isinstance(data, str) else data


def _short(data: bytes | None) -> str:
    return (
        repr(data) if data is None or len(data) <= _SHOWN_BYTES else f"{data[:_SHOWN_BYTES]!r}... ({len(data)} bytes)"
    )


def _short_headers(headers: Sequence[tuple[str, bytes | None]]) -> str:
    shown = [f"({name[:_SHOWN_BYTES]!r}, {_short(value)})" for name, value in headers[:_SHOWN_HEADERS]]
    rest = f" and {len(headers) - len(shown)} more" if len(headers) > len(shown) else ""
    return f"[{', '.join(shown)}]{rest}"


def _written(rows: Sequence[Sequence[int]]) -> int:
    return sum(row[4] for row in rows)


def _listed(pairs: Sequence[tuple[bytes | None, bytes | None]]) -> str:
    shown = [_short(value) if key is None else f"({_short(key)}, {_short(value)})" for key, value in pairs]
    rest = f" and {len(shown) - _SHOWN_RECORDS} more" if len(shown) > _SHOWN_RECORDS else ""
    return ", ".join(shown[:_SHOWN_RECORDS]) + rest
