from __future__ import annotations

import logging
import os
import struct
from functools import partial
from typing import Any

import pytest

from kafkaprod.errors import (
    AuthenticationError,
    BrokerError,
    ConnectionLostError,
    CorruptDataError,
    IllegalStateError,
    KafkaError,
    RequestTimedOutError,
    UnsupportedVersionError,
)
from kafkaprod.protocol.client import Connection
from kafkaprod.protocol.client_events import (
    ConnectionFailed,
    SaslChallenge,
    SessionReauthenticated,
)
from kafkaprod.protocol.frames import MAX_FRAME_BYTES
from kafkaprod.protocol.handshake import (
    FIRST_FRAME_MAX_BYTES,
    FRAME_LIMITS,
    SASL_FRAME_MAX_BYTES,
    TRANSITIONS,
    ConnectionState,
)
from kafkaprod.protocol.messages.describe_groups import DescribeGroupsRequest
from kafkaprod.protocol.messages.init_producer_id import InitProducerIdRequest
from tests.support.net.connections import PRODUCE, echo, exchange, make, produce, ready, take
from tests.support.net.fake_broker import FakeBroker, Received, frame, response
from tests.support.net.happenings import happened, kind
from tests.support.net.outcomes import outcome_token

# -- negotiation -------------------------------------------------------------------------------------------------------


def test_a_current_broker_is_ready_after_one_exchange() -> None:
    connection, broker = ready(FakeBroker(transaction_version=2))
    assert broker.seen == [(18, 4)]
    assert broker.requests[0].client_id == "c"
    assert connection.is_ready
    assert connection.usable_version(PRODUCE, 3, 13) == 11
    assert connection.usable_version(PRODUCE, 12, 13) is None
    assert connection.usable_version(99, 0, 1) is None
    versions = connection.versions
    assert versions is not None
    assert versions.finalized_features == {"transaction.version": 2}
    assert versions.finalized_features_epoch == 7


def test_the_first_frame_is_the_golden_one() -> None:
    connection = make(client_id="c")
    connection.start(0)
    expected = "0000001d 0012 0004 00000000 0001 63 00 0a 6b61666b6170726f64 06 302e312e30 00"
    assert take(connection) == bytes.fromhex(expected)


@pytest.mark.parametrize("highest", [3, 2, 1, 0])
def test_an_older_broker_names_its_own_highest_version_and_gets_it(highest: int) -> None:
    connection, broker = ready(FakeBroker(refuse_versions_above=highest))
    assert broker.seen == [(18, 4), (18, highest)]
    assert connection.usable_version(PRODUCE, 3, 13) == 11


MOCK_CLUSTER_BODY = bytes.fromhex("0023 02 0012 0000 0002 00 00000000")
NO_RANGES = bytes.fromhex("0023 00000000")


@pytest.mark.parametrize(
    "body",
    [
        NO_RANGES,
        b"\0\x23",
        MOCK_CLUSTER_BODY,
        bytes.fromhex("0023 00000001 0012 0000 ffff"),
        bytes.fromhex("0023 7fffffff 0012 0000 0003"),
        bytes.fromhex("0023 ffffffff"),
        bytes.fromhex("0023 00000001 0000 0000 0009"),
    ],
)
def test_a_refusal_that_tells_nothing_leads_to_version_zero(body: bytes) -> None:
    _, broker = ready(FakeBroker(refuse_versions_above=2, refusal=lambda _: body))
    assert broker.seen == [(18, 4), (18, 0)]


def test_a_broker_that_refuses_every_version_cannot_keep_us_busy() -> None:
    def insist(version: int) -> bytes:
        return struct.pack(">hihhh", 35, 1, 18, 0, version)  # "use the very version I refuse"

    connection = make()
    connection.start(0)
    broker = FakeBroker(refuse_versions_above=-1, refusal=insist)
    events = exchange(connection, broker)
    assert [version for _, version in broker.seen] == [4, 3, 2, 1, 0]
    assert isinstance(events[-1], ConnectionFailed)
    assert connection.state is ConnectionState.CLOSED


def test_any_other_error_of_api_versions_ends_the_connection() -> None:
    connection = make()
    connection.start(0)
    broker = FakeBroker(handlers={18: lambda _: struct.pack(">hBi", 129, 1, 0) + b"\0"})
    (failed,) = exchange(connection, broker)
    assert isinstance(failed, ConnectionFailed)
    assert isinstance(failed.error, BrokerError)
    assert failed.error.code == 129


# -- requests ----------------------------------------------------------------------------------------------------------


def test_responses_come_back_in_order_with_their_tokens() -> None:
    connection, broker = ready()
    broker.handlers[PRODUCE] = echo
    for token in "abc":
        produce(connection, token, token.encode())
    assert connection.in_flight_count == 3
    events = exchange(connection, broker, now_ms=5)
    assert [kind(event) for event in events] == ["answered"] * 3
    for event, token in zip(events, "abc", strict=True):
        assert kind(event) == "answered"
        assert (event.on_done, event.api_key, event.version, event.response) == (token, PRODUCE, 9, None)
        assert event.body is not None
        assert bytes(event.body) == b"re:" + token.encode()
        assert event.latency_ms == 5
    assert connection.in_flight_count == 0


@pytest.mark.parametrize(("version", "tagged"), [(8, b""), (9, b"\0"), (9, b"\1\5\2ab"), (9, b"\x80\0")])
def test_an_answer_that_comes_whole_is_taken_as_one_in_parts(version: int, tagged: bytes) -> None:
    bodies = []
    for parts in (1, 2):
        connection, _ = ready()
        correlation_id = connection.send_body(
            PRODUCE, version, [b"body"], 4, on_done=outcome_token("t"), now_ms=0, timeout_ms=1000
        )
        take(connection)
        data = frame(struct.pack(">i", correlation_id) + tagged + b"answer")
        middle = len(data) if parts == 1 else len(data) // 2
        answered = connection.receive_data(data[:middle], 3) + connection.receive_data(data[middle:], 7)
        (event,) = happened(connection)
        assert (answered, connection.in_flight_count) == (1, 0)
        assert (event.on_done, event.latency_ms) == ("t", 3 if parts == 1 else 7)
        bodies.append(bytes(event.body))
    assert bodies == [b"answer", b"answer"]


def test_whole_answers_that_come_together_are_taken_without_cutting_them_into_frames(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    connection, broker = ready(FakeBroker(handlers={PRODUCE: echo}))
    for token in "abc":
        produce(connection, outcome_token(token), body=token.encode())
    answers = broker.receive(take(connection))
    given: list[bytes] = []
    receive_parts = Connection._receive_parts

    def keep(self: Connection, data: memoryview, now_ms: int) -> int:
        given.append(bytes(data))
        return receive_parts(self, data, now_ms)

    monkeypatch.setattr(Connection, "_receive_parts", keep)
    assert connection.receive_data(answers[:-1], 5) == 2
    assert [kind(event) for event in happened(connection)] == ["answered", "answered"]
    assert given == [answers[2 * len(answers) // 3 : -1]]  # what is left of the third
    assert connection.receive_data(answers[-1:], 6) == 1
    assert [event.body for event in happened(connection)] == [b"re:c"]


def test_a_declared_request_comes_back_decoded() -> None:
    connection, broker = ready()
    broker.handlers[22] = lambda _: struct.pack(">ihqh", 0, 0, 4000, 3) + b"\0"
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
    connection.send(request, 4, on_done=outcome_token("t"), now_ms=0, timeout_ms=1000)
    (event,) = exchange(connection, broker)
    assert kind(event) == "answered"
    assert (event.on_done, event.version, event.body) == ("t", 4, None)
    assert (event.response.producer_id, event.response.producer_epoch) == (4000, 3)


def test_bytes_behind_a_declared_response_are_ignored_as_kafkas_clients_do() -> None:
    connection, broker = ready()
    broker.handlers[22] = lambda _: struct.pack(">ihqh", 0, 0, 4000, 3) + b"\0\0"
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
    connection.send(request, 4, on_done=outcome_token("t"), now_ms=0, timeout_ms=1000)
    (event,) = exchange(connection, broker)
    assert kind(event) == "answered"


def test_response_of_more_elements_than_any_cluster_has_ends_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafkaprod.protocol.exchange.MAX_ELEMENTS", 5)
    group = b"\0\0" + b"\0\1g" + b"\0\0" * 3 + struct.pack(">i", 0)
    for count, outcome in ((5, "answered"), (6, "failed")):
        body = struct.pack(">i", count) + group * count
        connection, broker = ready(FakeBroker(ranges={18: (0, 4), 15: (0, 0)}, handlers={15: partial(_always, body)}))
        connection.send(DescribeGroupsRequest(groups=["g"]), 0, on_done=outcome_token("t"), now_ms=0, timeout_ms=1000)
        assert kind(exchange(connection, broker)[0]) == outcome


def _always(body: bytes, request: Any) -> bytes:
    return body


def test_buffers_travel_uncopied_and_are_let_go_when_sent() -> None:
    connection, _ = ready()
    records = bytearray(os.urandom(1000))
    connection.send_body(
        PRODUCE, 9, [b"head", memoryview(records), b"", b"tail"], 1008, on_done=outcome_token(1), now_ms=0, timeout_ms=9
    )
    views = connection.data_to_send(1024)
    assert len(views) == 4  # header, head, records, tail: nothing empty, nothing joined
    assert memoryview(views[2]).obj is records
    connection.data_sent(len(views[0]) + 4 + 999, 0)
    with pytest.raises(BufferError):
        records.append(0)  # one byte is still to be sent
    connection.data_sent(5, 0)
    del views
    records.append(0)


def test_buffers_are_let_go_when_the_connection_ends() -> None:
    connection, _ = ready()
    records = bytearray(1000)
    connection.send_body(PRODUCE, 9, [memoryview(records)], 1000, on_done=outcome_token(1), now_ms=0, timeout_ms=9)
    connection.data_sent(20, 0)
    connection.connection_lost(ConnectionLostError("cut"))
    records.append(0)
    assert connection.data_to_send(10) == []
    assert connection.outgoing_bytes == 0


def test_a_frame_can_be_sent_byte_by_byte() -> None:
    connection, broker = ready()
    broker.handlers[PRODUCE] = echo
    produce(connection, "t", b"0123456789" * 20)
    answer = b""
    while connection.outgoing_bytes:
        answer += broker.receive(take(connection, 1))
    for position in range(len(answer)):
        assert happened(connection) == []
        connection.receive_data(answer[position : position + 1], 0)
    (event,) = happened(connection)
    assert kind(event) == "answered"


def test_a_request_without_response_ends_when_its_last_byte_is_taken() -> None:
    connection, _ = ready()
    produce(connection, "t", expects_response=False)
    size = connection.outgoing_bytes
    connection.data_sent(size - 1, 0)
    assert happened(connection) == []
    assert connection.in_flight_count == 1
    connection.data_sent(1, 0)
    assert [(kind(each), each.on_done) for each in happened(connection)] == [("written", "t")]
    assert connection.in_flight_count == 0


def test_requests_with_and_without_response_may_be_mixed() -> None:
    connection, broker = ready()
    produce(connection, "answered", now_ms=0)
    produce(connection, "silent", expects_response=False)
    first: list[Any] = []
    second: list[Any] = []

    def only_first(request: Received) -> bytes | None:
        (first if not first else second).append(request)
        return b"x" if len(second) == 0 else None

    broker.handlers[PRODUCE] = only_first
    kinds = [kind(event) for event in exchange(connection, broker)]
    assert kinds == ["written", "answered"]


def test_nothing_is_queued_when_a_send_is_refused() -> None:
    connection = make()
    with pytest.raises(IllegalStateError, match="CREATED"):
        produce(connection, "t")
    connection, _ = ready()
    with pytest.raises(UnsupportedVersionError, match=r"0\.\.11"):
        connection.send_body(PRODUCE, 12, [b"x"], 1, on_done=outcome_token("t"), now_ms=0, timeout_ms=1)
    with pytest.raises(UnsupportedVersionError):
        connection.send_body(1, 4, [b"x"], 1, on_done=outcome_token("t"), now_ms=0, timeout_ms=1)
    with pytest.raises(IllegalStateError, match="body of 1 bytes"):
        connection.send_body(PRODUCE, 9, [b"x"], 2, on_done=outcome_token("t"), now_ms=0, timeout_ms=1)
    assert (connection.outgoing_bytes, connection.in_flight_count) == (0, 0)
    with pytest.raises(ValueError, match="reported as sent"):
        connection.data_sent(1, 0)


# -- violations --------------------------------------------------------------------------------------------------------


def broken(answer: Any) -> list[Any]:
    """Send two requests, answer the first with `answer(request)` bytes, return the events."""
    connection, broker = ready()
    produce(connection, "a")
    produce(connection, "b")
    broker.receive(take(connection))
    connection.receive_data(answer(broker.requests[1]), 0)
    events = happened(connection)
    assert connection.state is ConnectionState.CLOSED
    connection.receive_data(response(broker.requests[1], b"late"), 0)
    assert happened(connection) == []
    return events


@pytest.mark.parametrize(
    "answer",
    [
        lambda request: response(request, b"x", correlation_id=request.correlation_id + 1),
        lambda request: response(request, b"x", correlation_id=-1),
        lambda request: frame(b"\0\0"),
        lambda request: frame(b""),
        lambda request: struct.pack(">i", -1),
        lambda request: struct.pack(">i", MAX_FRAME_BYTES + 1),
        lambda request: b"HTTP/1.1 400 Bad Request\r\n",
        lambda request: b"\x15\x03\x03\x00\x02\x02\x46",
        lambda request: frame(struct.pack(">i", request.correlation_id) + b"\xff\xff\xff\xff\xff\xff"),
    ],
)
def test_a_violation_fails_everything_in_order_as_possibly_persisted(answer: Any) -> None:
    events = broken(answer)
    assert [kind(event) for event in events] == ["failed", "failed", ConnectionFailed]
    for event, token in zip(events, "ab", strict=False):
        assert kind(event) == "failed"
        assert (event.on_done, event.is_possibly_persisted) == (token, True)
        assert isinstance(event.error, ConnectionLostError)
        assert isinstance(event.error.__cause__, CorruptDataError)
    assert isinstance(events[-1], ConnectionFailed)
    assert isinstance(events[-1].error, CorruptDataError)


def test_the_second_of_two_swapped_responses_completes_nothing() -> None:
    connection, broker = ready()
    produce(connection, "a")
    produce(connection, "b")
    broker.receive(take(connection))
    first, second = broker.requests[1:]
    connection.receive_data(response(second, b"B") + response(first, b"A"), 0)
    assert not any(kind(event) == "answered" for event in happened(connection))


def test_a_replayed_response_completes_nothing() -> None:
    connection, broker = ready()
    produce(connection, "a")
    broker.receive(take(connection))
    answer = response(broker.requests[1], b"A")
    connection.receive_data(answer + answer, 0)
    kinds = [kind(event) for event in happened(connection)]
    assert kinds == ["answered", ConnectionFailed]


def test_an_answer_to_a_request_not_fully_sent_is_a_violation() -> None:
    connection, _ = ready()
    correlation_id = produce(connection, "a")
    connection.data_sent(connection.outgoing_bytes - 1, 0)
    connection.receive_data(frame(struct.pack(">i", correlation_id) + b"\0x"), 0)
    failed = happened(connection)[0]
    assert kind(failed) == "failed"
    assert not failed.is_possibly_persisted


def test_a_declared_response_that_cannot_be_decoded_ends_the_connection() -> None:
    connection, broker = ready()
    broker.handlers[22] = lambda _: b"\0"
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
    connection.send(request, 4, on_done=outcome_token("t"), now_ms=0, timeout_ms=1000)
    events = exchange(connection, broker)
    # The request had been answered, though not understandably: it fails like the others.
    assert [kind(event) for event in events] == ["failed", ConnectionFailed]


@pytest.mark.parametrize("size", [FIRST_FRAME_MAX_BYTES + 1, 2**31 - 1, -1, 0x48545450])
def test_the_first_reply_is_capped_before_anything_is_allocated(size: int) -> None:
    connection = make()
    connection.start(0)
    take(connection)
    connection.receive_data(struct.pack(">i", size), 0)
    (failed,) = happened(connection)
    assert isinstance(failed, ConnectionFailed)
    assert isinstance(failed.error, CorruptDataError)


def test_a_frame_of_a_megabyte_is_legal_once_ready() -> None:
    connection, broker = ready()
    broker.handlers[PRODUCE] = lambda _: bytes(FIRST_FRAME_MAX_BYTES + 1)
    produce(connection, "t")
    (event,) = exchange(connection, broker)
    assert kind(event) == "answered"


# -- loss and time -----------------------------------------------------------------------------------------------------


def test_a_lost_connection_tells_sent_requests_from_unsent_ones() -> None:
    connection, _ = ready()
    for token in "abc":
        produce(connection, token)
    frame_bytes = connection.outgoing_bytes // 3
    connection.data_sent(2 * frame_bytes - 1, 0)
    cause = ConnectionLostError("reset")
    connection.connection_lost(cause)
    events = happened(connection)
    failed = [event for event in events if kind(event) == "failed"]
    assert [(event.on_done, event.is_possibly_persisted) for event in failed] == [
        ("a", True),
        ("b", False),
        ("c", False),
    ]
    assert all(event.error is cause for event in failed)
    assert events[-1] == ConnectionFailed(cause)
    connection.connection_lost(cause)
    assert happened(connection) == []


def test_one_overdue_answer_fails_everything_as_timed_out() -> None:
    connection, _ = ready()
    produce(connection, "a", now_ms=100, timeout_ms=1000)
    produce(connection, "b", now_ms=200, timeout_ms=300)
    take(connection)
    assert connection.next_deadline_ms() == 500
    connection.on_time(499)
    assert happened(connection) == []
    connection.on_time(500)
    events = happened(connection)
    assert [getattr(event, "on_done", None) for event in events] == ["a", "b", None]
    assert all(isinstance(event.error, RequestTimedOutError) for event in events)
    assert connection.next_deadline_ms() is None


def test_throttling_without_end_at_most_doubles_a_timeout() -> None:
    connection, _ = ready()
    produce(connection, "a", timeout_ms=1000)
    for _ in range(5):
        connection.extend_deadlines(2**31 - 1)
    assert connection.next_deadline_ms() == 2000


@pytest.mark.parametrize(("limit", "is_taken"), [(100, True), (99, False)])
def test_response_longer_than_its_request_allows_ends_the_connection(limit: int, is_taken: bool) -> None:
    connection, broker = ready()
    broker.handlers[PRODUCE] = lambda _: bytes(95)
    produce(connection, "t", max_response_bytes=limit)
    kinds = [kind(each) for each in exchange(connection, broker)]
    assert kinds == (["answered"] if is_taken else ["failed", ConnectionFailed])


def test_throttling_moves_the_deadlines() -> None:
    connection, _ = ready()
    produce(connection, "a", timeout_ms=1000)
    connection.extend_deadlines(500)
    connection.on_time(1499)
    assert happened(connection) == []
    connection.on_time(1500)
    assert len(happened(connection)) == 2


def test_an_unanswered_handshake_times_out() -> None:
    connection = make(handshake_timeout_ms=700)
    connection.start(0)
    assert connection.next_deadline_ms() == 700
    connection.on_time(700)
    (failed,) = happened(connection)
    assert isinstance(failed, ConnectionFailed)
    assert isinstance(failed.error, RequestTimedOutError)


def test_correlation_ids_wrap() -> None:
    connection, broker = ready()
    broker.handlers[PRODUCE] = echo
    connection._next_correlation_id = 2**31 - 1
    assert [produce(connection, token) for token in "ab"] == [2**31 - 1, 0]
    assert len(exchange(connection, broker)) == 2


# -- SASL --------------------------------------------------------------------------------------------------------------


def sasl_broker(**options: Any) -> FakeBroker:
    return FakeBroker(**{"sasl": lambda token: (0, b"")} | options)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_login_precedes_the_full_negotiation(version: int) -> None:
    broker = sasl_broker(ranges={0: (0, 9), 17: (0, 1), 18: (0, 4), 36: (0, version)})
    ready(broker, sasl_mechanism="PLAIN")
    assert broker.seen == [(18, 0), (17, 1), (36, version), (18, 4)]
    assert broker.requests[2].body.strip(b"\0").endswith(b"token")


def test_a_login_may_take_several_tokens() -> None:
    answers = {b"one": b"1", b"two": b"2", b"three": b"3"}
    broker = sasl_broker(sasl=lambda token: (0, answers[token]))
    connection = make(sasl_mechanism="X")
    broker.mechanisms = ("X",)
    connection.start(0)
    replies = {None: b"one", b"1": b"two", b"2": b"three"}
    for _ in range(6):
        connection.receive_data(broker.receive(take(connection)), 0)
        for event in happened(connection):
            if isinstance(event, SaslChallenge):
                if event.challenge == b"3":
                    connection.sasl_complete(0)
                else:
                    connection.sasl_token(replies[event.challenge], 0)
    assert connection.is_ready


def failure_of_login(broker: FakeBroker) -> KafkaError:
    connection = make(sasl_mechanism="PLAIN")
    connection.start(0)
    events = exchange(connection, broker)
    assert [kind(event) for event in events] == [ConnectionFailed]
    assert isinstance(events[0], ConnectionFailed)
    return events[0].error


def test_a_refused_mechanism_names_those_offered_and_is_not_replaced() -> None:
    broker = sasl_broker(mechanisms=("SCRAM-SHA-256", "GSSAPI"))
    error = failure_of_login(broker)
    assert isinstance(error, AuthenticationError)
    assert "SCRAM-SHA-256, GSSAPI" in str(error)
    assert [key for key, _ in broker.seen] == [18, 17]


def test_refused_credentials_are_an_authentication_error_with_the_brokers_words() -> None:
    error = failure_of_login(sasl_broker(sasl=lambda token: (58, b"")))
    assert isinstance(error, AuthenticationError)
    assert "go away" in str(error)


def test_a_listener_without_sasl_is_an_authentication_error() -> None:
    assert isinstance(failure_of_login(FakeBroker(ranges={0: (0, 9), 18: (0, 4)})), AuthenticationError)
    assert isinstance(failure_of_login(FakeBroker(ranges={17: (0, 0), 18: (0, 4), 36: (0, 2)})), AuthenticationError)
    assert isinstance(failure_of_login(FakeBroker(ranges={17: (0, 1), 18: (0, 4)})), AuthenticationError)


def test_a_failing_broker_during_login_is_not_an_authentication_error() -> None:
    error = failure_of_login(sasl_broker(sasl=lambda token: (-1, b"")))
    assert not isinstance(error, AuthenticationError)


def test_sasl_frames_are_capped_until_the_login_is_through() -> None:
    connection = make(sasl_mechanism="PLAIN")
    connection.start(0)
    broker = sasl_broker()
    connection.receive_data(broker.receive(take(connection)), 0)
    take(connection)
    connection.receive_data(struct.pack(">i", SASL_FRAME_MAX_BYTES + 1), 0)
    (failed,) = happened(connection)
    assert isinstance(failed, ConnectionFailed)
    assert isinstance(failed.error, CorruptDataError)


def test_tokens_are_refused_when_none_is_awaited() -> None:
    connection, _ = ready()
    with pytest.raises(IllegalStateError):
        connection.sasl_token(b"x", 0)
    with pytest.raises(IllegalStateError):
        connection.sasl_complete(0)


def test_a_mechanism_that_never_answers_times_out() -> None:
    connection = make(sasl_mechanism="PLAIN", handshake_timeout_ms=50)
    connection.start(0)
    broker = sasl_broker()
    for _ in range(2):
        connection.receive_data(broker.receive(take(connection)), 0)
    assert [kind(event) for event in happened(connection)] == [SaslChallenge]
    assert connection.next_deadline_ms() == 50
    connection.on_time(50)
    assert [kind(event) for event in happened(connection)] == [ConnectionFailed]


# -- re-authentication -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("random", "due_ms"), [(0.0, 8500), (0.5, 9000), (0.999999, 9499)])
def test_the_session_is_renewed_at_85_to_95_percent_of_its_life(random: float, due_ms: int) -> None:
    broker = sasl_broker(session_lifetime_ms=10_000)
    connection, _ = ready(broker, sasl_mechanism="PLAIN", random=lambda: random)
    assert connection.next_deadline_ms() == due_ms
    connection.on_time(due_ms - 1)
    assert connection.is_ready
    connection.on_time(due_ms)
    assert not connection.is_ready
    (event,) = exchange(connection, broker, now_ms=due_ms)
    assert isinstance(event, SessionReauthenticated)
    assert connection.is_ready
    assert broker.seen[4:] == [(17, 1), (36, 2)]
    assert connection.next_deadline_ms() == 2 * due_ms


def test_a_second_reauthentication_within_a_second_waits_because_kafka_refuses_it() -> None:
    broker = sasl_broker(session_lifetime_ms=1000)
    connection, _ = ready(broker, sasl_mechanism="PLAIN", random=lambda: 0.0)
    connection.on_time(850)  # the first one may come soon after the login
    assert connection.state is ConnectionState.SASL_HANDSHAKE
    exchange(connection, broker, now_ms=850)
    assert connection.is_ready
    connection.on_time(1700)
    assert connection.state is ConnectionState.DRAINING
    assert connection.next_deadline_ms() == 1950
    connection.on_time(1949)
    assert connection.state is ConnectionState.DRAINING
    connection.on_time(1950)
    assert connection.state is ConnectionState.SASL_HANDSHAKE


def test_nothing_is_pipelined_around_a_reauthentication() -> None:
    broker = sasl_broker(session_lifetime_ms=10_000)
    connection, _ = ready(broker, sasl_mechanism="PLAIN", random=lambda: 0.0)
    produce(connection, "a", timeout_ms=60_000)
    produce(connection, "b", timeout_ms=60_000)
    broker.receive(take(connection))
    connection.on_time(8500)
    assert connection.state is ConnectionState.DRAINING
    with pytest.raises(IllegalStateError):
        produce(connection, "c")
    assert connection.outgoing_bytes == 0
    connection.receive_data(response(broker.requests[-2], b"A"), 8600)
    assert connection.state is ConnectionState.DRAINING
    connection.receive_data(response(broker.requests[-1], b"B"), 8600)
    assert connection.state is ConnectionState.SASL_HANDSHAKE
    kinds = [kind(event) for event in exchange(connection, broker, now_ms=8700)]
    assert kinds == ["answered", "answered", SessionReauthenticated]
    broker.handlers[PRODUCE] = echo
    produce(connection, "d")
    assert len(exchange(connection, broker)) == 1


def test_a_request_without_response_does_not_hold_up_the_login_and_precedes_it() -> None:
    broker = sasl_broker(session_lifetime_ms=10_000)
    connection, _ = ready(broker, sasl_mechanism="PLAIN", random=lambda: 0.0)
    produce(connection, "a", timeout_ms=60_000, expects_response=False)
    connection.on_time(8500)
    assert connection.state is ConnectionState.SASL_HANDSHAKE
    kinds = [kind(event) for event in exchange(connection, broker, now_ms=8500)]
    assert kinds == ["written", SessionReauthenticated]
    assert broker.seen[4:] == [(PRODUCE, 9), (17, 1), (36, 2)]


def test_a_refused_reauthentication_closes_cleanly() -> None:
    verdicts = [0, 58]
    broker = sasl_broker(session_lifetime_ms=10_000, sasl=lambda token: (verdicts.pop(0), b""))
    connection, _ = ready(broker, sasl_mechanism="PLAIN", random=lambda: 0.0)
    connection.on_time(8500)
    (failed,) = exchange(connection, broker, now_ms=8500)
    assert isinstance(failed, ConnectionFailed)
    assert isinstance(failed.error, AuthenticationError)


def test_an_unlimited_session_is_never_renewed() -> None:
    connection, _ = ready(sasl_broker(), sasl_mechanism="PLAIN")
    assert connection.next_deadline_ms() is None


# -- state table, secrets ----------------------------------------------------------------------------------------------


def test_an_illegal_transition_raises_and_changes_nothing() -> None:
    connection, _ = ready()
    with pytest.raises(IllegalStateError, match="READY to NEGOTIATING"):
        connection.start(0)
    assert connection.is_ready


def test_every_state_but_the_last_can_close_and_every_state_is_in_the_table() -> None:
    assert set(TRANSITIONS) == set(FRAME_LIMITS) == set(ConnectionState)
    assert all(
        ConnectionState.CLOSED in targets
        for state, targets in TRANSITIONS.items()
        if state is not ConnectionState.CLOSED
    )
    assert TRANSITIONS[ConnectionState.CLOSED] == frozenset()


def test_secrets_appear_in_no_repr_log_or_error(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    connection = make(sasl_mechanism="PLAIN")
    broker = sasl_broker(sasl=lambda token: (0, b"canary-challenge"))
    connection.start(0)
    shown: list[str] = []
    for _ in range(3):
        connection.receive_data(broker.receive(take(connection)), 0)
        for event in happened(connection):
            shown.append(repr(event))
            if isinstance(event, SaslChallenge) and event.challenge is None:
                connection.sasl_token(b"canary-token", 0)
                shown.append(repr(connection) + repr(list(connection._in_flight)))
    connection.connection_lost(ConnectionLostError("cut"))
    shown.extend(map(repr, happened(connection)))
    assert b"canary-token" in broker.requests[-1].body
    assert "canary" not in " ".join(shown) + caplog.text
