from typing_extensions import Buffer

from kafkaprod._core.records.record_arguments import _Headers

def encode_record(
    key: Buffer | None,
    value: Buffer | None,
    headers: _Headers | None = (),
    timestamp_delta: int = 0,
    offset_delta: int = 0,
) -> bytes: ...
def size_bound(key: Buffer | None, value: Buffer | None, headers: _Headers | None = ()) -> int: ...
