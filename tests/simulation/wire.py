"""The network between real producers and simulated brokers: byte streams as TCP's, in virtual time.

A stream keeps its order. What is lost is sent again and so comes late; a cut holds bytes back until it is healed; a
reset ends both sides, each at its own time; a process that dies resets its connections, one that loses power is silent.
"""

from __future__ import annotations

import ssl
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from kafkaprod.config.connection_options import ConnectionOptions
from kafkaprod.net.poller import READABLE, WRITABLE
from kafkaprod.net.transport import Address, Transport
from kafkaprod.structs import BytesLike
from tests.simulation.world import Process, World

if TYPE_CHECKING:
    from tests.simulation.serving import BrokerServer

RETRANSMIT_MS = 60
SEGMENT_BYTES = 16_384
LOOK_AGAIN_MS = 20

Receive = Callable[[bytes | None], None]
"""Takes bytes in order; None at the end of the stream."""


class Stream:
    """One direction of a connection.

    Attributes:
        under_way_bytes: What was sent, and has not arrived.
    """

    def __init__(
        self,
        world: World,
        source: Process,
        target: Process,
        receive: Receive,
        on_arrival: Callable[[], None] = lambda: None,
    ) -> None:
        self._world = world
        self._pair = (source.name, target.name)
        self._target = target
        self._receive = receive
        self._on_arrival = on_arrival
        self.under_way_bytes = 0
        self._waiting: deque[tuple[int, bytes | None]] = deque()
        self._is_pumping = False
        self.is_dead = False

    def send(self, data: bytes | None) -> None:
        """Send bytes, or the end of the stream."""
        if data is not None and len(data) > SEGMENT_BYTES and self._pair in self._world.links:
            for place in range(0, len(data), SEGMENT_BYTES):
                self._send(data[place : place + SEGMENT_BYTES])
        else:
            self._send(data)

    def _send(self, data: bytes | None) -> None:
        world, rules = self._world, self._world.rules
        delay_ms = world.random.randint(rules.min_delay_ms, rules.max_delay_ms) + world.slow.get(self._pair, 0)
        while world.random.random() < rules.loss:
            delay_ms += RETRANSMIT_MS
        at_ms = world.now_ms + delay_ms
        if data:
            self.under_way_bytes += len(data)
            if self._pair in world.links:
                at_ms = world.links[self._pair].passes_at_ms(world.now_ms, len(data)) + delay_ms
        if self._waiting:
            at_ms = max(at_ms, self._waiting[-1][0])
        self._waiting.append((at_ms, data))
        if not self._is_pumping:
            self._is_pumping = True
            world.at(at_ms - world.now_ms, self._pump)

    def kill(self) -> None:
        """Deliver nothing more."""
        self.is_dead = True
        self._waiting.clear()

    def _pump(self) -> None:
        self._is_pumping = False
        world, target = self._world, self._target
        if self._pair in world.cuts:
            self._look_again(LOOK_AGAIN_MS)
            return
        if target.paused_until_ms > world.now_ms:
            self._look_again(target.paused_until_ms - world.now_ms)
            return
        while self._waiting and self._waiting[0][0] <= world.now_ms:
            data = self._waiting.popleft()[1]
            if data is not None:
                world.trace(data)
                self.under_way_bytes -= len(data)
            self._receive(data)
            self._on_arrival()
        if self._waiting:
            self._look_again(self._waiting[0][0] - world.now_ms)

    def _look_again(self, delay_ms: int) -> None:
        if not self.is_dead and self._waiting and not self._is_pumping:
            self._is_pumping = True
            self._world.at(delay_ms, self._pump)


class SimulatedTransport:
    """The client's end of a connection; implements `Transport`."""

    def __init__(self, network: SimulatedNetwork, server: BrokerServer | None, number: int) -> None:
        self._network = network
        self._number = number
        self._inbox: deque[bytes] = deque()
        self._error: OSError | None = None
        self._is_at_end = self._is_closed = self._is_full = False
        self.is_connected = False
        self._up: Stream | None = None
        if server is not None:
            world, client = network.world, network.process
            down = Stream(world, server.process, client, self._receive)
            accepted: list[Receive] = []

            def arrive(data: bytes | None) -> None:
                if not accepted:
                    receive = server.accept(client, down, self._reset)
                    if receive is None:
                        return
                    accepted.append(receive)
                    down.send(b"")
                else:
                    accepted[0](data)

            self._up = Stream(world, client, server.process, arrive, self._on_arrival)
            self._up.send(b"")  # the first packet, which opens the connection

    def fileno(self) -> int:
        """A number of its own, -1 when closed."""
        return -1 if self._is_closed else self._number

    def try_open(self) -> bool:
        """See `Transport`."""
        if self._error is not None:
            raise self._error
        return self.is_connected

    def interest(self, *, has_output: bool) -> int:
        """See `Transport`."""
        if not self.is_connected:
            return WRITABLE
        return READABLE | WRITABLE if has_output else READABLE

    @property
    def ready(self) -> int:
        """What it is ready for."""
        if self._error is not None:
            return READABLE | WRITABLE
        if not self.is_connected:
            return 0
        return (WRITABLE if self._room_bytes > 0 else 0) | (READABLE if self._inbox or self._is_at_end else 0)

    @property
    def _room_bytes(self) -> int:
        assert self._up is not None
        return self._network.world.rules.socket_bytes - self._up.under_way_bytes

    def send(self, buffers: Sequence[BytesLike]) -> int:
        """Take the bytes, sometimes only some of them; none while the socket is full."""
        if self._error is not None:
            raise self._error
        assert self._up is not None
        data = b"".join(buffers)
        if len(data) >= self._room_bytes:
            data = data[: max(self._room_bytes, 0)]
            self._is_full = True
            if not data:
                return 0
        self._network.sent_count += 1
        chance = self._network.world.random
        if len(data) > 1 and chance.random() < 0.05:
            data = data[: chance.randint(1, len(data) - 1)]
        if len(data) > 1 and chance.random() < 0.05:
            place = chance.randint(1, len(data) - 1)
            self._up.send(data[:place])
            self._up.send(data[place:])
        else:
            self._up.send(data)
        return len(data)

    def receive_into(self, target: memoryview) -> int | None:
        """See `Transport`."""
        if self._error is not None:
            raise self._error
        if not self._inbox:
            return 0 if self._is_at_end else None
        data = self._inbox.popleft()
        if len(data) > len(target):
            self._inbox.appendleft(data[len(target) :])
            data = data[: len(target)]
        target[: len(data)] = data
        return len(data)

    def close(self) -> None:
        """End the stream: what was sent may still arrive."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._up is not None and self._error is None:
            self._up.send(None)

    def _receive(self, data: bytes | None) -> None:
        if self._is_closed:
            return
        if not self.is_connected:
            self.is_connected = True
        elif data is None:
            self._is_at_end = True
        else:
            self._inbox.append(data)
        self._network.poller.note_ready()

    def _on_arrival(self) -> None:
        """Note that a full socket has room again."""
        if self._is_full and not self._is_closed:
            self._is_full = False
            self._network.poller.note_ready()

    def _reset(self) -> None:
        if self._is_closed:
            return
        self._error = ConnectionResetError(104, "reset by the simulated network")
        if self._up is not None:
            self._up.kill()
        self._network.poller.note_ready()


class SimulatedPoller:
    """Says which transports are ready, and never waits: the scheduler does, for as long as `poll` was to wait.

    Attributes:
        timeout_ms: Of the last `poll`.
        had_events: Whether the last `poll` returned some.
        on_ready: Called when a transport becomes ready, or for `wakeup`.
    """

    def __init__(self) -> None:
        self.poll_count = 0
        self.wait_ns = 0
        self.to_wake: list[Callable[[], None]] = []
        self.timeout_ms = 0.0
        self.had_events = False
        self.on_ready: Callable[[], None] = lambda: None
        self._watched: dict[Transport, tuple[int, Any]] = {}

    def wakeup(self) -> None:
        """End the wait."""
        self.on_ready()

    def note_ready(self) -> None:
        """Note that some transport is ready."""
        self.on_ready()

    def modify(self, file: Transport, interest: int, data: Any) -> None:
        """See `Readiness`."""
        if interest:
            self._watched[file] = (interest, data)
        else:
            self._watched.pop(file, None)

    def unregister(self, file: Transport) -> None:
        """See `Readiness`."""
        self._watched.pop(file, None)

    def poll(self, timeout_ms: float | None) -> list[tuple[Any, int]]:
        """Return what is ready now."""
        self.poll_count += 1
        while self.to_wake:
            self.to_wake.pop()()
        events = []
        for transport, (interest, data) in self._watched.items():
            assert isinstance(transport, SimulatedTransport)
            mask = transport.ready & interest
            if mask:
                events.append((data, mask))
        self.timeout_ms = 60_000.0 if timeout_ms is None else max(timeout_ms, 0.0)
        self.had_events = bool(events)
        return events

    def close(self) -> None:
        """Forget the transports."""
        self._watched.clear()


class SimulatedNetwork:
    """The network as one client sees it; implements `Network`.

    Attributes:
        sent_count: How often something was sent.
    """

    def __init__(self, world: World, process: Process, servers: dict[str, BrokerServer]) -> None:
        self.world = world
        self.process = process
        self.poller = SimulatedPoller()
        self._servers = servers
        self.sent_count = 0
        self._count = 0

    def make_poller(self) -> SimulatedPoller:
        """See `Network`."""
        return self.poller

    def connect(
        self, address: Address, options: ConnectionOptions, tls: ssl.SSLContext | None, host: str
    ) -> SimulatedTransport:
        """See `Network`."""
        self._count += 1
        return SimulatedTransport(self, self._servers.get(host), self._count)
