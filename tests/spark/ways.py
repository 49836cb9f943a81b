"""The ways to write that this PySpark has: by `write()`, `foreach_batch()` or the data source."""

from __future__ import annotations

from typing import Final

import pyspark

VERSION: Final = tuple(int(part) for part in pyspark.__version__.split(".")[:2])
_SINCE: Final = {"write": (3, 5), "foreach_batch": (3, 5), "format": (4, 0), "stream": (4, 1)}
WAYS: Final = tuple(way for way, version in _SINCE.items() if version <= VERSION)
HAS_READER: Final = VERSION >= (4, 0)
