"""The controller, event by event: what it appends and what it answers."""

import random
import re
import uuid
from collections import Counter
from typing import Any

import pytest

from kafkaprod.broker.controller.controller import Controller
from kafkaprod.broker.controller.events import (
    BrokerGone,
    CreatePartitions,
    CreateTopic,
    DeleteTopic,
    Heartbeat,
    IsrMember,
    RegisterBroker,
    UnregisterBroker,
)
from kafkaprod.broker.controller.placement import place
from kafkaprod.broker.metadata.follower import SliceAnswer
from kafkaprod.broker.metadata.image import BrokerImage, RecoveryState
from kafkaprod.broker.metadata.records import RegisterBrokerRecord
from kafkaprod.protocol.error_codes import ErrorCode as E
from kafkaprod.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from tests.support.cluster.controller import Rig


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_a_broker_is_fenced_until_it_has_applied_its_registration() -> None:
    controller = Controller("c", session_timeout_ms=100, seed=1, now_ms=0)
    answers: list[Any] = []
    event = RegisterBroker(1, uuid.UUID(int=1), "c", reply=answers.append)
    controller.queue.put(event, 0)
    controller.turn(0)
    epoch = answers[0].broker_epoch
    for offset, is_fenced in ((epoch, True), (epoch + 1, False)):
        controller.queue.put(Heartbeat(1, epoch, offset, False, False, 0, reply=answers.append), 0)
        controller.turn(0)
        assert answers[-1].is_fenced is is_fenced


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
    assert rig.ask(RegisterBroker, broker_id=9, incarnation_id=uuid.UUID(int=9), cluster_id="x").error == (
        E.INCONSISTENT_CLUSTER_ID
    )
    assert rig.register(1, incarnation=1).error == E.DUPLICATE_BROKER_REGISTRATION
    before = rig.controller.log.end_offset
    assert rig.register(1) == (E.NONE, rig.epochs[1])
    assert rig.controller.log.end_offset == before


def test_a_new_process_leaves_the_isr_unless_the_last_stopped_cleanly(rig: Rig) -> None:
    rig.ask(BrokerGone, broker_id=2, incarnation_id=uuid.UUID(int=200))
    assert rig.partition.isr == (1, 3)
    rig.ask(BrokerGone, broker_id=3, incarnation_id=uuid.UUID(int=300))
    rig.ask(BrokerGone, broker_id=1, incarnation_id=uuid.UUID(int=100))
    assert (rig.partition.isr, rig.partition.leader) == ((1,), -1)
    assert rig.register(1, incarnation=1).error == E.NONE
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
        ((1, 2), {"key": (uuid.UUID(int=5), 0)}, E.UNKNOWN_TOPIC_ID),
        ((1, 2), {"recovery_state": RecoveryState.RECOVERING}, E.INVALID_REQUEST),
        ((1,), {"members": (IsrMember(1, -1), IsrMember(2, 77))}, E.INELIGIBLE_REPLICA),
    ],
)
def test_proposals(rig: Rig, members: tuple[int, ...], changes: dict[str, Any], error: E) -> None:
    assert rig.propose(*members, **changes) == error


def test_a_proposal_without_a_difference_writes_nothing(rig: Rig) -> None:
    before = rig.controller.log.end_offset
    assert rig.propose(1, 2, 3) == E.NONE
    assert rig.controller.log.end_offset == before


def test_a_controlled_shutdown_moves_leaders_and_then_ends(rig: Rig) -> None:
    answer = rig.beat(1, wants_shutdown=True)
    assert not answer.should_shut_down
    assert (rig.partition.leader, rig.partition.isr) == (2, (2, 3))
    assert not rig.beat(1, wants_shutdown=True).should_shut_down
    rig.beat(2)
    rig.beat(3)
    assert rig.beat(1, wants_shutdown=True).should_shut_down


def test_answers_to_slices_count_as_applied_metadata(rig: Rig) -> None:
    """A controlled shutdown does not wait for the heartbeats of all others."""
    rig.beat(1, wants_shutdown=True)
    for broker_id in (2, 3):
        channel = rig.controller.channels[broker_id]
        sent = rig.controller.next_slice(broker_id, rig.now_ms)
        assert sent is not None
        assert not rig.beat(1, wants_shutdown=True).should_shut_down
        rig.controller.on_slice_answer(channel, sent, SliceAnswer(E.NONE, sent.commit_offset, 0), rig.now_ms)
    assert rig.beat(1, wants_shutdown=True).should_shut_down


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
    assert rig.ask(CreateTopic, name="t").error == E.TOPIC_ALREADY_EXISTS
    assert rig.ask(CreateTopic, name="u", replication_factor=4).error == E.INVALID_REPLICATION_FACTOR
    assert rig.ask(CreateTopic, name="u", assignment=((1, 1),)).error == E.INVALID_REPLICA_ASSIGNMENT
    assert rig.ask(DeleteTopic, name="t").error == E.NONE
    assert rig.controller.context.image.partitions == {}
    assert rig.ask(DeleteTopic, name="t").error == E.UNKNOWN_TOPIC_OR_PARTITION


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
    created = rig.ask(CreateTopic, name="u", assignment=assignment)
    assert created.error == E.INVALID_REPLICA_ASSIGNMENT
    assert re.search(reason, created.message)
    grown = rig.ask(CreatePartitions, name="t", partition_count=1 + len(assignment), assignment=assignment)
    assert grown.error == E.INVALID_REPLICA_ASSIGNMENT
    assert rig.controller.log.end_offset == end_offset


def test_partitions_are_added_where_the_request_says(rig: Rig) -> None:
    context = rig.controller.context
    assert rig.ask(CreatePartitions, name="t", partition_count=1).error == E.INVALID_PARTITIONS
    wanted = {"name": "t", "partition_count": 3, "assignment": ((3, 1, 2), (2, 3, 1))}
    end_offset = rig.controller.log.end_offset
    assert rig.ask(CreatePartitions, **wanted, validate_only=True).error == E.NONE
    assert rig.ask(CreateTopic, name="u", validate_only=True).error == E.NONE
    assert rig.controller.log.end_offset == end_offset
    for count in (1, 3):
        refused = rig.ask(CreatePartitions, name="t", partition_count=3, assignment=((1, 2, 3),) * count)
        assert refused.error == E.INVALID_REPLICA_ASSIGNMENT
    rig.ask(BrokerGone, broker_id=2, incarnation_id=uuid.UUID(int=200))
    assert rig.ask(CreatePartitions, **wanted).error == E.NONE
    partitions = context.image.partitions_of_topic(context.image.topic_ids["t"])
    assert [(each.replicas, each.isr, each.leader) for each in partitions[1:]] == [
        ((3, 1, 2), (3, 1), 3),
        ((2, 3, 1), (3, 1), 3),
    ]


def test_a_handler_that_raises_changes_nothing(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    before = rig.controller.log.end_offset
    assert rig.ask(CreateTopic, name="u", configs=[]) == E.UNKNOWN_SERVER_ERROR
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
        assert rig.ask(CreateTopic, name=name, assignment=((1, 2, 3),)).error == E.NONE
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
    assert rig.ask(UnregisterBroker, broker_id=1, may_have_replicas=True).error == E.NONE
    assert (rig.partition.replicas, rig.partition.isr, rig.partition.leader) == ((1, 2, 3), (2, 3), 2)
    rig.ask(BrokerGone, broker_id=2, incarnation_id=uuid.UUID(int=200))
    assert rig.ask(UnregisterBroker, broker_id=3, may_have_replicas=True).error == E.NONE
    assert (rig.partition.isr, rig.partition.leader) == ((3,), -1), "no one else has all of it"


def test_brokers_that_cannot_be_removed(rig: Rig) -> None:
    answer = rig.ask(UnregisterBroker, broker_id=9)
    assert (answer.error, answer.message) == (E.BROKER_ID_NOT_REGISTERED, "Broker ID 9 is not currently registered")
    answer = rig.ask(UnregisterBroker, broker_id=1)
    assert (answer.error, answer.message) == (E.INVALID_REQUEST, "Broker 1 still has replicas.")
    assert sorted(rig.controller.context.image.brokers) == [1, 2, 3]
    rig.ask(DeleteTopic, name="t")
    assert rig.ask(UnregisterBroker, broker_id=1).error == E.NONE
    assert sorted(rig.controller.context.image.brokers) == [2, 3]
    assert sorted(rig.controller.channels) == [2, 3]
    assert rig.ask(UnregisterBroker, broker_id=1).error == E.BROKER_ID_NOT_REGISTERED, "once"
    assert rig.ask(UnregisterBroker, broker_id=2).error == E.NONE
    answer = rig.ask(UnregisterBroker, broker_id=3, may_have_replicas=True)
    assert (answer.error, answer.message) == (E.INVALID_REQUEST, "Broker 3 is the only one.")
    beat = Heartbeat(1, rig.epochs[1], 0, False, False, 0)._asdict()
    del beat["reply"]
    assert rig.ask(Heartbeat, **beat).error == E.BROKER_ID_NOT_REGISTERED
