"""What a Python worker of Spark does once: leave what it has imported out of its garbage collections.

Spark's daemon collects garbage after every task of a worker that it keeps. Such a collection looks at every object of
pyspark, pandas, pyarrow and this package, although none of them is garbage: as much CPU time as sending thousands of
rows takes. `gc.freeze()` makes it look at what came later only.
"""

from __future__ import annotations

import gc
import sys
from typing import Final

_DAEMON: Final = "pyspark.daemon"

_frozen = False


def freeze_imports() -> None:
    """Leave all objects there are out of garbage collections, if this is a worker and it was not done.

    Objects that nothing refers to are freed as always; only cycles of the objects of now stay. Call it before the first
    producer or connection is made, which will then be collected when they go. The process of a driver is left alone.
    """
    global _frozen
    if _frozen or not is_worker():
        return
    _frozen = True
    gc.collect()
    gc.freeze()


def is_worker() -> bool:
    """Return whether this process was forked by Spark's daemon."""
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    return _DAEMON in sys.modules or (main is not None and main.name == _DAEMON)
