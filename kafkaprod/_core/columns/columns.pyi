from collections.abc import Iterable
from typing import Any, TypeAlias, final

from numpy.typing import NDArray
from typing_extensions import Buffer

from kafkaprod._core.records.record_arguments import _Headers

# NumPy's own types have __buffer__ only from Python 3.12 on.
_Bytes: TypeAlias = Buffer | NDArray[Any]

@final
class Column:
    row_count: int
    @staticmethod
    def nulls() -> Column: ...
    @staticmethod
    def constant(data: _Bytes | None) -> Column: ...
    @staticmethod
    def from_list(values: Iterable[_Bytes | None], name: str = "values") -> Column: ...
    @staticmethod
    def from_offsets(
        offsets: _Bytes,
        data: _Bytes,
        validity: _Bytes | None = None,
        start: int = 0,
        row_count: int | None = None,
        name: str = "values",
    ) -> Column: ...
    @staticmethod
    def from_views(
        views: _Bytes,
        buffers: Iterable[_Bytes] = (),
        validity: _Bytes | None = None,
        start: int = 0,
        row_count: int | None = None,
        name: str = "values",
    ) -> Column: ...
    @staticmethod
    def from_fixed(
        data: _Bytes,
        width: int,
        validity: _Bytes | None = None,
        start: int = 0,
        row_count: int | None = None,
        name: str = "values",
    ) -> Column: ...
    def slice(self, first: int, count: int) -> Column: ...
    def take(self, rows: _Bytes) -> Column: ...
    def __len__(self) -> int: ...
    def __getitem__(self, row: int) -> bytes | None: ...
    def rows(self, first: int, count: int) -> list[bytes | None]: ...

@final
class Headers:
    row_count: int
    @staticmethod
    def from_python(headers: _Headers | Iterable[_Headers | None] | None) -> Headers: ...
    @staticmethod
    def from_columns(offsets: _Bytes, keys: Column, values: Column, row_count: int | None = None) -> Headers: ...
    def slice(self, first: int, count: int) -> Headers: ...
    def take(self, rows: _Bytes) -> Headers: ...
    def with_every(self, more: Headers) -> Headers: ...
