from typing import Final

from typing_extensions import Buffer

FIELD_FOUND: Final = 0
FIELD_MISSING: Final = 1
FIELD_ESCAPED: Final = 2
FIELD_BROKEN: Final = 3

def split_lines(
    data: Buffer, delimiter: int = 10, strip_cr: bool = True, is_last: bool = False
) -> tuple[bytes, int, int]: ...
def split_elements(data: Buffer) -> tuple[bytes, int, int, bool]: ...
def find_fields(data: Buffer, views: Buffer, name: bytes) -> tuple[bytearray, bytearray]: ...
def split_keys(data: Buffer, views: Buffer, separator: bytes) -> tuple[bytearray, bytearray, bytearray]: ...
