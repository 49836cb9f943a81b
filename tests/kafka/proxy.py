"""A frame-aware TCP proxy in front of one broker, scripted by api key.

Nothing is rewritten unless a rule says so: the broker must advertise the proxy's address (`KafkaCluster.advertise`).
It runs on a thread of its own; its methods may be called from any thread. Only plain-text listeners: frames inside TLS
cannot be seen.

    with FaultProxy(cluster.address(1, "PROXIED")) as proxy:
        lost = proxy.on_reply(PRODUCE, DropAndReset(), skip=2, times=1)
        ...
        assert lost.hits == 1
"""

import asyncio
import contextlib
import random
import socket
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Self

from tests.kafka.ports import free_ports
from tests.kafka.proxy_actions import Action
from tests.kafka.proxy_link import Connection, Direction, Frame, Link

PRODUCE, FETCH, METADATA, SASL_HANDSHAKE, API_VERSIONS, INIT_PRODUCER_ID = 0, 1, 3, 17, 18, 22
FIND_COORDINATOR, ADD_PARTITIONS_TO_TXN, ADD_OFFSETS_TO_TXN, END_TXN, TXN_OFFSET_COMMIT = 10, 24, 25, 26, 28


@dataclass
class Rule:
    """Applies an action to some of the frames of one direction and api key.

    Attributes:
        api_key: None: every one.
        skip: let so many matching frames pass first.
        times: apply to so many, then be idle; None: for ever.
        probability: of the frames left, apply to this share, drawn from the proxy's seed.
        where: a further condition.
        hits: how often it was applied.
    """

    direction: Direction
    api_key: int | None
    action: Action
    skip: int = 0
    times: int | None = 1
    probability: float = 1.0
    where: Callable[[Frame], bool] | None = None
    hits: int = 0
    _hit: threading.Event = field(default_factory=threading.Event)

    def wait_until_hit(self, timeout_s: float = 10) -> None:
        """Return when the action was applied at least once. Raises TimeoutError."""
        if not self._hit.wait(timeout_s):
            raise TimeoutError(f"no {self.direction.value} of api {self.api_key} met the rule within {timeout_s} s")

    def takes(self, frame: Frame, source: random.Random) -> bool:
        """Whether the action is due on this frame; counts it."""
        if frame.direction is not self.direction or self.api_key not in (None, frame.api_key):
            return False
        if self.hits == self.times or (self.where is not None and not self.where(frame)):
            return False
        if self.skip:
            self.skip -= 1
            return False
        if self.probability < 1.0 and source.random() >= self.probability:
            return False
        self.hits += 1
        self._hit.set()
        return True


class FaultProxy:
    """Listens on a port of its own and passes frames to and from ``upstream``.

    Args:
        upstream: address of the broker.
        seed: of everything drawn at random.
        receive_buffer_bytes: SO_RCVBUF of accepted connections; small ones make the client's writes partial.
    """

    def __init__(self, upstream: tuple[str, int], *, seed: int = 0, receive_buffer_bytes: int | None = None) -> None:
        self.frames: list[Frame] = []  # every frame seen, headers only (``data`` is empty)
        self._upstream = upstream
        self._random = random.Random(seed)
        self._rules: list[Rule] = []
        self._rates: dict[Direction, float] = {}
        self._connections: dict[Connection, asyncio.Task[None]] = {}
        self._accepted = 0
        self._writers: list[asyncio.StreamWriter] = []  # of both sides, ever: one that is forgotten open warns
        self._is_ending = False
        self._receive_buffer_bytes = receive_buffer_bytes
        self.address = ("127.0.0.1", free_ports(1)[0])
        self._server: asyncio.Server | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fault-proxy", daemon=True)
        self._thread.start()
        self._call(self._listen())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def bootstrap(self) -> str:
        """The proxy's address as `bootstrap.servers` wants it."""
        return f"{self.address[0]}:{self.address[1]}"

    # -- script --------------------------------------------------------------------------------------------------------

    def on_request(self, api_key: int | None, action: Action, **options: Any) -> Rule:
        """Apply an action to requests on their way to the broker; options as in `Rule`. Older rules come first."""
        return self._add(Rule(Direction.REQUEST, api_key, action, **options))

    def on_reply(self, api_key: int | None, action: Action, **options: Any) -> Rule:
        """Apply an action to replies on their way to the client; options as in `Rule`. Older rules come first."""
        return self._add(Rule(Direction.REPLY, api_key, action, **options))

    def limit(self, direction: Direction, bytes_per_s: float) -> None:
        """Read a direction only so fast (0: unlimited), so that its sender meets a full socket."""
        self._rates[direction] = bytes_per_s

    def clear(self) -> None:
        """Forget rules, limits and seen frames, and accept connections again. Held frames must be released first."""
        self._rules.clear()
        self._rates.clear()
        self.frames.clear()
        self.accept()

    # -- connections ---------------------------------------------------------------------------------------------------

    def cut_all(self, *, reset: bool = True) -> int:
        """End every open connection now, by RST or FIN; returns how many there were."""
        return self._call(self._cut_all(reset))

    def refuse(self) -> None:
        """Close the listening socket: new connections are refused, open ones live on."""
        self._call(self._stop_listening())

    def accept(self) -> None:
        """Listen again on the same port."""
        self._call(self._listen())

    def close(self) -> None:
        """End everything; may be called twice."""
        if not self._thread.is_alive():
            return
        self._call(self._end_everything())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    # -- on the loop ---------------------------------------------------------------------------------------------------

    def _call(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    def _add(self, rule: Rule) -> Rule:
        self._rules.append(rule)
        return rule

    async def _listen(self) -> None:
        if self._server is not None:
            return
        listener = socket.create_server(self.address)
        if self._receive_buffer_bytes is not None:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._receive_buffer_bytes)
        self._server = await asyncio.start_server(self._on_client, sock=listener)

    async def _stop_listening(self) -> None:
        if self._server is not None:
            for listener in self._server.sockets:
                self._loop.remove_reader(listener)
            # What was accepted an instant ago needs the server to get a transport: without, it stays open for ever.
            await asyncio.sleep(0)
            self._server.close()
            self._server = None

    async def _cut_all(self, reset: bool) -> int:
        connections = dict(self._connections)
        for connection in connections:
            connection.end(reset=reset)
        if connections:
            await asyncio.wait(connections.values())
        return len(connections)

    async def _end_everything(self) -> None:
        await self._stop_listening()
        self._is_ending = True
        await self._cut_all(reset=True)
        while others := asyncio.all_tasks() - {asyncio.current_task()}:  # one may have been accepted just now
            await asyncio.wait(others)
        for writer in self._writers:
            writer.transport.abort()  # also those that were closed and still wait for a peer to read the rest
        for _ in range(3):
            await asyncio.sleep(0)  # aborted transports close in the loop's next turns

    async def _on_client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        try:
            broker = await asyncio.open_connection(*self._upstream)
        except OSError:
            writer.transport.abort()
            return
        self._writers.append(broker[1])
        if self._is_ending:
            return
        self._accepted += 1
        connection = Connection(
            self._accepted,
            (reader, writer),
            broker,
            source=self._random,
            on_frame=self._on_frame,
            read_rate=lambda direction: self._rates.get(direction, 0),
        )
        task = asyncio.ensure_future(connection.run())
        self._connections[connection] = task
        with contextlib.suppress(OSError):
            await task
        del self._connections[connection]

    async def _on_frame(self, frame: Frame, link: Link) -> None:
        self.frames.append(
            Frame(frame.direction, frame.connection, frame.api_key, frame.version, frame.correlation_id, b"")
        )
        for rule in self._rules:
            if rule.takes(frame, self._random):
                await rule.action.apply(frame, link)
                return
        await link.write(frame.data)
