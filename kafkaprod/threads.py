"""The threads of this package: daemons that begin with an empty context, whoever starts them.

From Python 3.14 on a thread may inherit the context variables of its starter (it does by default without the GIL). The
sender of a producer that was made inside a request would keep that request's objects, and show them to every callback.
"""

from __future__ import annotations

import contextvars
import sys
import threading
from collections.abc import Callable
from typing import Any, Final

_PATCHES: Final = {  # by the module that replaces: its question, and the names of what a producer's thread waits on
    "gevent.monkey": ("is_module_patched", ("threading", "_thread", "socket", "select", "ssl", "queue")),
    "eventlet.patcher": ("is_monkey_patched", ("thread", "socket", "select", "time")),
}


def make_thread(target: Callable[..., object], name: str, *args: Any) -> threading.Thread:
    """Return a daemon thread that is not started.

    Args:
        target: What it runs, with `args`.
        name: Its name, in lists of threads and in logs.
    """
    if sys.version_info >= (3, 14):
        return threading.Thread(target=target, name=name, args=args, daemon=True, context=contextvars.Context())
    return threading.Thread(target=target, name=name, args=args, daemon=True)


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
