"""The oracle of the fault tests: what was sent, what was answered, what is in the log, and whether they agree.

Every value carries who sent it, where to, its number and a checksum, so a record found in the log tells what it is
without any other record. One `SendLedger` notes the sends and completions of one sending thread (order is only defined
within one); `check_records` compares the ledgers with what an independent consumer read.

Layout of a value, big-endian (36 bytes and padding):

    0  uint64  ledger id
    8  uint64  hash of the topic name
    16 int32   partition asked for, -1 if the producer may choose
    20 uint64  counter: 0, 1, 2 ... in the order of the sends
    28 ...     padding, repeating the counter
    -8 uint64  BLAKE2b-64 of all before
"""

import hashlib
import itertools
import os
import struct
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Protocol

_FIELDS = struct.Struct(">QQiQ")
_COUNTER = 3
_CHECKSUM_BYTES = 8
SMALLEST_VALUE_BYTES = _FIELDS.size + _CHECKSUM_BYTES
ANY_PARTITION = -1
UNKNOWN_OFFSET = -1
_EXAMPLES = 5


class LogRecord(Protocol):
    """What a consumer must tell of a record."""

    @property
    def offset(self) -> int:
        """Offset in its partition."""

    @property
    def value(self) -> bytes | None:
        """Value as read."""


Logs = Mapping[str, Mapping[int, Sequence[LogRecord]]]


@dataclass(frozen=True, slots=True)
class Stamp:
    """What a value says about itself."""

    ledger_id: int
    topic_hash: int
    partition: int
    counter: int


@dataclass(slots=True)
class Completion:
    """How a send ended; ``offset`` is UNKNOWN_OFFSET if the broker did not tell it."""

    topic: str
    partition: int
    offset: int
    error: str | None
    may_be_in_log: bool


@dataclass(slots=True)
class Send:
    """One record handed to the producer."""

    topic: str
    partition: int
    completions: list[Completion] = field(default_factory=list)
    is_aborted: bool = False


class SendLedger:
    """Sends and completions of one sending thread; completions may come from another thread.

    Args:
        ledger_id: different for each ledger of a test; random by default.
        journal: also append every event to this file, for a producer process that will be killed (`read_journal`).
    """

    def __init__(self, ledger_id: int | None = None, *, journal: Path | None = None) -> None:
        self.ledger_id = int.from_bytes(os.urandom(8)) if ledger_id is None else ledger_id
        self.sends: list[Send] = []  # index = counter
        self._lock = threading.Lock()
        self._journal = None if journal is None else os.open(journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._write("ledger", self.ledger_id)

    def make_value(self, topic: str, partition: int = ANY_PARTITION, size: int = 100) -> bytes:
        """Value of the next record; to be sent at once, before the next call.

        Raises:
            ValueError: ``size`` is below SMALLEST_VALUE_BYTES.
        """
        if size < SMALLEST_VALUE_BYTES:
            raise ValueError(f"value of {size} bytes is below the smallest of {SMALLEST_VALUE_BYTES}")
        with self._lock:
            counter = len(self.sends)
            self.sends.append(Send(topic, partition))
            self._write("send", topic, partition)
        body = _FIELDS.pack(self.ledger_id, _hash(topic), partition, counter)
        padding = size - SMALLEST_VALUE_BYTES
        body += (counter.to_bytes(8) * (padding // 8 + 1))[:padding]
        return body + _checksum(body)

    def on_completion(
        self,
        value: bytes,
        *,
        topic: str = "",
        partition: int = -1,
        offset: int = UNKNOWN_OFFSET,
        error: object = None,
        may_be_in_log: bool = True,
    ) -> None:
        """Note how the send of ``value`` ended.

        Args:
            value: as `make_value` made it.
            topic: as the producer reports it, like ``partition`` and ``offset``; without meaning on error.
            partition: see topic.
            offset: see topic; UNKNOWN_OFFSET (acks=0, a duplicate older than the broker's memory) is not checked.
            error: None: acknowledged.
            may_be_in_log: with an error: False if the producer says that it was not written.
        """
        completion = Completion(topic, partition, offset, None if error is None else repr(error), may_be_in_log)
        self._complete(_FIELDS.unpack_from(value)[_COUNTER], completion)

    def on_abort(self, values: Iterable[bytes]) -> None:
        """Note that the transaction of these sends was aborted: no committed read may show them."""
        for value in values:
            self._abort(read_stamp(value).counter)

    def _complete(self, counter: int, completion: Completion) -> None:
        with self._lock:
            self.sends[counter].completions.append(completion)
            self._write(
                "done",
                counter,
                completion.topic,
                completion.partition,
                completion.offset,
                int(completion.may_be_in_log),
                completion.error or "",
            )

    def _abort(self, counter: int) -> None:
        with self._lock:
            self.sends[counter].is_aborted = True
            self._write("abort", counter)

    def _write(self, *event: object) -> None:
        """One unbuffered line: what was written outlives the process, whatever kills it."""
        if self._journal is not None:
            os.write(self._journal, "\t".join(map(str, event)).encode() + b"\n")

    def close(self) -> None:
        """Close the journal."""
        if self._journal is not None:
            os.close(self._journal)
            self._journal = None


def read_journal(path: Path) -> SendLedger:
    """The ledger of a process that is gone; half a line at the end (it was killed while writing) is left out."""
    complete_lines = path.read_text().split("\n")[:-1]
    ledger = SendLedger(int(complete_lines[0].split("\t")[1]))
    for line in complete_lines[1:]:
        kind, *values = line.split("\t")
        if kind == "send":
            ledger.sends.append(Send(values[0], int(values[1])))
        elif kind == "abort":
            ledger.sends[int(values[0])].is_aborted = True
        else:
            counter, topic, partition, offset, may_be_in_log, error = values
            completion = Completion(topic, int(partition), int(offset), error or None, bool(int(may_be_in_log)))
            ledger.sends[int(counter)].completions.append(completion)
    return ledger


def read_stamp(value: bytes | None) -> Stamp:
    """What a value says about itself. Raises ValueError if it is not one of ours or was damaged."""
    if value is None or len(value) < SMALLEST_VALUE_BYTES:
        raise ValueError("no value of ours: too short")
    if _checksum(value[:-_CHECKSUM_BYTES]) != value[-_CHECKSUM_BYTES:]:
        raise ValueError("checksum is wrong")
    return Stamp(*_FIELDS.unpack_from(value))


@dataclass(slots=True)
class CheckReport:
    """Counts of each defect; all zero: every promise held.

    Attributes:
        lost: acknowledged (or committed) and not in the log.
        duplicated: further copies of a record in the logs.
        reordered: behind a later record of the same ledger in its partition.
        misrouted: in another topic, or another partition than asked for or reported.
        phantom: not sent, damaged, or reported as certainly not written.
        aborted_read: of an aborted transaction, and read.
        wrong_offset: acknowledged at an offset where another record, or none, is.
        uncompleted: sent and never answered.
        completed_twice: further answers to a send.
        pool_bytes_not_returned: as the caller measured after `flush`.
        examples: a few findings in words.
    """

    lost: int = 0
    duplicated: int = 0
    reordered: int = 0
    misrouted: int = 0
    phantom: int = 0
    aborted_read: int = 0
    wrong_offset: int = 0
    uncompleted: int = 0
    completed_twice: int = 0
    pool_bytes_not_returned: int = 0
    sent: int = 0
    acknowledged: int = 0
    failed: int = 0
    read: int = 0
    examples: list[str] = field(default_factory=list)

    @property
    def defects(self) -> dict[str, int]:
        """The counts that are not zero."""
        informative = ("sent", "acknowledged", "failed", "read", "examples")
        counts = {item.name: getattr(self, item.name) for item in fields(self) if item.name not in informative}
        return {name: count for name, count in counts.items() if count}

    @property
    def is_ok(self) -> bool:
        """Whether no defect was found."""
        return not self.defects

    def add(self, defect: str, example: str) -> None:
        """Count a defect; the first few of each kind are kept in words."""
        count = getattr(self, defect) + 1
        setattr(self, defect, count)
        if count <= _EXAMPLES:
            self.examples.append(f"{defect}: {example}")

    def __str__(self) -> str:
        verdict = ", ".join(f"{count} {name}" for name, count in self.defects.items()) or "ok"
        volume = f"sent {self.sent}, acknowledged {self.acknowledged}, failed {self.failed}, read {self.read}"
        return "\n  ".join([f"{verdict} ({volume})", *self.examples])


def check_records(ledgers: Sequence[SendLedger], logs: Logs, *, pool_bytes_not_returned: int = 0) -> CheckReport:
    """Compare what was sent and answered with what the logs hold.

    Args:
        ledgers: of all threads that wrote to these topics.
        logs: for every topic sent to (and any other that must have stayed clean), every partition from its beginning;
            read with read_committed if transactions were used.
        pool_bytes_not_returned: memory the producer still holds after everything was answered.
    """
    report = CheckReport(pool_bytes_not_returned=pool_bytes_not_returned)
    found = _check_logs(report, {ledger.ledger_id: ledger for ledger in ledgers}, logs)
    for ledger in ledgers:
        for counter, send in enumerate(ledger.sends):
            _check_send(report, f"{counter} of {ledger.ledger_id:x}", send, found.get((ledger.ledger_id, counter), []))
    return report


Place = tuple[str, int, int]  # topic, partition, offset


def _check_logs(
    report: CheckReport, ledgers: Mapping[int, SendLedger], logs: Logs
) -> dict[tuple[int, int], list[Place]]:
    """Judge each record by where it is; returns where each send was found."""
    found: dict[tuple[int, int], list[Place]] = {}
    for topic, partition, records in _partitions(logs):
        topic_hash = _hash(topic)
        highest: dict[int, int] = {}  # ledger id to the highest counter so far in this partition
        for record in records:
            report.read += 1
            place = (topic, partition, record.offset)
            try:
                stamp = read_stamp(record.value)
                send = ledgers[stamp.ledger_id].sends[stamp.counter]
            except (ValueError, LookupError) as error:
                report.add("phantom", f"{_at(place)}: {error!r}")
                continue
            what = f"{stamp.counter} of {stamp.ledger_id:x}"
            places = found.setdefault((stamp.ledger_id, stamp.counter), [])
            if places:
                report.add("duplicated", f"{what} at {_at(place)}, first at {_at(places[0])}")
            elif stamp.counter < highest.get(stamp.ledger_id, 0):
                report.add("reordered", f"{what} at {_at(place)} comes after {highest[stamp.ledger_id]}")
            highest[stamp.ledger_id] = max(highest.get(stamp.ledger_id, 0), stamp.counter)
            if stamp.topic_hash != topic_hash or stamp.partition not in (ANY_PARTITION, partition):
                report.add("misrouted", f"{what} at {_at(place)}, sent to {send.topic}[{stamp.partition}]")
            places.append(place)
    return found


def _check_send(report: CheckReport, what: str, send: Send, places: list[Place]) -> None:
    report.sent += 1
    if not send.completions:
        report.add("uncompleted", what)
        return
    for _ in send.completions[1:]:
        report.add("completed_twice", what)
    completion = send.completions[0]
    if completion.error is not None:
        report.failed += 1
        if places and not completion.may_be_in_log:
            report.add("phantom", f"{what} at {_at(places[0])} failed for certain with {completion.error}")
        return
    report.acknowledged += 1
    if send.is_aborted:
        if places:
            report.add("aborted_read", f"{what} at {_at(places[0])}")
        return
    acknowledged_at = (completion.topic, completion.partition, completion.offset)
    if not places:
        report.add("lost", f"{what}, acknowledged at {_at(acknowledged_at)}")
    elif completion.offset == UNKNOWN_OFFSET:
        if acknowledged_at[:2] not in [place[:2] for place in places]:
            report.add("misrouted", f"{what} at {_at(places[0])}, acknowledged in {completion.topic}")
    elif acknowledged_at not in places:
        report.add("wrong_offset", f"{what} at {_at(places[0])}, acknowledged at {_at(acknowledged_at)}")


def _partitions(logs: Logs) -> Iterator[tuple[str, int, Sequence[LogRecord]]]:
    return itertools.chain.from_iterable(
        ((topic, partition, records) for partition, records in partitions.items()) for topic, partitions in logs.items()
    )


def _at(place: Place) -> str:
    return f"{place[0]}[{place[1]}]@{place[2]}"


@cache
def _hash(topic: str) -> int:
    return int.from_bytes(hashlib.blake2b(topic.encode(), digest_size=8).digest())


def _checksum(body: bytes) -> bytes:
    return hashlib.blake2b(body, digest_size=_CHECKSUM_BYTES).digest()
