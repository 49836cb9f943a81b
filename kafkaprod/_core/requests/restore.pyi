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
) -> None: ...
def restore_batch(
    accumulator: Accumulator,
    topic: str,
    partition: int,
    entry: tuple[int, int, int, int, int, int, int, int],
    base_sequence: int,
    now_ms: int,
) -> None: ...
def first_unloaded(accumulator: Accumulator, most_bytes: int) -> list[BatchRef]: ...
def load_batch(ref: BatchRef, entry: bytes) -> None: ...
