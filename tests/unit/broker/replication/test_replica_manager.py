"""The replicas of a broker: what it does when the metadata changes."""

from __future__ import annotations

from dataclasses import replace

from kafkaprod.broker.replication.fetcher import FetchRequest
from tests.unit.broker.kafka_bugs.cases import KEY, Node, fetch


def test_a_broker_that_fetched_before_it_was_unfenced_joins_with_that_metadata() -> None:
    node = Node()
    fenced = node.image.brokers[2] = replace(node.image.brokers[2], is_fenced=True)
    node.hear(leader=1, isr=(1, 3))
    node.manager.serve(FetchRequest({KEY: fetch(0)}, follower=2), 0)
    node.manager.on_metadata([], 1)
    assert node.manager.next_isr_request(1) is None
    node.image.brokers[2] = replace(fenced, is_fenced=False)
    node.manager.on_metadata([], 2)
    request = node.manager.next_isr_request(2)
    assert request is not None
    assert [member.broker_id for member in request.proposals[0].members] == [1, 3, 2]
