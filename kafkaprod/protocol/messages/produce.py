"""Produce (0): append record batches. With acks 0 there is no response.

Exactly one batch per partition, magic 2, and no partition twice. Producers write this body straight from their batches
(`_core.requests.produce_request`); this declaration serves brokers and tests, and decodes the response.

    3  transactional id                      9  flexible
    5  log start offset                     10  current leader and its address with NOT_LEADER_OR_FOLLOWER (KIP-951)
    6  client throttles itself              11  may answer TRANSACTION_ABORTABLE (KIP-890)
    7  zstd                                 12  in a transaction: adds the partition to it (KIP-890)
    8  errors of single records (KIP-467)   13  topic ids instead of names (KIP-516)

Versions 0 to 2 went with Kafka 4.0, which still announces them (KAFKA-18659). Source: protocol guide, KIPs above.
"""

from __future__ import annotations

import uuid

from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.field_types import INT16, INT32, INT64, NULLABLE_STRING, RECORDS, STRING, UUID, array, struct_of
from kafkaprod.protocol.schema import Request, Response, Struct, field
from kafkaprod.structs import BytesLike


class PartitionProduceData(Struct):
    """The batch for one partition."""

    index: int = field(INT32)
    records: BytesLike | None = field(RECORDS)


class TopicProduceData(Struct):
    """The batches for one topic."""

    name: str = field(STRING, until=12, ignorable=True)
    topic_id: uuid.UUID | None = field(UUID, since=13, ignorable=True)
    partition_data: list[PartitionProduceData] = field(array(PartitionProduceData))


class ProduceRequest(Request, api=ApiKey.PRODUCE, versions=(3, 13), flexible_from=9):
    """Record batches to append."""

    transactional_id: str | None = field(NULLABLE_STRING)  # null: not transactional
    acks: int = field(INT16)  # -1 all in-sync, 1 leader, 0 no response is sent
    timeout_ms: int = field(INT32)  # how long the leader waits for the in-sync replicas
    topic_data: list[TopicProduceData] = field(array(TopicProduceData))


class BatchIndexAndErrorMessage(Struct):
    """A record because of which the batch was refused."""

    batch_index: int = field(INT32)
    batch_index_error_message: str | None = field(NULLABLE_STRING)


class LeaderIdAndEpoch(Struct):
    """The leader the partition has now."""

    leader_id: int = field(INT32, default=-1)
    leader_epoch: int = field(INT32, default=-1)


class PartitionProduceResponse(Struct):
    """The outcome for one partition."""

    index: int = field(INT32)
    error_code: int = field(INT16)
    base_offset: int = field(INT64)  # -1 with an error
    log_append_time_ms: int = field(INT64, default=-1)  # -1 unless the topic keeps append times
    log_start_offset: int = field(INT64, since=5, default=-1, ignorable=True)
    record_errors: list[BatchIndexAndErrorMessage] = field(array(BatchIndexAndErrorMessage), since=8, ignorable=True)
    error_message: str | None = field(NULLABLE_STRING, since=8, ignorable=True)
    current_leader: LeaderIdAndEpoch = field(struct_of(LeaderIdAndEpoch), since=10, tag=0)


class TopicProduceResponse(Struct):
    """The outcomes for one topic."""

    name: str = field(STRING, until=12, ignorable=True)
    topic_id: uuid.UUID | None = field(UUID, since=13, ignorable=True)
    partition_responses: list[PartitionProduceResponse] = field(array(PartitionProduceResponse))


class NodeEndpoint(Struct):
    """Address of a broker named as leader."""

    node_id: int = field(INT32)
    host: str = field(STRING)
    port: int = field(INT32)
    rack: str | None = field(NULLABLE_STRING)


class ProduceResponse(Response, api=ApiKey.PRODUCE, versions=(3, 13), flexible_from=9):
    """Where the batches were written, or why not."""

    responses: list[TopicProduceResponse] = field(array(TopicProduceResponse))
    throttle_time_ms: int = field(INT32)
    node_endpoints: list[NodeEndpoint] = field(array(NodeEndpoint), since=10, tag=0)
