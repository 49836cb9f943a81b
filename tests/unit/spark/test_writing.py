"""Small batches of Spark are joined before they are sent; large ones are not copied."""

import pyarrow as pa

from kafkaprod.spark.writing import JOINED_BYTES, SMALL_BYTES, _joined


def batch(first: int, size: int) -> pa.RecordBatch:
    """Two rows of about `size` bytes together."""
    return pa.RecordBatch.from_pydict({"value": [b"%08d" % first + bytes(size // 2), b"%08d" % (first + 1)]})


def test_small_batches_are_joined_in_their_order() -> None:
    batches = [batch(2 * i, 100_000) for i in range(100)]
    joined = list(_joined(iter(batches)))
    assert len(joined) < 5
    assert all(item.get_total_buffer_size() < JOINED_BYTES + SMALL_BYTES for item in joined)
    assert pa.Table.from_batches(joined).equals(pa.Table.from_batches(batches))


def test_large_batch_is_passed_on_as_it_is_behind_those_before_it() -> None:
    small, large, last = batch(0, 100), batch(2, 2 * SMALL_BYTES), batch(4, 100)
    joined = list(_joined(iter([small, large, last])))
    assert joined[1] is large
    assert pa.Table.from_batches(joined).equals(pa.Table.from_batches([small, large, last]))


def test_batches_without_rows_vanish() -> None:
    empty = batch(0, 100).slice(0, 0)
    assert list(_joined(iter([empty, empty]))) == []
