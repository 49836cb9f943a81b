"""What is done for all logs of a directory: syncs, compaction, the close."""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from kafkaprod.broker.storage.errors import LogError
from kafkaprod.broker.storage.log.partition_log import PartitionLog
from kafkaprod.structs import TopicPartition

logger = logging.getLogger(__name__)

_CLOSING_THREADS = 16


def flush_unsynced(unsynced: set[TopicPartition], logs: Mapping[TopicPartition, PartitionLog]) -> None:
    """Sync the logs of the partitions that were appended to."""
    for key in list(unsynced):
        unsynced.discard(key)  # before the look at its end: an append from here on adds it again
        log = logs.get(key)
        if log is not None and log.fence_reason is None and log.recovery_point < log.log_end_offset:
            log.try_flush()


def compact(
    logs: Mapping[TopicPartition, PartitionLog], should_stop: Callable[[], bool], left_out: Container[TopicPartition]
) -> int:
    """Compact the logs that are due, but for some; return how many segments were rewritten.

    A failure leaves a log as it was.
    """
    count = 0
    for key, log in logs.items():
        if should_stop():
            break
        if key in left_out:
            continue
        try:
            count += log.compact(should_stop)
        except LogError as error:
            logger.error("compaction of %r failed: %s", key, error)
    return count


def close_logs(logs: Sequence[PartitionLog]) -> list[bool]:
    """Close all logs, many at a time: a disk merges syncs that wait together. Return whether each was clean."""
    if len(logs) <= _CLOSING_THREADS:
        return [log.close() for log in logs]
    with ThreadPoolExecutor(_CLOSING_THREADS, thread_name_prefix="kafkaprod-broker-close") as pool:
        return list(pool.map(PartitionLog.close, logs))
