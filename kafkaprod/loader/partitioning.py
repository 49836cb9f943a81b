"""Choose the partition of a row from the input alone, so that a second reading gives the same answer.

The partition the row names; else murmur2 of its key, as Kafka's default partitioner has it; else runs of `run_rows`
rows to one partition after the other. Unlike the producer's own choice this does not avoid slow brokers.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from kafkaprod._core.columns.row_partitions import partitions_of_keys, partitions_of_runs
from kafkaprod.loader.rows import RowBlock

RUN_BYTES: Final = 256 << 10


def choose_partitions(
    block: RowBlock, rows_before: int, run_rows: int, partition_count: int, fixed: int | None
) -> NDArray[np.int32]:
    """Return the partition of each row; -1 where the row names one that does not exist.

    Args:
        block: The rows.
        rows_before: Rows of the inputs before this one.
        run_rows: Length of a run.
        partition_count: How many there are.
        fixed: One for all; None: choose.
    """
    if fixed is not None:
        return np.full(block.row_count, fixed, dtype=np.int32)
    partitions = np.empty(block.row_count, dtype=np.int32)
    partitions_of_runs(block.numbers.data, rows_before, run_rows, partition_count, partitions.data)
    if block.key is not None:
        partitions_of_keys(block.key, partition_count, partitions.data)
    if block.partitions is not None:
        partitions = np.where(block.partitions == -1, partitions, block.partitions)
        partitions[(partitions < 0) | (partitions >= partition_count)] = -1
    return partitions


def run_length(block: RowBlock) -> int:
    """Return how many rows have about RUN_BYTES, by the average of a block."""
    average = float(block.sizes().mean())
    return int(min(max(RUN_BYTES / max(average, 1), 1), 65_536))
