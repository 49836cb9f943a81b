"""AlterPartition (56): a leader proposes ISRs to the controller.

    2  topic ids     3  the epoch of each member's registration (KIP-903)

Source: KIP-497, KIP-704, KIP-841.
"""

from __future__ import annotations

import uuid

from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.field_types import INT8, INT16, INT32, INT64, UUID, array
from kafkaprod.protocol.schema import Request, Response, Struct, field


class BrokerState(Struct):
    """A member of an ISR."""

    broker_id: int = field(INT32)
    broker_epoch: int = field(INT64, default=-1)


class PartitionProposal(Struct):
    """The ISR that a leader wants for a partition."""

    partition_index: int = field(INT32)
    leader_epoch: int = field(INT32)
    new_isr: list[int] = field(array(INT32), until=2)
    new_isr_with_epochs: list[BrokerState] = field(array(BrokerState), since=3)
    leader_recovery_state: int = field(INT8)
    partition_epoch: int = field(INT32)


class TopicProposals(Struct):
    """Proposals for partitions of one topic."""

    topic_id: uuid.UUID | None = field(UUID)
    partitions: list[PartitionProposal] = field(array(PartitionProposal))


class AlterPartitionRequest(Request, api=ApiKey.ALTER_PARTITION, versions=(2, 3), flexible_from=0):
    """All proposals that wait at a broker."""

    broker_id: int = field(INT32)
    broker_epoch: int = field(INT64, default=-1)
    topics: list[TopicProposals] = field(array(TopicProposals))


class PartitionOutcome(Struct):
    """A partition as the controller has it now, or why the proposal was refused."""

    partition_index: int = field(INT32)
    error_code: int = field(INT16)
    leader_id: int = field(INT32)
    leader_epoch: int = field(INT32)
    isr: list[int] = field(array(INT32))
    leader_recovery_state: int = field(INT8)
    partition_epoch: int = field(INT32)


class TopicOutcomes(Struct):
    """Outcomes for partitions of one topic."""

    topic_id: uuid.UUID | None = field(UUID)
    partitions: list[PartitionOutcome] = field(array(PartitionOutcome))


class AlterPartitionResponse(Response, api=ApiKey.ALTER_PARTITION, versions=(2, 3), flexible_from=0):
    """The outcome of each proposal."""

    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    topics: list[TopicOutcomes] = field(array(TopicOutcomes))
