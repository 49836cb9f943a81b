"""The report of a task: carried by its commit message, returned by `write`, and logged."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Self

from kafkaprod.text import counted


@dataclass(slots=True)
class OffsetRange:
    """The records written to one partition: the offsets of the first and last (-1: unknown), and their number."""

    first: int
    last: int
    count: int

    def add(self, first: int, last: int, count: int) -> None:
        """Add more records of the partition."""
        known = [offset for offset in (self.first, first) if offset >= 0]
        self.first = min(known, default=-1)
        self.last = max(self.last, last)
        self.count += count


@dataclass(slots=True)
class WriteReport:
    """Counts and offsets of one task, or of all tasks of a write.

    Attributes:
        rows: Records acknowledged.
        bytes: The size of all columns, in the Arrow layout that Spark passes.
        batches: Record batches that held them.
        retries: Records that were sent more than once.
        seconds: The task's time; of several tasks their sum.
        offsets: Topic -> partition -> range.
        tasks: The single reports, in the order of partitions; empty in a task's own.
        partition, attempt: The task's numbers; -1 in a sum.
        already_written: Tasks whose rows an earlier attempt had committed, with delivery=transactional. Their rows are
            counted, their offsets and bytes are not known.
        query, batch, stream: What the task's transaction belongs to; "" and -1 without transactions and in a sum, and
            the stream is also "" for a write that is no stream.
        has_gone_on: Whether this start of the stream has written an earlier micro-batch, with delivery=transactional.
    """

    rows: int = 0
    bytes: int = 0
    batches: int = 0
    retries: int = 0
    seconds: float = 0.0
    offsets: dict[str, dict[int, OffsetRange]] = field(default_factory=dict)
    tasks: list[WriteReport] = field(default_factory=list)
    partition: int = -1
    attempt: int = -1
    already_written: int = 0
    query: str = ""
    batch: int = -1
    stream: str = ""
    has_gone_on: bool = False

    def add_range(self, topic: str, partition: int, first: int, last: int, count: int) -> None:
        """Count records of a partition."""
        partitions = self.offsets.setdefault(topic, {})
        if partition in partitions:
            partitions[partition].add(first, last, count)
        else:
            partitions[partition] = OffsetRange(first, last, count)

    @classmethod
    def sum(cls, tasks: Iterable[WriteReport]) -> Self:
        """Return the report of a whole write."""
        total = cls(tasks=list(tasks))
        for task in total.tasks:
            total.rows += task.rows
            total.bytes += task.bytes
            total.batches += task.batches
            total.retries += task.retries
            total.seconds += task.seconds
            total.already_written += task.already_written
            for topic, partitions in task.offsets.items():
                for partition, places in partitions.items():
                    total.add_range(topic, partition, places.first, places.last, places.count)
        return total

    def to_json(self) -> str:
        """Return the report as text, which an executor sends to the driver."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the report that `to_json` wrote."""
        parts: dict[str, Any] = json.loads(text)
        offsets = parts.pop("offsets")
        report = cls(**parts)
        for topic, partitions in offsets.items():
            report.offsets[topic] = {int(number): OffsetRange(**places) for number, places in partitions.items()}
        return report

    def __str__(self) -> str:
        spread = (f"{topic} ({counted(len(numbers), 'partition')})" for topic, numbers in self.offsets.items())
        repeats = f", of {counted(self.already_written, 'task')} already there" if self.already_written else ""
        return (
            f"{counted(self.rows, 'row')}, {counted(self.bytes, 'byte')}, {counted(self.batches, 'batch', 'batches')}, "
            f"{counted(self.retries, 'retry', 'retries')}, {self.seconds:.2f} s, "
            f"to {', '.join(spread) or 'no topic'}{repeats}"
        )
