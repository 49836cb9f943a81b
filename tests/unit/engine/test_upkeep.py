from __future__ import annotations

import pytest

from kafkaprod.protocol.messages.metadata import MetadataRequest
from tests.support.producer.sender_rig import TOPIC, Rig


@pytest.mark.parametrize(("is_aware", "preferred"), [(True, {2}), (False, None)])
def test_leaders_in_the_clients_rack_are_preferred_only_if_wanted(is_aware: bool, preferred: set[int] | None) -> None:
    rig = Rig(topics={TOPIC: (1, 2)}, client_rack="r2", partitioner_rack_aware=is_aware)
    assert rig.drain.preferred_nodes == preferred


def nodes_asked_for_metadata(ready: set[int], refreshes: int) -> list[int]:
    """Let something go wrong again and again while answers bring nothing new; return the nodes that were asked."""
    rig = Rig()
    rig.pool.ready = ready
    asked = []
    for _ in range(refreshes):
        rig.metadata.request_update()
        rig.turn(advance_ms=60_000)
        (sent,) = rig.open_of(MetadataRequest)
        asked.append(sent.node_id)
        rig.answer_metadata()
        rig.turn()
    return asked


def test_a_broker_with_old_metadata_is_not_asked_again_and_again() -> None:
    assert nodes_asked_for_metadata({1, 2}, 4) in ([1, 2, 1, 2], [2, 1, 2, 1])


def test_the_only_broker_is_asked_again() -> None:
    assert nodes_asked_for_metadata({1}, 3) == [1, 1, 1]


def test_a_broker_whose_answer_helped_is_asked_as_before() -> None:
    rig = Rig()
    rig.pool.ready = {1, 2}
    for leader in (2, 1, 2):
        rig.topics[TOPIC] = (leader,)
        rig.metadata.request_update()
        rig.turn(advance_ms=60_000)
        (sent,) = rig.open_of(MetadataRequest)
        assert sent.node_id == 1
        response = rig.metadata_response()
        response.topics[0].partitions[0].leader_epoch = rig.metadata.snapshot.topics[TOPIC].leader_epochs[0] + 1
        rig.complete(sent, response=response)
        rig.turn()
