"""Snappy's block format in Python, for brokers without cramjam. A leaf; some 20 MB/s, a hundredth of a library's speed.

A block is the plain size as a varint, then elements: literals, and copies of what stands up to 64 KiB before. The
functions have the names and arguments of `cramjam.snappy`. Source: google/snappy, format_description.txt.
"""

from __future__ import annotations

from kafkaprod.errors import CorruptDataError
from kafkaprod.structs import BytesLike

_LITERAL, _SHORT_COPY, _COPY, _FAR_COPY = range(4)
_MAX_PLAIN_LITERAL = 60  # longer ones have their length in one to four bytes of their own
_MAX_COPY_BYTES = 64
_MAX_OFFSET = 0xFFFF  # of what is written here; far copies are only read
_MATCH_BYTES = 4
_STRIDE_BYTES = 32
_MISSES_A_STEP = 32


def compress_raw(data: BytesLike) -> bytes:
    """Return a block of some bytes; matches are looked for with larger steps where there are none."""
    plain = bytes(data)
    out = bytearray(_varint(len(plain)))
    seen: dict[bytes, int] = {}
    at = written = misses = 0
    last = len(plain) - _MATCH_BYTES
    while at <= last:
        start = plain[at : at + _MATCH_BYTES]
        before = seen.get(start, -1)
        seen[start] = at
        if before < 0 or at - before > _MAX_OFFSET:
            misses += 1
            at += 1 + misses // _MISSES_A_STEP
            continue
        size = _match_bytes(plain, before, at)
        _write_literal(out, plain[written:at])
        _write_copy(out, at - before, size)
        at += size
        written, misses = at, 0
    _write_literal(out, plain[written:])
    return bytes(out)


def decompress_raw_len(block: BytesLike) -> int:
    """Return the plain size that a block claims.

    Raises:
        CorruptDataError: The block begins with no number below 2**32.
    """
    return _claimed(memoryview(block))[0]


def decompress_raw_into(block: BytesLike, plain: bytearray) -> int:
    """Decompress a block; time is proportional to the elements, each of which has two bytes or more.

    Args:
        block: The whole block.
        plain: Filled; as large as the block claims.

    Returns:
        The number of plain bytes.

    Raises:
        CorruptDataError: The block is damaged; `plain` has any content.
    """
    view = bytes(block)
    size, at = _claimed(memoryview(view))
    end, out = len(view), bytearray()
    while at < end:
        length, offset, at = _element(view, at)
        if not offset:
            if length > end - at:
                raise CorruptDataError(f"a literal of {length} bytes at byte {at} exceeds the {end} bytes of the block")
            out += view[at : at + length]
            at += length
        else:
            start = len(out) - offset
            if start < 0:
                raise CorruptDataError(f"a copy before byte {at} reaches {-start} bytes before the block's begin")
            piece = out[start : start + length]
            out += piece if len(piece) == length else (piece * (length // offset + 1))[:length]
        if len(out) > size:
            break
    if len(out) != size or len(plain) != size:
        raise CorruptDataError(f"a block that claims {size} plain bytes has {len(out)} or more, room is {len(plain)}")
    plain[:] = out
    return size


def _element(view: bytes, at: int) -> tuple[int, int, int]:
    """Return the length and the offset of an element, 0 for a literal, and where its data or the next one begins."""
    tag = view[at]
    kind = tag & 3
    if kind == _LITERAL:
        length = (tag >> 2) + 1
        if length <= _MAX_PLAIN_LITERAL:
            return length, 0, at + 1
        width = length - _MAX_PLAIN_LITERAL
        return _number(view, at + 1, width) + 1, 0, at + 1 + width
    if kind == _SHORT_COPY:
        length, offset, at = 4 + (tag >> 2 & 7), tag >> 5 << 8 | _number(view, at + 1, 1), at + 2
    elif kind == _COPY:
        length, offset, at = (tag >> 2) + 1, _number(view, at + 1, 2), at + 3
    else:
        length, offset, at = (tag >> 2) + 1, _number(view, at + 1, 4), at + 5
    if not offset:
        raise CorruptDataError(f"the copy before byte {at} has offset 0")
    return length, offset, at


def _number(view: bytes, at: int, width: int) -> int:
    if width > len(view) - at:
        raise CorruptDataError(f"the data is cut off: an element ends behind the {len(view)} bytes of the block")
    return int.from_bytes(view[at : at + width], "little")


def _claimed(block: memoryview) -> tuple[int, int]:
    size = 0
    for at, byte in enumerate(block[:5]):
        size |= (byte & 0x7F) << 7 * at
        if byte < 0x80:
            if size >= 1 << 32:
                break
            return size, at + 1
    raise CorruptDataError(f"a block of {len(block)} bytes begins with no plain size below 2**32")


def _varint(number: int) -> bytes:
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _match_bytes(plain: bytes, before: int, at: int) -> int:
    """Return how many bytes at two places are equal; `_MATCH_BYTES` are."""
    start, end = at, len(plain)
    at, before = at + _MATCH_BYTES, before + _MATCH_BYTES
    while plain[at : at + _STRIDE_BYTES] == plain[before : before + _STRIDE_BYTES] and at + _STRIDE_BYTES <= end:
        at, before = at + _STRIDE_BYTES, before + _STRIDE_BYTES
    while at < end and plain[at] == plain[before]:
        at, before = at + 1, before + 1
    return at - start


def _write_literal(out: bytearray, plain: bytes) -> None:
    if not plain:
        return
    number = len(plain) - 1
    if number < _MAX_PLAIN_LITERAL:
        out.append(number << 2)
    else:
        width = (number.bit_length() + 7) // 8
        out.append((_MAX_PLAIN_LITERAL - 1 + width) << 2)
        out += number.to_bytes(width, "little")
    out += plain


def _write_copy(out: bytearray, offset: int, size: int) -> None:
    for done in range(0, size, _MAX_COPY_BYTES):
        out.append((min(size - done, _MAX_COPY_BYTES) - 1) << 2 | _COPY)
        out += offset.to_bytes(2, "little")
