"""Which nodes are slow or sick, and who is informed of it."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from kafkaprod.engine.node_states import SICK_MS, SLOW_MS, NodeCondition
from kafkaprod.errors import ConnectionLostError, DeliveryTimeoutError
from tests.support.producer.sender_rig import TOPIC, Rig, Sent

STEP_MS = 10
USUAL_MS = 5


class TwoNodes:
    """A sender whose nodes answer after USUAL_MS, but those that the test makes silent."""

    def __init__(self, **options: Any) -> None:
        self.rig = Rig(topics={TOPIC: (1, 2)}, **options)
        self.rig.pool.ready = {1, 2}
        self.silent: set[int] = set()
        self.idle: set[int] = set()
        self.run(500)

    def run(self, ms: int) -> None:
        for _ in range(ms // STEP_MS):
            for node_id in {1, 2} - self.idle:
                self.rig.send(partition=node_id - 1)
            self.rig.turn()
            self.rig.clock.advance(USUAL_MS)
            self.answer()
            self.rig.turn()
            self.rig.clock.advance(STEP_MS - USUAL_MS)

    def answer(self) -> None:
        for sent in self.open():
            if sent.node_id not in self.silent:
                self.rig.answer(sent)

    def open(self, node_id: int | None = None) -> list[Sent]:
        return [sent for sent in self.rig.produce_requests if node_id in (None, sent.node_id)]

    def states(self) -> tuple[NodeCondition, NodeCondition]:
        return self.rig.sender.states.state_of(1), self.rig.sender.states.state_of(2)


def test_node_that_is_silent_is_slow_and_then_sick() -> None:
    nodes = TwoNodes()
    nodes.silent = {2}
    nodes.run(SLOW_MS - 50)
    assert nodes.states() == (NodeCondition.OK, NodeCondition.OK)
    nodes.run(100)
    assert nodes.states() == (NodeCondition.OK, NodeCondition.SLOW)
    nodes.run(SICK_MS - SLOW_MS - 100)
    assert nodes.states() == (NodeCondition.OK, NodeCondition.SLOW)
    nodes.run(200)
    assert nodes.states() == (NodeCondition.OK, NodeCondition.SICK)


@pytest.mark.parametrize("pause_ms", [200, 900])
def test_node_that_stalls_in_each_second_is_never_sick(pause_ms: int) -> None:
    nodes = TwoNodes()
    for _ in range(10):
        nodes.silent = {2}
        nodes.run(pause_ms)
        nodes.silent = set()
        nodes.run(1000 - pause_ms)
        assert nodes.states() == (NodeCondition.OK, NodeCondition.OK)


def test_slow_path_is_not_slow_by_what_is_usual_there() -> None:
    nodes = TwoNodes(request_timeout_ms=60_000)
    nodes.silent = {2}
    nodes.idle = {2}
    rig = nodes.rig
    for _ in range(12):  # each answer takes longer than SLOW_MS
        rig.send(partition=1)
        nodes.run(700)
        rig.answer(nodes.open(2)[0])
        rig.turn()
    rig.send(partition=1)
    nodes.run(SLOW_MS + 300)
    assert nodes.states() == (NodeCondition.OK, NodeCondition.OK)


def test_option_is_the_least_time_until_a_node_is_slow() -> None:
    nodes = TwoNodes(partitioner_availability_timeout_ms=100)
    nodes.silent = {2}
    nodes.run(150)
    assert nodes.states() == (NodeCondition.OK, NodeCondition.SLOW)
    late = TwoNodes(partitioner_availability_timeout_ms=5_000)
    late.silent = {2}
    late.run(4_900)
    assert late.states() == (NodeCondition.OK, NodeCondition.OK)


def test_silence_of_all_is_no_sickness() -> None:
    nodes = TwoNodes()
    nodes.silent = {1, 2}
    nodes.run(5_000)
    assert nodes.states() == (NodeCondition.SLOW, NodeCondition.SLOW)
    nodes.silent = {2}
    nodes.answer()
    nodes.run(1_000)
    assert nodes.states() == (NodeCondition.OK, NodeCondition.SICK)


def test_only_node_may_be_sick() -> None:
    nodes = TwoNodes()
    nodes.idle = {2}
    nodes.rig.sender.states._watches.pop(2)
    nodes.silent = {1}
    nodes.run(2_000)
    assert nodes.states()[0] is NodeCondition.SICK


@pytest.mark.parametrize("is_far_back", [False, True])
def test_node_that_is_idle_says_nothing_about_another_one(is_far_back: bool) -> None:
    nodes = TwoNodes()
    nodes.idle = {1}
    nodes.run(1_000 if is_far_back else 10)
    nodes.silent = {2}
    nodes.run(2_000)
    assert nodes.states() == (NodeCondition.OK, NodeCondition.SICK)


def test_node_that_waits_for_a_connection_is_expected_to_answer() -> None:
    nodes = TwoNodes()
    _unreachable(nodes)
    nodes.rig.pool.ready = set()
    nodes.silent = {2}
    nodes.run(5_000)
    assert NodeCondition.SICK not in nodes.states()


@pytest.mark.parametrize("pause_ms", [2_000, 5_000])
def test_pause_of_this_program_is_no_silence_of_a_node(pause_ms: int) -> None:
    nodes = TwoNodes()
    nodes.silent = {2}
    nodes.run(100)
    nodes.rig.clock.advance(pause_ms)
    nodes.run(300)
    assert nodes.states() == (NodeCondition.OK, NodeCondition.OK)
    nodes.run(SICK_MS)
    assert nodes.states() == (NodeCondition.OK, NodeCondition.SICK)


def test_sick_node_that_answers_is_slow_and_after_three_answers_ok() -> None:
    nodes = TwoNodes()
    nodes.silent = {2}
    nodes.run(2_000)
    rig = nodes.rig
    seen = []
    for sent in nodes.open(2)[:3]:
        rig.answer(sent)
        rig.turn()
        seen.append(nodes.states()[1])
    assert seen == [NodeCondition.SLOW, NodeCondition.SLOW, NodeCondition.OK]


@pytest.mark.parametrize("pause_ms", [700, 1_600])
def test_node_is_ok_again_after_three_answers_each_time(pause_ms: int) -> None:
    nodes = TwoNodes()
    rig = nodes.rig
    for _ in range(3):
        nodes.silent = {2}
        nodes.run(pause_ms)
        seen = []
        for sent in nodes.open(2)[:3]:
            rig.answer(sent)
            rig.turn()
            seen.append(nodes.states()[1])
        assert seen == [NodeCondition.SLOW, NodeCondition.SLOW, NodeCondition.OK]
        nodes.silent = set()
        nodes.run(12 * pause_ms)  # until half a second is unusual again


def test_node_that_was_slow_and_then_sick_needs_three_answers() -> None:
    nodes = TwoNodes()
    rig = nodes.rig
    nodes.silent = {2}
    nodes.run(700)
    rig.answer(nodes.open(2)[0])
    rig.turn()
    nodes.run(3_000)
    assert nodes.states()[1] is NodeCondition.SICK
    seen = []
    for sent in nodes.open(2)[:3]:
        rig.answer(sent)
        rig.turn()
        seen.append(nodes.states()[1])
    assert seen == [NodeCondition.SLOW, NodeCondition.SLOW, NodeCondition.OK]


def test_last_answer_in_flight_ends_it() -> None:
    nodes = TwoNodes()
    nodes.silent = {2}
    nodes.idle = {2}
    nodes.rig.send(partition=1)
    nodes.run(2_000)
    assert nodes.states()[1] is NodeCondition.SICK
    nodes.silent = set()
    nodes.run(20)
    assert nodes.states()[1] is NodeCondition.OK


def _unreachable(nodes: TwoNodes) -> None:
    nodes.rig.pool.ready = {1}


def test_node_without_a_connection_is_sick_while_something_waits_for_it() -> None:
    nodes = TwoNodes(delivery_timeout_ms=5_000)
    _unreachable(nodes)
    nodes.run(2_000)
    assert nodes.states() == (NodeCondition.OK, NodeCondition.SICK)
    nodes.idle = {2}
    nodes.run(6_000)  # what waited has expired
    assert nodes.states() == (NodeCondition.OK, NodeCondition.OK)


def test_node_with_nothing_to_do_is_not_judged() -> None:
    nodes = TwoNodes()
    nodes.idle = {2}
    _unreachable(nodes)
    nodes.run(5_000)
    assert nodes.states() == (NodeCondition.OK, NodeCondition.OK)


class Quota(TwoNodes):
    """Two nodes, of which the second answers every request with a quota's pause, and takes nothing in it."""

    def __init__(self, throttle_ms: int, **options: Any) -> None:
        self.throttle_ms = throttle_ms
        self.until_ms = 0
        self.begins_ms = 1 << 62
        super().__init__(**options)

    def answer(self) -> None:
        now_ms = self.rig.clock.now_ms()
        for sent in self.open():
            if sent.node_id == 2 and now_ms >= self.begins_ms:
                if now_ms >= self.until_ms:
                    self.until_ms = now_ms + self.throttle_ms
                    self.rig.answer(sent, throttle_ms=self.throttle_ms)
                    return
            elif sent.node_id not in self.silent:
                self.rig.answer(sent)

    def begin(self) -> None:
        self.begins_ms = self.rig.clock.now_ms()


@pytest.mark.parametrize("throttle_ms", [500, 4_000, 20_000])
def test_node_that_throttles_is_throttled_and_never_sick(throttle_ms: int) -> None:
    nodes = Quota(throttle_ms)
    nodes.begin()
    seen = set()
    for _ in range(150):
        nodes.run(200)
        seen.add(nodes.states()[1])
    assert NodeCondition.THROTTLED in seen
    assert NodeCondition.SICK not in seen
    assert nodes.states()[0] is NodeCondition.OK


def test_short_throttle_changes_no_state() -> None:
    nodes = Quota(100)
    nodes.begin()
    for _ in range(100):
        nodes.run(100)
        assert nodes.states() == (NodeCondition.OK, NodeCondition.OK)


def test_node_that_does_not_answer_after_a_throttle_is_sick() -> None:
    nodes = Quota(4_000)
    nodes.begin()
    nodes.run(1_000)
    nodes.silent, nodes.begins_ms = {2}, 1 << 62
    nodes.run(2_900)
    assert nodes.states()[1] is NodeCondition.THROTTLED
    nodes.run(1_000)
    assert nodes.states()[1] is not NodeCondition.SICK
    nodes.run(5_000)
    assert nodes.states()[1] is NodeCondition.SICK


def test_records_without_a_key_avoid_a_node_that_throttles_and_come_back(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kafkaprod.engine.node_states")
    nodes = Quota(3_000)
    nodes.begin()
    nodes.run(1_000)
    assert nodes.rig.placement.avoided_nodes == {2}
    nodes.run(20_000)
    assert nodes.rig.placement.avoided_nodes == {2}
    nodes.begins_ms = 1 << 62
    nodes.run(5_000)
    assert nodes.rig.placement.avoided_nodes == frozenset()
    lines = [record.message for record in caplog.records]
    assert len(lines) == 1, lines
    assert lines[0].startswith("node 2 throttles: a quota holds this producer back, for 3000 ms now")
    nodes.run(61_000)
    nodes.begin()
    nodes.run(100)
    assert len(caplog.records) == 2


def test_record_that_expires_behind_a_quota_says_so() -> None:
    nodes = Quota(4_000, delivery_timeout_ms=6_000)
    nodes.begin()
    nodes.run(1_000)
    future = nodes.rig.send(partition=1)
    nodes.idle, nodes.begins_ms, nodes.silent = {1, 2}, 1 << 62, {2}
    nodes.run(7_000)
    with pytest.raises(DeliveryTimeoutError, match="; a quota of node 2 held this producer back"):
        future.result(0)
    other = nodes.rig.send(partition=1)
    nodes.run(7_000)
    with pytest.raises(DeliveryTimeoutError) as caught:
        other.result(0)
    assert "quota" not in str(caught.value)


def test_node_that_takes_nothing_without_a_word_is_slow_at_most() -> None:
    nodes = TwoNodes()
    nodes.rig.pool.is_ready = lambda node_id, now_ms: node_id == 1  # type: ignore[method-assign]
    nodes.run(5_000)
    assert nodes.states() == (NodeCondition.OK, NodeCondition.SLOW)


def test_request_that_timed_out_leaves_the_node_sick() -> None:
    nodes = TwoNodes()
    nodes.silent = {2}
    nodes.run(2_000)
    for sent in nodes.open(2):
        nodes.rig.complete(sent, error=ConnectionLostError("cut"))
    _unreachable(nodes)
    nodes.run(3_000)
    assert nodes.states() == (NodeCondition.OK, NodeCondition.SICK)
    nodes.rig.pool.ready = {1, 2}  # a new connection: what goes there decides
    nodes.run(500)
    assert nodes.states() == (NodeCondition.OK, NodeCondition.SICK)
    nodes.silent = set()
    nodes.answer()
    nodes.run(100)
    assert nodes.states() == (NodeCondition.OK, NodeCondition.OK)


def test_silent_broker_ends_the_poll_at_the_next_threshold() -> None:
    nodes = TwoNodes()
    nodes.idle, nodes.silent = {1, 2}, {2}
    rig = nodes.rig
    rig.send(partition=1)
    rig.turn()
    rig.clock.advance(USUAL_MS)
    rig.turn()
    assert rig.pool.poll_timeouts[-1] == SLOW_MS - USUAL_MS


def test_poll_is_not_ended_where_nothing_is_in_flight() -> None:
    nodes = TwoNodes()
    nodes.idle = {1, 2}
    nodes.run(1_000)
    assert nodes.rig.pool.poll_timeouts[-1] > 10 * SLOW_MS


def test_records_without_a_key_avoid_what_is_slow() -> None:
    nodes = TwoNodes()
    nodes.silent = {2}
    nodes.run(SLOW_MS + 50)
    assert nodes.rig.placement.avoided_nodes == {2}
    nodes.silent = set()
    nodes.answer()
    nodes.run(100)
    assert nodes.rig.placement.avoided_nodes == frozenset()


def test_nothing_is_avoided_if_the_option_is_0() -> None:
    nodes = TwoNodes(partitioner_availability_timeout_ms=0)
    nodes.silent = {2}
    nodes.run(3_000)
    assert nodes.states() == (NodeCondition.OK, NodeCondition.SICK)
    assert nodes.rig.placement.avoided_nodes == frozenset()


def limits(nodes: TwoNodes) -> dict[int, int | None]:
    return {node: limit for node, _, limit in nodes.rig.accumulator.pool.shares()}


def test_sick_node_holds_its_fair_share_until_it_is_well() -> None:
    nodes = TwoNodes(max_block_ms=0)  # no share of the start
    capacity = nodes.rig.accumulator.pool.capacity
    before = limits(nodes)
    nodes.silent = {2}
    nodes.run(2_000)
    assert limits(nodes)[2] == capacity // 2
    nodes.silent = set()
    nodes.answer()
    nodes.run(100)
    assert limits(nodes) == before


def test_one_line_says_that_a_node_is_sick_and_one_that_it_no_longer_is(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kafkaprod.engine.node_states")
    nodes = TwoNodes()
    nodes.silent = {2}
    nodes.run(4_000)
    nodes.silent = set()
    nodes.answer()
    nodes.run(200)
    levels = [record.levelno for record in caplog.records]
    assert levels == [logging.WARNING, logging.INFO]
    assert "node 2 is sick: no answer for" in caplog.records[0].message


def test_without_acknowledgements_a_node_that_takes_nothing_is_slow_at_most() -> None:
    nodes = TwoNodes(acks=0)
    nodes.silent = {2}
    nodes.run(3_000)
    assert nodes.states() == (NodeCondition.OK, NodeCondition.SLOW)
