"""From the image of a slot's directory to its state and the batches that are left to send.

Segments are read from the oldest to the newest. Each begins with a snapshot, which replaces what was read before it, so
one that is missing or damaged costs its own batches only. What is lost is counted by ranks: those of a partition have
no gaps. Nothing is decided by a clock. Pure: images in, facts out.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kafkaprod.errors import ConfigError, CorruptDataError
from kafkaprod.spool.entries import FORMAT_VERSION, RANK_MASK, parse_control
from kafkaprod.spool.state import JournalState
from kafkaprod.storage.batch_checks import header_at, locate_batch_from, whole_batch_at
from kafkaprod.storage.batch_header import HEADER_BYTES, MAGIC, BatchHeader
from kafkaprod.storage.segment_bytes import SegmentBytes

_NAME: Final = re.compile(r"(\d{20})\.log")


def segment_name(offset: int) -> str:
    """Return the name of the segment that begins at an offset of the journal."""
    return f"{offset:020d}.log"


def segment_offset(name: str) -> int | None:
    """Return the first offset of a segment by its name; None: the file is no segment."""
    match = _NAME.fullmatch(name)
    return int(match[1]) if match else None


class StoredBatch(NamedTuple):
    """A batch of the journal: where it is, and which ranks of which partition it has."""

    segment: int
    position: int
    size_bytes: int
    reference: int
    rank: int
    last_rank: int
    base_timestamp: int = -1
    max_timestamp: int = -1


@dataclass(slots=True)
class Recovered:
    """What a slot's directory holds.

    Attributes:
        state: What the entries say.
        next_offset: Where the journal continues.
        unresolved: The batches that are left to send, oldest first.
        valid_bytes: Segment -> the length to keep; what follows was never written completely.
        damaged: Segments with bytes that cannot be read, and that no interrupted write has left. The records in them
            may have been sent: a new producer id or epoch must follow.
        lost: Reference -> records that were stored, are not resolved, and cannot be read any more.
        unassigned: Batches whose partition is not known any more: segment, position, header.
        next_reference: Higher than that of any batch, so that no other partition gets one that is in use.
    """

    state: JournalState = field(default_factory=JournalState)
    next_offset: int = 0
    unresolved: list[StoredBatch] = field(default_factory=list)
    valid_bytes: dict[int, int] = field(default_factory=dict)
    damaged: set[int] = field(default_factory=set)
    lost: dict[int, int] = field(default_factory=dict)
    unassigned: list[tuple[int, int, BatchHeader]] = field(default_factory=list)
    next_reference: int = 0


def recover(segments: Mapping[int, SegmentBytes], *, by_headers: bool = False) -> Recovered:
    """Read all segments of a slot.

    Args:
        segments: First offset -> the bytes.
        by_headers: Whether batches of a segment that another follows are taken by their headers alone, if these fit
            together and to the next segment: it was synced before that one began, and a batch is checked when it is
            read. Else every byte is checked.

    Raises:
        ConfigError: A newer release has written the journal.
    """
    found = Recovered()
    offsets = sorted(segments)
    for index, offset in enumerate(offsets):
        limit = offsets[index + 1] if index + 1 < len(offsets) else None
        found.next_offset = offset
        if limit is None or not by_headers or not _scan_headers(segments[offset], offset, limit, found):
            _scan(segments[offset], offset, limit, found)
    _assign(found)
    _count_lost(found)
    return found


def _scan_headers(data: SegmentBytes, base_offset: int, limit: int, found: Recovered) -> bool:
    """Read the headers of one segment; False: something in it does not fit, and nothing of it was taken."""
    trial = Recovered(copy.deepcopy(found.state), base_offset, next_reference=found.next_reference)
    position, size = 0, len(data)
    while position < size:
        header = header_at(data, position)
        if header is None or not _continues(header, trial, size - position):
            return False
        if header.is_control and whole_batch_at(data, position, base_offset) is None:
            return False
        _take(data, position, base_offset, header, trial)
        trial.next_offset = header.last_offset + 1
        position += header.size_bytes
    if trial.next_offset != limit or trial.damaged or trial.unassigned:
        return False
    found.state, found.next_offset, found.next_reference = trial.state, limit, trial.next_reference
    found.unresolved += trial.unresolved
    found.valid_bytes[base_offset] = position
    return True


def _continues(header: BatchHeader, found: Recovered, available: int) -> bool:
    """Whether the header is that of the entry that is due, by its offset, its mark, its size and its rank."""
    if header.magic != MAGIC or header.base_offset != found.next_offset or not _is_marked(header, found):
        return False
    if not HEADER_BYTES <= header.size_bytes <= available or header.record_count != header.last_offset_delta + 1:
        return False
    item = found.state.table.get(header.producer_id)
    if header.is_control or item is None:
        return header.is_control
    return header.record_count > 0 and not (item.next_rank - header.base_sequence) & RANK_MASK


def _scan(data: SegmentBytes, base_offset: int, limit: int | None, found: Recovered) -> None:
    """Read one segment. Entries at `limit` or above are in the next one: these here were cut off before."""
    position = 0
    while True:
        header = whole_batch_at(data, position, base_offset)
        if header is None or header.base_offset != found.next_offset or not _is_marked(header, found):
            behind = _next_entry(data, position + 1, base_offset, found)
            if behind is None:
                break
            found.damaged.add(base_offset)
            position, header = behind
        if limit is not None and header.base_offset >= limit:
            break
        found.next_offset = header.last_offset + 1
        _take(data, position, base_offset, header, found)
        position += header.size_bytes
    found.valid_bytes[base_offset] = position
    if limit is None:
        tail = header_at(data, position)
        # As long as it says: what a kill leaves of a write is shorter.
        has_lost = tail is not None and tail.magic == MAGIC and tail.size_bytes <= len(data) - position
    else:
        has_lost = found.next_offset < limit
    if has_lost:
        found.damaged.add(base_offset)


def _is_marked(header: BatchHeader, found: Recovered) -> bool:
    return found.state.slot.mark in (None, header.partition_leader_epoch)


def _next_entry(
    data: SegmentBytes, position: int, base_offset: int, found: Recovered
) -> tuple[int, BatchHeader] | None:
    """Return the position and header of the next entry behind damage; None: the rest is a torn tail."""
    while (behind := locate_batch_from(data, position, found.next_offset, base_offset)) is not None:
        if _is_marked(behind[1], found):
            return behind
        position = behind[0] + 1
    return None


def _take(data: SegmentBytes, position: int, segment: int, header: BatchHeader, found: Recovered) -> None:
    if header.is_control:
        entry = data.at(position, header.size_bytes)[: header.size_bytes]
        try:
            version, control = parse_control(entry, header)
            if control is None:
                raise ConfigError(
                    f"the spool was written in format {version}, this release reads up to {FORMAT_VERSION}: use the "
                    "release that wrote it, or a newer one; nothing was changed"
                )
            found.state.apply(control)
            found.state.contact_ms = max(found.state.contact_ms, header.base_timestamp)
            if found.state.slot.mark != header.partition_leader_epoch:  # in the header no checksum covers it
                found.damaged.add(segment)
        except CorruptDataError:
            found.damaged.add(segment)
        return
    found.next_reference = max(found.next_reference, header.producer_id + 1)
    rank = found.state.rank_of(header)
    if rank is None:
        found.damaged.add(segment)
        found.unassigned.append((segment, position, header))
        return
    found.state.add_batch(header, rank)
    found.unresolved.append(_stored(segment, position, header, rank))


def _stored(segment: int, position: int, header: BatchHeader, rank: int) -> StoredBatch:
    last = rank + header.last_offset_delta
    times = header.base_timestamp, header.max_timestamp
    return StoredBatch(segment, position, header.size_bytes, header.producer_id, rank, last, *times)


def _assign(found: Recovered) -> None:
    """Give batches that came before their partition's entry was read again, from a later snapshot, to it."""
    table = found.state.table
    for segment, position, header in found.unassigned:
        item = table.get(header.producer_id)
        if item is not None:
            rank = item.next_rank - (item.next_rank - header.base_sequence & RANK_MASK)
            found.unresolved.append(_stored(segment, position, header, rank))
    found.unassigned = [batch for batch in found.unassigned if batch[2].producer_id not in table]
    found.unresolved.sort()


def _count_lost(found: Recovered) -> None:
    """Leave out what is resolved, and count the ranks that no batch has."""
    table = found.state.table
    found.unresolved = [
        batch
        for batch in found.unresolved
        if batch.reference in table and batch.last_rank >= table[batch.reference].resolved_rank
    ]
    expected = {reference: item.resolved_rank for reference, item in table.items()}
    for batch in found.unresolved:
        missing = max(batch.rank - expected[batch.reference], 0)
        if missing:
            found.lost[batch.reference] = found.lost.get(batch.reference, 0) + missing
        expected[batch.reference] = batch.last_rank + 1
    for reference, item in table.items():
        if missing := max(item.next_rank - expected[reference], 0):
            found.lost[reference] = found.lost.get(reference, 0) + missing
