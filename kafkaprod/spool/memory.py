"""Which batches of a spool keep their bytes in memory: those that can be sent soon, and all while there is room.

    stored -> unload: memory is short, and the batch cannot be sent -> load: it could be sent next -> drain

Sender thread only.
"""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Final

from kafkaprod._core.queues.accumulator import Accumulator
from kafkaprod._core.requests.restore import first_unloaded, load_batch, unload_batches, unloaded_leaders
from kafkaprod._core.requests.settlement import BatchRef
from kafkaprod.errors import CorruptDataError
from kafkaprod.spool.journal import Journal
from kafkaprod.text import counted

if TYPE_CHECKING:
    from kafkaprod.net.pool import NodePool

SLOW_MS: Final = 1000  # a partition whose next batch has waited so long does not need the memory of those behind it
SYNC_WAIT_MS: Final = 10  # until what was written is looked at again, for a sync by another thread
NO_WAIT_MS: Final = 60_000  # what is returned if no time needs another call

logger = logging.getLogger("kafkaprod.spool")


class BatchMemory:
    """The memory of the batches of one producer.

    Args:
        journal: Where their bytes are, too.
        accumulator: Whose pool has the memory.
        load_bytes: Most bytes that are read for batches that wait in queues.
        is_forced: Whether what is written is forced to the disk: only such batches are left to it.

    Attributes:
        unloaded_count: At most so many batches have no memory.
        damaged_count: Records that could not be read from the disk any more.
    """

    def __init__(self, journal: Journal, accumulator: Accumulator, load_bytes: int, *, is_forced: bool) -> None:
        self._journal = journal
        self._accumulator = accumulator
        self._load_bytes = load_bytes
        self._is_forced = is_forced
        self.unloaded_count = 0
        self.damaged_count = 0

    def load(self, now_ms: int, pool: NodePool) -> float:
        """Give the batches that could be sent next their bytes; return in how many ms to call again.

        Nodes that only such batches wait for are connected here: what has no bytes is not ready to be sent.
        """
        if not self._accumulator.incomplete_batch_count:
            self.unloaded_count = 0
        if not self.unloaded_count:
            return NO_WAIT_MS
        leaders = unloaded_leaders(self._accumulator)
        nodes = {node_id for node_id in leaders if pool.is_connected(node_id)}
        wait_ms: float = NO_WAIT_MS
        for node_id in leaders - nodes:
            if not pool.is_ready(node_id, now_ms):
                wait_ms = min(wait_ms, pool.ready_delay_ms(node_id, now_ms) or NO_WAIT_MS)
        for ref in first_unloaded(self._accumulator, self._load_bytes, nodes):
            try:
                segment, position, size_bytes, _ = ref.place_in_journal
                load_batch(ref, self._journal.read(segment, position, size_bytes))
            except (OSError, CorruptDataError) as error:
                self._give_up(ref, error)
            self.unloaded_count -= 1
        return wait_ms

    def _give_up(self, ref: BatchRef, error: Exception) -> None:
        """Fail records that cannot be read from the disk any more."""
        what = f"{counted(ref.record_count, 'record')} for {ref.topic}[{ref.partition}]"
        logger.error("%s were in the spool %s and cannot be read any more: %s", what, self._journal.directory, error)
        lost = CorruptDataError(f"{what} cannot be read from the spool: {error}")
        lost.__cause__ = error
        self.damaged_count += ref.record_count
        self._journal.note_damage(ref.place_in_journal[0])
        ref.fail(lost)

    def unload(self, now_ms: int, pool: NodePool) -> float:
        """If memory is short, let batches that cannot be sent soon be in the journal alone; return when to call again.

        Raises:
            OSError: A thread waits for memory, and the disk refused to take what could leave it.
        """
        memory = self._accumulator.pool
        is_waited_for = memory.waiter_count > 0
        if not is_waited_for and memory.in_use * 2 <= memory.capacity:
            return NO_WAIT_MS
        nodes = {node_id for node_id in pool.node_ids() if pool.is_connected(node_id)}
        count, waits_for_disk = self._unload_synced(nodes, now_ms)
        if not count and waits_for_disk and is_waited_for:
            self._journal.sync()
            count, waits_for_disk = self._unload_synced(nodes, now_ms)
        if count:
            memory.wake_waiters()
        return SYNC_WAIT_MS if waits_for_disk else NO_WAIT_MS

    def _unload_synced(self, nodes: set[int], now_ms: int) -> tuple[int, bool]:
        """Unload what is on the disk, or at least written if nothing is ever forced there."""
        synced = self._journal.synced if self._is_forced else (sys.maxsize, 0)
        count, waits_for_disk = unload_batches(self._accumulator, *synced, nodes, now_ms - SLOW_MS)
        self.unloaded_count += count
        return count, waits_for_disk
