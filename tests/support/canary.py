"""A secret that must be seen nowhere, and all the places of an exception where one could be seen."""

from __future__ import annotations

import traceback
from typing import Final

CANARY: Final = "c4n4ry-of-a-secret"


def all_of(error: BaseException) -> str:
    """Return what a program, a log or a debugger shows of an exception."""
    parts = [*traceback.format_exception(error), repr(error)]
    seen: BaseException | None = error
    while seen is not None:
        parts += [repr(seen.args), repr(getattr(seen, "context", None))]
        seen = seen.__cause__ or seen.__context__
    return "".join(parts)
