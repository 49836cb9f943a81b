"""Whether bytes of a segment are a whole record batch, and where the next one begins behind damage.

Pure: bytes in, facts out. Checksums are computed by the package crc32c, as in `batch_header`.
"""

from __future__ import annotations

import re

from kafkaprod.storage.batch_header import HEADER_BYTES, MAGIC, OVERHEAD_BYTES, BatchHeader, parse_header
from kafkaprod.storage.crc import crc32c
from kafkaprod.storage.segment_bytes import WINDOW_BYTES, SegmentBytes
from kafkaprod.structs import INT32_MAX

_MIN_BATCH_LENGTH = HEADER_BYTES - OVERHEAD_BYTES
_CRC_START = 21
# A candidate for a batch header: any offset, a positive length, any epoch, magic 2.
_CANDIDATE = re.compile(rb"(?=.{8}[\x00-\x7f].{7}\x02)", re.DOTALL)
_CANDIDATE_BYTES = 17


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
    header = header_at(data, position)
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


def header_at(data: SegmentBytes, position: int) -> BatchHeader | None:
    """Read the header at `position`, unchecked; None if the bytes end before it does."""
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
    found = locate_batch_from(data, position, min_offset, base_offset)
    return None if found is None else found[1]


def locate_batch_from(
    data: SegmentBytes, position: int, min_offset: int, base_offset: int
) -> tuple[int, BatchHeader] | None:
    """Return where the batch is that `find_batch_from` finds, and its header."""
    while len(block := bytes(data.at(position, WINDOW_BYTES)[:WINDOW_BYTES])) >= _CANDIDATE_BYTES:
        for match in _CANDIDATE.finditer(block):
            header = whole_batch_at(data, position + match.start(), base_offset)
            if header is not None and header.base_offset >= min_offset:
                return position + match.start(), header
        position += len(block) - _CANDIDATE_BYTES + 1
    return None
