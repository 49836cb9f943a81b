"""What a producer with a spool does in each turn of its sender thread: store what is due, and what has its outcome.

    an earlier process -> restore (before the thread runs)
    accumulator -> store: batches that are due are in the journal -> drain -> allow: so is their producer id -> send
                          what has its outcome is noted before anything more is sent
                   unload: where memory is short, queued batches are in the journal alone
                   load:   until they could be sent next

At most five batches of a partition are on their way to a broker. Because progress is written before more are sent, no
more than five batches of a partition may be in the topic without the journal's knowing it; a broker remembers the last
five. So whenever a process is killed, the next one sends them again under the same numbers, and each is in the topic
once. Sender thread only, but for `add_sync` and `describe`.
"""

from __future__ import annotations

import errno
import logging
import sys
from collections import defaultdict, deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kafkaprod._core.queues.accumulator import Accumulator
from kafkaprod._core.requests.drain import Drain
from kafkaprod._core.requests.journal_pass import (
    JournalPass,
    enter_partition,
    forget_incarnations,
    new_incarnations,
    take_progress,
)
from kafkaprod._core.requests.produce_request import ProduceRequest
from kafkaprod._core.requests.restore import restore_batch, restore_partition
from kafkaprod._core.requests.settlement import BatchRef, incomplete_batches, oldest_created_ms
from kafkaprod.errors import KafkaError
from kafkaprod.spool.entries import RANK_MASK, Incarnation, SpooledPartition
from kafkaprod.spool.journal import Journal
from kafkaprod.spool.memory import BatchMemory
from kafkaprod.spool.recovery import StoredBatch
from kafkaprod.spool.syncing import Syncing, SyncPolicy
from kafkaprod.storage.disk import Disk
from kafkaprod.text import counted

if TYPE_CHECKING:
    from kafkaprod.net.pool import NodePool

PASS_BYTES: Final = 1 << 20  # written at once
BROKER_WINDOW: Final = 5  # batches of a partition that may be on their way
MAX_EPOCH: Final = 32_767
BEGIN_AGAIN_MS: Final = 10_000  # between tries to continue after a failure of the disk
RETRY_MS: Final = 100  # after a write that found no room
FREE_EVERY: Final = 64  # writes of progress
NO_TOPIC_ID: Final = bytes(16)

logger = logging.getLogger("kafkaprod.spool")


class Sync:
    """A call of sync().

    Attributes:
        wake: Called when all that was sent before it is on the disk, or never will be.
        is_over: Whether it is, or the caller no longer waits.
        error: Why it is not.
    """

    __slots__ = ("error", "is_over", "wake")

    def __init__(self, wake: Callable[[], None]) -> None:
        self.wake = wake
        self.is_over = False
        self.error: OSError | None = None


class Spool:
    """The spool of one producer.

    Args:
        journal: The journal of its slot.
        policy: When it is forced to the disk.
        accumulator, drain: Those of the producer.
        now_ms: The time.
        wall_ms: The time of day, in ms since the epoch.
        buffer_bytes: The producer's memory.

    Attributes:
        restored_count: Records that earlier processes have left.
        doubtful_count: Those of them that were sent again and may be in their topics twice.
        refused_count: Those of them that were refused for good.
    """

    def __init__(
        self,
        journal: Journal,
        policy: SyncPolicy,
        accumulator: Accumulator,
        drain: Drain,
        now_ms: int,
        wall_ms: Callable[[], int],
        buffer_bytes: int,
    ) -> None:
        self._journal = journal
        self._policy = policy
        self._accumulator = accumulator
        self._drain = drain
        self._wall_ms = wall_ms
        is_forced = policy.is_each or policy.interval_ms > 0
        self._memory = BatchMemory(journal, accumulator, buffer_bytes // 4, is_forced=is_forced)
        self._pass = JournalPass(accumulator)
        self._syncing = Syncing(journal, Disk(), policy.interval_ms) if policy.interval_ms else None
        self._syncs: deque[Sync] = deque()
        self._full_until_ms = -1
        self._is_full = False
        self._lacks_room = False
        self._begin_again_ms = 0
        self._progress: dict[int, tuple[int, int]] = {}  # what has its outcome, and could not be noted yet
        self._is_closed = False
        self._writes_until_free = FREE_EVERY
        self._first_ranks: dict[tuple[str, int], int] = {}  # of this process, by topic and partition
        self.restored_count = 0
        self.doubtful_count = self.refused_count = 0
        self._oldest_restored_ms = sys.maxsize  # by its timestamp
        self._restore(now_ms)
        drain.needs_stored = True

    @property
    def may_send(self) -> bool:
        """Whether more may be sent: not while outcomes find no room on the disk.

        Of a partition that has more than five batches in its topic without a later process's knowing it, some would be
        there twice.
        A disk that has failed for another reason holds nothing up: a later process cannot read it either.
        """
        return not (self._progress and self._lacks_room)

    @property
    def is_full(self) -> bool:
        """Whether the last write found no room: what was sent since then is in memory alone."""
        return self._is_full

    @property
    def cluster_id(self) -> str | None:
        """The cluster that gets the records; None: the first that answers."""
        return self._journal.state.slot.cluster_id or None

    @property
    def directory(self) -> str:
        """Its slot."""
        return self._journal.directory

    @property
    def needs_disk(self) -> bool:
        """Whether some records are on the disk alone, or it is full. Thread-safe."""
        return self._is_full or self._memory.unloaded_count > 0

    @property
    def topics(self) -> set[str]:
        """The topics that the journal knows."""
        return {item.topic for item in self._journal.state.table.values()}

    # -- restart -------------------------------------------------------------------------------------------------------

    def _restore(self, now_ms: int) -> None:
        """Queue what an earlier process has left, and continue its producer id."""
        state, found = self._journal.state, self._journal.recovered
        left: defaultdict[int, list[StoredBatch]] = defaultdict(list)
        for batch in found.unresolved:
            left[batch.reference].append(batch)
        found.unresolved = []
        # Else the brokers may have records that the journal has not: numbers behind it may be those of other records.
        is_continued = not (self._journal.was_moved or found.damaged or found.lost or found.unassigned)
        for topic in self.topics:
            items = [item for item in state.table.values() if item.topic == topic]
            count = max(max(item.partition_count, item.partition + 1) for item in items)
            topic_id = items[0].topic_id
            self._accumulator.set_topic(topic, [-1] * count, None, None if topic_id == NO_TOPIC_ID else topic_id)
        for reference, item in state.table.items():
            enter_partition(self._accumulator, item.topic, item.partition, reference)
            self._first_ranks[item.topic, item.partition] = item.next_rank
            restore_partition(
                self._accumulator,
                item.topic,
                item.partition,
                item.next_rank,
                item.resolved_rank,
                *item.incarnation,
            )
            sent_count = BROKER_WINDOW if is_continued else len(left[reference])
            for index, batch in enumerate(left[reference]):
                self._restore_batch(item, batch, may_be_sent=index < sent_count, now_ms=now_ms)
        slot = state.slot
        if is_continued and 0 <= slot.producer_epoch < MAX_EPOCH:
            self._drain.set_producer(slot.producer_id, slot.producer_epoch + 1)
        self._report(left)

    def _restore_batch(self, item: SpooledPartition, batch: StoredBatch, *, may_be_sent: bool, now_ms: int) -> None:
        rank = max(batch.rank, item.resolved_rank)
        sequence = -1
        if may_be_sent and item.incarnation.producer_id >= 0 and rank >= item.incarnation.first_rank:
            sequence = (rank - item.incarnation.first_rank) & RANK_MASK
        entry = (
            *(batch.segment, batch.position, batch.size_bytes, rank),
            *(batch.last_rank - rank + 1, rank - batch.rank, batch.base_timestamp, batch.max_timestamp),
        )
        restore_batch(self._accumulator, item.topic, item.partition, entry, sequence, now_ms)
        self._oldest_restored_ms = min(self._oldest_restored_ms, batch.base_timestamp)
        self._memory.unloaded_count += 1
        self.restored_count += batch.last_rank - rank + 1

    def _report(self, left: dict[int, list[StoredBatch]]) -> None:
        """Say what was found, and what is lost."""
        state, found = self._journal.state, self._journal.recovered
        if self.restored_count:
            logger.info(
                "%s of an earlier process are in the spool %s, and are sent first",
                counted(self.restored_count, "record"),
                self._journal.directory,
            )
        for reference, count in found.lost.items():
            item = state.table[reference]
            self._memory.damaged_count += count
            logger.error(
                "%s for %r[%d] were in the spool %s and cannot be read any more",
                counted(count, "record"),
                item.topic,
                item.partition,
                self._journal.directory,
            )
        unknown = sum(header.record_count for _, _, header in found.unassigned)
        if unknown:
            self._memory.damaged_count += unknown
            logger.error(
                "%s in the spool %s are of a partition that is not known any more",
                counted(unknown, "record"),
                self._journal.directory,
            )

    # -- each turn -----------------------------------------------------------------------------------------------------

    def store(self, now_us: int, pool: NodePool) -> float:
        """Write what is due and what has its outcome, and see to the memory; return in how many ms to call again.

        Args:
            now_us: The time.
            pool: The nodes: of partitions that cannot be sent to, batches need no memory.
        """
        now_ms = now_us // 1000
        wait_ms = min(self._store(now_us), self._memory.load(now_ms, pool))
        try:
            return min(wait_ms, self._memory.unload(now_ms, pool))
        except OSError as error:
            self._on_failure(error, now_ms)
            return RETRY_MS

    def _store(self, now_us: int) -> float:
        now_ms = now_us // 1000
        try:
            if self._journal.failure is not None:
                self._begin_again(now_ms)
            self._note_progress()
        except OSError as error:
            self._on_failure(error, now_ms)
        if now_ms < self._full_until_ms:
            return self._full_until_ms - now_ms
        try:
            self._store_due(now_us)
        except OSError as error:
            self._on_failure(error, now_ms)
            return RETRY_MS
        return max(self._pass.due_us - now_us, 0) / 1000

    def _store_due(self, now_us: int) -> None:
        syncs = list(self._syncs)
        collected = self._pass
        is_any_written = False
        while True:
            self._journal.roll()
            count = collected.collect(now_us, bool(syncs), self._journal.next_offset, self._journal.mark, PASS_BYTES)
            if count:
                self._write()
                is_any_written = True
            for topic, partition, topic_id, partition_count in collected.strangers:
                reference = self._journal.enter(topic, topic_id or NO_TOPIC_ID, partition, partition_count)
                enter_partition(self._accumulator, topic, partition, reference)
            if not (collected.is_cut or collected.strangers):
                break
        if self._is_full and is_any_written:
            self._is_full = False
            logger.info("the spool %s takes records again", self._journal.directory)
        if syncs:
            self._end_syncs(syncs)

    def _write(self) -> None:
        """Write what was collected, and let it be sent."""
        collected = self._pass
        try:
            segment, position = self._journal.append(
                memoryview(collected), collected.next_offset, collected.ends(), syncs=self._policy.is_each
            )
        except OSError:
            collected.undo()
            raise
        collected.commit(segment, position)
        if self._syncing is not None:
            self._syncing.note_write()

    def _note_progress(self) -> None:
        self._progress |= {reference: (rank, offset) for reference, rank, offset in take_progress(self._accumulator)}
        if not self._progress:
            return
        self._journal.resolve(self._progress, self._wall_ms())
        self._progress = {}
        self._writes_until_free -= 1
        if self._writes_until_free == 0 or self._is_full:
            self._writes_until_free = FREE_EVERY
            self._journal.free()

    def _begin_again(self, now_ms: int) -> None:
        """Let the journal continue in a new file, now and then. Raises OSError: it does not."""
        error = self._journal.failure
        assert error is not None
        if now_ms < self._begin_again_ms:
            raise error
        self._begin_again_ms = now_ms + BEGIN_AGAIN_MS
        moved = self._journal.begin_again()
        for ref in incomplete_batches(self._accumulator):
            segment, position, _, _ = ref.place_in_journal
            if ref.is_stored and segment == moved.old_segment and position >= moved.from_position:
                ref.move_in_journal(moved.segment, position + moved.distance)
        logger.warning("the spool %r continues in a new file after a failure of its disk: %s", self.directory, error)

    def _on_failure(self, error: OSError, now_ms: int) -> None:
        """Write nothing for a moment: what is stored is sent, and the rest waits."""
        self._lacks_room = error.errno in (errno.ENOSPC, errno.EDQUOT)
        self._full_until_ms = now_ms + RETRY_MS
        if not self._is_full:
            self._is_full = True
            what = "is full" if error.errno == errno.ENOSPC else "cannot be written"
            logger.warning("the spool %s %s, records wait in memory: %s", self._journal.directory, what, error)
        if self._journal.failure is not None:
            self._end_syncs(list(self._syncs), error)

    def allow(self, request: ProduceRequest) -> None:
        """Write the producer ids and epochs under which a request's batches are sent, if they are new.

        Raises:
            OSError: The disk refused: the request must not be sent.
        """
        found = new_incarnations(request)
        if not found:
            return
        try:
            self._journal.begin_incarnations((reference, Incarnation(*numbers)) for reference, *numbers in found)
        except OSError:
            forget_incarnations(request)
            raise

    def note_topic(self, topic: str, topic_id: bytes | None, partition_count: int) -> None:
        """Take what the metadata says of a topic, for a process that starts without a cluster."""
        for item in self._journal.state.table.values():
            if item.topic == topic:
                self._journal.enter(topic, topic_id or NO_TOPIC_ID, item.partition, partition_count)

    def note_cluster(self, cluster_id: str | None) -> None:
        """Take the cluster that gets the records."""
        if cluster_id is not None and cluster_id != self._journal.state.slot.cluster_id:
            self._journal.note_cluster(cluster_id)

    def is_restored(self, ref: BatchRef) -> bool:
        """Whether an earlier process has written the batch."""
        return ref.is_stored and ref.place_in_journal[3] < self._first_ranks.get((ref.topic, ref.partition), 0)

    def note_doubt(self, ref: BatchRef, record_count: int, why: str) -> None:
        """Count records that are sent under new numbers although the old ones may be in the topic."""
        self.doubtful_count += record_count
        logger.warning(
            "%s for %s[%d] that an earlier process may have sent are sent again, and may be there twice: %s",
            counted(record_count, "record"),
            ref.topic,
            ref.partition,
            why,
        )

    def note_refusal(self, ref: BatchRef, error: KafkaError) -> None:
        """Name records of an earlier process that are refused for good: its futures are gone."""
        record_count = ref.record_count
        if self.is_restored(ref):
            self.refused_count += record_count
            logger.error(
                "%s for %s[%d] of an earlier process are not delivered and leave the spool: %s",
                counted(record_count, "record"),
                ref.topic,
                ref.partition,
                error,
            )

    # -- sync and end --------------------------------------------------------------------------------------------------

    def add_sync(self, wake: Callable[[], None]) -> Sync:
        """Store what is queued in the next turn, whatever its age; call `wake` when it is on the disk. Thread-safe."""
        sync = Sync(wake)
        self._syncs.append(sync)
        return sync

    def gauges(self) -> dict[str, Callable[[int], float]]:
        """Return what is read of it at any time, by the names of metrics. Thread-safe."""
        journal = self._journal
        return {
            "spool-bytes": lambda _: journal.size_bytes,
            "spool-records": lambda _: self.record_count,
            "spool-oldest-age": self._oldest_age_s,
            "spool-state": self._state,
            "spool-sync-total": lambda _: journal.sync_count,
            "spool-sync-time-ns-total": lambda _: journal.sync_ns,
            "spool-replayed-total": lambda _: self.restored_count,
            "spool-possibly-twice-total": lambda _: self.doubtful_count,
            "spool-refused-total": lambda _: self.refused_count,
            "spool-damaged-total": lambda _: self._memory.damaged_count,
        }

    @property
    def record_count(self) -> int:
        """How many records have no outcome, as the journal knows it. Thread-safe."""
        return sum(item.next_rank - item.resolved_rank for item in self._items())

    def _items(self) -> list[SpooledPartition]:
        return list(self._journal.state.table.values())

    def _state(self, _: int) -> int:
        if self._journal.failure is not None:
            return 3
        return 2 if self._is_full else min(self._memory.unloaded_count, 1)

    def _oldest_age_s(self, now_ms: int) -> float:
        """Return the age of the oldest record: by its timestamp if an earlier process has sent it."""
        if any(item.resolved_rank < self._first_ranks.get((item.topic, item.partition), 0) for item in self._items()):
            return max(self._wall_ms() - self._oldest_restored_ms, 0) / 1000
        oldest_ms = oldest_created_ms(self._accumulator)
        return 0.0 if oldest_ms is None else max(now_ms - oldest_ms, 0) / 1000

    def describe(self) -> str:
        """Return how full the spool is, and where it is. Thread-safe."""
        return f"the spool {self._journal.directory} has {self._journal.size_bytes} bytes"

    def _end_syncs(self, syncs: list[Sync], error: OSError | None = None) -> None:
        if error is None and (self._policy.is_each or self._policy.interval_ms):
            self._journal.sync()
        for sync in syncs:
            self._syncs.remove(sync)
            sync.error = error
            sync.is_over = True
            sync.wake()

    def close(self) -> None:
        """Store what is queued and what has its outcome, force it to the disk, and give the slot to others."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._syncing is not None:
            self._syncing.end()
        try:
            self._note_progress()
            self._journal.free()
            self._store_due(0)  # the accumulator is closed: all of it is due
            self._journal.sync()
        except (OSError, MemoryError) as error:
            logger.warning("the spool %s could not be written at its end: %s", self._journal.directory, error)
        self._end_syncs(list(self._syncs), OSError(errno.EBADF, "the producer was closed"))
        self._journal.close()

    def abandon(self) -> None:
        """Close the slot in a forked child: its lock must end with the parent."""
        self._journal.close()
