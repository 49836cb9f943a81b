"""What happens to one request between its arrival and its answer: login, faults, handler, outcome.

    received -> (fault instead) | handler in the loop or on the control thread -> outcome -> quotas ->
    (fault on the answer) -> queued
The event loop owns it, but for the handlers of the control lane and their outcomes, which come back through `post`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Protocol

from kafkaprod.broker.calls.faults import Fault, FaultKind, RequestPart
from kafkaprod.broker.calls.file_records import FileResponse
from kafkaprod.broker.calls.request import (
    ClientRequest,
    CloseConnectionError,
    Deferred,
    Lane,
    LastResponse,
    NoResponse,
    Outcome,
    Ready,
)
from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.broker.cluster.leadership import move_leaders, name_leaders
from kafkaprod.broker.server.fault_parts import call_with_faults, note_request, subject_of
from kafkaprod.broker.server.router import BEFORE_LOGIN, HANDLERS, Handler, call, coordinator_of, refuse
from kafkaprod.broker.server.session import Session, SessionStage
from kafkaprod.broker.server.throttling import Throttle, name_wait
from kafkaprod.errors import AuthenticationError, KafkaError
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.frames import encode_response
from kafkaprod.protocol.long_messages import shorten_messages
from kafkaprod.protocol.messages.produce import ProduceRequest
from kafkaprod.protocol.schema import Request, Response
from kafkaprod.protocol.server import RequestReceived
from kafkaprod.structs import BytesLike

logger = logging.getLogger(__name__)

_LARGE_BODY_BYTES = 64 * 1024
_SHORT_BODY_BYTES = 4 * 1024
# Small requests whose answers may show all that there is of a kind.
_SHOW_ALL: Final = frozenset(
    {
        ApiKey.DESCRIBE_ACLS,
        ApiKey.DESCRIBE_CLIENT_QUOTAS,
        ApiKey.DESCRIBE_DELEGATION_TOKEN,
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        ApiKey.LIST_CONFIG_RESOURCES,
        ApiKey.LIST_GROUPS,
        ApiKey.LIST_TRANSACTIONS,
    }
)
_REFUSED_LOGIN_DELAY_MS = 100  # connection.failed.authentication.delay.ms


class Loop(Protocol):
    """The part of the event loop that the dispatcher uses."""

    def post(self, call_later: Callable[[], None]) -> None:
        """Have a call made by the loop; thread-safe."""
        ...

    def submit_control(self, call_later: Callable[[], None], *, may_be_long: bool = False) -> None:
        """Have a call made by the control thread; one that may be long, behind those that are not."""
        ...

    def call_after(self, delay_ms: int, call_later: Callable[[], None]) -> None:
        """Have a call made by the loop, later."""
        ...

    def push(self, session: Session) -> None:
        """Send what the session has to send."""
        ...

    def drop(self, session: Session, error: Exception) -> None:
        """Close a connection because of an error."""
        ...

    def close_session(self, session: Session) -> None:
        """Close a connection."""
        ...


@dataclass(slots=True)
class _Exchange:
    """One request on its way.

    Attributes:
        parts: The faults of parts of the request; None or nothing where no rule hits one.
        encoded: The answer's frame, if it was encoded outside the event loop.
        body_bytes: The bytes of the request behind its header.
        busy_ns: For how long a thread was busy with it, where that counts.
    """

    session: Session
    received: RequestReceived
    handler: Handler
    request: ClientRequest[Request]
    fault: Fault | None
    parts: Mapping[RequestPart, Fault] | None
    encoded: list[BytesLike] | None = None
    body_bytes: int = 0
    busy_ns: int = 0

    def has_fault(self, kind: FaultKind) -> bool:
        """Whether the answer gets a fault of this kind."""
        return self.fault is not None and self.fault.kind is kind


class Dispatcher:
    """See the module docstring."""

    def __init__(self, broker: Broker, loop: Loop) -> None:
        self._broker = broker
        self._loop = loop
        self._throttle = Throttle(broker)

    def begin_next(self, session: Session) -> None:
        """Begin to handle the session's next request, unless one is in progress or none is there."""
        if session.is_closed or session.stage is not SessionStage.IDLE or not session.waiting:
            return
        received = session.waiting.popleft()
        session.stage = SessionStage.HANDLING
        session.last_active_ms = self._broker.clock.now_ms()
        try:
            if not session.is_trusted and received.api not in BEFORE_LOGIN:
                raise AuthenticationError(f"{received.api.name} before the login")
            if session.login is not None and session.login.is_over and received.api not in BEFORE_LOGIN:
                raise AuthenticationError(f"{received.api.name} after the end of the login")
            body = received.decode(self._broker.config.limits.max_request_elements)
        except KafkaError as error:
            self._loop.drop(session, error)
            return
        if self._broker.standing.leaders_move and _is_abandoned(session, body):
            self._loop.close_session(session)
            return
        body_bytes = received.body.nbytes
        if body_bytes > _LARGE_BODY_BYTES:
            # The decoded request keeps what it needs; one that waits for long must not keep the rest.
            session.in_progress_bytes = received.body.nbytes
            received = replace(received, body=memoryview(b""))
        header = received.header
        request = ClientRequest(
            body,
            header.api_version,
            header.client_id or "",
            session.host,
            session.login,
            session.endpoint,
            session.is_peer,
        )
        if self._broker.request_log is not None and not session.is_peer:
            note_request(self._broker, request, body_bytes)
        fault, parts = None, None
        if self._broker.faults.are_there and not session.is_peer:
            fault, parts = self._broker.faults.take(subject_of(self._broker, request))
        if not session.is_peer and not self._throttle.is_off:
            self._throttle.limit(request)
        exchange = _Exchange(session, received, HANDLERS[received.api], request, fault, parts, body_bytes=body_bytes)
        if fault is not None and fault.kind is FaultKind.HOLD:
            self._broker.faults.hold(fault.value, lambda: self._loop.post(lambda: self._begin(exchange)))
        else:
            self._begin(exchange)

    def _begin(self, exchange: _Exchange) -> None:
        """Do what a fault wants in place of the request, or have the request handled on the thread of its lane."""
        if exchange.session.is_closed:  # while a fault held it
            return
        fault, body_bytes = exchange.fault, exchange.body_bytes
        if fault is not None and self._replace(exchange, fault):
            return
        if exchange.handler.LANE is Lane.DATA:
            self._handle(exchange, lambda ready: self._finish(exchange, ready))
        else:
            self._loop.submit_control(
                lambda: self._handle(exchange, lambda ready: self._pass_on(exchange, ready)),
                may_be_long=body_bytes > _SHORT_BODY_BYTES or exchange.handler.API in _SHOW_ALL,
            )

    def _replace(self, exchange: _Exchange, fault: Fault) -> bool:
        """Do what a fault does instead of handling the request; False if it only changes the answer."""
        if fault.kind is FaultKind.CLOSE:
            self._loop.close_session(exchange.session)
            return True
        if fault.kind is FaultKind.MOVE_LEADER:
            move_leaders(self._broker, exchange.request.body)
            fault = Fault(FaultKind.REPLY_WITH, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if fault.kind is not FaultKind.REPLY_WITH:
            return False
        response = refuse(exchange.request, fault.value)
        name_leaders(self._broker, response, exchange.request.version, exchange.session.endpoint)
        self._respond(exchange, response)
        return True

    def _handle(self, exchange: _Exchange, receiver: Callable[[Ready], None]) -> None:
        """Run the handler, in the loop or on the control thread, and pass on what comes of it."""
        handler, request = exchange.handler, exchange.request
        coordinator = coordinator_of(handler, request.body)
        if coordinator is not None:
            receiver = self._broker.standing.after_replicas(coordinator, partial(refuse, request), receiver)
        began_ns = time.thread_time_ns() if self._throttle.counts_time else 0
        try:
            outcome = self._call(exchange)
        except CloseConnectionError as error:
            receiver(error)
            return
        if began_ns:
            exchange.busy_ns = time.thread_time_ns() - began_ns
        if isinstance(outcome, Deferred):
            self._watch_for_close(exchange, outcome)
            outcome.then(receiver)
        else:
            receiver(outcome)

    def _call(self, exchange: _Exchange) -> Outcome:
        """Run the handler, without those parts of the request that faults hit. Raises as `router.call`."""
        handler, broker = exchange.handler, self._broker
        if not exchange.parts:
            return call(handler, broker, exchange.request)
        return call_with_faults(broker, exchange.request, exchange.parts, lambda rest: call(handler, broker, rest))

    def _pass_on(self, exchange: _Exchange, ready: Ready) -> None:
        """Encode an answer of the control thread, which may be long, and finish in the event loop."""
        if isinstance(ready, Response) and exchange.fault is None:
            header = exchange.received.header
            with suppress(KafkaError, ValueError):  # the event loop encodes again and reports the error
                exchange.encoded = encode_response(ready, header.api_version, header.correlation_id)
        self._loop.post(lambda: self._finish(exchange, ready))

    def _watch_for_close(self, exchange: _Exchange, outcome: Deferred) -> None:
        """Have the handler release what waits if the client goes; on its own thread."""
        if outcome.is_complete:
            return
        if exchange.handler.LANE is Lane.DATA:
            exchange.session.abandon = outcome.abandon
            return

        def watch() -> None:  # in the event loop, before the outcome's own call there
            exchange.session.abandon = lambda: self._loop.submit_control(outcome.abandon)
            if exchange.session.is_closed:
                exchange.session.abandon()

        self._loop.post(watch)

    def _finish(self, exchange: _Exchange, ready: Ready) -> None:
        """Answer now or later, or not at all if a fault says so; the handler is done."""
        exchange.session.abandon = None
        exchange.session.in_progress_bytes = 0
        if exchange.has_fault(FaultKind.DROP_REPLY):
            return
        if exchange.fault is not None and exchange.has_fault(FaultKind.REPLY_AFTER_HANDLING):
            ready = self._refused_after(exchange, ready, exchange.fault.value)
        if exchange.has_fault(FaultKind.CLOSE_AFTER_HANDLING):
            self._loop.close_session(exchange.session)
        elif exchange.fault is not None and exchange.has_fault(FaultKind.DELAY):
            self._loop.call_after(exchange.fault.value, lambda: self._respond(exchange, ready))
        elif isinstance(ready, LastResponse):
            self._loop.call_after(_REFUSED_LOGIN_DELAY_MS, lambda: self._respond(exchange, ready))
        else:
            self._respond(exchange, ready)

    def _refused_after(self, exchange: _Exchange, ready: Ready, error_code: int) -> Ready:
        """Return the error in place of an answer; what is no answer stays."""
        if not isinstance(ready, Response | FileResponse):
            return ready
        response = refuse(exchange.request, error_code)
        name_leaders(self._broker, response, exchange.request.version, exchange.session.endpoint)
        return response

    def _respond(self, exchange: _Exchange, ready: Ready) -> None:
        """Queue the answer and send what the socket takes of it."""
        session = exchange.session
        if session.is_closed:
            return
        if isinstance(ready, CloseConnectionError):
            self._loop.drop(session, ready)
            return
        wait_ms = 0
        if session.is_trusted and not session.is_peer and not self._throttle.is_off:  # else the name is anybody's
            ready, wait_ms = self._throttle.charge(exchange.request, ready, exchange.body_bytes, exchange.busy_ns)
        if exchange.fault is not None and exchange.has_fault(FaultKind.THROTTLE):
            wait_ms = max(wait_ms, exchange.fault.value)
            name_wait(ready, exchange.request.version, wait_ms)
        if wait_ms:
            exchange.encoded = None
        try:
            self._queue_shortened(exchange, ready)
        except (KafkaError, ValueError):
            logger.exception("%s: the answer cannot be encoded", exchange.handler.API.name)
            self._loop.close_session(session)
            return
        if wait_ms:
            self._loop.call_after(wait_ms, lambda: self._answered(session))
            self._loop.push(session)
        else:
            self._answered(session)

    def _queue_shortened(self, exchange: _Exchange, ready: Ready) -> None:
        """Queue the answer, with shorter error messages if it cannot be encoded with those that it has."""
        try:
            self._queue(exchange, ready)
        except ValueError:
            if not isinstance(ready, Response) or not shorten_messages(ready):
                raise
            self._queue(exchange, ready)

    def _queue(self, exchange: _Exchange, ready: Ready) -> None:
        session, received = exchange.session, exchange.received
        if exchange.encoded is not None:
            session.queue_encoded(received, exchange.encoded)
            return
        if isinstance(ready, FileResponse):
            response, ranges = ready
        elif isinstance(ready, LastResponse):
            response, ranges = ready.response, []
            session.closes_after_answer = True
        elif isinstance(ready, NoResponse):
            session.skip_response(received)
            return
        else:
            assert not isinstance(ready, CloseConnectionError)
            response, ranges = ready, []
        session.queue_response(received, response, ranges)
        if exchange.has_fault(FaultKind.HALF_FRAME):
            session.cut_output_in_half()

    def _answered(self, session: Session) -> None:
        if not session.is_closed:
            session.stage = SessionStage.ANSWERED
            self._loop.push(session)


def _is_abandoned(session: Session, body: Request) -> bool:
    """Whether the client has given up a produce request that wants an answer, and sends its batches elsewhere by now.

    One that waits here behind another request, or on a broker that was paused, may get its turn seconds later,
    when this broker leads again. A client that meanwhile has begun a new epoch, as librdkafka does after a gap in the
    sequences, would then have the batch in the log twice: once by each epoch.
    """
    return isinstance(body, ProduceRequest) and body.acks != 0 and session.has_client_left
