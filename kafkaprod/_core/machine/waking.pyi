from collections.abc import Callable
from typing import Self, final

from typing_extensions import disjoint_base

@disjoint_base
class Waiter:
    """One thread waits, any thread wakes it. A wake that comes first is not lost. A call wakes it."""

    def __new__(cls) -> Self: ...
    def start_with(self, start: Callable[[], None]) -> None:
        """Call `start`, which wakes the thread to wait for, right before the next wait; a Wakeup without the GIL."""

    def wake(self) -> None:
        """Make the current or next `wait` return True. Never blocks; may be called again."""

    def __call__(self) -> None:
        """Do as `wake`."""

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for `wake`, at most `timeout` seconds; return whether it came. Uses it up."""

@final
class Wakeup:
    """Ends a poller's wait from any thread: one write into what it watches, however many calls there are.

    Thread-safe, safe in signal handlers.

    Args:
        descriptor: Written to; non-blocking. The caller owns it, and calls close() before closing it.
        reader: What the poller watches, and `rearm` empties: the other end of a pair, or the same descriptor if that is an
            eventfd. -1: the caller empties it.
    """

    def __new__(cls, descriptor: int, reader: int = -1) -> Self: ...
    def __call__(self) -> None:
        """Write, unless something is unread or close() was called."""

    def rearm(self) -> None:
        """Empty `reader`, and let the next call write again. The poller calls this when it is woken; never blocks."""

    def close(self) -> None:
        """Disable later calls; a call in progress has ended when this returns."""
