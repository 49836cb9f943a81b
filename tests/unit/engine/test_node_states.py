"""Which nodes are slow or sick, and who is informed of it."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from kafkaprod.engine.node_states import SICK_MS, SLOW_MS, NodeCondition
from kafkaprod.errors import ConnectionLostError
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


def test_node_that_throttles_is_slow_at_most() -> None:
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
