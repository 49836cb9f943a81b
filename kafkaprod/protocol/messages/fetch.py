"""Fetch (1): read record batches from partitions; followers of a partition replicate with it too.

A response starts with the batch that contains the asked offset and holds whole batches, at least one.

     5  log start offset                    12  flexible; epoch of the last batch, divergence
     7  sessions (KIP-227)                  13  topic ids instead of names (KIP-516)
     8  client throttles itself             15  replica state, tagged (KIP-903)
     9  leader epoch of the client          16  addresses of new leaders (KIP-951)
    10  zstd                                17  directory of the replica (KIP-853)
    11  racks, preferred replica (KIP-392)  18  high watermark of the follower (KIP-1166)

Source: protocol guide, KIPs above.
"""

from __future__ import annotations

import uuid

from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.field_types import (
    INT8,
    INT16,
    INT32,
    INT64,
    NULLABLE_STRING,
    RECORDS,
    STRING,
    UUID,
    array,
    struct_of,
)
from kafkaprod.protocol.schema import Request, Response, Struct, field
from kafkaprod.structs import INT32_MAX, BytesLike

INT64_MAX = (1 << 63) - 1


class ReplicaState(Struct):
    """Identity of a follower."""

    replica_id: int = field(INT32, default=-1)
    replica_epoch: int = field(INT64, default=-1)


class FetchPartition(Struct):
    """A position in one partition."""

    partition: int = field(INT32)
    current_leader_epoch: int = field(INT32, since=9, default=-1, ignorable=True)
    fetch_offset: int = field(INT64)
    last_fetched_epoch: int = field(INT32, since=12, default=-1)
    log_start_offset: int = field(INT64, since=5, default=-1, ignorable=True)
    partition_max_bytes: int = field(INT32)
    replica_directory_id: uuid.UUID | None = field(UUID, since=17, tag=0, ignorable=True)
    high_watermark: int = field(INT64, since=18, tag=1, default=INT64_MAX, ignorable=True)


class FetchTopic(Struct):
    """Positions in one topic."""

    topic: str = field(STRING, until=12, ignorable=True)
    topic_id: uuid.UUID | None = field(UUID, since=13, ignorable=True)
    partitions: list[FetchPartition] = field(array(FetchPartition))


class ForgottenTopic(Struct):
    """Partitions to take out of the session."""

    topic: str = field(STRING, until=12, ignorable=True)
    topic_id: uuid.UUID | None = field(UUID, since=13, ignorable=True)
    partitions: list[int] = field(array(INT32))


class FetchRequest(Request, api=ApiKey.FETCH, versions=(4, 18), flexible_from=12):
    """Partitions and positions to read from."""

    cluster_id: str | None = field(NULLABLE_STRING, since=12, tag=0, ignorable=True)
    replica_id: int = field(INT32, until=14, default=-1)  # -1: a consumer
    replica_state: ReplicaState = field(struct_of(ReplicaState), since=15, tag=1)
    max_wait_ms: int = field(INT32)
    min_bytes: int = field(INT32)
    max_bytes: int = field(INT32, default=INT32_MAX)
    isolation_level: int = field(INT8)  # 0 read_uncommitted, 1 read_committed
    session_id: int = field(INT32, since=7, ignorable=True)
    session_epoch: int = field(INT32, since=7, default=-1, ignorable=True)  # -1: no session
    topics: list[FetchTopic] = field(array(FetchTopic))
    forgotten_topics_data: list[ForgottenTopic] = field(array(ForgottenTopic), since=7)
    rack_id: str = field(STRING, since=11, ignorable=True)


class EpochEndOffset(Struct):
    """Where an epoch ends."""

    epoch: int = field(INT32, default=-1)
    end_offset: int = field(INT64, default=-1)


class LeaderIdAndEpoch(Struct):
    """The leader the partition has now."""

    leader_id: int = field(INT32, default=-1)
    leader_epoch: int = field(INT32, default=-1)


class SnapshotId(Struct):
    """A snapshot to read instead."""

    end_offset: int = field(INT64, default=-1)
    epoch: int = field(INT32, default=-1)


class AbortedTransaction(Struct):
    """A transaction whose records a consumer has to skip."""

    producer_id: int = field(INT64)
    first_offset: int = field(INT64)


class PartitionData(Struct):
    """What was read from one partition."""

    partition_index: int = field(INT32)
    error_code: int = field(INT16)
    high_watermark: int = field(INT64)
    last_stable_offset: int = field(INT64, default=-1)
    log_start_offset: int = field(INT64, since=5, default=-1, ignorable=True)
    diverging_epoch: EpochEndOffset = field(struct_of(EpochEndOffset), since=12, tag=0)
    current_leader: LeaderIdAndEpoch = field(struct_of(LeaderIdAndEpoch), since=12, tag=1)
    snapshot_id: SnapshotId = field(struct_of(SnapshotId), since=12, tag=2)
    # null with read_uncommitted
    aborted_transactions: list[AbortedTransaction] | None = field(array(AbortedTransaction).nullable())
    preferred_read_replica: int = field(INT32, since=11, default=-1)  # -1: read here
    records: BytesLike | None = field(RECORDS)


class FetchableTopicResponse(Struct):
    """What was read from one topic."""

    topic: str = field(STRING, until=12, ignorable=True)
    topic_id: uuid.UUID | None = field(UUID, since=13, ignorable=True)
    partitions: list[PartitionData] = field(array(PartitionData))


class NodeEndpoint(Struct):
    """Address of a broker named as leader."""

    node_id: int = field(INT32)
    host: str = field(STRING)
    port: int = field(INT32)
    rack: str | None = field(NULLABLE_STRING)


class FetchResponse(Response, api=ApiKey.FETCH, versions=(4, 18), flexible_from=12):
    """Record batches, and the state of each log."""

    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16, since=7, ignorable=True)
    session_id: int = field(INT32, since=7)
    responses: list[FetchableTopicResponse] = field(array(FetchableTopicResponse))
    node_endpoints: list[NodeEndpoint] = field(array(NodeEndpoint), since=16, tag=0)
