"""One proxied connection: two directions of length-prefixed frames, each request matched with its reply."""

import asyncio
import contextlib
import enum
import random
import socket
import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

_REQUEST_HEADER = struct.Struct(">ihhi")  # length, api key, version, correlation id
_REPLY_HEADER = struct.Struct(">ii")
_UNKNOWN_API = -1


class Direction(enum.Enum):
    """Which way a frame goes."""

    REQUEST = "request"
    REPLY = "reply"


@dataclass(frozen=True, slots=True)
class Frame:
    """One whole frame, length prefix included.

    A reply has the api key and version of the request with its correlation id; -1 if no request is known.
    """

    direction: Direction
    connection: int
    api_key: int
    version: int
    correlation_id: int
    data: bytes


class Link:
    """The way out of one direction: what an action writes to."""

    def __init__(self, connection: "Connection", writer: asyncio.StreamWriter, source: random.Random) -> None:
        self.random = source
        self.previous = b""
        self._connection = connection
        self._writer = writer
        self._writer.transport.set_write_buffer_limits(high=0)  # a write returns when the kernel has the bytes
        self._postponed = b""

    async def write(self, data: bytes) -> None:
        """Send bytes, and after them what was postponed."""
        self._writer.write(data + self._postponed)
        self._postponed = b""
        await self._writer.drain()

    def postpone(self, data: bytes) -> None:
        """Send these bytes right after the next write."""
        self._postponed = data

    def end_connection(self, *, reset: bool) -> None:
        """Close both sides, what was written first: by RST, or by FIN."""
        self._connection.end(reset=reset)


class Connection:
    """A client and the broker connection made for it.

    Args:
        number: from 1, in order of arrival.
        client: reader and writer of the accepted side.
        broker: reader and writer of the side opened to the broker.
        on_frame: decides about each frame; called for one frame at a time in each direction.
        read_rate: bytes a second to take from each direction's sender, 0 unlimited; asked before every read.
    """

    def __init__(
        self,
        number: int,
        client: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        broker: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        *,
        source: random.Random,
        on_frame: Callable[[Frame, Link], Awaitable[None]],
        read_rate: Callable[[Direction], float],
    ) -> None:
        self._number = number
        self._client = client
        self._broker = broker
        self._random = source
        self._on_frame = on_frame
        self._read_rate = read_rate
        self._requests: dict[int, tuple[int, int]] = {}
        self._tasks: list[asyncio.Task[None]] = []

    async def run(self) -> None:
        """Pump both directions until one side ends."""
        pumps = (
            self._pump(Direction.REQUEST, self._client[0], self._broker[1]),
            self._pump(Direction.REPLY, self._broker[0], self._client[1]),
        )
        self._tasks = [asyncio.ensure_future(pump) for pump in pumps]
        await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
        self.end(reset=any(task.done() and not task.cancelled() and task.exception() for task in self._tasks))
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def end(self, *, reset: bool) -> None:
        """Close both sides."""
        for _, writer in (self._client, self._broker):
            if reset and not writer.is_closing():
                connection: socket.socket = writer.get_extra_info("socket")
                with contextlib.suppress(OSError):
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                writer.transport.abort()
            else:
                writer.close()
        current = asyncio.current_task()
        for task in self._tasks:
            if task is not current:
                task.cancel()

    async def _pump(self, direction: Direction, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = Link(self, writer, self._random)
        # A peer may send anything: what does not parse as frames ends this direction like a closed socket does.
        with contextlib.suppress(asyncio.IncompleteReadError):
            while not writer.is_closing():
                prefix = await self._read(direction, reader, 4)
                data = prefix + await self._read(direction, reader, int.from_bytes(prefix))
                await self._on_frame(self._frame(direction, data), link)
                link.previous = data

    async def _read(self, direction: Direction, reader: asyncio.StreamReader, count: int) -> bytes:
        rate = self._read_rate(direction)
        if not rate:
            return await reader.readexactly(count)
        parts: list[bytes] = []
        while count:
            part = await reader.read(min(count, max(1, int(rate / 50))))
            if not part:
                raise asyncio.IncompleteReadError(b"".join(parts), count)
            parts.append(part)
            count -= len(part)
            await asyncio.sleep(len(part) / rate)
        return b"".join(parts)

    def _frame(self, direction: Direction, data: bytes) -> Frame:
        if direction is Direction.REQUEST and len(data) >= _REQUEST_HEADER.size:
            _, api_key, version, correlation_id = _REQUEST_HEADER.unpack_from(data)
            self._requests[correlation_id] = (api_key, version)
        elif direction is Direction.REPLY and len(data) >= _REPLY_HEADER.size:
            _, correlation_id = _REPLY_HEADER.unpack_from(data)
            api_key, version = self._requests.get(correlation_id, (_UNKNOWN_API, _UNKNOWN_API))
        else:
            api_key = version = correlation_id = _UNKNOWN_API
        return Frame(direction, self._number, api_key, version, correlation_id, data)
