from collections.abc import Iterable
from typing import Self, final

from kafkaprod._core.columns.arrow import ArrowBatch
from kafkaprod._core.columns.columns import Column

@final
class JsonEncoder:
    def __new__(cls, batch: ArrowBatch, indexes: Iterable[int], ignore_null_fields: bool = True) -> Self: ...
    def encode(self, first: int, most_bytes: int) -> Column: ...
