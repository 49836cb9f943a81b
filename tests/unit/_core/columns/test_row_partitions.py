"""Choosing partitions, counting rows and sizes; each against the same thing written in Python."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkaprod._core.columns.columns import Column
from kafkaprod._core.columns.row_partitions import (
    add_sizes,
    count_partitions,
    count_sizes,
    partitions_of_keys,
    partitions_of_runs,
)
from kafkaprod.errors import InvalidRecordError
from tests.support.core.faces import partition_of_key


@given(st.lists(st.none() | st.binary(max_size=20)), st.integers(1, 50))
def test_partitions_of_keys_are_those_of_the_default_partitioner(keys: list[bytes | None], count: int) -> None:
    partitions = np.full(len(keys), -7, dtype=np.int32)
    partitions_of_keys(Column.from_list(keys), count, partitions.data)
    assert partitions.tolist() == [-7 if key is None else partition_of_key(key, count) for key in keys]


def test_sizes_are_added_and_nulls_have_none() -> None:
    sizes = np.array([1, 1, 1], dtype=np.int64)
    add_sizes(Column.from_list([b"abc", None, b""]), sizes.data)
    assert sizes.tolist() == [4, 1, 1]


def test_wrong_counts_are_refused() -> None:
    short = Column.from_list([b"a"])
    with pytest.raises(InvalidRecordError, match="1 rows for 2 sizes"):
        add_sizes(short, np.zeros(2, dtype=np.int64).data)
    with pytest.raises(InvalidRecordError, match="1 keys for 2 partitions"):
        partitions_of_keys(short, 1, np.zeros(2, dtype=np.int32).data)
    with pytest.raises(InvalidRecordError, match="at least 1"):
        partitions_of_keys(short, 0, np.zeros(1, dtype=np.int32).data)


@given(st.lists(st.integers(0, 1 << 40), max_size=20), st.integers(0, 1000), st.integers(1, 9), st.integers(1, 5))
def test_runs_of_rows_go_to_one_partition_after_the_other(
    numbers: list[int], rows_before: int, run_rows: int, partition_count: int
) -> None:
    found = np.full(len(numbers), -1, dtype=np.int32)
    partitions_of_runs(np.array(numbers, dtype=np.int64).data, rows_before, run_rows, partition_count, found.data)
    assert found.tolist() == [(number + rows_before) // run_rows % partition_count for number in numbers]


def test_runs_without_rows_or_partitions_are_refused() -> None:
    numbers, out = np.zeros(2, dtype=np.int64), np.zeros(2, dtype=np.int32)
    for run_rows, partition_count in ((0, 1), (1, 0)):
        with pytest.raises(InvalidRecordError, match="must be at least 1"):
            partitions_of_runs(numbers.data, 0, run_rows, partition_count, out.data)
    with pytest.raises(InvalidRecordError, match="1 row numbers for 2 partitions"):
        partitions_of_runs(numbers[:1].data, 0, 1, 1, out.data)


def test_partitions_are_counted_and_those_without_a_place_refused() -> None:
    counts = np.array([5, 0, 0], dtype=np.int64)
    count_partitions(np.array([2, 0, 2], dtype=np.int32).data, counts.data)
    assert counts.tolist() == [6, 0, 2]
    for wrong in (-1, 3):
        with pytest.raises(InvalidRecordError, match=r"outside 0\.\.2"):
            count_partitions(np.array([wrong], dtype=np.int32).data, counts.data)


def test_numbers_of_rows_beyond_64_bits_give_partitions_that_exist() -> None:
    partitions = np.zeros(3, "i4")
    numbers = np.array([2**63 - 1, 0, 2**63 - 1])
    for run_rows in (1, 5, 2**63 - 1):
        partitions_of_runs(numbers.data, 2**63 - 1, run_rows, 3, partitions.data)
        assert set(partitions.tolist()) <= {0, 1, 2}


@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=20), st.integers(1, 70))
def test_sizes_are_counted_by_their_bits(sizes: list[int], places: int) -> None:
    counts = np.zeros(places, dtype=np.int64)
    count_sizes(np.array(sizes, dtype=np.int64).data, counts.data)
    expected = Counter(min(size.bit_length() if size > 0 else 0, places - 1) for size in sizes)
    assert counts.tolist() == [expected[place] for place in range(places)]


def test_sizes_without_a_place_for_their_counts_are_refused() -> None:
    with pytest.raises(InvalidRecordError, match="no place"):
        count_sizes(np.ones(1, dtype=np.int64).data, np.zeros(0, dtype=np.int64).data)
