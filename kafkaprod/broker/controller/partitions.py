"""Changes of single partitions: ISRs that leaders propose, elections on request, leaders moved.

Handlers are pure. Source: Kafka, ReplicationControlManager; KIP-497, KIP-841, KIP-903.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Iterable
from enum import IntEnum

from kafkaprod.broker.controller.context import ControllerContext
from kafkaprod.broker.controller.elections import change, elect, elect_preferred, move_leader
from kafkaprod.broker.controller.events import (
    Decision,
    LookForLeaders,
    MoveLeader,
)
from kafkaprod.broker.controller.reassignments import completion
from kafkaprod.broker.metadata.image import PartitionImage, PartitionKey, RecoveryState
from kafkaprod.broker.metadata.records import NO_LEADER, ProducerIdsRecord
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from kafkaprod.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    PartitionOutcome,
    PartitionProposal,
    TopicOutcomes,
)
from kafkaprod.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from kafkaprod.protocol.schema import Struct

PRODUCER_ID_BLOCK = 1000


class ElectionType(IntEnum):
    """What ElectLeaders does."""

    PREFERRED = 0
    UNCLEAN = 1


def alter_partition(context: ControllerContext, request: AlterPartitionRequest, now_ms: int) -> Decision:
    """Install the ISRs that a leader proposes, each or none of them as `proposal_error` says."""
    if context.broker_error(request.broker_id, request.broker_epoch) != ErrorCode.NONE:
        return Decision([], AlterPartitionResponse(error_code=ErrorCode.STALE_BROKER_EPOCH))
    records: list[Struct] = []
    response = AlterPartitionResponse()
    for topic in request.topics:
        outcomes = TopicOutcomes(topic_id=topic.topic_id)
        response.topics.append(outcomes)
        for proposal in topic.partitions:
            partition = context.image.partition(topic.topic_id, proposal.partition_index)
            error = proposal_error(context, request.broker_id, topic.topic_id, proposal, partition)
            if partition is None or error != ErrorCode.NONE:
                outcome = _refused(proposal, error)
            else:
                record, outcome = _installed(context, proposal, partition)
                records += [] if record is None else [record]
            outcomes.partitions.append(outcome)
    return Decision(records, response)


def _installed(
    context: ControllerContext, proposal: PartitionProposal, partition: PartitionImage
) -> tuple[Struct | None, PartitionOutcome]:
    """Return what a proposal changes, and the partition after it."""
    isr = tuple(member.broker_id for member in proposal.new_isr_with_epochs)
    completed = completion(partition, isr, context.image.may_lead(partition))
    if completed is not None:  # what has changed besides the ISR comes with the metadata
        return completed, _refused(proposal, ErrorCode.NEW_LEADER_ELECTED)
    recovery = RecoveryState(proposal.leader_recovery_state)
    record = change(partition, isr=isr, recovery=recovery)
    return record, PartitionOutcome(
        partition_index=partition.index,
        leader_id=partition.leader,
        leader_epoch=partition.leader_epoch,
        isr=list(isr),
        leader_recovery_state=recovery,
        partition_epoch=partition.partition_epoch + (record is not None),
    )


def _refused(proposal: PartitionProposal, error: ErrorCode) -> PartitionOutcome:
    return PartitionOutcome(
        partition_index=proposal.partition_index, error_code=error, leader_id=-1, leader_epoch=-1, partition_epoch=-1
    )


def proposal_error(
    context: ControllerContext,
    broker_id: int,
    topic_id: uuid.UUID | None,
    proposal: PartitionProposal,
    partition: PartitionImage | None,
) -> ErrorCode:
    """Return why a proposal cannot be installed, NONE if it can; the first reason that applies."""
    if partition is None:
        is_known = topic_id in context.image.topics
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_known else ErrorCode.UNKNOWN_TOPIC_ID
    is_ahead = proposal.leader_epoch > partition.leader_epoch or proposal.partition_epoch > partition.partition_epoch
    if is_ahead:
        return ErrorCode.NOT_CONTROLLER  # this controller is behind: the broker must not be fenced (KAFKA-14154)
    if proposal.leader_epoch < partition.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if partition.leader != broker_id:
        return ErrorCode.INVALID_REQUEST
    if proposal.partition_epoch < partition.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION
    return _members_error(context, proposal, partition)


def elect_leaders(context: ControllerContext, request: ElectLeadersRequest, now_ms: int) -> Decision:
    """Elect preferred leaders, or any leader for partitions without one.

    Topics that are not known have no result; nor have unnamed partitions that need no election.
    """
    image, wanted = context.image, request.topic_partitions
    keys: Iterable[PartitionKey] = image.partitions
    if wanted is not None:
        known = [topic for topic in wanted if topic.topic in image.topic_ids]
        keys = [(image.topic_ids[topic.topic], index) for topic in known for index in topic.partitions]
    records: list[Struct] = []
    results: dict[str, list[PartitionResult]] = defaultdict(list)
    for topic_id, index in keys:
        partition = image.partition(topic_id, index)
        error, record = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None
        if partition is not None:
            error, record = _election(context, partition, request.election_type)
        records += [] if record is None else [record]
        if wanted is not None or error != ErrorCode.ELECTION_NOT_NEEDED:
            results[image.topics[topic_id].name].append(PartitionResult(partition_id=index, error_code=error))
    response = ElectLeadersResponse(
        replica_election_results=[
            ReplicaElectionResult(topic=name, partition_result=parts) for name, parts in results.items()
        ]
    )
    return Decision(records, response)


def move(context: ControllerContext, event: MoveLeader, now_ms: int) -> Decision:
    """Make a member of the ISR leader; answer with an error code."""
    partition = context.image.partitions.get(event.key)
    if partition is None:
        return Decision([], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if partition.leader == event.to:
        return Decision([], ErrorCode.NONE)
    record = move_leader(partition, event.to, context.image.may_lead(partition))
    if record is None:
        return Decision([], ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE)
    return Decision([record], ErrorCode.NONE)


def look_for_leaders(context: ControllerContext, event: LookForLeaders, now_ms: int) -> Decision:
    """Give partitions without a leader one where unclean elections are allowed."""
    elections = (
        elect(partition, context.image.may_lead(partition), may_be_unclean=context.may_be_unclean(partition))
        for partition in context.leaderless()
    )
    return Decision([election for election in elections if election is not None], None)


def allocate_producer_ids(context: ControllerContext, request: AllocateProducerIdsRequest, now_ms: int) -> Decision:
    """Give a broker the next block of producer ids."""
    error = context.broker_error(request.broker_id, request.broker_epoch)
    if error != ErrorCode.NONE:
        return Decision([], AllocateProducerIdsResponse(error_code=error))
    start = max(context.image.next_producer_id, context.least_producer_id)
    record = ProducerIdsRecord(
        broker_id=request.broker_id, broker_epoch=request.broker_epoch, next_producer_id=start + PRODUCER_ID_BLOCK
    )
    return Decision([record], AllocateProducerIdsResponse(producer_id_start=start, producer_id_len=PRODUCER_ID_BLOCK))


def _members_error(context: ControllerContext, proposal: PartitionProposal, partition: PartitionImage) -> ErrorCode:
    ids = [member.broker_id for member in proposal.new_isr_with_epochs]
    is_wrong = (
        len(set(ids)) != len(ids)
        or not set(ids) <= set(partition.replicas)
        or partition.leader not in ids
        or (proposal.leader_recovery_state == RecoveryState.RECOVERING and len(ids) > 1)
        or proposal.leader_recovery_state > partition.recovery_state
    )
    if is_wrong:
        return ErrorCode.INVALID_REQUEST
    if any(not is_eligible(context, member.broker_id, member.broker_epoch) for member in proposal.new_isr_with_epochs):
        return ErrorCode.INELIGIBLE_REPLICA
    if not all(context.image.is_online(partition, broker_id) for broker_id in ids):
        return ErrorCode.INELIGIBLE_REPLICA
    return ErrorCode.NONE


def is_eligible(context: ControllerContext, broker_id: int, broker_epoch: int) -> bool:
    """Whether a broker may be in an ISR: active, and of the registration that the leader knows (KIP-903)."""
    broker = context.image.brokers.get(broker_id)
    return broker is not None and broker.is_active and broker_epoch in (-1, broker.epoch)


def _election(
    context: ControllerContext, partition: PartitionImage, election_type: int
) -> tuple[ErrorCode, Struct | None]:
    if election_type == ElectionType.PREFERRED:
        if partition.leader == partition.replicas[0]:
            return ErrorCode.ELECTION_NOT_NEEDED, None
        record = elect_preferred(partition, context.image.may_lead(partition))
        return (ErrorCode.NONE if record else ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE), record
    if partition.leader != NO_LEADER:
        return ErrorCode.ELECTION_NOT_NEEDED, None
    record = elect(partition, context.image.may_lead(partition), may_be_unclean=True)
    return (ErrorCode.NONE if record else ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE), record
