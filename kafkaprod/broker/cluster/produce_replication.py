"""What a produce request waits for in a cluster: with acks=all, that every in-sync replica has its batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.produce import PartitionProduceResponse
from kafkaprod.structs import TopicPartition

if TYPE_CHECKING:
    from kafkaprod.broker.replication.partition import PartitionReplica

ACKS_ALL = -1


class Replicated(NamedTuple):
    """An appended batch of a replicated partition."""

    topic_partition: TopicPartition
    replica: PartitionReplica
    leader_epoch: int
    end_offset: int
    response: PartitionProduceResponse


def note_append(broker: Broker, topic_partition: TopicPartition, replica: PartitionReplica) -> None:
    """Move the high watermark if this replica is alone, and wake followers that wait for records."""
    replica.advance_high_watermark()
    broker.purgatory.notify(topic_partition)


def await_replicas(broker: Broker, batches: list[Replicated], timeout_ms: int, then: Callable[[], None]) -> None:
    """Call `then` when each batch is on all in-sync replicas, or its answer names the error; at once if they are."""
    left = [batch for batch in batches if not _is_settled(batch)]
    if not left:
        then()
        return

    def try_complete(is_expired: bool) -> bool:
        nonlocal left
        left = [batch for batch in left if not _is_settled(batch)]
        if left and not is_expired:
            return False
        for batch in left:
            _fail(batch, ErrorCode.REQUEST_TIMED_OUT)
        then()
        return True

    deadline_ms = broker.clock.now_ms() + max(timeout_ms, 0)
    broker.purgatory.watch([batch.topic_partition for batch in left], deadline_ms, try_complete)


def _is_settled(batch: Replicated) -> bool:
    outcome = batch.replica.produce_outcome(batch.leader_epoch, batch.end_offset)
    if outcome is None:
        return False
    if outcome != ErrorCode.NONE:
        _fail(batch, outcome)
    return True


def _fail(batch: Replicated, error_code: ErrorCode) -> None:
    batch.response.error_code = error_code
    batch.response.base_offset = -1
    batch.response.log_append_time_ms = -1
    batch.response.log_start_offset = -1
