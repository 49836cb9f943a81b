"""The log of one partition: append, commit, truncate, retain; `ReadableLog`, its base, has state, reads and lookups.

Where it sits: the produce handler calls `append`, then `commit`; the fetch handler calls `read` and sends the slice.
Thread-safe: one lock guards all state; syncs run outside it. Offsets: log start <= high watermark <= log end.

    watermark rule       what moves the high watermark
    SOLE_REPLICA         the append itself (policies interval, never) or the sync (each): what was read is never lost
    REPLICATED           `update_high_watermark`, called by replication
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeVar

from kafkaprod.broker.storage.errors import (
    LogError,
    OffsetOutOfRangeError,
    PartitionFencedError,
)
from kafkaprod.broker.storage.format.control_batch import EndTransactionMarker, build_marker
from kafkaprod.broker.storage.format.log_config import LogConfig
from kafkaprod.broker.storage.log import log_appends
from kafkaprod.broker.storage.log.append_validation import validate_client_batch
from kafkaprod.broker.storage.log.cleaner import Cleaner
from kafkaprod.broker.storage.log.log_appends import AppendResult
from kafkaprod.broker.storage.log.log_store import LogEnvironment, LogStore, open_store
from kafkaprod.broker.storage.log.readable_log import ReadableLog, synced_offset_of
from kafkaprod.broker.storage.log.watermark import WatermarkRule
from kafkaprod.broker.storage.producers.producer_state import UNGUARDED, TransactionGuard, VerificationToken
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.structs import TopicPartition

T = TypeVar("T")


class PartitionLog(ReadableLog):
    """See the module docstring. Make one with `open_partition_log`.

    Attributes:
        compaction: Held by a compaction, and by a change of the log directory.
        shortenings: How often records were dropped from the end: what has copied them looks again.
    """

    def __init__(self, topic_partition: TopicPartition, store: LogStore) -> None:
        super().__init__(topic_partition, store)
        self.compaction = threading.Lock()
        self.shortenings = 0

    # -- append --------------------------------------------------------------------------------------------------------

    def append(
        self,
        records: bytearray | memoryview,
        leader_epoch: int,
        guard: TransactionGuard = UNGUARDED,
        max_bytes_now: int | None = None,
    ) -> AppendResult:
        """Append a client's batch. It is not acknowledged before `commit(result.last_offset + 1)` has returned.

        Args:
            records: One batch, the records field of a produce request; writable: offset, epoch and, where the topic
                says so, timestamps are set in place.
            leader_epoch: The leader epoch of this broker for the partition, at least `latest_epoch`.
            guard: The transaction coordinator's answer about a transactional batch.
            max_bytes_now: Most bytes of records to check in this call; None for as many as the rules allow.

        Raises:
            LargeBatchError: There are more of them than `max_bytes_now`; nothing was done.
            RecordsRefusedError: The batch breaks a rule; nothing was written.
            PartitionFencedError: The partition takes no appends.
            LogError: KAFKA_STORAGE_ERROR, the disk refused the write; nothing of it stays.
            IllegalStateError: The leader epoch is older than the log's.
        """
        now_ms = self._environment.clock.wall_ms()
        valid = validate_client_batch(memoryview(records), self.config, now_ms, max_bytes_now)
        return self._append(lambda: log_appends.append_produced(self._store, valid, leader_epoch, guard))

    def append_internal(
        self, records: bytearray | memoryview, leader_epoch: int, token: VerificationToken | None = None
    ) -> AppendResult:
        """Append a coordinator's batch (group offsets, transaction state), which has no sequence; the caller vouches
        for it.

        Args:
            records: The batch.
            leader_epoch: That of the leader.
            token: The one of its transaction's verification, None without one.

        Raises:
            RecordsRefusedError: INVALID_PRODUCER_EPOCH, the batch has a stale producer epoch; INVALID_TXN_STATE, its
                transaction has ended while it was verified.
            PartitionFencedError, LogError: As `append`.
        """
        return self._append(lambda: log_appends.append_internal(self._store, memoryview(records), leader_epoch, token))

    def append_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        marker: EndTransactionMarker,
        leader_epoch: int,
        transaction_version: int = 0,
    ) -> AppendResult:
        """Append the marker that ends a producer's transaction here (WriteTxnMarkers).

        Raises:
            RecordsRefusedError: INVALID_PRODUCER_EPOCH (stale epoch), TRANSACTION_COORDINATOR_FENCED (the coordinator
                has been replaced).
            PartitionFencedError, LogError: As `append`.
        """
        batch = memoryview(build_marker(producer_id, producer_epoch, marker, self._environment.clock.wall_ms()))
        return self._append(
            lambda: log_appends.append_marker(self._store, batch, marker, leader_epoch, transaction_version)
        )

    def append_replicated(self, records: bytes | bytearray | memoryview) -> int:
        """Append batches fetched from the leader, offsets and epochs as given; return the new log end offset.

        A batch cut at the end of `records` is left out.

        Raises:
            RecordsRefusedError: CORRUPT_MESSAGE, a batch is damaged or does not follow the log's end; those before it
                are in the log.
            PartitionFencedError, LogError: As `append`.
        """
        return self._append(lambda: log_appends.append_replicated(self._store, memoryview(records)))

    def begin_leader_epoch(self, epoch: int) -> None:
        """Note that records from the log's end on belong to an epoch, also if none follows (KAFKA-7415).

        Raises:
            PartitionFencedError, LogError: As `append`.
        """
        with self._lock:
            self._fence.check()
            self._fence.guard_write(lambda: self._store.begin_epoch(epoch, self._store.log_end_offset))

    def commit(self, offset: int) -> None:
        """Return when the flush policy allows data below `offset` to be acknowledged. Call it for acks=0 too.

        Raises:
            PartitionFencedError: The sync failed; the data may be lost and must not be acknowledged.
        """
        if not self._environment.policy.syncs_before_ack:
            return
        self.flush(offset)

    def flush(self, offset: int | None = None) -> None:
        """Bring the data below `offset` (None: all) to the disk.

        Raises:
            PartitionFencedError: The sync failed, now or earlier.
        """
        try:
            self._commits.wait_for(self._store.log_end_offset if offset is None else offset, self._sync)
        except PartitionFencedError as error:
            with self._lock:
                self._fence.trip(str(error))
            raise
        self._maybe_advance_watermark()

    def try_flush(self) -> bool:
        """Flush, for a timer: a failure fences the partition, and the result is False."""
        try:
            self.flush()
        except PartitionFencedError:
            return False
        return True

    def update_high_watermark(self, offset: int) -> int:
        """Move the high watermark to `offset`, at most to the log end and never below the log start; return it."""
        with self._lock:
            self.watermark.move(max(self._store.log_start_offset, min(offset, self._store.log_end_offset)))
            return self.high_watermark

    # -- shorten -------------------------------------------------------------------------------------------------------

    def delete_records(self, offset: int) -> int:
        """Make `offset` (-1: the high watermark) the log start (DeleteRecords); return the new log start.

        Raises:
            OffsetOutOfRangeError: Above the high watermark.
            LogDirectoryFailedError: The log directory cannot be used.
        """
        with self._lock:
            self._fence.check_directory()
            if offset > self.high_watermark or offset < -1:
                raise OffsetOutOfRangeError(f"offset {offset} is above the high watermark {self.high_watermark}")
            start = self.high_watermark if offset == -1 else offset
            self._fence.guard_write(lambda: self._store.raise_log_start(start))
            return self._store.log_start_offset

    def follow_log_start(self, offset: int) -> None:
        """Make the leader's log start this replica's, at most its end."""
        with self._lock:
            start = min(offset, self._store.log_end_offset)
            self._fence.guard_write(lambda: self._store.raise_log_start(start))

    def roll(self) -> None:
        """Begin a segment, so that all before it can be deleted later on.

        Raises:
            PartitionFencedError, LogError: As `append`.
        """
        with self._lock:
            self._fence.check()
            self._fence.guard_write(self._store.roll_now)
            self._commits.advance(self._store.segments.active.base_offset)

    def delete_old_segments(self, now_ms: int | None = None) -> int:
        """Apply retention; return how many segments were deleted.

        Args:
            now_ms: The time to compare ages with, None for the clock's.

        Raises:
            LogError: KAFKA_STORAGE_ERROR, a file could not be deleted.
        """
        with self._lock:
            if self.fence_reason is not None:
                return 0  # a fenced log keeps its bytes
            return self._fence.guard_write(lambda: self._store.delete_old_segments(self.high_watermark, now_ms))

    def compact(self, should_stop: Callable[[], bool] = lambda: False, *, is_forced: bool = False) -> int:
        """Compact the log if it is time (cleanup.policy=compact); return how many segments were rewritten.

        Appends and reads continue meanwhile.

        Args:
            should_stop: Called often; True ends the work early, and what is rewritten so far stays.
            is_forced: Compact whatever is dirty.

        Raises:
            LogError: CORRUPT_MESSAGE, a batch is damaged; KAFKA_STORAGE_ERROR, the disk refused. The log is as it was,
                or compacted in part.
        """
        with self.compaction:
            with self._lock:
                if self.fence_reason is not None or not self.config.is_compacted:
                    return 0
                stable = self.last_stable_offset
                plan = self._fence.guard_read(lambda: self._store.plan_compaction(stable, is_forced=is_forced))
            return 0 if plan is None else Cleaner(self._lock, self._fence, self._store, should_stop).run(plan)

    def truncate_to(self, offset: int) -> None:
        """Drop the records at or above `offset` (a follower that diverged).

        Raises:
            PartitionFencedError: Already fenced, or the disk failed half-way: restart the broker.
        """
        self._shorten(lambda: self._store.truncate_to(offset))

    def restart_at(self, offset: int) -> None:
        """Drop all records and continue at `offset` (a follower whose log ends below the leader's log start).

        Raises:
            PartitionFencedError: As `truncate_to`.
        """
        self._shorten(lambda: self._store.restart_at(offset))

    def expire_producers(self, expiration_ms: int) -> None:
        """Forget producers that wrote nothing for `expiration_ms` (producer.id.expiration.ms)."""
        with self._lock:
            self._store.producers.expire(self._environment.clock.wall_ms(), expiration_ms)

    def checkpoint(self) -> None:
        """Write the derived files that speed up the next start.

        Raises:
            LogError: KAFKA_STORAGE_ERROR, the disk refused a write.
        """
        with self._lock:
            if self.fence_reason is None:
                self._fence.guard_write(self._store.write_index_checksums)

    def close(self) -> bool:
        """Sync and close the files; return whether the shutdown was clean. No other call may follow."""
        is_synced = self.fence_reason is None and self.try_flush()
        with self._lock:
            if is_synced:
                with contextlib.suppress(LogError):  # remembered in needs_check
                    self._fence.guard_write(self._store.close)
            self._fence.close("closed")
            self._store.forget_files()
            return not self.needs_check

    def abandon(self) -> None:
        """Close without a sync: the partition is about to be deleted. No other call may follow but reads of slices."""
        with self._lock:
            self._fence.close("deleted")
            self._store.forget_files()

    # -- change the directory ------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        """Hold all others back while the caller copies what is left, and calls `prepare` and `take_store`."""
        with self._lock:
            yield

    def skip_to(self, offset: int) -> None:
        """Continue at a higher offset; see `LogStore.skip_to`.

        Raises:
            PartitionFencedError, LogError: As `append`.
        """
        with self._lock:
            self._fence.check()
            self._fence.guard_write(lambda: self._store.skip_to(offset))

    def note_gaps(self, other: PartitionLog) -> None:
        """Note, durably, that there will be gaps if another log, which this one shall be a copy of, has some.

        Raises:
            PartitionFencedError, LogError: As `append`.
        """
        with self._lock:
            cleaned_to = other._store.cleaned_to
            self._fence.check()
            if cleaned_to is not None:
                self._fence.guard_write(lambda: self._store.note_cleaned(cleaned_to))

    def finish_copy(self, other: PartitionLog) -> None:
        """Take over what the records of another log, which this one is a copy of, do not say, and close the files.

        Raises:
            LogError: KAFKA_STORAGE_ERROR, the disk refused; the copy cannot take the other's place.
        """
        self.note_gaps(other)
        self.follow_log_start(other.log_start_offset)
        with self._lock:
            self._store.producers = other._store.producers
            self._store.epochs = other._store.epochs
        if not self.close():
            raise LogError(ErrorCode.KAFKA_STORAGE_ERROR, f"cannot close the copy in {self.directory}")

    def take_store(self, store: LogStore) -> None:
        """Continue with a synced copy of the same records in another directory; the caller holds this log."""
        old, self._store, self._environment = self._store, store, store.environment
        store.config, store.producers, store.epochs = old.config, old.producers, old.epochs
        self._fence.follow(partial(synced_offset_of, self._commits, store), store.environment.health)
        self._commits.advance(store.log_end_offset)
        old.forget_files()

    # -- inside --------------------------------------------------------------------------------------------------------

    def _append(self, append: Callable[[], T]) -> T:
        with self._lock:
            self._fence.check()
            active = self._store.segments.active
            try:
                return self._fence.guard_write(append)
            finally:
                if self._store.segments.active is not active:  # a roll synced what was before it
                    self._commits.advance(self._store.segments.active.base_offset)
                if not self._environment.policy.syncs_before_ack:
                    self._maybe_advance_watermark()
                self._environment.unsynced.add(self.topic_partition)

    def _maybe_advance_watermark(self) -> None:
        if self.watermark.rule is WatermarkRule.SOLE_REPLICA:
            with self._lock:
                is_late = self._environment.policy.syncs_before_ack
                self.watermark.move(self._commits.synced_offset if is_late else self._store.log_end_offset)

    def _sync(self) -> int:
        with self._lock:
            end, file = self._store.log_end_offset, self._store.segments.active.file()
        self._environment.disk.fdatasync(file)
        return end

    def _shorten(self, shorten: Callable[[], None]) -> None:
        with self._lock:
            self._fence.check()
            self.shortenings += 1
            self._fence.guard_shortening(shorten)
            self._commits.retreat(self._store.log_end_offset)
            self.watermark.listeners[0] = self._store.producers.on_high_watermark
            self.update_high_watermark(self.high_watermark)


def open_partition_log(
    topic_partition: TopicPartition,
    directory: str,
    config: LogConfig,
    environment: LogEnvironment,
    *,
    is_clean: bool,
    recovery_point: int = 0,
    log_start_offset: int = 0,
) -> PartitionLog:
    """Open a partition directory, or make a new log in an empty one.

    Args:
        topic_partition: Named in messages.
        directory: Must exist.
        config: The configuration of the topic.
        environment: The environment of the broker.
        is_clean: The last broker closed the directory cleanly.
        recovery_point: From the checkpoint; data below it need not be read.
        log_start_offset: From the checkpoint.

    Raises:
        OSError: The files could not be read or repaired.
    """
    store = open_store(
        directory,
        config,
        environment,
        is_clean=is_clean,
        recovery_point=recovery_point,
        log_start_offset=log_start_offset,
    )
    return PartitionLog(topic_partition, store)
