"""What the log needs from time to time: syncs, checkpoints, retention, compaction.

One thread, because all of it may block on the disk; another for compaction, which may take minutes, and one for
partitions that move (`mover`).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from kafkaprod.broker.calls.timers import Timers
from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.broker.cluster.mover import Mover
from kafkaprod.errors import KafkaError

logger = logging.getLogger(__name__)

_CHECKPOINT_MS = 60_000
_PRODUCER_EXPIRATION_MS = 24 * 3_600_000  # producer.id.expiration.ms
_UNPROMPTED_FLUSH_MS = 1_000  # flush policy "each": acks=0 appends that no client waits for


class Maintenance:
    """See the module docstring.

    Args:
        broker: Whose logs.
        submit_control: Runs a call on the control thread, which owns the offsets.
    """

    def __init__(self, broker: Broker, submit_control: Callable[[Callable[[], None]], None]) -> None:
        self._broker = broker
        self._submit_control = submit_control
        self._timers = Timers()
        self._stop = threading.Event()
        self._pause_changed = threading.Event()
        broker.on_options = self._pause_changed.set
        self._thread = threading.Thread(target=self._run, name="kafkaprod-broker-maintenance", daemon=True)
        self._cleaner = threading.Thread(target=self._compact, name="kafkaprod-broker-cleaner", daemon=True)
        self._mover = Mover(broker)
        self._started_ms = broker.clock.wall_ms()

    def start(self) -> None:
        """Begin."""
        flush_ms = min(self._broker.config.flush_policy.interval_ms or _UNPROMPTED_FLUSH_MS, _UNPROMPTED_FLUSH_MS)
        self._every(flush_ms, self._broker.log_dirs.flush_due)
        self._every(_CHECKPOINT_MS, self._broker.log_dirs.checkpoint)
        self._every(self._broker.config.log_retention_check_ms, self._retain)
        self._every(self._broker.config.offsets_retention_check_ms, lambda: self._submit_control(self._retain_offsets))
        expiration_check_ms = self._broker.config.transactions.expiration_check_ms
        self._every(expiration_check_ms, lambda: self._submit_control(self._expire_transactional_ids))
        if self._broker.config.tokens.is_enabled:
            self._every(
                self._broker.config.tokens.expiry_check_interval_ms, lambda: self._submit_control(self._sweep_tokens)
            )
        self._thread.start()
        self._mover.start()
        if self._broker.config.log_cleaner_enable:
            self._cleaner.start()

    def stop(self) -> None:
        """End; waits for what runs now. A compaction stops at the next batch."""
        self._stop.set()
        self._pause_changed.set()
        self._thread.join()
        self._mover.stop()
        if self._cleaner.ident is not None:
            self._cleaner.join()

    def _every(self, interval_ms: int, task: Callable[[], object]) -> None:
        def run() -> None:
            try:
                task()
            except (KafkaError, OSError) as error:
                logger.error("maintenance failed and will be tried again in %d ms: %s", interval_ms, error)
            self._timers.call_at(self._broker.clock.now_ms() + interval_ms, run)

        self._timers.call_at(self._broker.clock.now_ms() + interval_ms, run)

    def _run(self) -> None:
        clock = self._broker.clock
        while not self._stop.is_set():
            deadline_ms = self._timers.next_deadline_ms() or 0
            self._stop.wait(max(deadline_ms - clock.now_ms(), 0) / 1000)
            if not self._stop.is_set():
                self._timers.run(clock.now_ms())

    def _compact(self) -> None:
        while self._await_backoff():
            try:
                self._broker.log_dirs.compact(self._stop.is_set)
            except (KafkaError, OSError) as error:
                backoff_ms = self._broker.config.log_cleaner_backoff_ms
                logger.error("compaction failed and will be tried again in %d ms: %s", backoff_ms, error)

    def _await_backoff(self) -> bool:
        """Wait for the cleaner's turn, by the pause of now; return False at the end."""
        began_ms = self._broker.clock.now_ms()
        while not self._stop.is_set():
            left_ms = began_ms + self._broker.config.log_cleaner_backoff_ms - self._broker.clock.now_ms()
            if left_ms <= 0:
                return True
            self._pause_changed.wait(left_ms / 1000)
            self._pause_changed.clear()
        return False

    def _retain(self) -> None:
        log_dirs = self._broker.log_dirs
        starts = {topic_partition: log.log_start_offset for topic_partition, log in log_dirs.partitions.items()}
        log_dirs.apply_retention()
        for topic_partition, log in log_dirs.partitions.items():
            log.expire_producers(_PRODUCER_EXPIRATION_MS)
            if log.log_start_offset != starts.get(topic_partition):
                self._broker.purgatory.notify(topic_partition)  # followers wait for it
        log_dirs.purge_deleted()

    def _retain_offsets(self) -> None:
        """On the control thread: drop offsets whose time is over, groups without any, and what the log has outgrown."""
        broker = self._broker
        now_ms = broker.clock.wall_ms()
        table = broker.offsets.table
        active_ids = [group.group_id for group in broker.groups.list_groups(table.group_ids()) if group.members]
        expired = table.expired(active_ids, self._started_ms, now_ms, broker.config.offsets_retention_ms)
        try:
            broker.offsets.write([(key, None) for key in expired], now_ms)
            broker.groups.forget_unused()
            broker.offsets.maybe_compact(now_ms)
        except KafkaError as error:
            logger.warning("retention of committed offsets failed and will be tried again: %s", error)

    def _sweep_tokens(self) -> None:
        try:
            self._broker.standing.sweep_tokens()
        except KafkaError as error:
            logger.warning("removal of delegation tokens that are over failed and will be tried again: %s", error)

    def _expire_transactional_ids(self) -> None:
        """On the control thread: forget transactional ids that were not used for long."""
        try:
            self._broker.transactions.expire_ids(self._broker.clock.wall_ms())
        except KafkaError as error:
            logger.warning("expiration of transactional ids failed and will be tried again: %s", error)
