"""The controller's events as Kafka's requests, its answers as responses, and back. Pure functions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any, Final

from kafkaprod.broker.controller.events import (
    AlterPartition,
    AlterPartitionAnswer,
    Heartbeat,
    HeartbeatAnswer,
    IsrMember,
    IsrOutcome,
    IsrProposal,
    RegisterBroker,
    Registered,
)
from kafkaprod.broker.metadata.follower import MetadataSlice, SliceAnswer, SnapshotPart
from kafkaprod.broker.metadata.image import PartitionKey, RecoveryState
from kafkaprod.broker.metadata.log import NO_EPOCH, MetadataBatch
from kafkaprod.broker.metadata.records import decode, encode
from kafkaprod.errors import CorruptDataError
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    PartitionOutcome,
    PartitionProposal,
    TopicOutcomes,
    TopicProposals,
)
from kafkaprod.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from kafkaprod.protocol.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    Feature,
    Listener,
)
from kafkaprod.protocol.messages.replicate_metadata import (
    MetadataBatchData,
    ReplicateMetadataRequest,
    ReplicateMetadataResponse,
)
from kafkaprod.structs import BytesLike

EncodedBatches = dict[tuple[int, int], list[BytesLike]]
"""The records of batches as bytes: by the end offset of the snapshot that they are of, OF_LOG; and base offset."""

OF_LOG: Final = -1

_NO_PART = SnapshotPart(OF_LOG, NO_EPOCH, 0, 0)
_ERRORS = {int(code): code for code in ErrorCode}
SECURITY_PROTOCOLS = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}


def error_of(code: int) -> ErrorCode:
    """Return the error of a code in a response; UNKNOWN_SERVER_ERROR for one that is not known."""
    return _ERRORS.get(code, ErrorCode.UNKNOWN_SERVER_ERROR)


# -- registration and heartbeats ---------------------------------------------------------------------------------------


def registration_request(event: RegisterBroker) -> BrokerRegistrationRequest:
    """Return the request for an event."""
    return BrokerRegistrationRequest(
        broker_id=event.broker_id,
        cluster_id=event.cluster_id,
        incarnation_id=event.incarnation_id,
        listeners=[
            Listener(name=name, host=host, port=port, security_protocol=protocol)
            for name, host, port, protocol in event.endpoints
        ],
        features=[
            Feature(name=name, min_supported_version=lowest, max_supported_version=highest)
            for name, (lowest, highest) in event.features.items()
        ],
        rack=event.rack,
        previous_broker_epoch=event.previous_epoch,
        log_dirs=list(event.log_dirs),
    )


def registration_event(request: BrokerRegistrationRequest, reply: Any) -> RegisterBroker:
    """Return the event that a request stands for.

    Raises:
        CorruptDataError: It has no incarnation id.
    """
    if request.incarnation_id is None:
        raise CorruptDataError(f"broker {request.broker_id} registers without an incarnation id")
    return RegisterBroker(
        request.broker_id,
        request.incarnation_id,
        request.cluster_id,
        request.rack,
        request.previous_broker_epoch,
        tuple((each.name, each.host, each.port, each.security_protocol) for each in request.listeners),
        {each.name: (each.min_supported_version, each.max_supported_version) for each in request.features},
        tuple(request.log_dirs),
        reply,
    )


def registered(response: BrokerRegistrationResponse) -> Registered:
    """Return the answer in a response."""
    return Registered(error_of(response.error_code), response.broker_epoch)


def heartbeat_request(event: Heartbeat) -> BrokerHeartbeatRequest:
    """Return the request for an event."""
    return BrokerHeartbeatRequest(
        broker_id=event.broker_id,
        broker_epoch=event.broker_epoch,
        current_metadata_offset=event.metadata_offset,
        want_fence=event.wants_fence,
        want_shut_down=event.wants_shutdown,
        offline_log_dirs=list(event.offline_log_dirs),
    )


def heartbeat_event(request: BrokerHeartbeatRequest, arrived_ms: int, reply: Any) -> Heartbeat:
    """Return the event that a request stands for."""
    return Heartbeat(
        request.broker_id,
        request.broker_epoch,
        request.current_metadata_offset,
        request.want_fence,
        request.want_shut_down,
        arrived_ms,
        tuple(request.offline_log_dirs),
        reply,
    )


def heartbeat_answer(response: BrokerHeartbeatResponse) -> HeartbeatAnswer:
    """Return the answer in a response."""
    return HeartbeatAnswer(error_of(response.error_code), response.is_fenced, response.should_shut_down)


def heartbeat_response(answer: HeartbeatAnswer | ErrorCode) -> BrokerHeartbeatResponse:
    """Return the response for an answer, or for an error of the controller."""
    if isinstance(answer, ErrorCode):
        return BrokerHeartbeatResponse(error_code=answer)
    return BrokerHeartbeatResponse(
        error_code=answer.error,
        is_caught_up=True,
        is_fenced=answer.is_fenced,
        should_shut_down=answer.should_shut_down,
    )


def registration_response(answer: Registered | ErrorCode) -> BrokerRegistrationResponse:
    """Return the response for an answer, or for an error of the controller."""
    if isinstance(answer, ErrorCode):
        return BrokerRegistrationResponse(error_code=answer)
    return BrokerRegistrationResponse(error_code=answer.error, broker_epoch=answer.broker_epoch)


# -- ISRs --------------------------------------------------------------------------------------------------------------


def isr_request(event: AlterPartition) -> AlterPartitionRequest:
    """Return the request for an event."""
    topics: dict[Any, list[PartitionProposal]] = defaultdict(list)
    for proposal in event.proposals:
        topics[proposal.key[0]].append(
            PartitionProposal(
                partition_index=proposal.key[1],
                leader_epoch=proposal.leader_epoch,
                new_isr_with_epochs=[
                    BrokerState(broker_id=member.broker_id, broker_epoch=member.broker_epoch)
                    for member in proposal.members
                ],
                leader_recovery_state=proposal.recovery_state,
                partition_epoch=proposal.partition_epoch,
            )
        )
    return AlterPartitionRequest(
        broker_id=event.broker_id,
        broker_epoch=event.broker_epoch,
        topics=[TopicProposals(topic_id=topic_id, partitions=parts) for topic_id, parts in topics.items()],
    )


def isr_event(request: AlterPartitionRequest, reply: Any) -> AlterPartition:
    """Return the event that a request stands for."""
    proposals = tuple(
        IsrProposal(
            _key(topic.topic_id, wanted.partition_index),
            wanted.leader_epoch,
            wanted.partition_epoch,
            tuple(IsrMember(member.broker_id, member.broker_epoch) for member in wanted.new_isr_with_epochs),
            RecoveryState(wanted.leader_recovery_state),
        )
        for topic in request.topics
        for wanted in topic.partitions
    )
    return AlterPartition(request.broker_id, request.broker_epoch, proposals, reply)


def isr_response(answer: AlterPartitionAnswer | ErrorCode) -> AlterPartitionResponse:
    """Return the response for an answer, or for an error of the controller."""
    if isinstance(answer, ErrorCode):
        return AlterPartitionResponse(error_code=answer)
    topics: dict[Any, list[PartitionOutcome]] = defaultdict(list)
    for outcome in answer.outcomes:
        topics[outcome.key[0]].append(
            PartitionOutcome(
                partition_index=outcome.key[1],
                error_code=outcome.error,
                leader_id=outcome.leader,
                leader_epoch=outcome.leader_epoch,
                isr=list(outcome.isr),
                leader_recovery_state=outcome.recovery_state,
                partition_epoch=outcome.partition_epoch,
            )
        )
    return AlterPartitionResponse(
        error_code=answer.error,
        topics=[TopicOutcomes(topic_id=topic_id, partitions=parts) for topic_id, parts in topics.items()],
    )


def isr_answer(response: AlterPartitionResponse) -> AlterPartitionAnswer:
    """Return the answer in a response."""
    outcomes = tuple(
        IsrOutcome(
            _key(topic.topic_id, part.partition_index),
            error_of(part.error_code),
            part.leader_id,
            part.leader_epoch,
            tuple(part.isr),
            part.partition_epoch,
            RecoveryState(part.leader_recovery_state),
        )
        for topic in response.topics
        for part in topic.partitions
    )
    return AlterPartitionAnswer(error_of(response.error_code), outcomes)


# -- metadata ----------------------------------------------------------------------------------------------------------


def slice_request(sent: MetadataSlice, encoded: EncodedBatches) -> ReplicateMetadataRequest:
    """Return the request that carries a slice.

    Args:
        sent: The slice.
        encoded: The records of batches sent before; those of others are added. Each batch goes to every broker, and all
            of them to one that starts.
    """
    part = sent.part or _NO_PART
    for batch in sent.batches:
        if (part.end_offset, batch.base_offset) not in encoded:
            encoded[part.end_offset, batch.base_offset] = [*map(encode, batch.records)]
    return ReplicateMetadataRequest(
        controller_epoch=sent.controller_epoch,
        broker_epoch=sent.broker_epoch,
        previous_offset=sent.previous_offset,
        previous_epoch=sent.previous_epoch,
        commit_offset=sent.commit_offset,
        batches=[
            MetadataBatchData(
                base_offset=batch.base_offset,
                epoch=batch.epoch,
                records=encoded[part.end_offset, batch.base_offset],
            )
            for batch in sent.batches
        ],
        snapshot_end_offset=part.end_offset,
        snapshot_epoch=part.epoch,
        snapshot_first=part.first,
        snapshot_total=part.total,
    )


def slice_of(request: ReplicateMetadataRequest) -> MetadataSlice:
    """Return the slice in a request.

    Raises:
        CorruptDataError: A record is not known.
    """
    part = SnapshotPart(
        request.snapshot_end_offset, request.snapshot_epoch, request.snapshot_first, request.snapshot_total
    )
    return MetadataSlice(
        request.controller_epoch,
        request.broker_epoch,
        request.previous_offset,
        request.previous_epoch,
        request.commit_offset,
        tuple(_batch(batch) for batch in request.batches),
        None if part == _NO_PART else part,
    )


def slice_answer(response: ReplicateMetadataResponse) -> SliceAnswer:
    """Return the answer in a response."""
    return SliceAnswer(error_of(response.error_code), response.end_offset, response.end_epoch)


def _batch(data: MetadataBatchData) -> MetadataBatch:
    return MetadataBatch(data.base_offset, data.epoch, tuple(_decoded(data.records)))


def _decoded(values: Iterable[Any]) -> Iterable[Any]:
    return (decode(bytes(value)) for value in values)


def _key(topic_id: Any, index: int) -> PartitionKey:
    if topic_id is None:
        raise CorruptDataError("a proposal or outcome without a topic id")
    return (topic_id, index)
