"""Read the bytes of one segment from front to back: where they stop being valid, and all that can be derived from them.

Pure: bytes in, facts out; millions of images of a segment can be scanned without touching a disk.
Source: Kafka storage, LogSegment.recover.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass, field

from kafkaprod.broker.storage.crc import crc32c
from kafkaprod.broker.storage.format.batch_header import (
    HEADER_BYTES,
    MAGIC,
    NO_PRODUCER_ID,
    OVERHEAD_BYTES,
    BatchHeader,
    parse_header,
)
from kafkaprod.broker.storage.format.control_batch import EndTransactionMarker, parse_marker
from kafkaprod.broker.storage.format.log_config import LogConfig
from kafkaprod.broker.storage.index import offset_index, time_index
from kafkaprod.broker.storage.index.index_rule import IndexRule
from kafkaprod.broker.storage.index.transaction_index import AbortedTransaction, encode_entries
from kafkaprod.broker.storage.producers.producer_state import ProducerState
from kafkaprod.broker.storage.recovery.leader_epochs import LeaderEpochs
from kafkaprod.broker.storage.recovery.segment_bytes import WINDOW_BYTES, SegmentBytes
from kafkaprod.errors import CorruptDataError
from kafkaprod.structs import INT32_MAX

_MIN_BATCH_LENGTH = HEADER_BYTES - OVERHEAD_BYTES
_CRC_START = 21
# A candidate for a batch header: any offset, a positive length, any epoch, magic 2.
_CANDIDATE = re.compile(rb"(?=.{8}[\x00-\x7f].{7}\x02)", re.DOTALL)
_CANDIDATE_BYTES = 17


@dataclass(slots=True)
class SegmentScan:
    """The valid prefix of a segment and what was derived from it.

    Attributes:
        valid_bytes: Length of the longest prefix of whole, valid batches.
        next_offset: One above the last offset of that prefix; the base offset if it is empty.
    """

    base_offset: int
    rule: IndexRule
    is_dense: bool
    """Offsets have no gaps: the log is not compacted."""
    valid_bytes: int = 0
    next_offset: int = 0
    offset_entries: bytearray = field(default_factory=bytearray)
    time_entries: bytearray = field(default_factory=bytearray)
    aborted: list[AbortedTransaction] = field(default_factory=list)

    def add(self, header: BatchHeader, position: int) -> None:
        """Take the valid batch at `position` into account."""
        if self.rule.add(header):
            relative = header.last_offset - self.base_offset
            self.offset_entries += offset_index.ENTRY.pack(relative, position)
            self._maybe_add_time_entry()
        self.valid_bytes = position + header.size_bytes
        self.next_offset = header.last_offset + 1

    def close(self) -> None:
        """Add the time entry that a segment gets when it becomes inactive."""
        self._maybe_add_time_entry()

    def transaction_entries(self) -> bytes:
        """Return the bytes of the .txnindex file; without any there is no file."""
        return encode_entries(self.aborted)

    def _maybe_add_time_entry(self) -> None:
        last = -1
        if self.time_entries:
            (last,) = struct.unpack_from(">q", self.time_entries, len(self.time_entries) - time_index.ENTRY_BYTES)
        largest = self.rule.largest
        if largest.timestamp > last:
            self.time_entries += time_index.ENTRY.pack(largest.timestamp, largest.offset - self.base_offset)


def start_scan(base_offset: int, config: LogConfig, *, is_dense: bool | None = None) -> SegmentScan:
    """A scan of the segment `base_offset` that has read nothing."""
    rule = IndexRule(base_offset, config.index_interval_bytes)
    is_dense = not config.is_compacted if is_dense is None else is_dense
    return SegmentScan(base_offset, rule, is_dense=is_dense, next_offset=base_offset)


def resume_scan(
    data: SegmentBytes, base_offset: int, config: LogConfig, offset_entries: bytes, time_entries: bytes
) -> SegmentScan:
    """Return a scan that trusts indexes whose checksums are right, and continues at the last indexed batch."""
    scan = start_scan(base_offset, config)
    if not offset_entries:
        return scan
    _, position = offset_index.ENTRY.unpack(offset_entries[-offset_index.ENTRY_BYTES :])
    first, last = _header_at(data, 0), _header_at(data, position)
    if first is None or last is None:
        return scan
    scan.offset_entries += offset_entries[: -offset_index.ENTRY_BYTES]  # the last one is added again
    scan.time_entries += time_entries
    largest = scan.rule.largest
    if time_entries:
        timestamp, relative = time_index.ENTRY.unpack(time_entries[-time_index.ENTRY_BYTES :])
        largest = time_index.TimestampOffset(timestamp, base_offset + relative)
    scan.rule.resume(first.max_timestamp, largest)
    scan.valid_bytes = position
    scan.next_offset = last.base_offset
    return scan


def scan_segment(
    data: SegmentBytes,
    scan: SegmentScan,
    producers: ProducerState,
    epochs: LeaderEpochs | None = None,
    replay_from: int = 0,
) -> None:
    """Continue a scan up to the segment's first invalid byte.

    Args:
        data: The .log file.
        scan: Started or resumed; brought up to date.
        producers: State at the start of the scan or later; brought up to date.
        epochs: Receives the epochs found; None if they are known.
        replay_from: The producer state holds the batches below this offset already.
    """
    epoch = -1
    while True:
        position = scan.valid_bytes
        header = whole_batch_at(data, position, scan.base_offset)
        if (
            header is None
            or not follows(header, scan.next_offset, scan.is_dense)
            or header.partition_leader_epoch < epoch
        ):
            return
        epoch = header.partition_leader_epoch
        if header.producer_id != NO_PRODUCER_ID and header.base_offset >= replay_from:
            try:
                size = header.size_bytes
                marker = parse_marker(data.at(position, size)[:size], header) if header.is_control else None
            except CorruptDataError:
                return
            aborted = producers.replay(header, marker)
            if aborted is not None:
                scan.aborted.append(aborted)
        if epochs is not None:
            epochs.assign(header.partition_leader_epoch, header.base_offset)
        scan.add(header, position)


def valid_batch_at(view: memoryview, position: int, base_offset: int) -> BatchHeader | None:
    """The header of the whole batch at `position` if its size, magic, counts and CRC are right, else None."""
    available = len(view) - position
    if available < HEADER_BYTES:
        return None
    header = parse_header(view, position)
    if not _is_plausible(header, available, base_offset):
        return None
    return header if crc32c(view[position + _CRC_START : position + header.size_bytes]) == header.crc else None


def whole_batch_at(data: SegmentBytes, position: int, base_offset: int) -> BatchHeader | None:
    """Check the batch at `position` as `valid_batch_at` does, a window at a time."""
    header = _header_at(data, position)
    if header is None or not _is_plausible(header, len(data) - position, base_offset):
        return None
    crc, at, end = 0, position + _CRC_START, position + header.size_bytes
    while at < end:
        view = data.at(at, 1)[: end - at]
        if not view:  # the file was cut
            return None
        crc = crc32c(view, crc)
        at += len(view)
    return header if crc == header.crc else None


def _header_at(data: SegmentBytes, position: int) -> BatchHeader | None:
    view = data.at(position, HEADER_BYTES)
    return parse_header(view) if len(view) >= HEADER_BYTES else None


def _is_plausible(header: BatchHeader, available: int, base_offset: int) -> bool:
    return (
        header.magic == MAGIC
        and header.batch_length >= _MIN_BATCH_LENGTH
        and header.size_bytes <= available
        and header.last_offset_delta >= 0
        and header.record_count >= 0
        and header.last_offset - base_offset <= INT32_MAX
    )


def follows(header: BatchHeader, next_offset: int, is_dense: bool) -> bool:
    """Whether a batch may come where `next_offset` is due: the check of base offsets, which no CRC covers."""
    return header.base_offset == next_offset or (header.base_offset > next_offset and not is_dense)


def find_batch_from(data: SegmentBytes, position: int, min_offset: int, base_offset: int) -> BatchHeader | None:
    """The first valid batch at or after `position`, wherever it starts, with an offset not below `min_offset`.

    If there is one, the log is damaged in the middle; if not, its tail is torn.
    """
    while len(block := bytes(data.at(position, WINDOW_BYTES)[:WINDOW_BYTES])) >= _CANDIDATE_BYTES:
        for match in _CANDIDATE.finditer(block):
            header = whole_batch_at(data, position + match.start(), base_offset)
            if header is not None and header.base_offset >= min_offset:
                return header
        position += len(block) - _CANDIDATE_BYTES + 1
    return None


def split_batch(
    data: memoryview, base_offset: int
) -> tuple[memoryview, BatchHeader, EndTransactionMarker | None, memoryview] | None:
    """Cut the first batch off a leader's data: (batch, header, marker if it is one, rest), None if no whole batch is
    left.

    Raises:
        CorruptDataError: The batch is damaged.
    """
    if len(data) < HEADER_BYTES or parse_header(data).size_bytes > len(data):
        return None
    header = valid_batch_at(data, 0, base_offset)
    if header is None:
        raise CorruptDataError(f"damaged batch of {len(data)} bytes from the leader, log end offset {base_offset}")
    batch = data[: header.size_bytes]
    marker = parse_marker(batch, header) if header.is_control else None
    return batch, header, marker, data[header.size_bytes :]
