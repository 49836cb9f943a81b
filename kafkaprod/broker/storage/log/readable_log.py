"""What readers see of a partition's log: offsets, states, records, lookups. `PartitionLog` adds what changes it.

Thread-safe: one lock guards all state. Offsets: log start <= high watermark <= log end.
"""

from __future__ import annotations

import threading
from functools import partial

from kafkaprod.broker.storage.errors import OffsetOutOfRangeError
from kafkaprod.broker.storage.format.log_config import LogConfig
from kafkaprod.broker.storage.format.records import open_batch
from kafkaprod.broker.storage.index.transaction_index import AbortedTransaction
from kafkaprod.broker.storage.log.fence import Fence
from kafkaprod.broker.storage.log.group_commit import GroupCommit
from kafkaprod.broker.storage.log.log_store import LogStore
from kafkaprod.broker.storage.log.segments import ReadResult, RecordPosition
from kafkaprod.broker.storage.log.watermark import Watermark
from kafkaprod.broker.storage.producers.producer_entry import ProducerEntry
from kafkaprod.broker.storage.producers.producer_state import VerificationToken
from kafkaprod.broker.storage.recovery.recovery import Damage
from kafkaprod.errors import CorruptDataError
from kafkaprod.storage.batch_header import BatchHeader
from kafkaprod.structs import TopicPartition


class ReadableLog:
    """The reading half of a partition's log. See the module docstring."""

    def __init__(self, topic_partition: TopicPartition, store: LogStore) -> None:
        self.topic_partition = topic_partition
        self._environment = store.environment
        self._lock = threading.RLock()
        self._store = store  # guarded by _lock, as all that follows
        self._commits = GroupCommit(store.log_end_offset)
        # Nothing here knows the log: a deleted partition is freed at once, without the collector of cycles.
        synced_offset = partial(synced_offset_of, self._commits, store)
        name = f"{topic_partition.topic}-{topic_partition.partition}"
        self._fence = Fence(name, synced_offset, store.environment.health)
        self.watermark = Watermark(store.log_end_offset)
        self.watermark.listeners.append(store.producers.on_high_watermark)
        store.producers.on_high_watermark(store.log_end_offset)
        if store.damage is not None:
            self._commits.retreat(store.damage.segment_base_offset)
            self._fence.trip(f"damaged records: {store.damage}")

    # -- state ---------------------------------------------------------------------------------------------------------

    @property
    def directory(self) -> str:
        """The partition's directory."""
        return self._store.directory

    @property
    def config(self) -> LogConfig:
        """The topic's options; assign to change them."""
        return self._store.config

    @config.setter
    def config(self, config: LogConfig) -> None:
        with self._lock:
            self._store.config = config

    @property
    def log_start_offset(self) -> int:
        """The first offset that can be read."""
        return self._store.log_start_offset

    @property
    def log_end_offset(self) -> int:
        """The offset the next record will get."""
        return self._store.log_end_offset

    @property
    def high_watermark(self) -> int:
        """Records below this offset may be shown to consumers."""
        return self.watermark.offset

    @property
    def last_stable_offset(self) -> int:
        """Records below this offset may be shown to consumers that read committed data only."""
        with self._lock:
            unstable = self._store.producers.first_unstable_offset()
            stable = self.high_watermark if unstable is None else min(unstable, self.high_watermark)
            return max(stable, self._store.log_start_offset)

    @property
    def recovery_point(self) -> int:
        """Data below this offset is on the disk and was written without an error."""
        synced, limit = synced_offset_of(self._commits, self._store), self._fence.recovery_limit
        return synced if limit is None else min(synced, limit)

    @property
    def needs_check(self) -> bool:
        """A write failed or damage was found: the broker must not call its shutdown clean."""
        return self._fence.recovery_limit is not None

    @property
    def fence_reason(self) -> str | None:
        """Why the partition takes no appends; None if it does."""
        return self._fence.reason

    @property
    def is_offline(self) -> bool:
        """Whether the log directory has failed: the log can be neither read nor written."""
        return self._fence.is_offline

    @property
    def damage(self) -> Damage | None:
        """The damaged range found when the log was opened; the log ends before it."""
        return self._store.damage

    @property
    def size_bytes(self) -> int:
        """Bytes of records in all segments."""
        with self._lock:
            return self._store.segments.size_bytes

    @property
    def latest_epoch(self) -> int:
        """The newest leader epoch in the log, -1 if none."""
        return self._store.epochs.latest_epoch

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """Where a leader epoch ended: (largest known epoch not above it, end offset), (-1, -1) if unknown."""
        with self._lock:
            return self._store.epochs.end_offset_for(epoch, self._store.log_end_offset)

    def epoch_for(self, offset: int) -> int:
        """The leader epoch in force at `offset`, -1 if unknown."""
        with self._lock:
            return self._store.epochs.epoch_for(offset)

    def has_open_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        """The producer's current transaction has records here."""
        with self._lock:
            return self._store.producers.has_open_transaction(producer_id, producer_epoch)

    def verification_token(self, header: BatchHeader) -> VerificationToken | None:
        """The token to verify a transactional batch with before `append`; None if it needs no verification."""
        with self._lock:
            return self._store.producers.verification_token(header, self._environment.clock.wall_ms())

    def internal_token(self, producer_id: int, producer_epoch: int) -> VerificationToken:
        """The token to verify a coordinator's batch with before `append_internal`."""
        with self._lock:
            now_ms = self._environment.clock.wall_ms()
            return self._store.producers.internal_token(producer_id, producer_epoch, now_ms)

    def producers(self) -> list[ProducerEntry]:
        """Copies of what is remembered of each producer."""
        with self._lock:
            return [entry.copy() for entry in self._store.producers.producers.values()]

    # -- read ----------------------------------------------------------------------------------------------------------

    def read(
        self, offset: int, max_bytes: int, upper_bound: int | None = None, *, min_one_batch: bool = True
    ) -> ReadResult:
        """Return the batches from the one that contains `offset`, within one segment.

        Args:
            offset: The fetch offset; batches are whole, so records below it may come first.
            max_bytes: Most bytes, but for the first batch.
            upper_bound: No batch at or above it: the high watermark (None), `last_stable_offset` for read-committed
                consumers, `log_end_offset` for replicas.
            min_one_batch: Return the first batch even if it is larger than `max_bytes`.

        Raises:
            OffsetOutOfRangeError: Below the log start or above the log end.
            LogDirectoryFailedError: The log directory cannot be used.
            LogError: CORRUPT_MESSAGE, the batch is damaged; the partition is fenced for appends.
        """
        with self._lock:
            self._fence.check_directory()
            start, end = self._store.log_start_offset, self._store.log_end_offset
            if not start <= offset <= end:
                raise OffsetOutOfRangeError(f"offset {offset} of {self.topic_partition} is outside {start}..{end}")
            bound = self.high_watermark if upper_bound is None else min(upper_bound, end)
            if offset >= bound:
                return ReadResult(None, offset, offset)
            segments = self._store.segments
            return self._fence.guard_read(
                lambda: segments.read(offset, max_bytes, bound, end, min_one_batch=min_one_batch)
            )

    def aborted_transactions(self, fetch_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Return the aborted transactions with records in the range (up to `ReadResult.end_offset`)."""
        with self._lock:
            return self._store.segments.collect_aborted(fetch_offset, end_offset)

    def find_timestamp(self, timestamp: int) -> RecordPosition | None:
        """Return the first record at or after `timestamp` (ms), None without one (ListOffsets).

        The lock is free while a batch is decompressed and searched.

        Raises:
            LogError: CORRUPT_MESSAGE, a batch on the way is damaged.
        """
        min_offset = self._store.log_start_offset
        while True:
            with self._lock:
                min_offset = max(min_offset, self._store.log_start_offset)
                find = partial(self._store.segments.find_batch, timestamp, min_offset)
                candidate = self._fence.guard_read(find)
            if candidate is None:
                return None
            found, damage = _search(candidate.data, timestamp, min_offset)
            if damage is not None:
                with self._lock:
                    self._fence.guard_read(partial(_raise, damage))
            if found is not None:
                return RecordPosition(*found, candidate.header.partition_leader_epoch)
            min_offset = candidate.header.last_offset + 1

    def find_max_timestamp(self) -> RecordPosition | None:
        """Return the first record with the largest timestamp, None if no record has one (ListOffsets -3, KIP-734).

        Raises:
            LogError: CORRUPT_MESSAGE, a batch on the way is damaged.
        """
        with self._lock:
            start, segments = self._store.log_start_offset, self._store.segments
            largest = self._fence.guard_read(lambda: segments.max_timestamp(start))
        return self.find_timestamp(largest) if largest >= 0 else None


def _search(batch: bytes, timestamp: int, min_offset: int) -> tuple[tuple[int, int] | None, CorruptDataError | None]:
    """Return the offset and timestamp of the record that is looked for, or why the batch cannot be read."""
    try:
        return open_batch(batch).find_timestamp(timestamp, min_offset), None
    except CorruptDataError as error:
        return None, error


def synced_offset_of(commits: GroupCommit, store: LogStore) -> int:
    """Return the offset below which the data of a store is on the disk."""
    return min(commits.synced_offset, store.log_end_offset)


def _raise(error: CorruptDataError) -> None:
    raise error
