"""The broker's sockets: accept, read, hand to handlers, write. One event loop, one control thread, one for maintenance.

    socket -> Session.receive -> requests -> handler in the loop (data plane) or on the control thread -> Session.send
    -> socket

Why the data plane has no threads of its own: see `Lane`. Only a sync that must precede an acknowledgement (flush policy
"each") leaves the loop, so that waiting requests share one. Fairness: one read and one request of a connection a turn.
Memory: a connection holds one frame and one read at most, connections are counted, answers with records are file
ranges. Threads: `run` belongs to one thread; `stop` and `post` may be called from any.
"""

from __future__ import annotations

import errno
import logging
import socket
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from kafkaprod.broker.broker import Broker, Endpoint
from kafkaprod.broker.config import BrokerConfig
from kafkaprod.broker.control import ControlThread
from kafkaprod.broker.faults import Fault, FaultKind
from kafkaprod.broker.file_records import FileResponse
from kafkaprod.broker.maintenance import Maintenance
from kafkaprod.broker.purgatory import Purgatory
from kafkaprod.broker.request import ClientRequest, CloseConnectionError, Deferred, Lane, NoResponse, Ready
from kafkaprod.broker.router import HANDLERS, Handler, announced_versions, call, move_leaders
from kafkaprod.broker.session import Session
from kafkaprod.broker.timers import Timers
from kafkaprod.clock import Clock, SystemClock
from kafkaprod.errors import KafkaError
from kafkaprod.net.poller import READABLE, WRITABLE, Poller
from kafkaprod.net.transport import TcpTransport, TlsTransport, Transport
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.schema import Request
from kafkaprod.protocol.server import RequestReceived

logger = logging.getLogger(__name__)

_READ_BYTES = 512 * 1024
_BACKLOG = 128
_ACCEPT_TURN = 64
_ACCEPT_PAUSE_MS = 1_000
_IDLE_CHECK_MS = 10_000
_SYNC_THREADS = 4


@dataclass(frozen=True, slots=True)
class _Exchange:
    """One request on its way through the broker."""

    session: Session
    received: RequestReceived
    handler: Handler
    request: ClientRequest[Request]
    fault: Fault | None


class BrokerServer:
    """See the module docstring.

    Attributes:
        broker: what the sockets serve.
    """

    def __init__(self, config: BrokerConfig, clock: Clock | None = None) -> None:
        """Take over the data directory and bind the socket; nothing is accepted before `run`.

        Raises:
            OSError: the address cannot be bound, or the directory not be used.
            KafkaError: as `Broker`.
        """
        self._config = config
        self._clock = clock or SystemClock()
        self._poller = Poller()
        self._timers = Timers()
        self._posted: deque[Callable[[], None]] = deque()  # the one thing other threads touch
        self._is_stopping = False
        self._has_crashed = False
        self._sessions: dict[int, Session] = {}
        self._ready: deque[Session] = deque()  # have requests waiting, and none in progress
        self._scratch = memoryview(bytearray(_READ_BYTES))
        self._syncs = ThreadPoolExecutor(_SYNC_THREADS, thread_name_prefix="kafkaprod-broker-sync")
        self._listener = _listen(config.host, config.port)
        self._purgatory = Purgatory(self._poller.wakeup)
        try:
            self.broker = Broker(config, self._clock, self._purgatory, self._run_blocking)
        except BaseException:
            self._listener.close()
            self._poller.close()
            raise
        self.broker.endpoint = Endpoint(self.broker.endpoint.host, self._listener.getsockname()[1])
        self.broker.api_versions = announced_versions(HANDLERS)
        self._control = ControlThread(self.broker.groups, self._clock, self._on_crash)
        self._maintenance = Maintenance(self.broker, self._control.submit)

    # -- life ----------------------------------------------------------------------------------------------------

    def run(self) -> bool:
        """Serve until `stop`; return whether the shutdown was clean."""
        self._control.start()
        self._maintenance.start()
        self._poller.register(self._listener, READABLE, self._listener)
        self._timers.call_at(self._clock.now_ms() + _IDLE_CHECK_MS, self._close_idle)
        try:
            while not self._is_stopping:
                self._turn()
        finally:
            is_clean = self._close()
        return is_clean and not self._has_crashed

    def stop(self) -> None:
        """Make `run` return. Thread-safe, and safe in a signal handler."""
        self._is_stopping = True
        self._poller.wakeup()

    def post(self, call_later: Callable[[], None]) -> None:
        """Have a call made by the event loop. Thread-safe."""
        self._posted.append(call_later)
        self._poller.wakeup()

    def _on_crash(self) -> None:
        self._has_crashed = True
        self.stop()

    def _close(self) -> bool:
        self._listener.close()
        for session in list(self._sessions.values()):
            self._close_session(session)
        self._control.stop()
        self._syncs.shutdown()
        self._maintenance.stop()
        self._poller.close()
        return self.broker.close()

    def _run_blocking(self, work: Callable[[], None], then: Callable[[], None]) -> None:
        def run() -> None:
            work()
            self.post(then)

        self._syncs.submit(run)

    # -- the loop ------------------------------------------------------------------------------------------------

    def _turn(self) -> None:
        for data, mask in self._poller.poll(self._timeout_ms()):
            if isinstance(data, Session):
                self._on_ready(data, mask)
            else:
                self._accept()
        while self._posted:
            self._posted.popleft()()
        for _ in range(len(self._ready)):
            self._begin_next(self._ready.popleft())
        now_ms = self._clock.now_ms()
        self._timers.run(now_ms)
        self._purgatory.run(now_ms)

    def _timeout_ms(self) -> int | None:
        if self._ready or self._posted:
            return 0
        deadlines = [d for d in (self._timers.next_deadline_ms(), self._purgatory.next_deadline_ms()) if d is not None]
        return max(min(deadlines) - self._clock.now_ms(), 0) if deadlines else None

    def _accept(self) -> None:
        for _ in range(_ACCEPT_TURN):
            try:
                sock, address = self._listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE):
                    self._pause_accepting(error)
                    return
                continue  # the client gave up before we came
            if len(self._sessions) >= self._config.limits.max_connections:
                logger.warning("connection from %s refused: max_connections=%d", address[0], len(self._sessions))
                sock.close()
                continue
            self._open_session(sock, address[0])

    def _pause_accepting(self, error: OSError) -> None:
        logger.error("no connection can be accepted for %d ms: %s", _ACCEPT_PAUSE_MS, error)
        self._poller.unregister(self._listener)
        self._timers.call_at(
            self._clock.now_ms() + _ACCEPT_PAUSE_MS,
            lambda: self._poller.register(self._listener, READABLE, self._listener),
        )

    def _open_session(self, sock: socket.socket, host: str) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        transport: Transport = (
            TcpTransport(sock)
            if self._config.tls is None
            else TlsTransport(sock, self._config.tls, server_hostname=None)
        )
        session = Session(
            transport, host, self.broker.api_versions, self._config.limits.max_request_bytes, self._clock.now_ms()
        )
        self._sessions[session.fileno()] = session
        self._on_ready(session, READABLE)

    def _on_ready(self, session: Session, mask: int) -> None:
        if session.is_closed:
            return
        try:
            if not session.is_open:
                session.is_open = session.transport.try_open()
            if session.is_open and mask & WRITABLE and session.has_output:
                self._push(session)
            if session.is_open and mask & READABLE and not session.waiting and not self._read(session):
                self._close_session(session)
                return
        except (OSError, KafkaError) as error:
            self._drop(session, error)
            return
        self._watch(session)

    def _read(self, session: Session) -> bool:
        is_alive = session.receive(self._scratch)
        if session.waiting and session.in_progress is None:
            self._begin_next(session)
        elif is_alive and session.in_progress is None:
            session.send()  # a refused ApiVersions has its answer already
        return is_alive

    def _watch(self, session: Session) -> None:
        """Poll for what the session wants now."""
        if session.is_closed:
            return
        interest = session.interest
        if interest != session.watched:
            self._poller.modify(session, interest, session)
            session.watched = interest

    # -- requests ------------------------------------------------------------------------------------------------

    def _begin_next(self, session: Session) -> None:
        """Begin to handle the session's next request."""
        if session.is_closed or session.in_progress is not None or not session.waiting:
            return
        received = session.waiting.popleft()
        session.in_progress = received
        session.last_active_ms = self._clock.now_ms()
        try:
            body = received.decode()
        except KafkaError as error:
            self._drop(session, error)
            return
        header = received.header
        request = ClientRequest(body, header.api_version, header.client_id or "", session.host, session.principal)
        fault = self.broker.faults.take(received.api)
        exchange = _Exchange(session, received, HANDLERS[received.api], request, fault)
        if fault is not None and self._replace(exchange, fault):
            return
        if exchange.handler.LANE is Lane.DATA:
            self._handle(exchange, lambda ready: self._finish(exchange, ready))
        else:
            self._control.submit(
                lambda: self._handle(exchange, lambda ready: self.post(lambda: self._finish(exchange, ready)))
            )

    def _replace(self, exchange: _Exchange, fault: Fault) -> bool:
        """Do what a fault does instead of handling the request; False if it only changes the answer."""
        if fault.kind is FaultKind.CLOSE:
            self._close_session(exchange.session)
            return True
        if fault.kind is FaultKind.MOVE_LEADER:
            move_leaders(self.broker, exchange.request)
            fault = Fault(FaultKind.REPLY_WITH, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if fault.kind is not FaultKind.REPLY_WITH:
            return False
        self._respond(exchange, exchange.handler.refuse(exchange.request, fault.value))
        return True

    def _handle(self, exchange: _Exchange, receiver: Callable[[Ready], None]) -> None:
        """Run the handler, in the loop or on the control thread, and pass on what comes of it."""
        try:
            outcome = call(exchange.handler, self.broker, exchange.request)
        except CloseConnectionError as error:
            receiver(error)
            return
        if isinstance(outcome, Deferred):
            if exchange.handler.LANE is Lane.DATA:
                exchange.session.deferred = outcome
            outcome.then(receiver)
        else:
            receiver(outcome)

    def _finish(self, exchange: _Exchange, ready: Ready) -> None:
        """The handler is done: answer, or do what the fault wants done with the answer."""
        session = exchange.session
        session.deferred = None
        kind = None if exchange.fault is None else exchange.fault.kind
        if session.is_closed or kind is FaultKind.DROP_REPLY:
            return
        if kind is FaultKind.CLOSE_AFTER_HANDLING:
            self._close_session(session)
        elif exchange.fault is not None and kind is FaultKind.DELAY:
            self._timers.call_at(self._clock.now_ms() + exchange.fault.value, lambda: self._respond(exchange, ready))
        else:
            self._respond(exchange, ready)

    def _respond(self, exchange: _Exchange, ready: Ready) -> None:
        session = exchange.session
        if session.is_closed:
            return
        if isinstance(ready, CloseConnectionError):
            self._drop(session, ready)
            return
        response = None if isinstance(ready, NoResponse) else ready
        fault = exchange.fault
        try:
            if fault is not None and fault.kind is FaultKind.THROTTLE and response is not None:
                body = response.response if isinstance(response, FileResponse) else response
                body.throttle_time_ms = fault.value  # type: ignore[attr-defined]  # all that can be throttled have it
            session.respond(exchange.received, response)
            if fault is not None and fault.kind is FaultKind.HALF_FRAME:
                session.cut_output_in_half()
            if fault is not None and fault.kind is FaultKind.THROTTLE:
                session.send()
                self._timers.call_at(self._clock.now_ms() + fault.value, lambda: self._complete(session))
            else:
                self._push(session)
        except ValueError:
            logger.exception("%s: the answer cannot be encoded", exchange.handler.API.name)
            self._close_session(session)
        except (OSError, KafkaError) as error:
            self._drop(session, error)
        self._watch(session)

    def _push(self, session: Session) -> None:
        """Send; when the answer is out, the next request may begin."""
        if session.send() and session.deferred is None:
            self._complete(session)

    def _complete(self, session: Session) -> None:
        session.in_progress = None
        session.last_active_ms = self._clock.now_ms()
        if session.waiting:
            self._ready.append(session)
        self._watch(session)

    # -- ends ----------------------------------------------------------------------------------------------------

    def _drop(self, session: Session, error: Exception) -> None:
        """Close a connection because of an error; say so if it is not just the client that is gone."""
        if not isinstance(error, ConnectionError):
            logger.warning("connection from %s closed: %s", session.host, error)
        self._close_session(session)

    def _close_session(self, session: Session) -> None:
        if session.is_closed:
            return
        del self._sessions[session.fileno()]
        self._poller.unregister(session)
        session.close()

    def _close_idle(self) -> None:
        now_ms = self._clock.now_ms()
        for session in list(self._sessions.values()):
            is_idle = session.in_progress is None or session.has_output
            if is_idle and now_ms - session.last_active_ms >= self._config.limits.max_idle_ms:
                self._close_session(session)
        self._timers.call_at(now_ms + _IDLE_CHECK_MS, self._close_idle)


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.create_server((host, port), family=family, backlog=_BACKLOG)
    listener.setblocking(False)
    return listener
