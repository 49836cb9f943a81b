"""A broker whose answers come late: a TCP proxy that holds some of what the broker sends, and never what it is sent.

    with LateAnswers() as proxy:
        proxy.forward_to(broker_port)
        proxy.hold(share=0.03, least_ms=210, most_ms=210)

A read of the broker's bytes is held for a time that is drawn from between the two; later bytes wait behind it, as in a
stream that lost a packet. Its own process, because a client's CPU is measured.
"""

import asyncio
import contextlib
import random
import sys
from dataclasses import dataclass

from benchmarks.proxy_process import ProxyProcess

_READ_BYTES = 1024 * 1024


class LateAnswers(ProxyProcess):
    """A proxy process that passes everything at once until `hold`."""

    def __init__(self) -> None:
        super().__init__("benchmarks.late_answers")

    def hold(self, share: float, least_ms: int, most_ms: int) -> None:
        """Hold this share of the broker's answers from now on, for a time from between the two."""
        self._input.write(f"{share} {least_ms} {most_ms}\n")
        self._input.flush()


@dataclass
class _Rule:
    share: float = 0.0
    least_ms: int = 0
    most_ms: int = 0

    def late_s(self) -> float:
        return random.uniform(self.least_ms, self.most_ms) / 1000 if random.random() < self.share else 0.0


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, rule: _Rule) -> None:
    """Pass bytes on, each read at its time; what comes meanwhile is read as it comes."""
    loop = asyncio.get_running_loop()
    under_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

    async def deliver() -> None:
        while True:
            due, data = await under_way.get()
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
            under_way.put_nowait((loop.time() + rule.late_s(), data))
        await delivery
    except ConnectionError:
        delivery.cancel()
        writer.close()


async def _serve() -> None:
    loop = asyncio.get_running_loop()
    target: asyncio.Future[int] = loop.create_future()
    rule = _Rule()

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer_reader, peer_writer = await asyncio.open_connection("127.0.0.1", await target, limit=_READ_BYTES)
        with contextlib.suppress(asyncio.CancelledError):  # by the program's end, which streams would report as a bug
            await asyncio.gather(_pass(reader, peer_writer, _Rule()), _pass(peer_reader, writer, rule))

    server = await asyncio.start_server(connect, "127.0.0.1", 0, limit=_READ_BYTES)
    print(server.sockets[0].getsockname()[1], flush=True)
    target.set_result(int(await loop.run_in_executor(None, sys.stdin.readline)))
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        share, least_ms, most_ms = line.split()
        rule.share, rule.least_ms, rule.most_ms = float(share), int(least_ms), int(most_ms)


if __name__ == "__main__":
    asyncio.run(_serve())
