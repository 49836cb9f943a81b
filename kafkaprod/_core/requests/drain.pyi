from collections.abc import Iterable, Sequence
from concurrent.futures import Executor
from typing import Self, final

from kafkaprod._core.queues.accumulator import Accumulator
from kafkaprod._core.requests.produce_request import ProduceRequest
from kafkaprod.compression import Codec

@final
class NodeQueues:
    node_id: int
    def __init__(self, *_: object) -> None: ...  # refused: made by Drain.update_leaders()

@final
class Drain:
    accumulator: Accumulator
    linger_ms: int
    max_request_bytes: int
    is_idempotent: bool
    mutes: bool
    producer_id: int
    producer_epoch: int
    needs_stored: bool
    reuses_sequences: bool
    wants_epoch: bool
    transaction: int
    has_new_members: bool
    has_drained: bool
    next_check_us: int
    def __new__(
        cls,
        accumulator: Accumulator,
        linger_ms: int = 5,
        max_request_bytes: int = 1048576,
        is_idempotent: bool = False,
        mutes: bool = False,
        codec: Codec | None = None,
        workers: Executor | None = None,
        first_limit: int = 0,
        topic_codecs: Sequence[Codec | None] = (),
    ) -> Self: ...
    def set_producer(self, producer_id: int, producer_epoch: int, reuses_sequences: bool = False) -> None: ...
    def set_transaction(self, number: int, adds_implicitly: bool) -> None: ...
    def new_members(self) -> list[tuple[str, int]]: ...
    def add_members(self, partitions: Iterable[tuple[str, int]]) -> None: ...
    def resume_partition(self, topic: str, partition: int, next_sequence: int) -> None: ...
    def update_leaders(self) -> None: ...
    def end_turn(self, now_us: int, blocked: set[int]) -> None: ...
    def has_queued(self, node_id: int) -> bool: ...
    def may_wait(self, node_id: int, now_ms: int) -> bool: ...
    def limit_path(self, node_id: int, most_bytes: int, is_measured: bool = True) -> None: ...
    def ready(self, now_us: int, hurry: bool = False) -> tuple[list[int], set[str]]: ...
    def drain(self, node_id: int, now_ms: int, room_bytes: int = 0) -> ProduceRequest | None: ...
