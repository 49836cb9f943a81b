"""What the processes of an embedded cluster have in common: they end with their host, and obey it in JSON lines."""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import socket
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

from kafkaprod.broker.embedding.commands import CommandHandler, answer_to
from kafkaprod.broker.embedding.lines import NUMBER, JsonLines

logger = logging.getLogger(__name__)

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


def end_with_parent(parent_pid: int, number: signal.Signals = signal.SIGKILL) -> None:
    """Have the kernel send this process a signal when its parent ends (Linux); elsewhere the end of its channel does.

    The kernel does so already when the thread ends that started this process.
    """
    if hasattr(_libc, "prctl"):
        _libc.prctl(_PR_SET_PDEATHSIG, number)
    if os.getppid() != parent_pid:  # it ended before the call
        os._exit(1)


class HostChannel:
    """A child's side of the socket to its host: commands come, each that has a number gets one answer.

    `say` may be called from any thread; commands are obeyed on a thread of their own.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._lines = JsonLines(sock, sock)

    def say(self, answer: dict[str, Any]) -> None:
        """Send the host a line that answers no command: how the start went."""
        self._lines.send(answer)

    def obey(self, handlers: Mapping[str, CommandHandler], at_end: Callable[[], None]) -> None:
        """Start to obey; `at_end` is called when the host is gone."""

        def run() -> None:
            try:
                while (command := self._lines.receive()) is not None:
                    number = command.pop(NUMBER, None)
                    self._lines.reply(number, answer_to(command, handlers))
            except OSError as error:
                logger.debug("the host is gone: %s", error)
            finally:
                at_end()

        threading.Thread(target=run, name="kafkaprod-commands", daemon=True).start()


def in_loop(post: Callable[[Callable[[], None]], None], call: Callable[[], Any], timeout_s: float = 5.0) -> Any:
    """Run a call in an event loop and return what it returns.

    Raises:
        TimeoutError: The loop did not get to it.
        Exception: What the call raises.
    """
    outcome: Future[Any] = Future()

    def run() -> None:
        try:
            outcome.set_result(call())
        except Exception as error:
            outcome.set_exception(error)

    post(run)
    return outcome.result(timeout_s)
