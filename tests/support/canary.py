"""A secret that must be seen nowhere, and all the places of an exception where one could be seen."""

from __future__ import annotations

import traceback
from typing import Final

CANARY: Final = "c4n4ry-of-a-secret"


def all_of(error: BaseException) -> str:
    """Return what a program, a log or a debugger shows of an exception, of its causes and of all contexts.

    A context that `raise ... from None` hides is one of them: debuggers and reporters of errors show it.
    """
    parts = traceback.format_exception(error)
    left: list[BaseException | None] = [error]
    seen: set[int] = set()
    while left:
        each = left.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        parts += [repr(each), repr(each.args), repr(getattr(each, "__dict__", None))]
        parts += [repr(getattr(each, name, None)) for name in ("context", "object", "doc", "partial", "line")]
        left += [each.__cause__, each.__context__]
    return "".join(parts)
