"""The partition of a row: the one it names, else by its key, else by runs."""

from __future__ import annotations

import numpy as np

from kafkaprod._core.columns.columns import Column
from kafkaprod.loader.feed import Target, choose_partitions
from kafkaprod.loader.formats.rows import RowBlock
from tests.support.core.faces import hash_key

COUNT = 5
KEYS = [b"a", b"b", b"c", None]


def block(named: list[int] | None, keys: list[bytes | None] | None) -> RowBlock:
    return RowBlock(
        numbers=np.arange(4, dtype=np.int64),
        value=Column.constant(b"v"),
        end_row=4,
        key=None if keys is None else Column.from_list(keys),
        partitions=None if named is None else np.array(named, dtype=np.int32),
    )


def target(fixed: int | None = None) -> Target:
    return Target("t", COUNT, 2, fixed, 1000, "max_request_size", False)


def by_key(key: bytes) -> int:
    return (hash_key(key) & 0x7FFFFFFF) % COUNT


def test_named_partition_comes_before_the_key_and_the_run() -> None:
    chosen = choose_partitions(block([4, -1, COUNT, -1], KEYS), 0, target())
    assert chosen.tolist() == [4, by_key(b"b"), -1, 1]


def test_key_comes_before_the_run() -> None:
    assert choose_partitions(block(None, KEYS), 0, target()).tolist() == [*map(by_key, (b"a", b"b", b"c")), 1]


def test_runs_continue_over_inputs() -> None:
    assert choose_partitions(block(None, None), 0, target()).tolist() == [0, 0, 1, 1]
    assert choose_partitions(block(None, None), 9, target()).tolist() == [4, 0, 0, 1]


def test_fixed_partition_comes_before_all() -> None:
    assert choose_partitions(block([4, -1, 0, -1], KEYS), 0, target(fixed=3)).tolist() == [3] * 4
