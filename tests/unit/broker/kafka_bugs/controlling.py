"""Bugs of the controller: proposals of ISRs, registrations, shutdowns, and metadata of controllers that are gone."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

from kafkaprod.broker.controller import controller, partitions, registrations
from kafkaprod.broker.controller.context import ControllerContext
from kafkaprod.broker.controller.controller import Controller
from kafkaprod.broker.controller.events import (
    BrokerGone,
    Decision,
)
from kafkaprod.broker.controller.wire import supported_features
from kafkaprod.broker.metadata.follower import MetadataFollower, MetadataSlice
from kafkaprod.broker.metadata.image import PartitionImage
from kafkaprod.broker.metadata.log import MetadataBatch
from kafkaprod.broker.metadata.records import NoOpRecord, PartitionChangeRecord
from kafkaprod.protocol.error_codes import ErrorCode as E
from kafkaprod.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from kafkaprod.protocol.messages.alter_partition import PartitionOutcome
from kafkaprod.protocol.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from tests.simulation.rules import replaced
from tests.support.cluster.controller import Rig
from tests.unit.broker.kafka_bugs.cases import Cases, Node, fetch, log_of

CASES = Cases()


@CASES.add(
    "KAFKA-9672",
    "a broker that is no replica came into an ISR",
    lambda: replaced(partitions, "_members_error", lambda *_: E.NONE),
)
def _only_replicas_are_in_sync() -> None:
    rig = Rig()
    assert rig.propose(1, 9) == E.INVALID_REQUEST
    assert rig.partition.isr == (1, 2, 3)


def _fencing(error_of: Callable[..., E]) -> Callable[..., E]:
    def wrong(*args: Any) -> E:
        error = error_of(*args)
        return E.FENCED_LEADER_EPOCH if error == E.NOT_CONTROLLER else error

    return wrong


@CASES.add(
    "KAFKA-14154",
    "a controller that was behind fenced a leader that was ahead, which then waited for ever",
    lambda: replaced(partitions, "proposal_error", _fencing(partitions.proposal_error)),
)
def _leaders_that_are_ahead() -> None:
    error = Rig().propose(1, 2, leader_epoch=1)
    node = Node(log_of((0, 1)))
    node.hear(leader=1, isr=(1, 2))
    node.replica.fetch(fetch(1, follower=3, last=0), 0)
    assert node.replica.proposal is not None
    assert node.replica.on_isr_outcome(node.replica.proposal, PartitionOutcome(error_code=error)), "it is sent again"


def _with_new_epoch(change: Callable[..., Any]) -> Callable[..., Any]:
    def wrong(partition: PartitionImage, **changes: Any) -> Any:
        record = change(partition, **changes)
        if record is not None:
            record.leader = partition.leader
        return record

    return wrong


@CASES.add(
    "KAFKA-15021",
    "a smaller ISR raised the leader epoch, and requests that waited failed",
    lambda: replaced(partitions, "change", _with_new_epoch(partitions.change)),
)
def _shrinking_keeps_the_epoch() -> None:
    rig = Rig()
    assert rig.propose(1, 2) == E.NONE
    assert (rig.partition.isr, rig.partition.leader_epoch, rig.partition.partition_epoch) == ((1, 2), 0, 1)


def _any_broker(context: ControllerContext, broker_id: int, broker_epoch: int) -> bool:
    return True


@CASES.add("KAFKA-13916", "a fenced broker joined an ISR", lambda: replaced(partitions, "is_eligible", _any_broker))
def _fenced_brokers_do_not_join() -> None:
    rig = Rig()
    rig.ask(BrokerGone, broker_id=3, incarnation_id=uuid.UUID(int=300))
    assert rig.propose(1, 2, 3) == E.INELIGIBLE_REPLICA
    assert rig.partition.isr == (1, 2)


def _any_incarnation(is_eligible: Callable[..., bool]) -> Callable[..., bool]:
    return lambda context, broker_id, _: is_eligible(context, broker_id, -1)


@CASES.add(
    "KAFKA-14139",
    "a process that had lost its log joined the ISR by a fetch of its predecessor",
    lambda: replaced(partitions, "is_eligible", _any_incarnation(partitions.is_eligible)),
)
def _predecessors_do_not_join() -> None:
    rig = Rig()
    assert rig.propose(1, 2, epochs={2: rig.epochs[2] - 1}) == E.INELIGIBLE_REPLICA


@CASES.add(
    "KAFKA-18106",
    "a broker that did not stop cleanly stayed in its ISRs",
    lambda: replaced(registrations, "_leave", lambda *_: []),
)
def _unclean_restarts_leave() -> None:
    rig = Rig()
    request = BrokerRegistrationRequest(
        broker_id=2, incarnation_id=uuid.UUID(int=299), cluster_id="c", features=supported_features()
    )
    decision = registrations.register(rig.controller.context, request, now_ms=10_000)
    changes = [record.isr for record in decision.records if isinstance(record, PartitionChangeRecord)]
    assert (decision.answer.error_code, changes) == (E.NONE, [[1, 3]])


def _as_another(context: ControllerContext, request: BrokerRegistrationRequest, now_ms: int) -> Decision:
    context.sessions[request.broker_id] = -1
    request.incarnation_id = uuid.uuid4()
    return registrations.register(context, request, now_ms)


@CASES.add(
    "KAFKA-16952",
    "a process that registered again got another epoch, and its requests were stale",
    lambda: patch.dict(controller.HANDLERS, {BrokerRegistrationRequest: _as_another}),  # type: ignore[arg-type]
)
def _the_same_process_keeps_its_epoch() -> None:
    rig = Rig()
    assert rig.register(1) == BrokerRegistrationResponse(broker_epoch=rig.epochs[1])


def _always_the_end(shut_down: Callable[..., Decision]) -> Callable[..., Decision]:
    def wrong(context: ControllerContext, broker: Any) -> Decision:
        context.shutdown_offsets[broker.broker_id] = context.image.end_offset
        return shut_down(context, broker)

    return wrong


@CASES.add(
    "KAFKA-14292",
    "a controlled shutdown waited for metadata that came after it, and never ended",
    lambda: replaced(registrations, "_shut_down", _always_the_end(registrations._shut_down)),
)
def _shutdowns_end() -> None:
    rig = Rig()
    rig.beat(1, want_shut_down=True)
    for broker_id in (2, 3):
        rig.beat(broker_id)
    rig.request(AllocateProducerIdsRequest(broker_id=2, broker_epoch=rig.epochs[2]))
    assert rig.beat(1, want_shut_down=True).should_shut_down


def _taking(error: E) -> Callable[[], AbstractContextManager[Any]]:
    """Switch off that a broker refuses metadata with an error."""
    refusal = MetadataFollower._refusal

    def wrong(self: MetadataFollower, sent: MetadataSlice, broker_epoch: int) -> E:
        found = refusal(self, sent, broker_epoch)
        return E.NONE if found == error else found

    return lambda: replaced(MetadataFollower, "_refusal", wrong)


def _slice(controller_epoch: int, broker_epoch: int = 5, after: int = 0) -> MetadataSlice:
    batch = MetadataBatch(after, controller_epoch, (NoOpRecord(),))
    return MetadataSlice(controller_epoch, broker_epoch, after, -1 if not after else 1, 99, (batch,))


@CASES.add("KAFKA-1096", "a zombie controller's metadata was applied", _taking(E.STALE_CONTROLLER_EPOCH))
def _zombie_controllers() -> None:
    follower = MetadataFollower()
    follower.receive(_slice(2), 5)
    assert follower.receive(_slice(1), 5)[0].error == E.STALE_CONTROLLER_EPOCH


@CASES.add(
    "KAFKA-1188",
    "a request of an old controller came late, and undid what the new one had said",
    _taking(E.STALE_CONTROLLER_EPOCH),
)
def _late_requests_of_old_controllers() -> None:
    follower = MetadataFollower()
    follower.receive(_slice(1), 5)
    follower.receive(_slice(2, after=1), 5)
    follower.receive(_slice(1, after=1), 5)
    assert follower.log.last_epoch == 2


@CASES.add("KAFKA-7235", "a request for a broker's last process reached the next", _taking(E.STALE_BROKER_EPOCH))
def _requests_for_the_last_process() -> None:
    assert MetadataFollower().receive(_slice(1, broker_epoch=4), 5)[0].error == E.STALE_BROKER_EPOCH


@CASES.add("KAFKA-9539", "a broker that bounced applied what it had been sent before", _taking(E.STALE_BROKER_EPOCH))
def _bounced_brokers() -> None:
    follower = MetadataFollower()
    follower.receive(_slice(1, broker_epoch=6), 6)
    follower.receive(_slice(1, broker_epoch=5, after=1), 6)
    assert follower.log.end_offset == 1


class _Epoch:
    """An attribute that is always 0."""

    def __get__(self, instance: object, owner: object = None) -> int:
        return 0

    def __set__(self, instance: object, value: int) -> None:
        pass


@CASES.add(
    "KAFKA-15489", "two controllers had one epoch", lambda: patch.object(Controller, "epoch", _Epoch(), create=True)
)
def _one_controller_per_epoch() -> None:
    first = Controller("c", session_timeout_ms=100, seed=1, now_ms=0)
    second = Controller("c", session_timeout_ms=100, seed=1, now_ms=0, batches=first.log.batches())
    assert second.epoch > first.epoch
