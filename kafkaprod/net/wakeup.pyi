from typing import Self, final

@final
class Wakeup:
    """Makes its descriptor's other end readable when called. Thread-safe, safe in signal handlers.

    Args:
        descriptor: Written to; non-blocking. The caller owns it, and calls close() before closing it.
    """

    def __new__(cls, descriptor: int) -> Self: ...
    def __call__(self) -> None:
        """Write a byte, unless one is unread or close() was called."""

    def rearm(self) -> None:
        """Let the next call write again. The poller calls this when it has read all bytes."""

    def close(self) -> None:
        """Disable later calls; a call in progress has ended when this returns."""
