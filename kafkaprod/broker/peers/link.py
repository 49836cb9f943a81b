"""A connection to another process of the cluster: requests out, answers in, on the owner's poller.

It connects when the first request comes, and again after a loss. A request that cannot be sent, or whose connection
ends, gets the answer None; who asked decides when to ask again. Cuts and delays of `LinkRules` act here, on requests as
they leave and on answers as they come. Not thread-safe: the event loop owns it.
"""

from __future__ import annotations

import heapq
import socket
from collections.abc import Callable
from itertools import count

from kafkaprod import __version__
from kafkaprod.broker.peers.pace import Pace
from kafkaprod.broker.peers.rules import LinkRules
from kafkaprod.clock import Clock
from kafkaprod.errors import ConnectionLostError, KafkaError
from kafkaprod.net.poller import READABLE, WRITABLE, Poller
from kafkaprod.net.transport import IOV_MAX, TcpTransport
from kafkaprod.protocol.client import Connection
from kafkaprod.protocol.client_events import ConnectionFailed, ConnectionReady
from kafkaprod.protocol.in_flight import InFlightRequest
from kafkaprod.protocol.schema import Request, Response

OnAnswer = Callable[[Response | None], None]
"""Takes the answer, None if there will be none."""

_HANDSHAKE_MS = 2_000
_READ_BYTES = 256 * 1024
_READ_TURN = 8
_scratch = memoryview(bytearray(_READ_BYTES))


class PeerLink:
    """See the module docstring."""

    def __init__(self, poller: Poller, clock: Clock, rules: LinkRules, own: str, peer: str, path: str) -> None:
        """Make a link; nothing is connected.

        Args:
            poller: The poller of the loop that calls `on_ready`.
            clock: Measures deadlines.
            rules: Cuts, delays and rates.
            own: Name of this process.
            peer: Name of the other one.
            path: Its socket.
        """
        self._poller = poller
        self._clock = clock
        self._rules = rules
        self._out, self._in = (own, peer), (peer, own)
        self._out_pace, self._in_pace = Pace(rules, self._out), Pace(rules, self._in)
        self._pace_ms: int | None = None  # when bytes that wait for a rate may pass
        self._own = own
        self._path = path
        self._transport: TcpTransport | None = None
        self._connection: Connection | None = None
        self._finished: list[InFlightRequest] = []
        self._waiting: list[tuple[Request, int, OnAnswer, int]] = []  # for the handshake
        self._later: list[tuple[int, int, Callable[[], None]]] = []  # heap of delayed messages
        self._order = count()
        self._watched = 0

    def send(self, request: Request, version: int, on_answer: OnAnswer, timeout_ms: int) -> None:
        """Send a request; `on_answer` is called once, perhaps before this returns."""
        now_ms = self._clock.now_ms()
        if self._out in self._rules.cuts:
            self._at(now_ms + timeout_ms, lambda: on_answer(None))
            return
        delay_ms = self._rules.delays_ms.get(self._out, 0)
        if delay_ms:
            self._at(now_ms + delay_ms, lambda: self._send(request, version, on_answer, timeout_ms))
        else:
            self._send(request, version, on_answer, timeout_ms)

    def fileno(self) -> int:
        """The socket's descriptor, -1 without one."""
        return -1 if self._transport is None else self._transport.fileno()

    def on_ready(self, mask: int) -> None:
        """Read and write what the socket allows."""
        try:
            if mask & READABLE and not self._watched & READABLE:
                raise ConnectionLostError(f"{self._path} closed the connection")
            if mask & READABLE:
                self._receive()
            self._flush()
        except (OSError, KafkaError) as error:
            self._lose(error)
        self._settle()

    def on_time(self) -> None:
        """Do what is due: timeouts, delayed messages."""
        now_ms = self._clock.now_ms()
        if self._connection is not None:
            self._connection.on_time(now_ms)
            self._settle()
        while self._later and self._later[0][0] <= now_ms:
            heapq.heappop(self._later)[2]()
        if self._pace_ms is not None and self._pace_ms <= now_ms:
            self._push()

    def next_deadline_ms(self) -> int | None:
        """Return when `on_time` has something to do, None if never."""
        deadlines = [self._later[0][0]] if self._later else []
        if self._pace_ms is not None:
            deadlines.append(self._pace_ms)
        deadline_ms = None if self._connection is None else self._connection.next_deadline_ms()
        return min([*deadlines, *([] if deadline_ms is None else [deadline_ms])], default=None)

    def close(self) -> None:
        """Close the connection; what waits gets the answer None. Requests may follow."""
        self._lose(ConnectionLostError("the link was closed"))
        self._settle()

    # -- inside --------------------------------------------------------------------------------------------------------

    def _send(self, request: Request, version: int, on_answer: OnAnswer, timeout_ms: int) -> None:
        try:
            connection = self._connection or self._connect()
        except OSError:
            on_answer(None)
            return
        if not connection.is_ready:
            self._waiting.append((request, version, on_answer, timeout_ms))
            return
        self._queue(connection, request, version, on_answer, timeout_ms)
        self._push()

    def _queue(
        self, connection: Connection, request: Request, version: int, on_answer: OnAnswer, timeout_ms: int
    ) -> None:
        def done(ended: InFlightRequest, now_ms: int) -> None:
            self._deliver(ended, on_answer)

        connection.send(request, version, on_done=done, now_ms=self._clock.now_ms(), timeout_ms=timeout_ms)

    def _deliver(self, ended: InFlightRequest, on_answer: OnAnswer) -> None:
        """Pass an outcome on, unless the way back is cut or slow."""
        if ended.response is not None and self._in in self._rules.cuts:
            self._at(ended.deadline_ms, lambda: on_answer(None))
            return
        delay_ms = self._rules.delays_ms.get(self._in, 0)
        if delay_ms:
            self._at(self._clock.now_ms() + delay_ms, lambda: on_answer(ended.response))
        else:
            on_answer(ended.response)

    def _at(self, deadline_ms: int, call: Callable[[], None]) -> None:
        heapq.heappush(self._later, (deadline_ms, next(self._order), call))

    def _connect(self) -> Connection:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            sock.connect(self._path)
        except OSError:
            sock.close()
            raise
        self._transport = TcpTransport(sock)
        self._transport.try_open()
        connection = self._connection = Connection(
            client_id=f"broker-{self._own}",
            software_name="kafkaprod",
            software_version=__version__,
            handshake_timeout_ms=_HANDSHAKE_MS,
            finished=self._finished,
        )
        connection.start(self._clock.now_ms())
        self._push()
        return connection

    def _push(self) -> None:
        try:
            self._flush()
        except OSError as error:
            self._lose(error)
            self._settle()

    def _flush(self) -> None:
        connection, transport = self._connection, self._transport
        if connection is None or transport is None:
            return
        now_ms = self._clock.now_ms()
        while views := connection.data_to_send(IOV_MAX):
            chosen = self._out_pace.first(views, now_ms)
            taken = transport.send(chosen) if chosen else 0
            if not taken:
                break
            self._out_pace.spend(taken)
            connection.data_sent(taken, now_ms)
        self._watch(transport, wants_out=bool(views))

    def _watch(self, transport: TcpTransport, *, wants_out: bool) -> None:
        """Watch the directions in which bytes may pass, and note when they may in the others."""
        now_ms = self._clock.now_ms()
        due = {READABLE: self._in_pace.next_ms(now_ms)}
        if wants_out:
            due[WRITABLE] = self._out_pace.next_ms(now_ms)
        self._pace_ms = min((due_ms for due_ms in due.values() if due_ms > now_ms), default=None)
        interest = sum(way for way, due_ms in due.items() if due_ms <= now_ms)
        if interest != self._watched:
            self._poller.modify(transport, interest, self)
            self._watched = interest

    def _receive(self) -> None:
        for _ in range(_READ_TURN):
            if self._transport is None or self._connection is None:
                return
            now_ms = self._clock.now_ms()
            allowed = min(self._in_pace.allowance(now_ms), _READ_BYTES)
            size = self._transport.receive_into(_scratch[:allowed]) if allowed else None
            if size is None:
                return
            if size == 0:
                raise ConnectionLostError(f"{self._path} closed the connection")
            self._in_pace.spend(size)
            self._connection.receive_data(_scratch[:size], now_ms)
            if size < allowed:
                return

    def _settle(self) -> None:
        """Act on what the connection reports."""
        connection = self._connection
        events = [] if connection is None else connection.events()
        for event in events:
            if isinstance(event, ConnectionFailed):
                self._lose(event.error)
            elif isinstance(event, ConnectionReady) and connection is not None:
                waiting, self._waiting = self._waiting, []
                for entry in waiting:
                    self._queue(connection, *entry)
                self._push()
        finished, self._finished[:] = self._finished[:], []
        for request in finished:
            request.on_done(request, self._clock.now_ms())

    def _lose(self, error: Exception) -> None:
        connection, self._connection = self._connection, None
        transport, self._transport = self._transport, None
        if transport is not None:
            self._poller.unregister(transport)
            transport.close()
            self._watched, self._pace_ms = 0, None
        if connection is not None:
            connection.connection_lost(error if isinstance(error, KafkaError) else ConnectionLostError(str(error)))
        waiting, self._waiting = self._waiting, []
        for _, _, on_answer, _ in waiting:
            on_answer(None)
