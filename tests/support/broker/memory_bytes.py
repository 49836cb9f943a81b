"""The bytes of a segment that tests have in memory."""

from __future__ import annotations

from kafkaprod.structs import BytesLike


class MemoryBytes:
    """`SegmentBytes` of bytes in memory."""

    def __init__(self, data: BytesLike) -> None:
        self._view = memoryview(data)

    def __len__(self) -> int:
        return len(self._view)

    def at(self, position: int, length: int) -> memoryview:
        """See `SegmentBytes.at`."""
        return self._view[position:]
