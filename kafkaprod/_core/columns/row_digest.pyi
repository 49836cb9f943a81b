from collections.abc import Sequence
from typing import final

from kafkaprod._core.columns.columns import Column, Headers

@final
class RowDigest:
    def __init__(self) -> None: ...
    @property
    def rows(self) -> int: ...
    def add(self, topic: str, value: Column, key: Column | None, headers: Headers, count: int) -> None: ...
    def add_places(
        self,
        timestamps: Sequence[int] | memoryview | None,
        partitions: Sequence[int] | memoryview | None,
        for_all: int,
        count: int,
    ) -> None: ...
    def text(self) -> str: ...
