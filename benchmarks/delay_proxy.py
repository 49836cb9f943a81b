"""A distant far end: a TCP proxy that delivers every byte a fixed time after it came, in both directions.

    with DelayProxy(one_way_ms=50) as proxy, Sink(topics, advertised=[proxy.port]) as sink:
        proxy.forward_to(sink.ports[0])

It delays and never limits: what is under way waits in memory. Its own process, because a client's CPU is measured.
"""

import asyncio
import contextlib
import subprocess
import sys
from collections import deque
from pathlib import Path
from typing import Self

_REPOSITORY = Path(__file__).resolve().parent.parent
_READ_BYTES = 1024 * 1024


class DelayProxy:
    """A proxy process, from construction to `close`.

    Attributes:
        port: where it listens, on 127.0.0.1.
    """

    def __init__(self, one_way_ms: float) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.delay_proxy", str(one_way_ms)],
            cwd=_REPOSITORY,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._input, self._output = self._process.stdin, self._process.stdout
        self.port = int(self._output.readline())

    def forward_to(self, port: int) -> None:
        """Say where connections go; to be called once, before the first of them."""
        self._input.write(f"{port}\n")
        self._input.flush()

    def close(self) -> None:
        """End the process; may be called twice."""
        self._input.close()
        self._process.wait(10)
        self._output.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


async def _delay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, one_way_s: float) -> None:
    loop = asyncio.get_running_loop()
    under_way: deque[tuple[float, bytes]] = deque()
    has_data = asyncio.Event()

    async def deliver() -> None:
        while True:
            while not under_way:
                has_data.clear()
                await has_data.wait()
            due, data = under_way.popleft()
            await asyncio.sleep(due - loop.time())
            if not data:
                break
            writer.write(data)
            await writer.drain()
        writer.close()

    delivery = asyncio.create_task(deliver())
    try:
        data = b"first"
        while data:
            data = await reader.read(_READ_BYTES)
            under_way.append((loop.time() + one_way_s, data))
            has_data.set()
        await delivery
    except ConnectionError:
        delivery.cancel()
        writer.close()


async def _serve(one_way_s: float) -> None:
    loop = asyncio.get_running_loop()
    target: asyncio.Future[int] = loop.create_future()

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer_reader, peer_writer = await asyncio.open_connection("127.0.0.1", await target, limit=_READ_BYTES)
        with contextlib.suppress(asyncio.CancelledError):  # by the program's end, which streams would report as a bug
            await asyncio.gather(_delay(reader, peer_writer, one_way_s), _delay(peer_reader, writer, one_way_s))

    server = await asyncio.start_server(connect, "127.0.0.1", 0, limit=_READ_BYTES)
    print(server.sockets[0].getsockname()[1], flush=True)
    target.set_result(int(await loop.run_in_executor(None, sys.stdin.readline)))
    await loop.run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(_serve(float(sys.argv[1]) / 1000))
