"""A distant far end: a TCP proxy that delivers every byte a fixed time after it came, in both directions.

    with DelayProxy(one_way_ms=50) as proxy, Sink(topics, advertised=[proxy.port]) as sink:
        proxy.forward_to(sink.ports[0])

It delays and never limits: what is under way waits in memory. Its own process, because a client's CPU is measured.
"""

import asyncio
import contextlib
import sys
from collections import deque

from benchmarks.proxy_process import ProxyProcess

_READ_BYTES = 1024 * 1024


class DelayProxy(ProxyProcess):
    """A proxy process that delays each direction by `one_way_ms`."""

    def __init__(self, one_way_ms: float) -> None:
        super().__init__("benchmarks.delay_proxy", str(one_way_ms))


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
