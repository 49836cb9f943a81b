"""The connection against a model made of plain lists: every request ends exactly once, in order, truthfully."""

from __future__ import annotations

import struct
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kafkaprod.errors import ConnectionLostError, RequestTimedOutError
from kafkaprod.protocol.client import Connection
from kafkaprod.protocol.client_events import ConnectionFailed
from kafkaprod.protocol.handshake import ConnectionState
from tests.support.net.fake_broker import FakeBroker, frame
from tests.support.net.happenings import happened, kind
from tests.support.net.outcomes import outcome_token

PRODUCE = 0


class ClientConnectionMachine(RuleBasedStateMachine):
    """Rules are what sender, socket, broker and clock may do."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 0
        self.connection = Connection(client_id=None, software_name="kafkaprod", software_version="1")
        self.connection.start(0)
        answer = FakeBroker().receive(b"".join(self.connection.data_to_send(9)))
        self.connection.data_sent(self.connection.outgoing_bytes, 0)
        self.connection.receive_data(answer, 0)
        self.connection.events()
        # Model: waiting is [token, correlation id, bytes unsent up to its end, expects response, deadline, latest].
        self.waiting: list[list[Any]] = []
        self.expected: list[tuple[str, Any]] = []
        self.token = 0

    def is_open(self) -> bool:
        return self.connection.state is not ConnectionState.CLOSED

    @rule(sizes=st.lists(st.integers(0, 50), max_size=5), expects=st.booleans(), timeout_ms=st.integers(1, 1000))
    @precondition(is_open)
    def send(self, sizes: list[int], expects: bool, timeout_ms: int) -> None:
        self.token += 1
        correlation_id = self.connection.send_body(
            PRODUCE,
            8,
            [bytes(size) for size in sizes],
            sum(sizes),
            on_done=outcome_token(self.token),
            now_ms=self.now_ms,
            timeout_ms=timeout_ms,
            expects_response=expects,
        )
        unsent = self.connection.outgoing_bytes
        self.waiting.append(
            [self.token, correlation_id, unsent, expects, self.now_ms + timeout_ms, self.now_ms + 2 * timeout_ms]
        )

    @rule(share=st.floats(0, 1))
    @precondition(is_open)
    def socket_takes(self, share: float) -> None:
        nbytes = int(self.connection.outgoing_bytes * share)
        self.connection.data_sent(nbytes, 0)
        for request in self.waiting:
            request[2] -= nbytes
        for request in [r for r in self.waiting if r[2] <= 0 and not r[3]]:
            self.waiting.remove(request)
            self.expected.append(("sent", request[0]))

    @rule(body=st.binary(max_size=20))
    @precondition(lambda self: self.is_open() and self.oldest() is not None and self.oldest()[2] <= 0)
    def broker_answers(self, body: bytes) -> None:
        request = self.oldest()
        self.connection.receive_data(frame(struct.pack(">i", request[1]) + body), self.now_ms)
        self.waiting.remove(request)
        self.expected.append(("response", request[0]))

    @rule(offset=st.integers(1, 2**31 - 1))
    @precondition(is_open)
    def broker_answers_something_else(self, offset: int) -> None:
        base = self.oldest()[1] if self.oldest() else 0
        self.connection.receive_data(frame(struct.pack(">i", (base + offset) % 2**31)), self.now_ms)
        self.fail_all(ConnectionLostError)

    @rule(ms=st.integers(0, 400))
    @precondition(is_open)
    def time_passes(self, ms: int) -> None:
        self.now_ms += ms
        self.connection.on_time(self.now_ms)
        if any(request[4] <= self.now_ms for request in self.waiting):
            self.fail_all(RequestTimedOutError)

    @rule(ms=st.integers(1, 500))
    @precondition(is_open)
    def broker_throttles(self, ms: int) -> None:
        self.connection.extend_deadlines(ms)
        for request in self.waiting:
            request[4] = min(request[4] + ms, request[5])

    @rule()
    def connection_is_lost(self) -> None:
        was_open = self.is_open()
        self.connection.connection_lost(ConnectionLostError("cut"))
        if was_open:
            self.fail_all(ConnectionLostError)

    def oldest(self) -> Any:
        return next((request for request in self.waiting if request[3]), None)

    def fail_all(self, kind: type[Exception]) -> None:
        self.expected += [("failed", (request[0], kind, request[2] <= 0)) for request in self.waiting]
        self.expected.append(("closed", None))
        self.waiting = []

    @invariant()
    def events_are_those_of_the_model(self) -> None:
        got: list[tuple[str, Any]] = []
        for event in happened(self.connection):
            match kind(event):
                case "answered":
                    got.append(("response", event.on_done))
                case "written":
                    got.append(("sent", event.on_done))
                case "failed":
                    got.append(("failed", (event.on_done, type(event.error), event.is_possibly_persisted)))
                case kinds if kinds is ConnectionFailed:
                    got.append(("closed", None))
        assert got == self.expected
        self.expected = []

    @invariant()
    def counts_and_deadlines_agree(self) -> None:
        assert self.connection.in_flight_count == len(self.waiting)
        assert self.connection.next_deadline_ms() == min((request[4] for request in self.waiting), default=None)
        last = self.waiting[-1][2] if self.waiting else 0
        assert self.connection.outgoing_bytes == max(last, 0)


TestClientConnectionMachine = ClientConnectionMachine.TestCase
TestClientConnectionMachine.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
