"""What a fault proxy can do to one frame. Each action is applied on the proxy's event loop, in frame order.

While an action waits (`Delay`, `Hold`, `Dribble`), later frames of the same direction and connection wait behind it, as
bytes on a TCP connection would; the other direction and other connections go on.
"""

import asyncio
import struct
import threading
from dataclasses import dataclass
from typing import Protocol

from tests.kafka.proxy_link import Direction, Frame, Link


class Action(Protocol):
    """Applied instead of forwarding; to let the frame through, write it."""

    async def apply(self, frame: Frame, link: Link) -> None:
        """Deal with the frame."""


@dataclass(frozen=True)
class Forward:
    """Let it pass: with a rule's ``skip`` or as a probe that counts."""

    async def apply(self, frame: Frame, link: Link) -> None:
        await link.write(frame.data)


@dataclass(frozen=True)
class Delay:
    """Pass it on later."""

    seconds: float

    async def apply(self, frame: Frame, link: Link) -> None:
        await asyncio.sleep(self.seconds)
        await link.write(frame.data)


@dataclass(frozen=True)
class Drop:
    """Swallow it; the connection stays open."""

    async def apply(self, frame: Frame, link: Link) -> None:
        pass


@dataclass(frozen=True)
class Cut:
    """Pass on the first bytes only, then end both sides: by RST, or by FIN with ``reset=False``.

    ``at_byte`` counts from the length prefix on; None draws it from the proxy's seed. 0 loses the whole frame.
    """

    at_byte: int | None = None
    reset: bool = True

    async def apply(self, frame: Frame, link: Link) -> None:
        at_byte = link.random.randrange(len(frame.data)) if self.at_byte is None else self.at_byte
        await link.write(frame.data[:at_byte])
        link.end_connection(reset=self.reset)


@dataclass(frozen=True)
class DropAndReset:
    """Let the broker have acted, lose its reply and reset the connection."""

    async def apply(self, frame: Frame, link: Link) -> None:
        link.end_connection(reset=True)


@dataclass(frozen=True)
class ForwardAndReset:
    """Pass the whole frame on, then reset the connection."""

    async def apply(self, frame: Frame, link: Link) -> None:
        await link.write(frame.data)
        link.end_connection(reset=True)


@dataclass(frozen=True)
class Duplicate:
    """Pass it on twice."""

    async def apply(self, frame: Frame, link: Link) -> None:
        await link.write(frame.data + frame.data)


@dataclass(frozen=True)
class Replay:
    """Send the frame before this one (same direction, same connection) once more, then this one."""

    async def apply(self, frame: Frame, link: Link) -> None:
        await link.write(link.previous + frame.data)


@dataclass(frozen=True)
class Swap:
    """Let the next frame of this direction overtake this one."""

    async def apply(self, frame: Frame, link: Link) -> None:
        link.postpone(frame.data)


@dataclass(frozen=True)
class FlipBit:
    """Invert one bit; ``bit`` counts from the length prefix on, None draws one behind the prefix."""

    bit: int | None = None

    async def apply(self, frame: Frame, link: Link) -> None:
        data = bytearray(frame.data)
        bit = link.random.randrange(32, 8 * len(data)) if self.bit is None else self.bit
        data[bit // 8] ^= 0x80 >> bit % 8
        await link.write(bytes(data))


@dataclass(frozen=True)
class RewriteLength:
    """Replace the length prefix; the bytes behind it stay."""

    length: int

    async def apply(self, frame: Frame, link: Link) -> None:
        await link.write(struct.pack(">i", self.length) + frame.data[4:])


@dataclass(frozen=True)
class RewriteCorrelationId:
    """Add to the correlation id."""

    difference: int = 1

    async def apply(self, frame: Frame, link: Link) -> None:
        position = 4 if frame.direction is Direction.REPLY else 8
        changed = struct.pack(">i", frame.correlation_id + self.difference)
        await link.write(frame.data[:position] + changed + frame.data[position + 4 :])


@dataclass(frozen=True)
class Replace:
    """Send other bytes instead, such as ``b"HTTP/1.1 400"``."""

    data: bytes

    async def apply(self, frame: Frame, link: Link) -> None:
        await link.write(self.data)


@dataclass(frozen=True)
class Dribble:
    """Pass it on in pieces of ``piece_bytes``, a pause before each."""

    piece_bytes: int = 1
    pause_s: float = 0.0

    async def apply(self, frame: Frame, link: Link) -> None:
        for position in range(0, len(frame.data), self.piece_bytes):
            await asyncio.sleep(self.pause_s)
            await link.write(frame.data[position : position + self.piece_bytes])


class Hold:
    """Keep frames back until `release`, which any thread may call."""

    def __init__(self) -> None:
        self._held = threading.Event()
        self._released = threading.Event()
        self._wakeups: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    async def apply(self, frame: Frame, link: Link) -> None:
        wakeup = asyncio.Event()
        self._wakeups.append((asyncio.get_running_loop(), wakeup))
        self._held.set()
        if not self._released.is_set():
            await wakeup.wait()
        await link.write(frame.data)

    def wait_until_held(self, timeout_s: float = 10) -> None:
        """Return when a frame is being held. Raises TimeoutError."""
        if not self._held.wait(timeout_s):
            raise TimeoutError(f"no frame came to be held within {timeout_s} s")

    def release(self) -> None:
        """Pass on what is held, and what comes later, at once."""
        self._released.set()
        for loop, wakeup in list(self._wakeups):
            loop.call_soon_threadsafe(wakeup.set)
