from collections.abc import Iterable
from typing import final

from typing_extensions import Buffer

from kafkaprod._core.records.record_arguments import _Headers

@final
class Column:
    row_count: int
    @staticmethod
    def nulls() -> Column: ...
    @staticmethod
    def constant(data: Buffer | None) -> Column: ...
    @staticmethod
    def from_list(values: Iterable[Buffer | None], name: str = "values") -> Column: ...
    @staticmethod
    def from_offsets(
        offsets: Buffer,
        data: Buffer,
        validity: Buffer | None = None,
        start: int = 0,
        row_count: int | None = None,
        name: str = "values",
    ) -> Column: ...
    @staticmethod
    def from_views(
        views: Buffer,
        buffers: Iterable[Buffer] = (),
        validity: Buffer | None = None,
        start: int = 0,
        row_count: int | None = None,
        name: str = "values",
    ) -> Column: ...
    @staticmethod
    def from_fixed(
        data: Buffer,
        width: int,
        validity: Buffer | None = None,
        start: int = 0,
        row_count: int | None = None,
        name: str = "values",
    ) -> Column: ...
    def slice(self, first: int, count: int) -> Column: ...
    def take(self, rows: Buffer) -> Column: ...
    def __len__(self) -> int: ...
    def __getitem__(self, row: int) -> bytes | None: ...

@final
class Headers:
    row_count: int
    @staticmethod
    def from_python(headers: _Headers | Iterable[_Headers | None] | None) -> Headers: ...
    @staticmethod
    def from_columns(offsets: Buffer, keys: Column, values: Column, row_count: int | None = None) -> Headers: ...
    def slice(self, first: int, count: int) -> Headers: ...
    def take(self, rows: Buffer) -> Headers: ...
