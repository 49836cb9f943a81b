from kafkaprod._core.queues.accumulator import Accumulator
from kafkaprod._core.requests.settlement import BatchRef

def restore_partition(
    accumulator: Accumulator,
    topic: str,
    partition: int,
    next_rank: int,
    resolved_rank: int,
    producer_id: int,
    producer_epoch: int,
    first_rank: int,
) -> None: ...
def restore_batch(
    accumulator: Accumulator,
    topic: str,
    partition: int,
    entry: tuple[int, int, int, int, int, int, int, int],
    base_sequence: int,
    now_ms: int,
) -> None: ...
def unloaded_leaders(accumulator: Accumulator) -> set[int]: ...
def first_unloaded(accumulator: Accumulator, most_bytes: int, nodes: set[int]) -> list[BatchRef]: ...
def unload_batches(
    accumulator: Accumulator, segment: int, synced_bytes: int, nodes: set[int], created_before_ms: int
) -> tuple[int, bool]: ...
def load_batch(ref: BatchRef, entry: bytes) -> None: ...
