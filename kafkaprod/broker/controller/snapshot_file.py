"""Snapshots of the metadata on the disk, in the layout of Kafka's KRaft snapshots.

    <20 digits: end offset>-<10 digits: epoch>.checkpoint      in the directory of the metadata log
    control batch SnapshotHeader | batches of records | control batch SnapshotFooter

A file is written aside, as "....checkpoint.part", synced and renamed: one that has its name is whole, but for a damaged
disk. Then the checksums of its batches fail, or its footer is missing, and it is not used.
Source: KIP-630; Kafka's RecordsSnapshotWriter, Snapshots, ControlRecordType.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from kafkaprod.broker.metadata.log import MetadataSnapshot
from kafkaprod.broker.metadata.records import decode, encode
from kafkaprod.broker.storage.format.records import iterate_records
from kafkaprod.errors import CorruptDataError
from kafkaprod.protocol.schema import Struct
from kafkaprod.storage.batch_checks import valid_batch_at
from kafkaprod.storage.batch_header import CONTROL, assign_offset, parse_header, seal_header
from kafkaprod.storage.disk import Disk, read_file, write_at
from kafkaprod.storage.internal_records import build_batch

_NAME: Final = re.compile(r"(\d{20})-(\d{10})\.checkpoint")
_PART_SUFFIX: Final = ".part"
_BATCH_RECORDS: Final = 1_000
_KEY: Final = struct.Struct(">hh")  # version 0, type
_HEADER, _FOOTER = 3, 4
_HEADER_VALUE: Final = struct.Struct(">hqB")  # version 0, time of the last record, no tagged fields
_FOOTER_VALUE: Final = struct.Struct(">hB")


class SnapshotFile(NamedTuple):
    """A snapshot on the disk, by its name."""

    end_offset: int
    epoch: int
    path: str


def find_snapshots(disk: Disk, directory: str) -> list[SnapshotFile]:
    """Return the snapshots of a directory, the newest first; files that a crash left half-written are removed.

    Raises:
        OSError: The disk refused.
    """
    found = []
    for name in os.listdir(directory):
        match = _NAME.fullmatch(name.removesuffix(_PART_SUFFIX))
        path = os.path.join(directory, name)
        if match and name.endswith(_PART_SUFFIX):
            disk.unlink(path)
        elif match:
            found.append(SnapshotFile(int(match[1]), int(match[2]), path))
    return sorted(found, reverse=True)


def write_snapshot(disk: Disk, directory: str, snapshot: MetadataSnapshot, wall_ms: int) -> SnapshotFile:
    """Write a snapshot, durably.

    Raises:
        OSError: The disk refused; a part may be left.
    """
    path = os.path.join(directory, f"{snapshot.end_offset:020d}-{snapshot.epoch:010d}.checkpoint")
    file = disk.create(path + _PART_SUFFIX)
    disk.truncate(file, 0)
    position = 0
    for batch in _batches(snapshot, wall_ms):
        write_at(disk, file, batch, position)
        position += len(batch)
    disk.fdatasync(file)
    disk.rename(path + _PART_SUFFIX, path)
    disk.sync_dir(directory)
    return SnapshotFile(snapshot.end_offset, snapshot.epoch, path)


def read_snapshot(file: SnapshotFile) -> MetadataSnapshot:
    """Read a snapshot.

    Raises:
        CorruptDataError: It is damaged, or a record is not known.
        OSError: It cannot be read.
    """
    view = memoryview(read_file(file.path))
    records: list[Struct] = []
    types: list[int] = []  # of control records
    position = 0
    while position < len(view):
        header = valid_batch_at(view, position, 0)
        if header is None or header.base_offset != len(records) + len(types) or types[-1:] == [_FOOTER]:
            raise CorruptDataError(f"snapshot {file.path} of the metadata is damaged at byte {position}")
        batch = view[position : position + header.size_bytes]
        if header.is_control:
            types += [_KEY.unpack_from(record.key or bytes(4))[1] for record in iterate_records(batch)]
        else:
            records += [decode(record.value or b"") for record in iterate_records(batch)]
        position += header.size_bytes
    if types != [_HEADER, _FOOTER]:
        raise CorruptDataError(f"snapshot {file.path} of the metadata has no end: it has {len(view)} bytes")
    return MetadataSnapshot(file.end_offset, file.epoch, tuple(records))


def _batches(snapshot: MetadataSnapshot, wall_ms: int) -> Iterator[bytearray]:
    """Yield the batches of a snapshot, with offsets from 0 on."""
    offset = 0
    for batch in _contents(snapshot.records, wall_ms):
        assign_offset(memoryview(batch), offset, snapshot.epoch)
        offset += parse_header(batch).record_count
        yield batch


def _contents(records: Sequence[Struct], wall_ms: int) -> Iterator[bytearray]:
    yield _control_batch(_HEADER, _HEADER_VALUE.pack(0, wall_ms, 0), wall_ms)
    for first in range(0, len(records), _BATCH_RECORDS):
        yield build_batch([(None, encode(record)) for record in records[first : first + _BATCH_RECORDS]], wall_ms)
    yield _control_batch(_FOOTER, _FOOTER_VALUE.pack(0, 0), wall_ms)


def _control_batch(kind: int, value: bytes, wall_ms: int) -> bytearray:
    batch = build_batch([(_KEY.pack(0, kind), value)], wall_ms)
    seal_header(memoryview(batch), parse_header(batch)._replace(attributes=CONTROL))
    return batch
