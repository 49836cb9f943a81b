from collections.abc import Callable, Sequence
from typing import Self, final

from typing_extensions import Buffer

from kafkaprod._core.queues.buffer_pool import BufferPool
from kafkaprod._core.queues.completion import BatchResult, DeliveryFuture
from kafkaprod._core.queues.topic_queues import TopicQueues
from kafkaprod._core.records.record_arguments import _Headers

@final
class Accumulator:
    pool: BufferPool
    topics: dict[str, TopicQueues]
    ignore_keys: bool
    seed: int
    topic_batching: Callable[[str], tuple[int, int, int, int, bool] | None] | None
    def __new__(
        cls,
        pool: BufferPool,
        batch_size: int = 262144,
        max_record_bytes: int = 1048576,
        completion_factory: Callable[[str, int], BatchResult] = ...,
        wakeup: Callable[[], object] | None = None,
        max_batch_size: int | None = None,
    ) -> Self: ...
    def set_topic(
        self, name: str, leaders: Sequence[int], epochs: Sequence[int] | None = None, topic_id: bytes | None = None
    ) -> TopicQueues: ...
    def take_used(self, name: str) -> bool: ...
    def forget_topic(self, name: str) -> None: ...
    def forgotten_topics_in_use(self) -> list[str]: ...
    def append(
        self,
        topic: TopicQueues,
        key: Buffer | None,
        value: Buffer | None,
        headers: _Headers | None = None,
        partition: int = -1,
        timestamp: int = 0,
        now_ms: int = 0,
        ticket: int = 0,
    ) -> DeliveryFuture | None: ...
    @staticmethod
    def memory_need(key: Buffer | None, value: Buffer | None, headers: _Headers | None = None) -> int: ...
    def begin_flush(self) -> int: ...
    def end_flush(self) -> None: ...
    @property
    def oldest_serial(self) -> int: ...
    @property
    def incomplete_batch_count(self) -> int: ...
    @property
    def unpublished_batch_count(self) -> int: ...
    def close(self) -> None: ...
    failed_batches: list[tuple[str, int, BaseException, bool]] | None
    def set_gate(self, is_open: bool) -> None: ...
    def abandon(self) -> None: ...
    def set_sender_sleeps(self, sleeps: bool) -> None: ...
    def let_new_batches_linger(self) -> None: ...

def memory_holders(accumulator: Accumulator, limit: int = 5) -> list[tuple[str, int, int, int, int]]: ...
