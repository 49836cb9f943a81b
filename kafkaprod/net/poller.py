"""Readiness of sockets, and a wakeup that other threads may call.

The files are in a selector of `selectors`: epoll on Linux, kqueue on macOS. `ReadyFiles` waits for these
two in compiled code; any other selector waits itself. KAFKAPROD_SELECTOR=poll, select, epoll or kqueue in the
environment chooses one by name, for tests.

Threads: everything belongs to the one I/O thread, except `wakeup`, which any thread may call at any time, also in a
signal handler. Wakeups are coalesced: however many there are between two polls, one poll returns early.
"""

from __future__ import annotations

import os
import selectors
import socket
import sys
from contextlib import suppress
from typing import Any, Final, Protocol

from kafkaprod._core.machine.waking import Wakeup
from kafkaprod.errors import ConfigError
from kafkaprod.net.ready_files import ReadyFiles
from kafkaprod.net.socket_calls import READY_SET

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


def _set_descriptor(selector: selectors.BaseSelector) -> int:
    if READY_SET and type(selector).__name__ == f"{READY_SET.capitalize()}Selector":
        descriptor: int = selector.fileno()  # type: ignore[attr-defined]  # these two have it, the base class does not
        return descriptor
    return -1


def _wakeup_descriptors() -> tuple[int, int]:
    """Return what the poller watches and what wakes it: an eventfd for both, or a pair of sockets where there is none.

    A write into a pair makes a buffer for its bytes, and queues it; an eventfd counts.
    """
    if sys.platform == "linux" and READY_SET == "epoll" and hasattr(os, "eventfd"):
        counter = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        return counter, counter
    pair = socket.socketpair()
    for end in pair:
        end.setblocking(False)
    receiver, sender = pair
    return receiver.detach(), sender.detach()


class HasFileno(Protocol):
    """Anything with a file descriptor."""

    def fileno(self) -> int:
        """The descriptor."""
        ...


class Poller(ReadyFiles):
    """A set of watched files; each entry carries an object of the caller's choice. `ReadyFiles` waits for them."""

    def __init__(self) -> None:
        self._selector = _new_selector()
        # The descriptor that is waited for in compiled code; -1: the selector waits itself.
        self._set_fd = _set_descriptor(self._selector)
        self._wakeup_fd, self._wakeup_writer = _wakeup_descriptors()
        self._selector.register(self._wakeup_fd, READABLE, None)
        # By descriptor, as the selector's own map has it: that costs two calls a look.
        self._data[self._wakeup_fd] = None
        self.wakeup = Wakeup(self._wakeup_writer, self._wakeup_fd)
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

    def _select(self, timeout_ms: float | None) -> list[tuple[int, int]]:
        while self.to_wake:
            self.to_wake.pop()()
        timeout_s = None if timeout_ms is None else max(timeout_ms, 0) / 1000
        return [(key.fd, mask) for key, mask in self._selector.select(timeout_s)]

    def close(self) -> None:
        """Release the descriptors. Idempotent. Registered files stay open."""
        if self._is_closed:
            return
        self._is_closed = True
        self.wakeup.close()  # first: the number of a closed descriptor may be reused
        for descriptor in {self._wakeup_fd, self._wakeup_writer}:
            os.close(descriptor)
        self._selector.close()
