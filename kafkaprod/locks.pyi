from collections.abc import Callable
from typing import Any, TypeVar

_Method = TypeVar("_Method", bound=Callable[..., Any])

def locked(method: _Method) -> _Method:
    """Let a method run with its object's `_lock` held, a `threading.RLock`.

    Not a plain Lock: a signal handler may interrupt the method and call it, or its sibling, in the same thread.
    """
