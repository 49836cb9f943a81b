"""Readiness of sockets, and a wakeup that other threads may call.

The files are in a selector of `selectors`: epoll on Linux, kqueue on macOS. `socket_calls.wait_ready` waits for these
two in compiled code; any other selector waits itself. KAFKAPROD_SELECTOR=poll, select, epoll or kqueue in the
environment chooses one by name, for tests.

Threads: everything belongs to the one I/O thread, except `wakeup`, which any thread may call at any time, also in a
signal handler. Wakeups are coalesced: however many there are between two polls, one poll returns early.
"""

from __future__ import annotations

import os
import selectors
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, Protocol

from kafkaprod._core.machine.waking import Wakeup
from kafkaprod.errors import ConfigError
from kafkaprod.net.socket_calls import READY_SET, receive_into, wait_ready

READABLE = selectors.EVENT_READ
WRITABLE = selectors.EVENT_WRITE
_SELECTOR_VARIABLE: Final = "KAFKAPROD_SELECTOR"


def _new_selector() -> selectors.BaseSelector:
    name = os.environ.get(_SELECTOR_VARIABLE)
    if name is None:
        return selectors.DefaultSelector()
    selector_type = getattr(selectors, f"{name.capitalize()}Selector", None)
    if name in ("base", "default") or selector_type is None:
        raise ConfigError(
            f"{_SELECTOR_VARIABLE}={name}: this system has no such selector; use poll, select, epoll or kqueue"
        )
    selector: selectors.BaseSelector = selector_type()
    return selector


def _set_descriptor(selector: selectors.BaseSelector) -> int | None:
    if READY_SET and type(selector).__name__ == f"{READY_SET.capitalize()}Selector":
        descriptor: int = selector.fileno()  # type: ignore[attr-defined]  # these two have it, the base class does not
        return descriptor
    return None


class HasFileno(Protocol):
    """Anything with a file descriptor."""

    def fileno(self) -> int:
        """The descriptor."""
        ...


class Poller:
    """A set of watched files; each entry carries an object of the caller's choice.

    Attributes:
        poll_count: Calls of the kernel in `poll`.
        wait_ns: Nanoseconds spent waiting there.
        wakeup: Called, it makes the current or next `poll` return at once; does nothing after `close`.
        to_wake: Called, and removed, right before `poll` waits.
    """

    def __init__(self) -> None:
        self.poll_count = 0
        self.wait_ns = 0
        self.to_wake: list[Callable[[], None]] = []
        self._selector = _new_selector()
        # The descriptor that wait_ready waits for; None: the selector waits itself.
        self._set_fd = _set_descriptor(self._selector)
        self._wakeup_receiver, self._wakeup_sender = socket.socketpair()
        self._wakeup_receiver.setblocking(False)
        self._wakeup_sender.setblocking(False)
        self._selector.register(self._wakeup_receiver, READABLE, None)
        # By descriptor, as the selector's own map has it: that costs two calls a look.
        self._wakeup_fd = self._wakeup_receiver.fileno()
        self._data: dict[int, Any] = {self._wakeup_fd: None}
        self._wakeup_bytes = bytearray(64)
        self.wakeup = Wakeup(self._wakeup_sender.fileno())
        self._is_closed = False

    def register(self, file: HasFileno, interest: int, data: Any) -> None:
        """Watch `file` for `interest` (READABLE | WRITABLE); `data`, not None, comes back from `poll`.

        Interest 0 is allowed and watches nothing.
        """
        if interest:
            fd = file.fileno()
            self._data[fd] = data
            try:
                self._selector.register(file, interest, data)
            except BaseException:
                del self._data[fd]
                raise

    def modify(self, file: HasFileno, interest: int, data: Any) -> None:
        """Change what `file` is watched for; 0 stops watching. Registers it if it was not registered."""
        is_registered = file.fileno() in self._data
        if interest and is_registered:
            self._selector.modify(file, interest, data)
            self._data[file.fileno()] = data
        elif interest:
            self.register(file, interest, data)
        elif is_registered:
            self.unregister(file)

    def unregister(self, file: HasFileno) -> None:
        """Stop watching `file`. Call this before closing it. Does nothing if it is not watched."""
        fd = file.fileno()
        if fd in self._data:
            with suppress(KeyError):  # an earlier call found no memory for its rest
                self._selector.unregister(file)
            del self._data[fd]

    def poll(self, timeout_ms: float | None) -> list[tuple[Any, int]]:
        """Wait for readiness, a wakeup or the timeout; return (data, READABLE | WRITABLE) of each ready file.

        Args:
            timeout_ms: Longest wait, with fractions; 0 or less does not wait; None waits for ever.
        """
        started_ns = time.monotonic_ns()
        set_fd = self._set_fd
        ready = self._select(timeout_ms) if set_fd is None else wait_ready(set_fd, timeout_ms, self.to_wake)
        self.wait_ns += time.monotonic_ns() - started_ns
        self.poll_count += 1
        events = []
        for fd, mask in ready:
            data = self._data[fd]
            if data is None:
                self._drain_wakeup()
            else:
                events.append((data, mask))
        return events

    def _select(self, timeout_ms: float | None) -> list[tuple[int, int]]:
        while self.to_wake:
            self.to_wake.pop()()
        timeout_s = None if timeout_ms is None else max(timeout_ms, 0) / 1000
        return [(key.fd, mask) for key, mask in self._selector.select(timeout_s)]

    def _drain_wakeup(self) -> None:
        # Empty the pipe first, then rearm. The other order would lose wakeups: a byte written in between would be
        # read here, and every later wakeup would take it for still unread. There is never more than one byte.
        try:
            receive_into(self._wakeup_fd, self._wakeup_bytes)
        except OSError:
            return  # it is being closed
        self.wakeup.rearm()

    def close(self) -> None:
        """Release the descriptors. Idempotent. Registered files stay open."""
        if self._is_closed:
            return
        self._is_closed = True
        self.wakeup.close()  # first: the number of a closed descriptor may be reused
        self._wakeup_sender.close()
        self._wakeup_receiver.close()
        self._selector.close()
