from typing import Any, Self, final

from typing_extensions import Buffer

from kafkaprod._core.columns.columns import Column, Headers
from kafkaprod._core.queues.accumulator import Accumulator
from kafkaprod._core.queues.topic_queues import TopicQueues

@final
class Block:
    row_count: int
    rows_appended: int
    def __new__(
        cls,
        accumulator: Accumulator,
        topic: TopicQueues,
        value: Column,
        key: Column | None = None,
        headers: Headers | None = None,
        row_count: int | None = None,
        timestamps: Buffer | None = None,
        timestamp: int = -1,
        partitions: Buffer | None = None,
        partition: int = -1,
    ) -> Self: ...
    @property
    def is_complete(self) -> bool: ...
    def refuse_node(self, node_id: int) -> bool: ...
    def run(self, now_ms: int, ticket: int = 0) -> bool: ...
    @property
    def row_runs(self) -> list[tuple[Any, int, int, int]]: ...  # first: what completion_factory made
    @property
    def rows_left(self) -> list[int]: ...
    @property
    def memory_need(self) -> int: ...
    def partition_of_rows(self) -> RowPartitions: ...

@final
class RowPartitions:
    def __new__(cls, block: Block) -> Self: ...
    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
