"""The control plane: one thread for the handlers of groups, topics, offsets and transactions, and for their timers.

Whatever only this thread touches needs no lock. Calls are bounded by the number of connections: each has one request in
progress at most.

Calls that may be long wait for the others, so that some clients with large requests do not hold up all that have small
ones; but after some calls that came past one of them it has its turn.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections import deque
from collections.abc import Callable

from kafkaprod.broker.coordinator.group_coordinator import GroupCoordinator
from kafkaprod.broker.coordinator.transaction_coordinator import TransactionCoordinator
from kafkaprod.clock import Clock

logger = logging.getLogger(__name__)

_STOP: None = None
_MOST_PASSED = 16
"""Calls that come past a long one that waits."""

_Call = Callable[[], None]


class ControlThread:
    """See the module docstring. `submit` may be called from any thread."""

    def __init__(
        self,
        coordinators: Callable[[], tuple[GroupCoordinator, TransactionCoordinator]],
        clock: Clock,
        on_crash: Callable[[], None],
    ) -> None:
        """Make it.

        Args:
            coordinators: Returns those of now, whose timers this thread runs.
            clock: Measures all times.
            on_crash: Called if the thread dies of an error, which nothing it runs should raise.
        """
        self._coordinators = coordinators
        self._clock = clock
        self._on_crash = on_crash
        self._calls: queue.SimpleQueue[tuple[_Call, bool] | None] = queue.SimpleQueue()
        self._long: deque[_Call] = deque()
        self._passed_count = 0
        self._thread = threading.Thread(target=self._run, name="kafkaprod-broker-control", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def submit(self, call: Callable[[], None], *, may_be_long: bool = False) -> None:
        """Have `call` run after those submitted before it, but before those that may be long."""
        self._calls.put((call, may_be_long))

    def stop(self) -> None:
        """Run what was submitted and end. Blocks until that is done."""
        self._calls.put(_STOP)
        self._thread.join()

    def _run(self) -> None:
        try:
            while self._run_next():
                pass
        except Exception:
            logger.critical("the control thread died", exc_info=True)
            self._on_crash()

    def _run_next(self) -> bool:
        """Run a call; return False if it is the last one.

        The call is kept in no variable while waiting, because it may hold a large request.
        """
        call = self._next()
        if call is _STOP:
            return False
        call()
        return True

    def _next(self) -> _Call | None:
        while True:
            now_ms = self._clock.now_ms()
            groups, transactions = self._coordinators()
            groups.on_time(now_ms)
            transactions.on_time(now_ms, self._clock.wall_ms())
            if self._long and (self._passed_count == _MOST_PASSED or self._calls.empty()):
                self._passed_count = 0
                return self._long.popleft()
            deadlines = (groups.next_deadline_ms(), transactions.next_deadline_ms(now_ms))
            deadline_ms = min((deadline for deadline in deadlines if deadline is not None), default=None)
            timeout_s = None if deadline_ms is None else max(deadline_ms - self._clock.now_ms(), 0) / 1000
            try:
                entry = self._calls.get(timeout=timeout_s)
            except queue.Empty:
                continue
            if entry is _STOP:
                if not self._long:
                    return _STOP
                self._calls.put(_STOP)
                return self._long.popleft()
            call, may_be_long = entry
            if not may_be_long:
                self._passed_count += bool(self._long)
                return call
            self._long.append(call)
