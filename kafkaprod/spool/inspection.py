"""What is in the slots of a spool, read without their locks: for who looks at it from outside.

A producer that has the slot meanwhile only appends, and removes segments whose records have their outcome.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field

from kafkaprod._core.records.batch_reader import Record, RecordBatchReader
from kafkaprod.errors import ConfigError
from kafkaprod.spool.journal import DAMAGED_SUFFIX
from kafkaprod.spool.recovery import Recovered, StoredBatch, recover, segment_name, segment_offset
from kafkaprod.spool.slots import slot_names
from kafkaprod.storage.directory_lock import is_locked
from kafkaprod.storage.disk import LogFile, is_directory, list_files, open_for_read
from kafkaprod.storage.segment_bytes import FileBytes


@dataclass
class SlotContent:
    """What a slot has.

    Attributes:
        name: Its directory's.
        is_in_use: Whether a producer has it now.
        size_bytes: How many bytes its files have.
        file_count: How many segments there are.
        record_count: Records that are left to send.
        topics: How many of them are for each topic.
        oldest_ms: The timestamp of the oldest of them, ms since 1970; None: there is none.
        cluster_id: The cluster that gets them; "": not known.
        producer_id, producer_epoch: The numbers that were last sent under; -1: nothing was sent.
        damaged: Segments with bytes that no entry has, and those that were put aside for that.
        lost_count: Records that cannot be read any more.
    """

    name: str
    is_in_use: bool
    size_bytes: int = 0
    file_count: int = 0
    record_count: int = 0
    topics: dict[str, int] = field(default_factory=dict)
    oldest_ms: int | None = None
    cluster_id: str = ""
    producer_id: int = -1
    producer_epoch: int = -1
    damaged: list[str] = field(default_factory=list)
    lost_count: int = 0


class SlotReader:
    """Reads one slot.

    Args:
        directory: The spool.
        name: The slot's.

    Raises:
        ConfigError: A newer release has written it.
        OSError: It cannot be read.
    """

    def __init__(self, directory: str, name: str) -> None:
        self._path = os.path.join(directory, name)
        self._name = name
        self._is_in_use = is_locked(self._path)  # first: what is read is then not older
        self._sizes = list_files(self._path)
        self._files: dict[int, LogFile] = {}
        for file_name in self._sizes:
            offset = segment_offset(file_name)
            if offset is not None and (file := self._open(offset)) is not None:
                self._files[offset] = file
        self._found = recover({offset: FileBytes(file) for offset, file in self._files.items()})

    def _open(self, offset: int) -> LogFile | None:
        try:
            return open_for_read(os.path.join(self._path, segment_name(offset)))
        except FileNotFoundError:  # its records have had their outcome meanwhile
            return None

    def content(self) -> SlotContent:
        """Return what the slot has. Raises OSError."""
        found, slot = self._found, self._found.state.slot
        content = SlotContent(
            name=self._name,
            is_in_use=self._is_in_use,
            size_bytes=sum(size for name, size in self._sizes.items() if segment_offset(name) is not None),
            file_count=len(self._files),
            cluster_id=slot.cluster_id,
            producer_id=slot.producer_id,
            producer_epoch=slot.producer_epoch,
            damaged=[*map(segment_name, sorted(found.damaged)), *self._put_aside()],
            lost_count=sum(found.lost.values()) + sum(header.record_count for _, _, header in found.unassigned),
        )
        for batch, first in self._left():
            topic = found.state.table[batch.reference].topic
            content.topics[topic] = content.topics.get(topic, 0) + batch.last_rank + 1 - first
            oldest_ms = batch.base_timestamp if content.oldest_ms is None else content.oldest_ms
            content.oldest_ms = min(oldest_ms, batch.base_timestamp)
        content.record_count = sum(content.topics.values())
        return content

    def records(self, topic: str | None = None) -> Iterator[tuple[str, int, Record]]:
        """Yield topic, partition and record of all that is left to send, or of one topic. Raises OSError."""
        for batch, first in self._left():
            item = self._found.state.table[batch.reference]
            if topic in (None, item.topic):
                records = iter(RecordBatchReader(self._read(batch)))
                for rank, record in enumerate(records, batch.rank):
                    if rank >= first:
                        yield item.topic, item.partition, record

    def _put_aside(self) -> list[str]:
        return sorted(name for name in self._sizes if name.endswith(DAMAGED_SUFFIX))

    def _left(self) -> Iterator[tuple[StoredBatch, int]]:
        """Yield the batches that are left, and the rank of the first record of each that is."""
        found: Recovered = self._found
        for batch in found.unresolved:
            yield batch, max(batch.rank, found.state.table[batch.reference].resolved_rank)

    def _read(self, batch: StoredBatch) -> bytes:
        return os.pread(self._files[batch.segment].fd, batch.size_bytes, batch.position)


def read_slots(directory: str) -> list[SlotReader]:
    """Read all slots of a spool.

    Raises:
        ConfigError: It is no spool, it cannot be read, or a newer release has written a slot.
    """
    directory = os.path.abspath(directory)
    if not is_directory(directory):
        raise ConfigError(f"there is no spool {directory!r}: name the spool_dir of a producer")
    try:
        return [SlotReader(directory, name) for name in slot_names(directory)]
    except OSError as error:
        raise ConfigError(f"spool {directory!r} cannot be read: {error}") from error
