"""From the image of a partition directory to the state of its log and the repairs its files need.

Pure: `recover` reads an image (a directory, or a dict in tests) and returns a `Recovery`; `apply_recovery` is the only
part that writes, and may be cut anywhere and repeated. Rules:
- After a clean shutdown the last segment is read from its last index entry on; nothing else is read.
- Otherwise every segment with data above the recovery point is read, checked and gets new indexes.
- A torn tail (no valid batch after the first invalid byte) is cut off. Damage in the middle (valid batches follow) is
  not: there is no replica to heal from, so the bytes stay, the log ends before the damage, and the partition is fenced.
- Whatever is derived (indexes, snapshots, epochs) and missing or wrong is rebuilt.
Source: Kafka storage, LogLoader, UnifiedLog.rebuildProducerState.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol

from kafkaprod.broker.storage.format.log_config import LogConfig
from kafkaprod.broker.storage.format.log_files import (
    COMPACTION,
    INDEX_CHECKSUMS,
    INDEX_SUFFIXES,
    LEADER_EPOCHS,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    file_name,
    is_leftover,
    parse_file_name,
)
from kafkaprod.broker.storage.index.index_rule import IndexRule
from kafkaprod.broker.storage.producers.producer_state import ProducerState, load_snapshot
from kafkaprod.broker.storage.recovery.checkpoints import (
    IndexChecksums,
    encode_epochs,
    encode_index_checksums,
    parse_epochs,
    parse_index_checksums,
)
from kafkaprod.broker.storage.recovery.leader_epochs import LeaderEpochs
from kafkaprod.broker.storage.recovery.segment_scan import SegmentScan, resume_scan, scan_segment, start_scan
from kafkaprod.errors import CorruptDataError
from kafkaprod.storage.batch_checks import find_batch_from, whole_batch_at
from kafkaprod.storage.crc import crc32c
from kafkaprod.storage.disk import (
    Disk,
    list_files,
    open_for_read,
    read_file,
    update_file,
)
from kafkaprod.storage.segment_bytes import FileBytes, SegmentBytes
from kafkaprod.structs import BytesLike


class DirectoryImage(Protocol):
    """What recovery needs of a partition directory."""

    def sizes(self) -> Mapping[str, int]:
        """Size in bytes by file name."""
        ...

    def read(self, name: str) -> BytesLike:
        """The bytes of a file; CorruptDataError if it cannot be read."""
        ...

    def read_log(self, name: str) -> SegmentBytes:
        """The bytes of a .log file, which may be larger than memory."""
        ...


class DiskImage:
    """The image of a directory on disk."""

    def __init__(self, directory: str) -> None:
        self._directory = directory

    def sizes(self) -> dict[str, int]:
        return list_files(self._directory)

    def read(self, name: str) -> BytesLike:
        return read_file(os.path.join(self._directory, name))

    def read_log(self, name: str) -> SegmentBytes:
        return FileBytes(open_for_read(os.path.join(self._directory, name)))


class Damage(NamedTuple):
    """A range of the log that cannot be served: from `first_offset` up to, not including, `next_offset`."""

    segment_base_offset: int
    position: int
    first_offset: int
    next_offset: int


@dataclass(slots=True)
class RecoveredSegment:
    """A segment of the recovered log; `rule` is known for those that were read, the active one always."""

    base_offset: int
    size_bytes: int
    rule: IndexRule | None = None
    is_checked: bool = False
    """Every batch in it has passed its checksum."""


@dataclass(slots=True)
class Recovery:
    """The state of a log, and what has to be done to its files before it is used."""

    segments: list[RecoveredSegment]
    producers: ProducerState
    epochs: LeaderEpochs
    log_start_offset: int
    log_end_offset: int
    index_checksums: dict[int, IndexChecksums]
    damage: Damage | None = None
    truncations: dict[str, int] = field(default_factory=dict)
    """New size by name."""
    deletions: list[str] = field(default_factory=list)
    writes: dict[str, bytes] = field(default_factory=dict)
    """Derived files to replace."""
    scanned: list[str] = field(default_factory=list)
    """.log files that were read because they may not be on the disk yet: to be synced before they are served."""


def recover(
    image: DirectoryImage, config: LogConfig, *, is_clean: bool, recovery_point: int, log_start_offset: int
) -> Recovery:
    """Work out the state of a partition.

    Args:
        image: The partition directory.
        config: The configuration of the topic.
        is_clean: The last broker closed the log.
        recovery_point: Data below this offset is known to be on the disk.
        log_start_offset: The checkpointed one, 0 without a checkpoint.
    """
    sizes = image.sizes()
    config = _with_gaps(config, sizes)
    bases = sorted(parsed[0] for name in sizes if (parsed := parse_file_name(name)) and parsed[1] == LOG_SUFFIX)
    bases = [base for base in bases if base == bases[-1] or sizes[file_name(base, LOG_SUFFIX)]]
    recovery = None
    if is_clean and bases:
        recovery = _resume(image, config, bases, sizes)
    if recovery is None:
        recovery = _Rebuild(image, config, bases, sizes).run(is_clean=is_clean, recovery_point=recovery_point)
    start = max(log_start_offset, bases[0] if bases else 0)
    if recovery.log_end_offset < start or not recovery.segments:
        recovery = _empty_at(start, config)
    recovery.log_start_offset = start
    recovery.epochs.truncate_from_end(recovery.log_end_offset)
    recovery.epochs.truncate_from_start(start)
    if recovery.damage is None:
        recovery.deletions.extend(_strays(recovery, sizes))
    return recovery


def apply_recovery(disk: Disk, directory: str, recovery: Recovery) -> None:
    """Carry out the repairs and make the recovered data durable (KAFKA-10101: nothing may be read and then lost).

    Raises:
        OSError: A repair failed; run recovery again.
    """
    for name, size in recovery.truncations.items():
        disk.truncate(disk.create(os.path.join(directory, name)), size)
    for name in recovery.scanned:
        disk.fdatasync(disk.create(os.path.join(directory, name)))
    for name in recovery.deletions:
        disk.unlink(os.path.join(directory, name))
    for name, content in recovery.writes.items():
        update_file(disk, os.path.join(directory, name), content)
    if recovery.truncations or recovery.deletions or recovery.scanned:
        disk.sync_dir(directory)


def finish_swaps(disk: Disk, directory: str) -> None:
    """Complete the exchange of compacted segments that a crash interrupted.

    A `.swap` file is whole and on the disk. The segments that begin within it are its sources: they go, it takes its
    name. Indexes are not touched: those of the old file fail their checks and are rebuilt.

    Raises:
        OSError: Call it again.
    """
    names = sorted(os.listdir(directory))
    swaps = [name for name in names if name.endswith(LOG_SUFFIX + SWAP_SUFFIX)]
    for name in swaps:
        final_name = name.removesuffix(SWAP_SUFFIX)
        parsed = parse_file_name(final_name)
        if parsed is None:
            continue
        last_offset = _last_offset(FileBytes(open_for_read(os.path.join(directory, name))), parsed[0])
        for other in names:
            found = parse_file_name(other)
            if found is not None and parsed[0] < found[0] <= last_offset:
                disk.unlink(os.path.join(directory, other))
        disk.rename(os.path.join(directory, name), os.path.join(directory, final_name))
    if swaps:
        disk.sync_dir(directory)


def _last_offset(data: SegmentBytes, base_offset: int) -> int:
    position, last_offset = 0, base_offset
    while (header := whole_batch_at(data, position, base_offset)) is not None:
        position += header.size_bytes
        last_offset = header.last_offset
    return last_offset


def read_index_checksums(image: DirectoryImage, sizes: Mapping[str, int]) -> dict[int, IndexChecksums]:
    """The index checksums of a directory; none if the file is missing or malformed."""
    if INDEX_CHECKSUMS not in sizes:
        return {}
    try:
        return parse_index_checksums(bytes(image.read(INDEX_CHECKSUMS)))
    except CorruptDataError:
        return {}


def checksum_scan(scan: SegmentScan) -> IndexChecksums:
    """The checksums of the indexes a scan derived."""
    transactions = crc32c(scan.transaction_entries())
    return IndexChecksums(scan.valid_bytes, crc32c(scan.offset_entries), crc32c(scan.time_entries), transactions)


def derive_indexes(image: DirectoryImage, config: LogConfig, base_offset: int) -> SegmentScan:
    """Read one closed segment to rebuild its indexes; the transaction index needs the producers' state before it."""
    sizes = image.sizes()
    config = _with_gaps(config, sizes)
    producers = _producers_at(image, config, base_offset, sizes)
    scan = start_scan(base_offset, config)
    scan_segment(image.read_log(file_name(base_offset, LOG_SUFFIX)), scan, producers)
    scan.close()
    return scan


def make_lost_snapshot(image: DirectoryImage, config: LogConfig, base_offset: int) -> bytes | None:
    """Make the snapshot at the start of a segment from what stands before it; None: the one there is valid."""
    sizes = image.sizes()
    if _read_snapshot(image, base_offset, sizes) is not None:
        return None
    return _producers_at(image, _with_gaps(config, sizes), base_offset, sizes).snapshot()


def _producers_at(
    image: DirectoryImage, config: LogConfig, base_offset: int, sizes: Mapping[str, int]
) -> ProducerState:
    bases = sorted(parsed[0] for name in sizes if (parsed := parse_file_name(name)) and parsed[1] == LOG_SUFFIX)
    return _Rebuild(image, config, bases, sizes).producers_before(bases.index(base_offset))


def _resume(image: DirectoryImage, config: LogConfig, bases: list[int], sizes: Mapping[str, int]) -> Recovery | None:
    """The state after a clean shutdown, or None if a file does not bear it out."""
    base = bases[-1]
    checksums = read_index_checksums(image, sizes)
    epochs = _read_epochs(image, sizes)
    if base not in checksums or epochs is None:
        return None
    log_name = file_name(base, LOG_SUFFIX)
    log_bytes, *sums = checksums[base]
    if log_bytes != sizes[log_name]:
        return None
    contents = []
    for suffix, checksum in zip(INDEX_SUFFIXES, sums, strict=True):
        name = file_name(base, suffix)
        content = bytes(image.read(name)) if name in sizes else b""
        if crc32c(content) != checksum:
            return None
        contents.append(content)
    data = image.read_log(log_name)
    scan = resume_scan(data, base, config, contents[0], contents[1])
    scan_segment(data, scan, ProducerState())
    if scan.valid_bytes != sizes[log_name]:
        return None
    producers = _read_snapshot(image, scan.next_offset, sizes)
    if producers is None:
        return None
    segments = [RecoveredSegment(base, sizes[file_name(base, LOG_SUFFIX)]) for base in bases]
    segments[-1].rule = scan.rule
    return Recovery(segments, producers, epochs, 0, scan.next_offset, checksums)


class _Rebuild:
    """One pass over the segments that have to be read."""

    def __init__(self, image: DirectoryImage, config: LogConfig, bases: list[int], sizes: Mapping[str, int]) -> None:
        self._image = image
        self._config = config
        self._bases = bases
        self._sizes = sizes

    def producers_before(self, index: int) -> ProducerState:
        """The producers' state at the start of segment number `index`: a snapshot, and the batches after it."""
        producers, replay_from = self._newest_snapshot(index)
        for earlier in range(index):
            if self._end_of(earlier) > replay_from:
                self._scan(earlier, producers, replay_from)
        return producers

    def run(self, *, is_clean: bool, recovery_point: int) -> Recovery:
        """Read the segments that may be damaged and derive everything from them."""
        epochs = _read_epochs(self._image, self._sizes)
        first = self._first_to_check(is_clean, recovery_point) if epochs is not None else 0
        epochs = epochs or LeaderEpochs()
        producers = self.producers_before(first)
        recovery = Recovery([], producers, epochs, 0, 0, read_index_checksums(self._image, self._sizes))
        if self._bases:
            epochs.truncate_from_end(self._bases[first])
        for index, base in enumerate(self._bases):
            if index < first:
                recovery.segments.append(RecoveredSegment(base, self._sizes[file_name(base, LOG_SUFFIX)]))
            elif not self._check_segment(index, recovery):
                break
        recovery.writes[LEADER_EPOCHS] = encode_epochs(epochs.entries)
        recovery.writes[INDEX_CHECKSUMS] = encode_index_checksums(recovery.index_checksums)
        recovery.writes[file_name(recovery.log_end_offset, SNAPSHOT_SUFFIX)] = producers.snapshot()
        return recovery

    def _scan(self, index: int, producers: ProducerState, replay_from: int) -> None:
        scan = start_scan(self._bases[index], self._config)
        scan_segment(
            self._image.read_log(file_name(self._bases[index], LOG_SUFFIX)), scan, producers, None, replay_from
        )

    def _check_segment(self, index: int, recovery: Recovery) -> bool:
        """Read one segment and derive its files; return whether the log continues in the next one."""
        base = self._bases[index]
        log_name = file_name(base, LOG_SUFFIX)
        data = self._image.read_log(log_name)
        recovery.writes[file_name(base, SNAPSHOT_SUFFIX)] = recovery.producers.snapshot()
        scan = start_scan(base, self._config)
        scan_segment(data, scan, recovery.producers, recovery.epochs)
        recovery.log_end_offset = scan.next_offset
        recovery.segments.append(RecoveredSegment(base, scan.valid_bytes, scan.rule, True))
        recovery.scanned.append(log_name)
        is_last = index + 1 == len(self._bases)
        is_whole = scan.valid_bytes == self._sizes[log_name]
        has_gap = not is_last and self._bases[index + 1] != scan.next_offset and not self._config.is_compacted
        if not is_whole or has_gap:
            recovery.damage = self._find_damage(index, scan, data)
            is_last = True
        if recovery.damage is None and not is_whole:
            recovery.truncations[log_name] = scan.valid_bytes
        if not is_last:
            scan.close()
        self._derive(scan, recovery)
        return not is_last

    def _find_damage(self, index: int, scan: SegmentScan, data: SegmentBytes) -> Damage | None:
        following = find_batch_from(data, scan.valid_bytes, scan.next_offset, scan.base_offset)
        for base in self._bases[index + 1 :]:
            if following is not None:
                break
            following = find_batch_from(self._image.read_log(file_name(base, LOG_SUFFIX)), 0, scan.next_offset, base)
        if following is None:
            return None
        return Damage(scan.base_offset, scan.valid_bytes, scan.next_offset, following.base_offset)

    def _derive(self, scan: SegmentScan, recovery: Recovery) -> None:
        base = scan.base_offset
        recovery.writes[file_name(base, OFFSET_INDEX_SUFFIX)] = bytes(scan.offset_entries)
        recovery.writes[file_name(base, TIME_INDEX_SUFFIX)] = bytes(scan.time_entries)
        if scan.aborted:
            recovery.writes[file_name(base, TRANSACTION_INDEX_SUFFIX)] = scan.transaction_entries()
        elif file_name(base, TRANSACTION_INDEX_SUFFIX) in self._sizes:
            recovery.deletions.append(file_name(base, TRANSACTION_INDEX_SUFFIX))
        recovery.index_checksums[base] = checksum_scan(scan)

    def _first_to_check(self, is_clean: bool, recovery_point: int) -> int:
        last = max(len(self._bases) - 1, 0)
        if is_clean:
            return last
        return next((index for index in range(last) if self._end_of(index) > recovery_point), last)

    def _newest_snapshot(self, first: int) -> tuple[ProducerState, int]:
        """The newest valid snapshot at or below the first segment to check, and its offset; or empty state."""
        limit = self._bases[first] if self._bases else 0
        for offset in sorted(_snapshot_offsets(self._sizes), reverse=True):
            if offset <= limit:
                producers = _read_snapshot(self._image, offset, self._sizes)
                if producers is not None:
                    return producers, offset
        return ProducerState(), 0

    def _end_of(self, index: int) -> int:
        return self._bases[index + 1]


def _with_gaps(config: LogConfig, sizes: Mapping[str, int]) -> LogConfig:
    """The options to read a log by: one that was ever compacted has gaps, whatever its cleanup.policy is now."""
    return replace(config, cleanup_policy="compact") if COMPACTION in sizes else config


def _empty_at(offset: int, config: LogConfig) -> Recovery:
    rule = IndexRule(offset, config.index_interval_bytes)
    recovery = Recovery([RecoveredSegment(offset, 0, rule, True)], ProducerState(), LeaderEpochs(), offset, offset, {})
    for suffix in (LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX):
        recovery.writes[file_name(offset, suffix)] = b""
    recovery.writes[LEADER_EPOCHS] = encode_epochs([])
    return recovery


def _strays(recovery: Recovery, sizes: Mapping[str, int]) -> list[str]:
    """Files of no segment, useless snapshots and leftovers of interrupted operations."""
    bases = {segment.base_offset for segment in recovery.segments}
    strays = []
    for name in sizes:
        parsed = parse_file_name(name)
        if parsed is None:
            if is_leftover(name):
                strays.append(name)
            continue
        offset, suffix = parsed
        is_last_snapshot = suffix == SNAPSHOT_SUFFIX and offset == recovery.log_end_offset
        if offset not in bases and not is_last_snapshot:
            strays.append(name)
    return strays


def _read_epochs(image: DirectoryImage, sizes: Mapping[str, int]) -> LeaderEpochs | None:
    if LEADER_EPOCHS not in sizes or not sizes[LEADER_EPOCHS]:
        return None
    try:
        return LeaderEpochs(parse_epochs(bytes(image.read(LEADER_EPOCHS))))
    except CorruptDataError:
        return None


def _read_snapshot(image: DirectoryImage, offset: int, sizes: Mapping[str, int]) -> ProducerState | None:
    name = file_name(offset, SNAPSHOT_SUFFIX)
    if name not in sizes:
        return None
    try:
        return load_snapshot(bytes(image.read(name)))
    except CorruptDataError:
        return None


def _snapshot_offsets(sizes: Mapping[str, int]) -> list[int]:
    return [parsed[0] for name in sizes if (parsed := parse_file_name(name)) and parsed[1] == SNAPSHOT_SUFFIX]
