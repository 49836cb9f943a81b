"""Fetches of followers: the leader's answer to another broker of the cluster, and what it learns from it."""

from __future__ import annotations

from kafkaprod.broker.calls.file_records import records_field
from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.broker.storage.log.segment import FileSlice
from kafkaprod.errors import BrokerError
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.fetch import EpochEndOffset, FetchPartition, FetchRequest, PartitionData


def read_for_follower(
    broker: Broker, body: FetchRequest, topic: str, wanted: FetchPartition, ranges: list[FileSlice]
) -> tuple[PartitionData, bool]:
    """Read up to the log's end for a follower.

    Returns:
        The answer, and whether waiting would not make it better: it has news of the high watermark, say.
    """
    from kafkaprod.broker.replication.partition import FollowerFetch  # a broker alone starts without them
    from kafkaprod.broker.replication.partition_replica_log import ReadBatches

    data = PartitionData(
        partition_index=wanted.partition, high_watermark=-1, aborted_transactions=None, records=b"", error_code=0
    )
    partition = broker.topics.partition(topic, wanted.partition)
    if partition is None or partition.replica is None:
        known = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if partition is None else ErrorCode.NOT_LEADER_OR_FOLLOWER
        data.error_code = known
        return data, True
    state = body.replica_state
    question = FollowerFetch(
        state.replica_id,
        state.replica_epoch,
        wanted.current_leader_epoch,
        wanted.fetch_offset,
        wanted.last_fetched_epoch,
    )
    try:
        outcome = partition.replica.fetch(question, broker.clock.now_ms())
    except BrokerError as error:
        data.error_code = error.code
        return data, True
    data.error_code = outcome.error
    data.high_watermark = data.last_stable_offset = outcome.high_watermark
    data.log_start_offset = outcome.log_start_offset
    if outcome.diverging is not None:
        data.diverging_epoch = EpochEndOffset(epoch=outcome.diverging[0], end_offset=outcome.diverging[1])
    for batches in outcome.batches:
        if isinstance(batches, ReadBatches):
            data.records = records_field(batches.source, ranges)
    is_news = outcome.error != ErrorCode.NONE or outcome.diverging is not None
    return data, is_news or outcome.high_watermark != wanted.high_watermark
