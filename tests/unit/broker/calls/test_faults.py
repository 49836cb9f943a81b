"""Scripted faults: which request they hit."""

from __future__ import annotations

from kafkaprod.broker.calls.faults import Fault, Faults, FaultVerdict, RequestPart, Selection, Subject
from kafkaprod.broker.embedding.faults import close, delay, drop_reply, hold, reply_with
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.error_codes import ErrorCode


def test_rule_hits_its_api_so_many_times() -> None:
    faults = Faults()
    faults.on(ApiKey.PRODUCE, reply_with(ErrorCode.NOT_LEADER_OR_FOLLOWER), times=2)
    taken = [faults.take(Subject(api)).fault for api in (ApiKey.FETCH, ApiKey.PRODUCE, ApiKey.PRODUCE, ApiKey.PRODUCE)]
    assert taken == [None, reply_with(6), reply_with(6), None]
    assert (faults.fired_count(ApiKey.PRODUCE), faults.fired_count(ApiKey.FETCH)) == (2, 0)


def test_rules_are_tried_in_order() -> None:
    faults = Faults()
    faults.on(ApiKey.PRODUCE, close(), times=1)
    faults.on(ApiKey.PRODUCE, drop_reply())
    assert [faults.take(Subject(ApiKey.PRODUCE)).fault for _ in range(3)] == [close(), drop_reply(), drop_reply()]


def test_rate_hits_the_share_and_the_seed_repeats_it() -> None:
    def hits() -> list[bool]:
        faults = Faults()
        faults.on(ApiKey.FETCH, delay(5), rate=0.25, seed=3)
        return [faults.take(Subject(ApiKey.FETCH)).fault is not None for _ in range(4000)]

    assert hits() == hits()
    assert 850 < sum(hits()) < 1150


def test_cleared_rules_hit_nothing() -> None:
    faults = Faults()
    faults.on(ApiKey.FETCH, close())
    faults.clear()
    assert faults.take(Subject(ApiKey.FETCH)) == FaultVerdict()


def test_what_is_held_goes_on_once_when_its_rule_is_removed() -> None:
    faults = Faults()
    number = faults.on(ApiKey.FETCH, hold())
    taken = faults.take(Subject(ApiKey.FETCH)).fault
    assert taken == Fault(hold().kind, number)
    gone_on: list[int] = []
    faults.hold(number, lambda: gone_on.append(1))
    faults.hold(number, lambda: gone_on.append(2))
    assert gone_on == []
    faults.remove(number)
    assert gone_on == [1, 2]
    faults.hold(number, lambda: gone_on.append(3))  # taken just before the rule was removed
    faults.clear()
    assert gone_on == [1, 2, 3]


def test_rules_for_parts_take_those_that_no_earlier_rule_has() -> None:
    faults = Faults()
    faults.on(ApiKey.PRODUCE, reply_with(6), selection=Selection(topic=("a",), partition=(0,)))
    faults.on(ApiKey.PRODUCE, reply_with(7), selection=Selection(topic=("a*",)))
    faults.on(ApiKey.PRODUCE, close(), selection=Selection(topic=("c",)))
    parts = [("a", 0), ("a", 1), ("ab", 0), ("b", 0)]
    hit: dict[RequestPart, Fault] = {("a", 0): reply_with(6), ("a", 1): reply_with(7), ("ab", 0): reply_with(7)}
    assert faults.take(Subject(ApiKey.PRODUCE, parts=parts)) == FaultVerdict(None, hit)
    assert faults.take(Subject(ApiKey.PRODUCE, parts=[("c", 0), ("a", 0)])) == FaultVerdict(
        close(), {("a", 0): reply_with(6)}
    )
    assert [rule["fired"] for rule in faults.describe()] == [2, 1, 1]
    assert [each["parts"] for each in faults.last_fired()][1] == [["a", 1], ["ab", 0]]


def test_what_a_request_does_not_carry_matches_no_selector() -> None:
    faults = Faults()
    faults.on(ApiKey.HEARTBEAT, close(), selection=Selection(group=("g",), client_id=("c",), node=(1,)))
    assert faults.take(Subject(ApiKey.HEARTBEAT, "c", 1)).fault is None
    assert faults.take(Subject(ApiKey.HEARTBEAT, "other", 1, ["g"])).fault is None
    assert faults.take(Subject(ApiKey.HEARTBEAT, "c", 2, ["g"])).fault is None
    assert faults.take(Subject(ApiKey.HEARTBEAT, "c", 1, ["g"])).fault == close()


def test_the_first_requests_pass_and_a_request_counts_once() -> None:
    faults = Faults()
    faults.on(ApiKey.FETCH, reply_with(6), selection=Selection(topic=("a",)), after=2, times=1)
    subject = Subject(ApiKey.FETCH, parts=[("a", 0), ("a", 1)])
    assert [len(faults.take(subject).parts) for _ in range(4)] == [0, 0, 2, 0]
    assert faults.describe()[0]["matched"] == 4


def test_a_removed_rule_hits_nothing_and_the_others_stay() -> None:
    faults = Faults()
    first = faults.on(ApiKey.FETCH, close())
    faults.on(ApiKey.FETCH, delay(5))
    faults.remove(first)
    assert faults.take(Subject(ApiKey.FETCH)).fault == delay(5)
