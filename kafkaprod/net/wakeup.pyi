from typing import Self, final

@final
class Wakeup:
    """Called, it makes its descriptor's other end readable. Thread-safe, safe in signal handlers.

    Args:
        descriptor: Written to; non-blocking. It stays the caller's, who calls close() before closing it.
    """

    def __new__(cls, descriptor: int) -> Self: ...
    def __call__(self) -> None:
        """Write a byte, unless one is on its way or close() was called."""

    def rearm(self) -> None:
        """The next call writes again. To be said when no byte is left to read."""

    def close(self) -> None:
        """Later calls do nothing, and no call that has begun goes on."""
