"""An object of another machine: what it was when it was found, and ranges of its bytes, each compared with that.

Nothing but `read_range` asks again, and only for the bytes that lack: whoever asks again above it may have two objects
in one input, or rows twice.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeVar

from kafkaprod.clock import monotonic_s
from kafkaprod.loader.opening.errors import LoadError
from kafkaprod.locks import locked
from kafkaprod.text import counted

Result = TypeVar("Result")

FIRST_PAUSE_S: Final = 0.5
MOST_PAUSE_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class RangePatience:
    """Says how long to wait for a server.

    Attributes:
        connect_s: For a connection, with TLS.
        read_s: For the next byte.
        all_s: For the next byte, in all tries together.
        first_pause_s: Before the second try; doubled before each further one.
        now_s: The time.
    """

    connect_s: float = 10.0
    read_s: float = 30.0
    all_s: float = 300.0
    first_pause_s: float = FIRST_PAUSE_S
    now_s: Callable[[], float] = monotonic_s


@dataclass(slots=True)
class RangeCounts:
    """Counts what was read of other machines; for all threads.

    Attributes:
        request_count: Requests that were answered.
        byte_count: Bytes of objects that came.
        retry_count: How often a range, or the rest of one, was read again.
    """

    request_count: int = 0
    byte_count: int = 0
    retry_count: int = 0
    _lock: Any = field(default_factory=threading.RLock, repr=False, compare=False)

    @locked
    def add(self, *, requests: int = 0, size: int = 0, retries: int = 0) -> None:
        """Count some more."""
        self.request_count += requests
        self.byte_count += size
        self.retry_count += retries

    def to_dict(self) -> dict[str, int]:
        """Return them by the names that --json has."""
        return {"requests": self.request_count, "bytes": self.byte_count, "retries": self.retry_count}

    def __str__(self) -> str:
        text = f"{self.byte_count / 1e6:,.1f} MB in {counted(self.request_count, 'request')}"
        return f"{text}, {counted(self.retry_count, 'retry', 'retries')}" if self.retry_count else text


class Closing:
    """Ends the pauses of threads that read an object which is no longer wanted."""

    def __init__(self) -> None:
        self.is_set = False
        self._ended: queue.SimpleQueue[None] = queue.SimpleQueue()

    def end(self) -> None:
        """End them, now and from now on."""
        self.is_set = True
        self._ended.put(None)

    def wait(self, timeout_s: float) -> bool:
        """Wait; return whether they are ended."""
        try:
            self._ended.get(timeout=timeout_s)
        except queue.Empty:
            return False
        self._ended.put(None)  # for the others
        return True


class RemoteObject(Protocol):
    """Is an object that was found.

    Attributes:
        name: For messages and manifests, without secrets.
        size: In bytes.
        validator: What another object of its name would not have: `etag:…`, `version:…`, `modified:…`, `sha256:…`.
        counts: What was read.
        is_near: Whether its bytes are on this machine, so that nothing is read ahead.
        note: What the user should know of how it is read; empty: nothing.
    """

    name: str
    size: int
    validator: str
    counts: RangeCounts
    is_near: bool
    note: str

    def read_range(self, start: int, end: int, closing: Closing | None) -> bytes | bytearray:
        """Return the bytes from `start` to before `end`. Any thread.

        Args:
            start: The first one.
            end: Behind the last one; not behind the object's.
            closing: Ends the pauses between tries; None: nothing does.

        Raises:
            LoadError: It is another object now, or gone, or the server does not answer.
        """

    def check_end(self) -> None:
        """Compare it a last time where the ranges cannot prove that they are of one object. Raises LoadError."""


class PassingError(Exception):
    """A try failed in a way that another one may not.

    Args:
        why: For the message.
        pause_s: How long the server wants to be left alone; None: it does not say.
    """

    def __init__(self, why: str, pause_s: float | None = None) -> None:
        super().__init__(why)
        self.pause_s = pause_s


class Tries:
    """Asks again what failed in a way that may pass, until no byte has come for too long.

    Args:
        name: The object's, for messages.
        counts: Counts.
        patience: How long to try.
        closing: Ends the pauses.
    """

    def __init__(self, name: str, counts: RangeCounts, patience: RangePatience, closing: Closing) -> None:
        self._name = name
        self._counts = counts
        self._patience = patience
        self._closing = closing
        self._pause_s = patience.first_pause_s
        self._last_s = patience.now_s()

    def came(self, size: int) -> None:
        """Count bytes that came."""
        self._counts.add(size=size)
        self._last_s, self._pause_s = self._patience.now_s(), self._patience.first_pause_s

    def failed(self, error: PassingError) -> None:
        """Wait before the next try. Raises LoadError: there is none."""
        wait_s = self._pause_s if error.pause_s is None else min(error.pause_s, MOST_PAUSE_S)
        silent_s = self._patience.now_s() - self._last_s
        if silent_s + wait_s > self._patience.all_s:
            raise LoadError(
                f"{self._name} cannot be read: {error}; no byte has come for {silent_s:.0f} s. When its server answers "
                "again, --resume continues a load that has begun"
            ) from ConnectionError(str(error))
        self._counts.add(retries=1)
        if self._closing.wait(wait_s):
            raise LoadError(f"{self._name}: it was closed while it was read") from error
        self._pause_s = min(self._pause_s * 2, MOST_PAUSE_S)

    def until_done(self, call: Callable[[], Result]) -> Result:
        """Make a call that may raise PassingError until it does not; return what it returns. Raises LoadError."""
        while True:
            try:
                return call()
            except PassingError as error:
                self.failed(error)


def replaced(name: str, was: str, now: str) -> LoadError:
    """Return the error for an object that is another one."""
    return LoadError(
        f"{name} was replaced while it was read: it had {was}, and now has {now}. Load an object that is no "
        "longer written to, from the beginning with --restart"
    )


def gone(name: str, status: str) -> LoadError:
    """Return the error for an object that is no longer there."""
    return LoadError(
        f"{name} was deleted while it was read ({status}): what was sent stays in the topic. Put the same object there "
        "again and use --resume, or leave it out and use --restart"
    )


def refused(name: str, status: str) -> LoadError:
    """Return the error for credentials that a server does not take, or does not take any more."""
    return LoadError(
        f"{name} cannot be read: the server answers {status}. Check that the credentials may read it; where they have "
        "expired, or the signature of its address has, renew them and use --resume"
    )
