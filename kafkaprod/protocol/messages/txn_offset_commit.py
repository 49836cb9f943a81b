"""TxnOffsetCommit (28): offsets committed with a transaction; goes to the group's coordinator.

    2  leader epoch                              5  implies AddOffsetsToTxn (KIP-890)
    3  flexible; member, generation (KIP-447)    6  topic ids instead of names (KIP-1319)
    4  may answer TRANSACTION_ABORTABLE

Source: KIP-98 and those above.
"""

from __future__ import annotations

import uuid

from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.field_types import INT16, INT32, INT64, NULLABLE_STRING, STRING, UUID, array
from kafkaprod.protocol.schema import Request, Response, Struct, field


class TxnOffsetCommitRequestPartition(Struct):
    """The offset of one partition."""

    partition_index: int = field(INT32)
    committed_offset: int = field(INT64)
    committed_leader_epoch: int = field(INT32, since=2, default=-1, ignorable=True)
    committed_metadata: str | None = field(NULLABLE_STRING)


class TxnOffsetCommitRequestTopic(Struct):
    """The offsets of one topic."""

    name: str = field(STRING, until=5)
    topic_id: uuid.UUID | None = field(UUID, since=6, ignorable=True)
    partitions: list[TxnOffsetCommitRequestPartition] = field(array(TxnOffsetCommitRequestPartition))


class TxnOffsetCommitRequest(Request, api=ApiKey.TXN_OFFSET_COMMIT, versions=(0, 6), flexible_from=3):
    """Offsets to commit with the transaction."""

    transactional_id: str = field(STRING)
    group_id: str = field(STRING)
    producer_id: int = field(INT64)
    producer_epoch: int = field(INT16)
    generation_id_or_member_epoch: int = field(INT32, since=3, default=-1)
    member_id: str = field(STRING, since=3)
    group_instance_id: str | None = field(NULLABLE_STRING, since=3)
    topics: list[TxnOffsetCommitRequestTopic] = field(array(TxnOffsetCommitRequestTopic))


class TxnOffsetCommitResponsePartition(Struct):
    """The outcome for one partition."""

    partition_index: int = field(INT32)
    error_code: int = field(INT16)


class TxnOffsetCommitResponseTopic(Struct):
    """The outcomes for one topic."""

    name: str = field(STRING, until=5)
    topic_id: uuid.UUID | None = field(UUID, since=6, ignorable=True)
    partitions: list[TxnOffsetCommitResponsePartition] = field(array(TxnOffsetCommitResponsePartition))


class TxnOffsetCommitResponse(Response, api=ApiKey.TXN_OFFSET_COMMIT, versions=(0, 6), flexible_from=3):
    """One error code per partition."""

    throttle_time_ms: int = field(INT32)
    topics: list[TxnOffsetCommitResponseTopic] = field(array(TxnOffsetCommitResponseTopic))
