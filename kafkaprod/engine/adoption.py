"""Sends what is left in slots of a spool that no producer has: after a deploy with fewer workers no process takes them.

A producer with a spool looks once a minute, on a thread of its own, while its own records need no disk. A slot that is
left and has not changed since the look before gets an engine of its own in this process, one slot at a time, until it
is empty. Records of two slots have no order between them, as those of two processes.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kafkaprod._core.machine.waking import Waiter
from kafkaprod.clock import Clock, monotonic_s
from kafkaprod.config import ProducerConfig
from kafkaprod.engine.steps import run
from kafkaprod.errors import DeliveryFailedError, KafkaError
from kafkaprod.spool.inspection import SlotReader
from kafkaprod.spool.journal import Journal, SlotInUseError
from kafkaprod.spool.slots import open_journal, slot_names
from kafkaprod.spool.spooling import Spool
from kafkaprod.storage.directory_lock import is_locked
from kafkaprod.storage.disk import Disk, list_files
from kafkaprod.text import counted
from kafkaprod.threads import apart, make_thread

if TYPE_CHECKING:
    from kafkaprod.engine.engine import Engine
    from kafkaprod.engine.host import EngineHost

LOOK_S: Final = 60.0
WAIT_S: Final = 0.5  # between looks at a slot that is being sent
MOST_FAILURES: Final = 3  # then a slot is left for people

logger = logging.getLogger("kafkaprod.spool")


class Adoption:
    """The thread of one producer.

    Args:
        engine: The producer's, which has a spool.
        make_host: Makes an engine that sends from a slot, with its thread.
        look_s: Seconds between two looks.

    Attributes:
        adopted_count: Records of other slots that were sent.
    """

    def __init__(
        self, engine: Engine, make_host: Callable[[ProducerConfig, Clock, Journal], EngineHost], look_s: float = LOOK_S
    ) -> None:
        spool = engine.spool
        assert spool is not None
        self._engine = engine
        self._spool: Spool = spool
        self._make_host = make_host
        self._look_s = look_s
        self._directory = os.path.dirname(spool.directory)
        self._own = os.path.basename(spool.directory)
        self._end = Waiter()
        self._has_ended = False
        self._seen: dict[str, dict[str, int]] = {}  # left slots and their files at the last look
        self._empty: dict[str, dict[str, int]] = {}  # those that had nothing to send
        self._failures: Counter[str] = Counter()
        self._thread = make_thread(self._run, f"kafkaprod-{engine.config.client_id}-adoption")
        self.adopted_count = 0

    def start(self) -> None:
        """Start the thread; it ends with the engine. Raises RuntimeError: the system gives no more threads."""
        self._engine.companion = self
        apart(self._thread.start)

    def end(self) -> None:
        """Let the thread end; what it has not sent stays in its slot. Thread-safe."""
        self._has_ended = True
        self._end.wake()

    def join(self, timeout_s: float) -> None:
        """Wait for the end of the thread, for so many seconds."""
        self._thread.join(timeout_s)

    def _run(self) -> None:
        while not self._has_ended:
            self._end.wait(self._look_s)
            if self._has_ended or self._spool.needs_disk:
                continue
            try:
                self._look()
            except (OSError, KafkaError) as error:
                logger.warning("left slots of the spool %r cannot be sent: %s", self._directory, error)

    def _look(self) -> None:
        seen, self._seen = self._seen, {}
        for name in slot_names(self._directory):
            path = os.path.join(self._directory, name)
            if name == self._own or self._failures[name] >= MOST_FAILURES or is_locked(path):
                continue
            files = list_files(path)
            self._seen[name] = files
            if files == seen.get(name) and files != self._empty.get(name):
                if SlotReader(self._directory, name).content().record_count:
                    self._adopt(name, path)
                    return
                self._empty[name] = files

    def _adopt(self, name: str, path: str) -> None:
        """Send what a slot has."""
        config: ProducerConfig = self._engine.config
        try:
            journal = open_journal(path, config.spool_max_bytes, Disk())
        except SlotInUseError:
            return
        host = self._make_host(config, self._engine.clock, journal)
        spool: Spool | None = host.engine.spool
        assert spool is not None
        count = spool.record_count
        logger.info("%s in the slot %r, which no producer has, are sent", counted(count, "record"), path)
        host.start(self)
        try:
            is_empty = self._wait(host, config.delivery_timeout_ms / 1000)
        finally:
            run(host.close(0, Waiter))
            host.join()
        self.adopted_count += count - spool.record_count
        if is_empty or self._has_ended:
            return
        self._failures[name] += 1
        if self._failures[name] >= MOST_FAILURES:
            count = spool.record_count
            logger.warning(
                "the slot %r is left, as nothing of it could be sent: it has %s", path, counted(count, "record")
            )

    def _wait(self, host: EngineHost, patience_s: float) -> bool:
        """Wait until all is sent; False: nothing was for so many seconds, or the producer ends."""
        accumulator = host.engine.accumulator
        least, since_s = accumulator.incomplete_batch_count, monotonic_s()
        while not self._has_ended and monotonic_s() - since_s < patience_s:
            try:
                run(host.flush(WAIT_S, Waiter))
                return True
            except DeliveryFailedError:  # some were refused: the log names them
                continue
            except TimeoutError:
                if accumulator.incomplete_batch_count < least:
                    least, since_s = accumulator.incomplete_batch_count, monotonic_s()
        return False
