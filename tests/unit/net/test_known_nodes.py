"""The brokers of a client through the times when it starts over, and brokers that leave and come back."""

from __future__ import annotations

from typing import cast

import pytest

from kafkaprod.errors import ConnectionLostError, CorruptDataError, KafkaError
from kafkaprod.net.known_nodes import KnownNodes
from kafkaprod.net.node import ConnectionStage
from kafkaprod.net.node_state import ConnectionFailure, NodeState, least_loaded
from kafkaprod.structs import Node


def nodes(*ids: int, port: int = 9092) -> dict[int, Node]:
    return {node_id: Node(node_id, f"h{node_id}", port) for node_id in ids}


def known(*ids: int) -> KnownNodes:
    def close(state: NodeState, error: KafkaError) -> None:
        state.connection = None

    found = KnownNodes(close)
    found.set_bootstrap([("b", 9092)])
    found.update(nodes(*ids))
    return found


def fail(found: KnownNodes, node_id: int, count: int) -> None:
    found.states[node_id].failure_count = count
    found.states[node_id].next_attempt_ms = 1000 * count


def failure(node: Node) -> ConnectionFailure:
    return ConnectionFailure(node, ConnectionStage.CONNECT, ConnectionLostError("refused"), 1)


@pytest.mark.parametrize("starts", [[{1}], [{1}, {2}], [{1}, {2}, {3}], [{1, 2}, {3}], [{1}, set(), {2, 3}]])
def test_brokers_keep_their_backoff_through_all_the_times_that_the_client_starts_over(starts: list[set[int]]) -> None:
    """Though metadata names some of them only after the last one."""
    found, failing = known(1, 2, 3), set[int]()
    for number, failed in enumerate(starts):
        found.update(nodes(*({1, 2, 3} - failing)))
        for node_id in failed:
            fail(found, node_id, node_id)
        failing |= failed
        found.start_over(100 * number)
        assert set(found.states) == {-1}
    found.update(nodes(1, 2, 3))
    assert {node_id: state.failure_count for node_id, state in found.states.items()} == {
        node_id: node_id if node_id in failing else 0 for node_id in (1, 2, 3)
    }
    assert all(found.states[node_id].next_attempt_ms == 1000 * node_id for node_id in failing)


def test_a_broker_that_moved_meanwhile_is_another_one() -> None:
    found = known(1)
    fail(found, 1, 5)
    found.start_over(0)
    found.update(nodes(1, port=9093))
    assert found.states[1].failure_count == 0


@pytest.mark.parametrize("count", [1, 2, 3, 5])
@pytest.mark.parametrize("times", [1, 2])
def test_brokers_that_come_back_go_on_with_their_counters(count: int, times: int) -> None:
    found = known()
    every = nodes(*range(1, count + 1))
    found.update(every)
    counters = {node_id: state.metrics for node_id, state in found.states.items()}
    for _ in range(times):
        found.update({})
        found.update(every)
        assert all(found.states[node_id].metrics is counters[node_id] for node_id in every)
        found.start_over(0)
        found.update(every)
        assert all(found.states[node_id].metrics is counters[node_id] for node_id in every)


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_every_bootstrap_server_must_have_failed_before_all_have(count: int) -> None:
    found = known()
    found.set_bootstrap([(f"b{number}", 9092) for number in range(count)])
    for number in range(1, count + 1):
        assert not found.has_every_bootstrap_failed
        found.states[-number].last_failure = failure(found.states[-number].node)
    assert found.has_every_bootstrap_failed
    assert len(found.bootstrap_failures()) == count


@pytest.mark.parametrize("counts", [[3], [3, 1], [3, 2, 1], [1, 2, 3], [4, 3, 5, 2, 6]])
def test_the_least_loaded_of_any_number_of_brokers_has_the_fewest_in_flight(counts: list[int]) -> None:
    states = [Ready(node_id, count) for node_id, count in enumerate(counts, 1)]
    assert least_loaded(cast(list[NodeState], states), 0, 10) == 1 + counts.index(min(counts))


class Ready:
    """A broker whose connection takes requests."""

    def __init__(self, node_id: int, in_flight_count: int) -> None:
        self.node = Node(node_id, "h", 9092)
        self.connection = self.protocol = self
        self.in_flight_count = in_flight_count

    def can_send(self, now_ms: int, max_in_flight: int) -> bool:
        return self.in_flight_count < max_in_flight


@pytest.mark.parametrize("node_id", [-1, -2, -3, -(2**31)])
def test_broker_with_a_negative_id_is_refused_and_changes_nothing(node_id: int) -> None:
    found = known(1, 2)
    before = dict(found.states)
    with pytest.raises(CorruptDataError, match=rf"a broker with the id {node_id}, which is negative"):
        found.update({1: Node(1, "h1", 9092), node_id: Node(node_id, "evil", 9092)})
    with pytest.raises(CorruptDataError, match="negative"):
        found.add(Node(node_id, "evil", 9092))
    assert found.states == before


def test_only_bootstrap_servers_are_the_choice_of_the_user() -> None:
    found = known()
    found.start_over(0)
    assert [(state.node.host, state.is_bootstrap) for state in found.states.values()] == [("b", True)]
    found.update(nodes(1, 2))
    found.add(Node(3, "h3", 9092))
    assert not any(state.is_bootstrap for state in found.states.values())
    found.start_over(1)
    assert all(state.is_bootstrap for state in found.states.values())
