"""A broker's registration with the controller, by a clock that the test moves."""

import uuid
from typing import Any

import pytest

from kafkaprod.broker.controller.wire import supported_features
from kafkaprod.broker.replication.lifecycle import (
    HURRY_MS,
    RETRY_MS,
    TIMEOUT_MS,
    BrokerLifecycle,
    BrokerState,
    LifecycleRequest,
)
from kafkaprod.protocol.error_codes import ErrorCode as E
from kafkaprod.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from kafkaprod.protocol.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    Listener,
)

HEARTBEAT_MS = 500
FENCED, SERVING = BrokerHeartbeatResponse(), BrokerHeartbeatResponse(is_fenced=False)
MAY_STOP = BrokerHeartbeatResponse(is_fenced=False, should_shut_down=True)


def sent(lifecycle: BrokerLifecycle, now_ms: int = 0, offset: int = 0) -> LifecycleRequest:
    request = lifecycle.next_request(offset, now_ms)
    assert request is not None
    return request


def answered(lifecycle: BrokerLifecycle, answer: Any, now_ms: int = 0, offset: int = 0) -> LifecycleRequest:
    request = sent(lifecycle, now_ms, offset)
    lifecycle.on_answer(request, answer, now_ms)
    return request


@pytest.fixture
def starting() -> BrokerLifecycle:
    lifecycle = BrokerLifecycle(1, "c", uuid.UUID(int=1), heartbeat_ms=HEARTBEAT_MS)
    answered(lifecycle, BrokerRegistrationResponse(broker_epoch=7))
    assert (lifecycle.state, lifecycle.broker_epoch) == (BrokerState.STARTING, 7)
    return lifecycle


@pytest.fixture
def running(starting: BrokerLifecycle) -> BrokerLifecycle:
    answered(starting, SERVING)
    assert starting.state is BrokerState.RUNNING
    return starting


def test_requests_say_all_that_the_controller_must_know() -> None:
    places = [uuid.UUID(int=number) for number in (7, 8)]
    listener = Listener(name="PLAINTEXT", host="h", port=9092, security_protocol=2)
    lifecycle = BrokerLifecycle(
        1,
        "c",
        uuid.UUID(int=5),
        heartbeat_ms=HEARTBEAT_MS,
        rack="r",
        previous_epoch=4,
        listeners=[listener],
        log_dirs=(places[0], places[1]),
    )
    registration = BrokerRegistrationRequest(
        broker_id=1,
        cluster_id="c",
        incarnation_id=uuid.UUID(int=5),
        listeners=[listener],
        features=supported_features(),
        rack="r",
        log_dirs=places,
        previous_broker_epoch=4,
    )
    assert sent(lifecycle) == registration
    lifecycle.on_lost(0)
    lifecycle.lose_log_dirs((places[0],), 0)
    registration.log_dirs = places[1:]
    again = sent(lifecycle)
    assert again == registration
    lifecycle.on_answer(again, BrokerRegistrationResponse(broker_epoch=6), 0)
    beat = BrokerHeartbeatRequest(broker_id=1, broker_epoch=6, current_metadata_offset=9, offline_log_dirs=places[:1])
    assert sent(lifecycle, offset=9) == beat


def test_a_refused_registration_is_tried_again() -> None:
    lifecycle = BrokerLifecycle(1, "c", uuid.UUID(int=1), heartbeat_ms=HEARTBEAT_MS)
    answered(lifecycle, BrokerRegistrationResponse(error_code=E.DUPLICATE_BROKER_REGISTRATION))
    assert lifecycle.next_request(0, RETRY_MS - 1) is None
    assert lifecycle.next_request(0, RETRY_MS) is not None


def test_metadata_that_comes_while_a_heartbeat_is_under_way_is_reported_at_once(starting: BrokerLifecycle) -> None:
    first = sent(starting, 0, 3)
    starting.beat_soon(1)  # it has applied more than the heartbeat says
    assert starting.next_request(8, 1) is None
    starting.on_answer(first, FENCED, 2)
    second = sent(starting, 2, 8)
    assert isinstance(second, BrokerHeartbeatRequest)
    assert second.current_metadata_offset == 8
    starting.on_answer(second, FENCED, 3)
    assert starting.next_request(8, 3) is None, "there is no news"
    assert starting.next_request(8, 3 + HURRY_MS) is not None


def test_a_running_broker_beats_by_its_interval(running: BrokerLifecycle) -> None:
    running.beat_soon(0)
    assert running.next_request(0, HEARTBEAT_MS - 1) is None
    answered(running, FENCED, HEARTBEAT_MS)
    assert running.state is BrokerState.STARTING


def test_a_lost_heartbeat_is_sent_again(running: BrokerLifecycle) -> None:
    lost = sent(running, HEARTBEAT_MS)
    lost_ms = HEARTBEAT_MS + TIMEOUT_MS
    assert running.next_request(0, lost_ms) is None
    assert running.next_request(0, lost_ms + RETRY_MS) is not None
    running.on_answer(lost, FENCED, lost_ms + RETRY_MS)
    assert running.state is BrokerState.RUNNING, "the answer to an older request is ignored"


def test_a_shutdown_ends_when_the_controller_lets_it(running: BrokerLifecycle) -> None:
    running.shut_down(0)
    beat = answered(running, SERVING)
    assert isinstance(beat, BrokerHeartbeatRequest)
    assert beat.want_shut_down
    assert running.state is BrokerState.SHUTTING_DOWN
    answered(running, MAY_STOP, HURRY_MS)
    assert running.state is BrokerState.STOPPED
    assert running.next_request(0, 10_000) is None


def test_an_answer_that_took_too_long_still_lets_it_stop(running: BrokerLifecycle) -> None:
    running.shut_down(0)
    late = sent(running)
    assert running.next_request(0, TIMEOUT_MS) is None
    sent(running, TIMEOUT_MS + RETRY_MS)
    running.on_answer(late, SERVING, TIMEOUT_MS + RETRY_MS)
    assert running.state is BrokerState.SHUTTING_DOWN
    running.on_answer(late, MAY_STOP, TIMEOUT_MS + RETRY_MS)
    assert running.state is BrokerState.STOPPED


def test_a_shutdown_survives_a_lost_registration(running: BrokerLifecycle) -> None:
    running.shut_down(0)
    answered(running, BrokerHeartbeatResponse(error_code=E.STALE_BROKER_EPOCH))
    assert running.state is BrokerState.REGISTERING
    running.shut_down(1)  # again, as a second signal does
    answered(running, BrokerRegistrationResponse(broker_epoch=9), 1)
    assert (running.state, running.broker_epoch) == (BrokerState.SHUTTING_DOWN, 9)
    beat = sent(running, 1)
    assert isinstance(beat, BrokerHeartbeatRequest)
    assert beat.want_shut_down


def test_a_broker_without_a_registration_stops_at_once() -> None:
    lifecycle = BrokerLifecycle(1, "c", uuid.UUID(int=1), heartbeat_ms=HEARTBEAT_MS)
    lifecycle.shut_down(0)
    assert lifecycle.state is BrokerState.STOPPED
