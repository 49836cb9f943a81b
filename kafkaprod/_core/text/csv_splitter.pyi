from typing import Final

from typing_extensions import Buffer

ROW_OPEN_QUOTE: Final = 1
ROW_TEXT_AFTER_QUOTE: Final = 2

def split_csv(
    data: Buffer,
    separator: int,
    quote: int,
    is_last: bool,
    max_row_bytes: int,
    max_rows: int = ...,
    escape: int = -1,
) -> tuple[bytes, int, int, dict[int, int]]: ...
