"""Read the bytes of one segment from front to back: where they stop being valid, and all that can be derived from them.

Pure: bytes in, facts out; millions of images of a segment can be scanned without touching a disk.
Source: Kafka storage, LogSegment.recover.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from kafkaprod.broker.storage.format.control_batch import EndTransactionMarker, parse_marker
from kafkaprod.broker.storage.format.log_config import LogConfig
from kafkaprod.broker.storage.index import offset_index, time_index
from kafkaprod.broker.storage.index.index_rule import IndexRule
from kafkaprod.broker.storage.index.transaction_index import AbortedTransaction, encode_entries
from kafkaprod.broker.storage.producers.producer_state import ProducerState
from kafkaprod.broker.storage.recovery.leader_epochs import LeaderEpochs
from kafkaprod.errors import CorruptDataError
from kafkaprod.storage.batch_checks import follows, header_at, valid_batch_at, whole_batch_at
from kafkaprod.storage.batch_header import HEADER_BYTES, NO_PRODUCER_ID, BatchHeader, parse_header
from kafkaprod.storage.segment_bytes import SegmentBytes


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
    first, last = header_at(data, 0), header_at(data, position)
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
