from typing import Final

from typing_extensions import Buffer

from kafkaprod._core.columns.columns import Column

TEXT_NUMBER: Final = 0
TEXT_TIME: Final = 1
TEXT_NULL: Final = 2
TEXT_OTHER: Final = 3

def fill_template(texts: list[bytes], columns: list[Column], row_count: int) -> Column: ...
def interleave(columns: list[Column], row_count: int) -> Column: ...
def parse_numbers(column: Column, out: Buffer, statuses: Buffer, has_times: bool = False) -> None: ...
