"""Quotas of clients: whom they are for, what they measure, and what an answer says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kafkaprod.broker.calls.login import Login
from kafkaprod.broker.calls.request import NO_RESPONSE, ClientRequest, LastResponse
from kafkaprod.broker.server.throttling import Throttle
from kafkaprod.broker.settings.quotas import Change, QuotaTable
from kafkaprod.protocol.messages.fetch import FetchResponse
from kafkaprod.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kafkaprod.protocol.messages.produce import ProduceRequest, ProduceResponse
from kafkaprod.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from kafkaprod.protocol.schema import Request
from tests.support.broker.broker_requests import TOPIC, fetch_request, produce
from tests.support.broker.broker_without_sockets import BrokerWithoutSockets
from tests.support.broker.fixtures_log import make_batch

PRODUCE, FETCH, TIME = "producer_byte_rate", "consumer_byte_rate", "request_percentage"
HEADER_BYTES = 10 + len("c")


@pytest.fixture
def box(tmp_path: Path) -> BrokerWithoutSockets:
    return BrokerWithoutSockets(tmp_path, topics={TOPIC: 1})


def set_quota(box: BrokerWithoutSockets, key: str, value: float | None, **entity: str | None) -> None:
    names = {name.replace("_", "-"): text for name, text in entity.items()}
    box.broker.quotas.alter([(names, [Change(key, value)])])


def sent(box: BrokerWithoutSockets, body: Request, version: int, user: str | None = None, client: str = "c") -> Any:
    login = Login(box.broker.credentials)
    login.user = user
    return ClientRequest(body, version, client, "h", login)


def test_the_first_entity_with_a_quota_counts_and_says_who_shares_it() -> None:
    entities: list[tuple[dict[str, str | None], tuple[str, ...]]] = [
        ({"client-id": None}, ("client id", "c", "")),
        ({"client-id": "c"}, ("client id", "c", "")),
        ({"user": None}, ("user", "u", "")),
        ({"user": None, "client-id": None}, ("u", "c")),
        ({"user": None, "client-id": "c"}, ("u", "c")),
        ({"user": "u"}, ("user", "u", "")),
        ({"user": "u", "client-id": None}, ("u", "c")),
        ({"user": "u", "client-id": "c"}, ("u", "c")),
    ]
    entries: list[dict[str, Any]] = [{"entity": {"user": "other"}, "values": {PRODUCE: 1.0}}]
    assert QuotaTable(entries).find(PRODUCE, "u", "c") is None
    for number, (entity, sharing) in enumerate(entities, 2):
        entries.append({"entity": entity, "values": {PRODUCE: float(number)}})
        assert QuotaTable(entries).find(PRODUCE, "u", "c") == (float(number), sharing)
        assert QuotaTable(entries).find(FETCH, "u", "c") is None
    assert QuotaTable(entries).find(PRODUCE, "other", "x") == (1.0, ("user", "other", ""))


def test_what_is_produced_is_measured_whether_or_not_there_is_an_answer(box: BrokerWithoutSockets) -> None:
    throttle, bytes_10_s = Throttle(box.broker), 10_000 - HEADER_BYTES
    assert throttle.is_off
    set_quota(box, PRODUCE, 1_000.0, client_id="c")
    assert not throttle.is_off
    request, answer = sent(box, ProduceRequest(acks=1), 9), ProduceResponse(responses=[])
    assert throttle.charge(request, answer, bytes_10_s, 0) == (answer, 0)
    assert throttle.charge(request, answer, 1_000 - HEADER_BYTES, 0) == (answer, 1_000)
    assert answer.throttle_time_ms == 1_000
    box.clock.advance(1_000)
    assert throttle.charge(sent(box, ProduceRequest(acks=0), 9), NO_RESPONSE, 500 - HEADER_BYTES, 0)[1] == 1_500
    other = sent(box, ProduceRequest(acks=1), 9, client="d")
    assert throttle.charge(other, ProduceResponse(responses=[]), 10**6, 0)[1] == 0
    set_quota(box, PRODUCE, None, client_id="c")
    assert throttle.is_off
    assert throttle.charge(request, ProduceResponse(responses=[]), 10**6, 0)[1] == 0


def test_client_ids_of_a_user_share_its_quota(box: BrokerWithoutSockets) -> None:
    set_quota(box, PRODUCE, 1_000.0, user="ann")
    throttle = Throttle(box.broker)
    for client, user, wait_ms in (("c", "ann", 0), ("d", "ann", 2_000), ("c", "bob", 0), ("c", None, 0)):
        request = sent(box, ProduceRequest(acks=1), 9, user, client)
        assert throttle.charge(request, ProduceResponse(responses=[]), 6_000 - HEADER_BYTES, 0)[1] == wait_ms, user


def test_a_fetch_above_the_quota_gets_an_empty_answer_that_does_not_count(box: BrokerWithoutSockets) -> None:
    for _ in range(3):
        produce(box, make_batch([b"x" * 6_000]))
    set_quota(box, FETCH, 2_000.0, user=None)
    throttle = Throttle(box.broker)
    request = sent(box, fetch_request(0, max_bytes=1 << 20, min_bytes=30_000), 11)
    throttle.limit(request)
    assert (request.body.max_bytes, request.body.min_bytes) == (20_000, 20_000)
    has_records: list[bool] = []
    while len(has_records) < 9:
        (ready,) = box.begin(request.body, 11)
        ready, wait_ms = throttle.charge(request, ready, 100, 0)
        is_empty = isinstance(ready, FetchResponse) and not ready.responses
        assert is_empty == bool(wait_ms)
        has_records.append(not is_empty)
        box.clock.advance(wait_ms)
    assert has_records[:2] == [True, False]
    assert has_records.count(True) > 2  # no client starves


@pytest.mark.parametrize("repeated", [1, 2, 5])
def test_answers_that_a_quota_withholds_count_for_none_of_the_next_ones(
    box: BrokerWithoutSockets, repeated: int
) -> None:
    produce(box, make_batch([b"x" * 6_000]))
    set_quota(box, FETCH, 1_000.0, client_id="c")
    throttle, request = Throttle(box.broker), sent(box, fetch_request(0), 11)

    def ask() -> int:
        (ready,) = box.begin(request.body, 11)
        return throttle.charge(request, ready, 100, 0)[1]

    assert ask() == 0
    first = ask()
    assert 2_000 < first < 3_000
    assert [ask() for _ in range(repeated)] == [first] * repeated
    box.clock.advance(11_000)
    assert [ask(), ask()] == [0, first]


def test_the_time_of_threads_counts_up_to_a_second(box: BrokerWithoutSockets) -> None:
    set_quota(box, TIME, 1.0, client_id=None)
    throttle = Throttle(box.broker)
    assert throttle.counts_time
    request, answer = sent(box, HeartbeatRequest(group_id="g"), 4), HeartbeatResponse()
    assert throttle.charge(request, answer, 10, 100_000_000)[1] == 0
    assert throttle.charge(request, answer, 10, 5_000_000) == (answer, 500)
    assert throttle.charge(request, answer, 10, 100_000_000)[1] == 1_000
    old = HeartbeatResponse()
    assert throttle.charge(sent(box, HeartbeatRequest(group_id="g"), 0), old, 10, 0) == (old, 1_000)
    assert old.throttle_time_ms == 0  # version 0 has no place for it


def test_a_refused_login_is_not_throttled(box: BrokerWithoutSockets) -> None:
    set_quota(box, TIME, 0.001, client_id=None)
    refused = LastResponse(SaslAuthenticateResponse(error_code=58))
    request = sent(box, SaslAuthenticateRequest(auth_bytes=b""), 2)
    assert Throttle(box.broker).charge(request, refused, 10, 10**9) == (refused, 0)
