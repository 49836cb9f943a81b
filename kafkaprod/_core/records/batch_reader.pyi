from collections.abc import Callable, Iterator
from typing import Final, NamedTuple, Self, final

from typing_extensions import Buffer

class Record(NamedTuple):
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]

class RecordScan(NamedTuple):
    max_timestamp: int
    offset_of_max_timestamp: int
    has_consecutive_offsets: bool
    failing_count: int
    has_mistimed_with_key: bool
    failing: tuple[tuple[int, int], ...]

class CompactedRecords(NamedTuple):
    record_count: int
    tombstone_count: int
    max_timestamp: int
    section: bytearray

MAX_FAILING: Final[int]
KEYLESS: Final[int]
MISTIMED: Final[int]

@final
class RecordBatchReader:
    base_offset: int
    leader_epoch: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int
    size_bytes: int
    def __new__(
        cls,
        data: Buffer,
        position: int = 0,
        decompress: Callable[[int, memoryview, int], Buffer] | None = None,
        check_crc: bool = True,
        limit: int = 104857600,
    ) -> Self: ...
    @property
    def codec_id(self) -> int: ...
    @property
    def has_log_append_time(self) -> bool: ...
    @property
    def is_transactional(self) -> bool: ...
    @property
    def is_control(self) -> bool: ...
    @property
    def last_offset(self) -> int: ...
    def records(self) -> list[Record]: ...
    def __iter__(self) -> Iterator[Record]: ...
    def scan(
        self,
        earliest: int = -9223372036854775807,
        latest: int = 9223372036854775807,
        needs_key: bool = False,
        refuses_append_time: bool = False,
    ) -> RecordScan: ...
    def note_keys(self, latest: dict[bytes, int], max_keys: int, first_offset: int) -> tuple[int, bool]: ...
    def compact(
        self, latest: dict[bytes, int], noted_offset: int, drops_tombstones: bool, base_timestamp: int
    ) -> CompactedRecords: ...
    def find_timestamp(self, timestamp: int, min_offset: int) -> tuple[int, int] | None: ...

def read_batches(
    data: Buffer,
    decompress: Callable[[int, memoryview, int], Buffer] | None = None,
    check_crc: bool = True,
    limit: int = 104857600,
) -> list[RecordBatchReader]: ...
