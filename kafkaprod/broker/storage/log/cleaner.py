"""Carry a compaction out: read and write without the partition's lock, exchange segments under it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from kafkaprod.broker.storage.log.compaction import (
    CompactionPlan,
    CompactionStoppedError,
    LastOffsets,
    group_segments,
    rewrite_group,
)
from kafkaprod.broker.storage.log.fence import Fence
from kafkaprod.broker.storage.log.log_store import LogStore
from kafkaprod.broker.storage.log.segment import Segment


class Cleaner:
    """One compaction of one log. One thread.

    Args:
        lock: The lock of the partition.
        fence: The fence of the partition; it remembers damage and failures.
        store: The store of the partition, guarded by the lock.
        should_stop: Called for each batch; True ends the work.
    """

    def __init__(self, lock: threading.RLock, fence: Fence, store: LogStore, should_stop: Callable[[], bool]) -> None:
        self._lock = lock
        self._fence = fence
        self._store = store
        self._should_stop = should_stop

    def run(self, plan: CompactionPlan) -> int:
        """Compact; return how many segments were rewritten.

        Raises:
            LogError: CORRUPT_MESSAGE, a batch is damaged; KAFKA_STORAGE_ERROR, the disk refused. The log is as it was,
                or compacted in part.
        """
        count = 0
        try:
            last = LastOffsets(plan.dirty_offset - 1)
            self._fence.guard_read(lambda: last.fill(plan, self._should_stop))
            if self._store.cleaned_to is None:
                self._note_cleaned(plan.dirty_offset)
            for group in group_segments(plan, last.noted_offset):
                count += len(group) if self._rewrite(plan, group, last) else 0
            self._note_cleaned(last.noted_offset + 1)
        except CompactionStoppedError:
            return count
        return count

    def _rewrite(self, plan: CompactionPlan, group: Sequence[Segment], last: LastOffsets) -> bool:
        disk = self._store.environment.disk
        cleaned = self._fence.guard_read(lambda: rewrite_group(plan, group, last, disk, self._should_stop))
        if cleaned is None:
            return False
        with self._lock:
            self._fence.check()
            self._fence.guard_write(lambda: self._store.replace_segments(group, cleaned))
        return True

    def _note_cleaned(self, offset: int) -> None:
        with self._lock:
            self._fence.check()
            self._fence.guard_write(lambda: self._store.note_cleaned(offset))
