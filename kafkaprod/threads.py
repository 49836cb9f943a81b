"""The threads of this package: daemons that begin with an empty context, whoever starts them.

From Python 3.14 on a thread may inherit the context variables of its starter (it does by default without the GIL). The
sender of a producer that was made inside a request would keep that request's objects, and show them to every callback.

The main thread leaves some work to another one, `apart`: signal handlers run in the main thread, and what an exception
of theirs ends in the middle may stay broken for the life of the process. An import does: NumPy refuses a second start,
and a lock of the import may stay locked. So does the start of a thread, at a lock that all of them take.
"""

from __future__ import annotations

import _thread
import contextvars
import queue
import sys
import threading
from collections.abc import Callable
from functools import cache
from typing import Any, Final, TypeVar

Result = TypeVar("Result")

LOOK_S: Final = 0.05  # a signal just before the system call that waits does not end it: look for one so often

_PATCHES: Final = {  # by the module that replaces: its question, and the names of what a producer's thread waits on
    "gevent.monkey": ("is_module_patched", ("threading", "_thread", "socket", "select", "ssl", "queue")),
    "eventlet.patcher": ("is_monkey_patched", ("thread", "socket", "select", "time")),
}


def apart(call: Callable[[], Result]) -> Result:
    """Make a call on a thread of its own; return what it returns, or raise what it raises.

    An exception of a signal handler ends only the wait: the call runs to its end.
    """
    outcome: queue.SimpleQueue[tuple[Any, BaseException | None]] = queue.SimpleQueue()

    def run() -> None:
        try:
            outcome.put((call(), None))
        except BaseException as error:
            outcome.put((None, error))

    try:
        _thread.start_new_thread(run, ())
    except RuntimeError as error:
        if error.__traceback__ is not None and error.__traceback__.tb_next is not None:  # raised by a signal handler
            raise
        return call()  # the system gives no more threads, or the program ends
    result: Result
    result, failure = _take(outcome)
    if failure is None:
        return result
    try:
        raise failure
    finally:
        del failure  # its traceback holds this frame


def _take(outcome: queue.SimpleQueue[tuple[Any, BaseException | None]]) -> tuple[Any, BaseException | None]:
    while True:
        try:
            return outcome.get(timeout=LOOK_S)
        except queue.Empty:
            continue  # and look for signals


def importing(load: Callable[[], Result]) -> Callable[[], Result]:
    """Make a function that imports something once: `load`, which returns what it has imported, runs `apart`."""
    return cache(lambda: apart(load))


_own = threading.local()


def is_own_thread() -> bool:
    """Whether this is a thread of this package, not of the application."""
    return getattr(_own, "is_set", False)


def _run_as_own(target: Callable[..., object], *args: Any) -> None:
    _own.is_set = True
    target(*args)


def make_thread(target: Callable[..., object], name: str, *args: Any) -> threading.Thread:
    """Return a daemon thread that is not started.

    Args:
        target: What it runs, with `args`.
        name: Its name, in lists of threads and in logs.
    """
    if sys.version_info >= (3, 14):
        return threading.Thread(
            target=_run_as_own, name=name, args=(target, *args), daemon=True, context=contextvars.Context()
        )
    return threading.Thread(target=_run_as_own, name=name, args=(target, *args), daemon=True)


def is_program_ending() -> bool:
    """Whether the main thread has ended: Python 3.12.0 to 3.12.2 and interpreters that end start no thread then."""
    return not threading.main_thread().is_alive()


def replaced_modules() -> tuple[str, list[str]] | None:
    """Return the library that has replaced modules of Python which threads wait in, and their names; None: none has."""
    for place, (question, names) in _PATCHES.items():
        is_replaced = getattr(sys.modules.get(place), question, None)
        replaced = [name for name in names if is_replaced is not None and is_replaced(name)]
        if replaced:
            return place.partition(".")[0], replaced
    return None
