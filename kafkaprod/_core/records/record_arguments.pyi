from collections.abc import Iterable, Mapping
from typing import TypeAlias, final

from typing_extensions import Buffer

_Headers: TypeAlias = Mapping[str, Buffer | None] | Iterable[tuple[str, Buffer | None]]

@final
class RecordArguments: ...

def encode_record(
    key: Buffer | None,
    value: Buffer | None,
    headers: _Headers | None = (),
    timestamp_delta: int = 0,
    offset_delta: int = 0,
) -> bytes: ...
def size_bound(key: Buffer | None, value: Buffer | None, headers: _Headers | None = ()) -> int: ...
