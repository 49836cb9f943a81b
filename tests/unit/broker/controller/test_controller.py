"""The controller, event by event: what it appends and what it answers."""

import random
import re
import uuid
from collections import Counter
from typing import Any

import pytest

from kafkaprod.broker.controller import topics
from kafkaprod.broker.controller.controller import Controller
from kafkaprod.broker.controller.events import (
    BrokerGone,
    RemoveBroker,
)
from kafkaprod.broker.controller.placement import place
from kafkaprod.broker.metadata.follower import SliceAnswer
from kafkaprod.broker.metadata.image import BrokerImage, RecoveryState
from kafkaprod.broker.metadata.records import RegisterBrokerRecord
from kafkaprod.protocol.error_codes import ErrorCode as E
from kafkaprod.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from kafkaprod.protocol.messages.alter_partition import AlterPartitionResponse, PartitionOutcome, TopicOutcomes
from kafkaprod.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from kafkaprod.protocol.messages.broker_registration import BrokerRegistrationResponse
from kafkaprod.protocol.messages.create_topics import CreatableTopicConfig
from kafkaprod.protocol.messages.elect_leaders import ElectLeadersRequest
from kafkaprod.protocol.messages.unregister_broker import UnregisterBrokerRequest
from tests.support.cluster.controller import Rig


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_a_broker_is_fenced_until_it_has_applied_its_registration(rig: Rig) -> None:
    epoch = rig.register(4).broker_epoch
    for offset, is_fenced in ((epoch, True), (epoch + 1, False)):
        beat = BrokerHeartbeatRequest(broker_id=4, broker_epoch=epoch, current_metadata_offset=offset)
        assert rig.request(beat).is_fenced is is_fenced


def test_a_registration_has_its_offset_for_epoch(rig: Rig) -> None:
    """Apache Kafka's tools pass over changes of a registration with another epoch than its own."""
    epochs = {
        record.broker_id: (record.broker_epoch, offset)
        for batch in rig.controller.log.batches()
        for offset, record in enumerate(batch.records, batch.base_offset)
        if isinstance(record, RegisterBrokerRecord)
    }
    assert epochs == {broker_id: (epoch, epoch) for broker_id, epoch in rig.epochs.items()}


def test_registrations_that_are_refused(rig: Rig) -> None:
    assert rig.register(9, cluster_id="x").error_code == E.INCONSISTENT_CLUSTER_ID
    assert rig.register(9, None).error_code == E.INVALID_REQUEST
    assert rig.register(1, incarnation=1).error_code == E.DUPLICATE_BROKER_REGISTRATION
    before = rig.controller.log.end_offset
    assert rig.register(1) == BrokerRegistrationResponse(broker_epoch=rig.epochs[1])
    assert rig.controller.log.end_offset == before


def test_a_new_process_leaves_the_isr_unless_the_last_stopped_cleanly(rig: Rig) -> None:
    rig.ask(BrokerGone, broker_id=2, incarnation_id=uuid.UUID(int=200))
    assert rig.partition.isr == (1, 3)
    rig.ask(BrokerGone, broker_id=3, incarnation_id=uuid.UUID(int=300))
    rig.ask(BrokerGone, broker_id=1, incarnation_id=uuid.UUID(int=100))
    assert (rig.partition.isr, rig.partition.leader) == ((1,), -1)
    assert rig.register(1, incarnation=1).error_code == E.NONE
    assert not rig.beat(1).is_fenced
    assert (rig.partition.isr, rig.partition.leader) == ((1,), 1)


def test_a_session_that_ends_fences_and_elects(rig: Rig) -> None:
    rig.now_ms = 60
    rig.beat(2)
    rig.beat(3)
    rig.now_ms = 101
    while rig.controller.turn(rig.now_ms):
        pass
    assert rig.controller.context.image.brokers[1].is_fenced
    assert (rig.partition.isr, rig.partition.leader, rig.partition.leader_epoch) == ((2, 3), 2, 1)


@pytest.mark.parametrize(
    ("members", "changes", "error"),
    [
        ((1, 2), {}, E.NONE),
        ((1, 2, 3), {}, E.NONE),
        ((2, 3), {}, E.INVALID_REQUEST),
        ((1, 9), {}, E.INVALID_REQUEST),
        ((1, 1), {}, E.INVALID_REQUEST),
        ((1, 2), {"leader_epoch": -1}, E.FENCED_LEADER_EPOCH),
        ((1, 2), {"leader_epoch": 1}, E.NOT_CONTROLLER),
        ((1, 2), {"partition_epoch": 1}, E.NOT_CONTROLLER),
        ((1, 2), {"partition_epoch": -1}, E.INVALID_UPDATE_VERSION),
        ((1, 2), {"broker_id": 2}, E.INVALID_REQUEST),
        ((1, 2), {"topic_id": uuid.UUID(int=5)}, E.UNKNOWN_TOPIC_ID),
        ((1, 2), {"leader_recovery_state": RecoveryState.RECOVERING}, E.INVALID_REQUEST),
        ((1, 2), {"epochs": {2: 77}}, E.INELIGIBLE_REPLICA),
    ],
)
def test_proposals(rig: Rig, members: tuple[int, ...], changes: dict[str, Any], error: E) -> None:
    assert rig.propose(*members, **changes) == error


def test_the_answer_to_a_proposal_says_all_of_the_partition(rig: Rig) -> None:
    rig.ask(BrokerGone, broker_id=1, incarnation_id=uuid.UUID(int=100))
    rig.register(1, incarnation=1)
    rig.beat(1)
    answer = rig.answer_to(2, 3, 1, broker_id=2)
    assert answer == AlterPartitionResponse(
        topics=[
            TopicOutcomes(
                topic_id=rig.partition.topic_id,
                partitions=[
                    PartitionOutcome(leader_id=2, leader_epoch=1, isr=[2, 3, 1], partition_epoch=2),
                ],
            )
        ]
    )
    assert (rig.partition.isr, rig.partition.leader_epoch, rig.partition.partition_epoch) == ((2, 3, 1), 1, 2)


@pytest.mark.parametrize(("election_type", "error"), [(0, E.PREFERRED_LEADER_NOT_AVAILABLE), (1, E.NONE)])
def test_only_an_unclean_election_takes_a_leader_outside_of_the_isr(rig: Rig, election_type: int, error: E) -> None:
    assert rig.propose(1) == E.NONE
    rig.ask(BrokerGone, broker_id=1, incarnation_id=uuid.UUID(int=100))
    answer = rig.request(ElectLeadersRequest(election_type=election_type))
    (topic,) = answer.replica_election_results
    (result,) = topic.partition_result
    assert (topic.topic, result.partition_id, result.error_code) == ("t", 0, error)
    assert rig.partition.leader == (-1 if error else 2)


def test_a_proposal_without_a_difference_writes_nothing(rig: Rig) -> None:
    before = rig.controller.log.end_offset
    assert rig.propose(1, 2, 3) == E.NONE
    assert rig.controller.log.end_offset == before


def test_a_controlled_shutdown_moves_leaders_and_then_ends(rig: Rig) -> None:
    answer = rig.beat(1, want_shut_down=True)
    assert not answer.should_shut_down
    assert (rig.partition.leader, rig.partition.isr) == (2, (2, 3))
    assert not rig.beat(1, want_shut_down=True).should_shut_down
    rig.beat(2)
    rig.beat(3)
    assert rig.beat(1, want_shut_down=True).should_shut_down


def test_answers_to_slices_count_as_applied_metadata(rig: Rig) -> None:
    """A controlled shutdown does not wait for the heartbeats of all others."""
    rig.beat(1, want_shut_down=True)
    for broker_id in (2, 3):
        channel = rig.controller.channels[broker_id]
        sent = rig.controller.next_slice(broker_id, rig.now_ms)
        assert sent is not None
        assert not rig.beat(1, want_shut_down=True).should_shut_down
        rig.controller.on_slice_answer(channel, sent, SliceAnswer(E.NONE, sent.commit_offset, 0), rig.now_ms)
    assert rig.beat(1, want_shut_down=True).should_shut_down


def test_a_new_controller_replays_and_raises_its_epoch(rig: Rig) -> None:
    first, second = (rig.request(AllocateProducerIdsRequest(broker_id=1, broker_epoch=rig.epochs[1])) for _ in range(2))
    assert (first.error_code, first.producer_id_start, first.producer_id_len) == (E.NONE, 0, 1000)
    assert second.producer_id_start == 1000
    stale = rig.request(AllocateProducerIdsRequest(broker_id=1, broker_epoch=rig.epochs[1] + 9))
    assert stale.error_code == E.STALE_BROKER_EPOCH
    successor = Controller("c", session_timeout_ms=100, seed=2, now_ms=0, batches=rig.controller.log.batches())
    assert successor.epoch == rig.controller.epoch + 1
    assert successor.context.image.partitions == rig.controller.context.image.partitions
    assert successor.context.image.next_producer_id == 2000


def test_topics(rig: Rig) -> None:
    first = rig.controller.context.image.topic_ids["t"]
    assert rig.create("t").error_code == E.TOPIC_ALREADY_EXISTS
    assert rig.create("u", num_partitions=1, replication_factor=4).error_code == E.INVALID_REPLICATION_FACTOR
    assert rig.create("u", num_partitions=0, replication_factor=1).error_code == E.INVALID_PARTITIONS
    assert rig.create("u", (1, 1)).error_code == E.INVALID_REPLICA_ASSIGNMENT
    configs = [CreatableTopicConfig(name="retention.ms", value="7")]
    made = rig.create("u", num_partitions=2, replication_factor=3, configs=configs)
    assert made.topic_id == rig.controller.context.image.topic_ids["u"]
    assert [len(each.replicas) for each in rig.controller.context.image.partitions_of_topic(made.topic_id)] == [3, 3]
    assert rig.controller.context.option("u", "retention.ms") == "7"
    assert rig.delete("u").topic_id == made.topic_id
    assert rig.controller.context.image.configs == {}
    deleted = rig.delete("t")
    assert (deleted.error_code, deleted.topic_id) == (E.NONE, first)
    assert rig.controller.context.image.partitions == {}
    assert rig.delete("t").error_code == E.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize(
    ("assignment", "reason"),
    [
        (((1, 1),), "a broker twice"),
        (((),), "one replica at least"),
        (((1, 9),), "not registered: \\[9\\]"),
        (((1, 2), (1, 2, 3)), "are 3, other partitions of the topic have 2"),
        (((3,),), "all fenced"),
    ],
)
def test_given_replicas_that_are_refused(rig: Rig, assignment: tuple[tuple[int, ...], ...], reason: str) -> None:
    rig.ask(BrokerGone, broker_id=3, incarnation_id=uuid.UUID(int=300))
    end_offset = rig.controller.log.end_offset
    created = rig.create("u", *assignment)
    assert created.error_code == E.INVALID_REPLICA_ASSIGNMENT
    assert re.search(reason, created.error_message)
    grown = rig.grow("t", 1 + len(assignment), *assignment)
    assert grown.error_code == E.INVALID_REPLICA_ASSIGNMENT
    assert rig.controller.log.end_offset == end_offset


def test_partitions_are_added_where_the_request_says(rig: Rig) -> None:
    context = rig.controller.context
    assert rig.grow("t", 1).error_code == E.INVALID_PARTITIONS
    wanted = ("t", 3, (3, 1, 2), (2, 3, 1))
    end_offset = rig.controller.log.end_offset
    assert rig.grow(*wanted, validate_only=True).error_code == E.NONE
    checked = rig.create("u", (1,), validate_only=True)
    assert (checked.error_code, checked.topic_id) == (E.NONE, None)
    assert rig.controller.log.end_offset == end_offset
    for count in (1, 3):
        refused = rig.grow("t", 3, *((1, 2, 3),) * count)
        assert refused.error_code == E.INVALID_REPLICA_ASSIGNMENT
    rig.ask(BrokerGone, broker_id=2, incarnation_id=uuid.UUID(int=200))
    assert rig.grow(*wanted).error_code == E.NONE
    partitions = context.image.partitions_of_topic(context.image.topic_ids["t"])
    assert [(each.replicas, each.isr, each.leader) for each in partitions[1:]] == [
        ((3, 1, 2), (3, 1), 3),
        ((2, 3, 1), (3, 1), 3),
    ]


def test_a_handler_that_raises_changes_nothing(
    rig: Rig, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = rig.controller.log.end_offset
    monkeypatch.setattr(topics, "place", None)
    refused = rig.create("u", num_partitions=1, replication_factor=1)
    assert (refused.name, refused.error_code) == ("u", E.UNKNOWN_SERVER_ERROR)
    assert rig.controller.log.end_offset == before
    assert "failed to handle" in caplog.text


def test_replicas_are_spread_over_racks_and_brokers() -> None:
    brokers = [
        BrokerImage(number, number, uuid.UUID(int=number), f"rack {number % 3}", False, False) for number in range(6)
    ]
    placed = place(brokers, 30, 3, random.Random(4))
    assert all(len({replica % 3 for replica in replicas}) == 3 for replicas in placed)
    assert max(Counter(replicas[0] for replicas in placed).values()) <= 6


def test_a_fenced_broker_does_not_lead_a_new_partition() -> None:
    brokers = [BrokerImage(number, number, uuid.UUID(int=number), None, number == 1, False) for number in (1, 2)]
    assert set(place(brokers, 8, 2, random.Random(0))) == {(2, 1)}


def test_a_restarted_controller_gives_new_topics_new_ids() -> None:
    rig = Rig()
    first = rig.controller.context.image.topic_ids["t"]
    batches = rig.controller.log.batches()
    ids = {first}
    for _ in range(3):
        rig.controller = Controller("c", session_timeout_ms=100, seed=1, now_ms=0, batches=batches)
        name = f"t{rig.controller.epoch}"
        assert rig.create(name, (1, 2, 3)).error_code == E.NONE
        ids.add(rig.controller.context.image.topic_ids[name])
        batches = rig.controller.log.batches()
    assert len(ids) == 4


def test_a_controller_that_was_paused_gives_brokers_that_time() -> None:
    rig = Rig()
    rig.now_ms = 5_000
    rig.controller.extend_sessions(5_000, rig.now_ms)
    while rig.controller.turn(rig.now_ms):
        pass
    assert all(broker.is_active for broker in rig.controller.context.image.brokers.values())


def test_a_broker_that_clients_remove_leaves_its_partitions(rig: Rig) -> None:
    assert rig.partition.leader == 1
    assert rig.request(UnregisterBrokerRequest(broker_id=1)).error_code == E.NONE
    assert (rig.partition.replicas, rig.partition.isr, rig.partition.leader) == ((1, 2, 3), (2, 3), 2)
    rig.ask(BrokerGone, broker_id=2, incarnation_id=uuid.UUID(int=200))
    assert rig.request(UnregisterBrokerRequest(broker_id=3)).error_code == E.NONE
    assert (rig.partition.isr, rig.partition.leader) == ((3,), -1), "no one else has all of it"


def test_brokers_that_cannot_be_removed(rig: Rig) -> None:
    answer = rig.ask(RemoveBroker, broker_id=9)
    assert (answer.error_code, answer.error_message) == (
        E.BROKER_ID_NOT_REGISTERED,
        "Broker ID 9 is not currently registered",
    )
    answer = rig.ask(RemoveBroker, broker_id=1)
    assert (answer.error_code, answer.error_message) == (E.INVALID_REQUEST, "Broker 1 still has replicas.")
    assert sorted(rig.controller.context.image.brokers) == [1, 2, 3]
    rig.delete("t")
    assert rig.ask(RemoveBroker, broker_id=1).error_code == E.NONE
    assert sorted(rig.controller.context.image.brokers) == [2, 3]
    assert sorted(rig.controller.channels) == [2, 3]
    assert rig.ask(RemoveBroker, broker_id=1).error_code == E.BROKER_ID_NOT_REGISTERED, "once"
    assert rig.ask(RemoveBroker, broker_id=2).error_code == E.NONE
    answer = rig.request(UnregisterBrokerRequest(broker_id=3))
    assert (answer.error_code, answer.error_message) == (E.INVALID_REQUEST, "Broker 3 is the only one.")
    beat = BrokerHeartbeatRequest(broker_id=1, broker_epoch=rig.epochs[1])
    assert rig.request(beat).error_code == E.BROKER_ID_NOT_REGISTERED
