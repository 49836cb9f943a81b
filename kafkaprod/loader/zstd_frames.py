"""Check that zstd data ends where a frame ends: the decompressor takes a file that is cut off for a shorter one.

    frame      magic 4 | descriptor 1 | window 0-1 | dictionary 0-4 | content size 0-8 | blocks | checksum 0 or 4
    block      header 3: bit 0 last, bits 1-2 kind (1: one repeated byte), the rest size | content
    skippable  magic 4 | size 4 | content

Source: RFC 8878, section 3.1.
"""

from __future__ import annotations

import sys
from collections.abc import Generator
from typing import Any, Final

_MAGIC: Final = 0xFD2FB528
_SKIPPABLE_MAGIC: Final = 0x184D2A50  # and the 15 after it
_REPEATED: Final = 1


class WholeFrames:
    """Passes a stream of zstd frames to a decompressor, and raises EOFError where the last one is cut off.

    What is not zstd is passed unchanged: the decompressor refuses it.
    """

    def __init__(self, raw: Any) -> None:
        self._raw = raw
        self._is_within = False  # a frame
        self._collected = b""
        self._steps = self._frames()
        self._wanted = next(self._steps)  # bytes to collect; negative: to pass over

    def read(self, size: int = -1) -> bytes:
        """Read some bytes of the stream.

        Raises:
            EOFError: It ends within a frame.
        """
        data: bytes = self._raw.read(size)
        if not data and (self._is_within or self._collected):
            raise EOFError("zstd data ended before the end of its last frame")
        self._follow(data)
        return data

    def _follow(self, data: bytes) -> None:
        at = 0
        while at < len(data):
            if self._wanted < 0:
                passed = min(-self._wanted, len(data) - at)
                self._wanted += passed
                at += passed
            else:
                more = data[at : at + self._wanted - len(self._collected)]
                self._collected += more
                at += len(more)
            if self._wanted in (0, len(self._collected)):
                collected, self._collected = self._collected, b""
                self._wanted = self._steps.send(collected)

    def _frames(self) -> Generator[int, bytes, None]:
        """Yield how many bytes are needed to find the ends of the frames; negative: how many to skip."""
        while True:
            self._is_within = False
            magic = int.from_bytes((yield 4), "little")
            self._is_within = True
            if magic == _MAGIC:
                yield from self._frame()
            elif magic & ~15 == _SKIPPABLE_MAGIC:
                if size := int.from_bytes((yield 4), "little"):
                    yield -size
            else:
                while True:
                    yield -sys.maxsize

    def _frame(self) -> Generator[int, bytes, None]:
        """Follow a frame from its magic number to its end."""
        descriptor = (yield 1)[0]
        is_single_segment = bool(descriptor & 32)
        sizes = (not is_single_segment, (0, 1, 2, 4)[descriptor & 3], (is_single_segment, 2, 4, 8)[descriptor >> 6])
        yield -sum(sizes)  # never 0: without a window there is a content size
        is_last = False
        while not is_last:
            block = int.from_bytes((yield 3), "little")
            is_last = bool(block & 1)
            if size := 1 if block >> 1 & 3 == _REPEATED else block >> 3:
                yield -size
        if descriptor & 4:
            yield -4  # checksum
