"""Record batches, logs and faulty disks for tests of the broker's log. The encoder shares no code with the package."""

from __future__ import annotations

import errno
import os
import struct
import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from crc32c import crc32c

from kafkaprod.broker.storage.format.log_config import LogConfig
from kafkaprod.broker.storage.log.group_commit import FlushPolicy, never
from kafkaprod.broker.storage.log.log_store import LogEnvironment
from kafkaprod.broker.storage.log.partition_log import PartitionLog, open_partition_log
from kafkaprod.broker.storage.log.segments import OpenHandles
from kafkaprod.compression import CODEC_NAMES, make_codec
from kafkaprod.storage.disk import Disk, LogFile
from kafkaprod.structs import BytesLike, TopicPartition
from tests.support.clock import ManualClock

ORDERS = TopicPartition("orders", 0)
TOPIC_ID = uuid.UUID(int=0x1234567890ABCDEF1234567890ABCDEF)
NOW_MS = 1_700_000_000_000
KEEP_FOREVER = 10 * 365 * 24 * 3_600_000


def varint(number: int) -> bytes:
    """Zigzag varint."""
    raw = (number << 1) ^ (number >> 63)
    raw &= (1 << 64) - 1
    out = bytearray()
    while raw > 0x7F:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)
    return bytes(out)


def encode_record(value: bytes | None, offset_delta: int, timestamp_delta: int = 0, key: bytes | None = b"k") -> bytes:
    """One record without headers."""
    parts = [b"\x00", varint(timestamp_delta), varint(offset_delta)]
    for part in (key, value):
        parts.append(varint(-1) if part is None else varint(len(part)) + part)
    body = b"".join((*parts, b"\x00"))
    return varint(len(body)) + body


def make_batch(
    values: Sequence[bytes | None] = (b"v",),
    *,
    codec: int = 0,
    timestamps: Sequence[int] | None = None,
    keys: Sequence[bytes | None] | None = None,
    producer_id: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    is_transactional: bool = False,
    base_offset: int = 0,
    leader_epoch: int = -1,
    attributes: int = 0,
    section: bytes | None = None,
) -> bytearray:
    """A batch as a producer writes it; `section` replaces the encoded records section."""
    stamps = list(timestamps) if timestamps is not None else [NOW_MS] * len(values)
    names = list(keys) if keys is not None else [b"k"] * len(values)
    if section is None:
        section = b"".join(
            encode_record(value, index, stamp - stamps[0], key)
            for index, (value, stamp, key) in enumerate(zip(values, stamps, names, strict=True))
        )
        if codec:
            chosen = make_codec(CODEC_NAMES[codec])
            assert chosen is not None
            section = chosen.compress([section])
    flags = attributes | codec | (0x10 if is_transactional else 0)
    covered = struct.pack(
        ">hiqqqhii",
        flags,
        len(values) - 1,
        stamps[0] if stamps else -1,
        max(stamps, default=-1),
        producer_id,
        epoch,
        sequence,
        len(values),
    )
    covered += section
    prefix = struct.pack(">qiibI", base_offset, len(covered) + 9, leader_epoch, 2, crc32c(covered))
    return bytearray(prefix + covered)


class LoggedBatch(NamedTuple):
    """A batch read back."""

    base_offset: int
    last_offset: int
    data: bytes


def split_batches(data: bytes) -> list[LoggedBatch]:
    """Cut a read's bytes into whole batches; a cut one at the end is dropped."""
    found, position = [], 0
    while position + 61 <= len(data):
        base, length = struct.unpack_from(">qi", data, position)
        if position + 12 + length > len(data):
            break
        (delta,) = struct.unpack_from(">i", data, position + 23)
        found.append(LoggedBatch(base, base + delta, data[position : position + 12 + length]))
        position += 12 + length
    return found


def read_all(log: PartitionLog, max_bytes: int = 1 << 20, upper_bound: int | None = None) -> list[LoggedBatch]:
    """All batches of a log, read from its start as a consumer does."""
    offset = log.log_start_offset
    found: list[LoggedBatch] = []
    while True:
        records = log.read(offset, max_bytes, upper_bound).records
        batches = split_batches(records.read()) if records is not None else []
        if not batches:
            return found
        found.extend(batches)
        offset = batches[-1].last_offset + 1


def make_environment(
    disk: Disk | None = None, policy: FlushPolicy | None = None, clock: ManualClock | None = None
) -> LogEnvironment:
    """What logs share, with a clock that stands still, and a disk that does not sync."""
    return LogEnvironment(
        disk or UnsyncedDisk(),
        clock or ManualClock(wall_ms=NOW_MS),
        policy or never(),
        OpenHandles(),
    )


def open_log(
    directory: str | os.PathLike[str],
    config: LogConfig | None = None,
    environment: LogEnvironment | None = None,
    *,
    is_clean: bool = True,
    recovery_point: int = 0,
    log_start_offset: int = 0,
) -> PartitionLog:
    """A log in `directory`."""
    return open_partition_log(
        ORDERS,
        os.fspath(directory),
        config or LogConfig(),
        environment or make_environment(),
        is_clean=is_clean,
        recovery_point=recovery_point,
        log_start_offset=log_start_offset,
    )


class UnsyncedDisk(Disk):
    """A disk without syncs: tests that crash no machine need none, and run ten times as fast."""

    def fdatasync(self, file: LogFile) -> None:
        pass

    def sync_dir(self, path: str) -> None:
        pass


class FaultyDisk(Disk):
    """A disk that records its calls, can fail one of them, and does not really sync.

    Args:
        fail: told each call's name and path; returns the errno to raise, or None.
        bytes_per_write: the most one pwrite takes.
        capacity: bytes that pwrite may add to files before ENOSPC; None is unlimited.
    """

    def __init__(
        self,
        fail: Callable[[str, str], int | None] | None = None,
        bytes_per_write: int | None = None,
        capacity: int | None = None,
    ) -> None:
        self.calls: list[tuple[str, str]] = []
        self.fail = fail
        self.bytes_per_write = bytes_per_write
        self.capacity = capacity

    def names(self, *wanted: str) -> list[str]:
        """The file names that calls of the wanted kinds went to, in order."""
        return [os.path.basename(path) for name, path in self.calls if name in wanted]

    def create(self, path: str) -> LogFile:
        self._note("create", path)
        return super().create(path)

    def mkdir(self, path: str) -> None:
        self._note("mkdir", path)
        super().mkdir(path)

    def pwrite(self, file: LogFile, data: BytesLike, position: int) -> int:
        self._note("pwrite", file.path)
        view = memoryview(data)[: self.bytes_per_write]
        if self.capacity is not None:
            if self.capacity <= 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), file.path)
            view = view[: self.capacity]
            self.capacity -= len(view)
        return super().pwrite(file, view, position)

    def truncate(self, file: LogFile, size: int) -> None:
        self._note("truncate", file.path)
        super().truncate(file, size)

    def fdatasync(self, file: LogFile) -> None:
        self._note("fdatasync", file.path)

    def sync_dir(self, path: str) -> None:
        self._note("sync_dir", path)

    def rename(self, source: str, target: str) -> None:
        self._note("rename", target)
        super().rename(source, target)

    def unlink(self, path: str) -> None:
        self._note("unlink", path)
        super().unlink(path)

    def rmdir(self, path: str) -> None:
        self._note("rmdir", path)
        super().rmdir(path)

    def _note(self, name: str, path: str) -> None:
        self.calls.append((name, path))
        code = self.fail(name, path) if self.fail else None
        if code is not None:
            raise OSError(code, os.strerror(code), path)


def failing(name: str, suffix: str = "", code: int = errno.EIO, after: int = 0) -> Callable[[str, str], int | None]:
    """A `FaultyDisk.fail` that fails every call of a kind on files with a suffix, from the `after`-th on."""
    seen = 0

    def fail(called: str, path: str) -> int | None:
        nonlocal seen
        if called != name or not path.endswith(suffix):
            return None
        seen += 1
        return code if seen > after else None

    return fail


def flip_bit(data: bytes, bit: int) -> bytes:
    """The bytes with one bit inverted."""
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def log_files(directory: str | os.PathLike[str], suffixes: Iterable[str] = (".log",)) -> list[str]:
    """Sorted names of a directory's files with one of the suffixes."""
    return sorted(name for name in os.listdir(directory) if name.endswith(tuple(suffixes)))
