from typing import Final, Self, final

from kafkaprod._core.queues.accumulator import Accumulator
from kafkaprod._core.requests.settlement import BatchRef
from kafkaprod.structs import RequestSums

OLDEST_VERSION: Final[int]
NEWEST_VERSION: Final[int]

@final
class SlabBuffer:
    def __init__(self, *_: object) -> None: ...  # refused: made by RequestBody.from_byte()
    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

@final
class RequestBody:
    nbytes: int
    def __init__(self, *_: object) -> None: ...  # refused: made by ProduceRequest.body()
    # In fact SlabBuffers, too: they export slab memory as a memoryview does.
    def from_byte(self, start: int, limit: int = 0x7FFFFFFF) -> list[bytes | bytearray | memoryview]: ...

@final
class ProduceRequest:
    accumulator: Accumulator
    node_id: int
    record_count: int
    leaves_more: bool
    def __new__(cls, accumulator: Accumulator, node_id: int) -> Self: ...
    def __len__(self) -> int: ...
    def refs(self) -> list[BatchRef]: ...
    def sums(self, now_ms: int) -> RequestSums: ...
    @property
    def all_topic_ids_known(self) -> bool: ...
    @property
    def max_response_bytes(self) -> int: ...
    def body(self, version: int, acks: int, timeout_ms: int, transactional_id: str | None = None) -> RequestBody: ...
    def finish(self) -> None: ...
