"""Records that go from a log file to a socket without passing through this process.

The codec only counts and references records. So a fetch response is encoded with stand-ins: views of a memory range
no code ever touches, as long as the records are. The session keeps the file ranges in the order of their stand-ins and,
where a stand-in comes up for sending, sends the file instead (`sendfile`: at 1 MiB a quarter of the CPU of read and
send). Small ranges are read at once: below a limit of its own the codec would copy the stand-in.
"""

from __future__ import annotations

import mmap
from typing import NamedTuple

from kafkaprod.broker.storage.log.segment import FileSlice
from kafkaprod.protocol.primitives import LARGE_BUFFER_BYTES
from kafkaprod.protocol.schema import Response
from kafkaprod.structs import BytesLike

# Read-only and never read: takes address space, no memory. No range is larger: a batch came in a frame of 100 MiB.
_NOWHERE = mmap.mmap(-1, 128 * 1024 * 1024, prot=mmap.PROT_READ)


class FileResponse(NamedTuple):
    """A response in which stand-ins take the place of file ranges, in this order."""

    response: Response
    ranges: list[FileSlice]


def records_field(source: FileSlice, ranges: list[FileSlice]) -> BytesLike:
    """The value of a records field: the bytes, or a stand-in whose range is added to `ranges`."""
    if source.length < LARGE_BUFFER_BYTES:
        return source.read()
    ranges.append(source)
    return memoryview(_NOWHERE)[: source.length]


def is_stand_in(part: BytesLike) -> bool:
    """Return whether a buffer of an encoded response, or the rest of one, represents a file range."""
    return isinstance(part, memoryview) and part.obj is _NOWHERE
