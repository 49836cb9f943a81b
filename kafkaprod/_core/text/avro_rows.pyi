from typing import Any, Self, final

from kafkaprod._core.columns.arrow import ArrowBatch
from kafkaprod._core.columns.columns import Column

@final
class AvroBatch:
    def __new__(cls, batch: ArrowBatch, columns: list[tuple[int, tuple[Any, ...]]], prefix: bytes) -> Self: ...
    def encode(self, first: int, end: int) -> Column | None: ...
