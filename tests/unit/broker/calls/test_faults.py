"""Scripted faults: which request they hit."""

from __future__ import annotations

from kafkaprod.broker.calls.faults import Faults
from kafkaprod.broker.embedding.faults import close, delay, drop_reply, reply_with
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.error_codes import ErrorCode


def test_rule_hits_its_api_so_many_times() -> None:
    faults = Faults()
    faults.on(ApiKey.PRODUCE, reply_with(ErrorCode.NOT_LEADER_OR_FOLLOWER), times=2)
    taken = [faults.take(api) for api in (ApiKey.FETCH, ApiKey.PRODUCE, ApiKey.PRODUCE, ApiKey.PRODUCE)]
    assert taken == [None, reply_with(6), reply_with(6), None]
    assert (faults.fired_count(ApiKey.PRODUCE), faults.fired_count(ApiKey.FETCH)) == (2, 0)


def test_rules_are_tried_in_order() -> None:
    faults = Faults()
    faults.on(ApiKey.PRODUCE, close(), times=1)
    faults.on(ApiKey.PRODUCE, drop_reply())
    assert [faults.take(ApiKey.PRODUCE) for _ in range(3)] == [close(), drop_reply(), drop_reply()]


def test_rate_hits_the_share_and_the_seed_repeats_it() -> None:
    def hits() -> list[bool]:
        faults = Faults()
        faults.on(ApiKey.FETCH, delay(5), rate=0.25, seed=3)
        return [faults.take(ApiKey.FETCH) is not None for _ in range(4000)]

    assert hits() == hits()
    assert 850 < sum(hits()) < 1150


def test_cleared_rules_hit_nothing() -> None:
    faults = Faults()
    faults.on(ApiKey.FETCH, close())
    faults.clear()
    assert faults.take(ApiKey.FETCH) is None
