"""Records are counted once, by partition and by size."""

from __future__ import annotations

import numpy as np

from kafkaprod.loader.reports.spread import Spread


def spread(sizes: list[int], partitions: list[int]) -> Spread:
    counts = np.bincount(np.array(partitions, dtype=np.int64))
    return Spread.of(np.array(sizes, dtype=np.int64), counts)


def test_sizes_are_counted_below_powers_of_two() -> None:
    found = spread([0, 1, 2, 3, 4, 1023, 1024, 1 << 40], [0] * 8).to_dict()
    assert found["sizes"] == {"1": 1, "2": 1, "4": 2, "8": 1, "1024": 1, "2048": 1, str(1 << 31): 1}
    assert found["partitions"] == {"0": 8}


def test_spreads_of_different_partitions_are_added() -> None:
    total = Spread()
    for part in (spread([1], [0]), spread([1, 5], [4, 1]), spread([], []), spread([5], [1])):
        total.add(part)
    assert total.to_dict() == {
        "partitions": {"0": 1, "1": 2, "2": 0, "3": 0, "4": 1},
        "sizes": {"2": 2, "8": 2},
    }


def test_a_spread_is_what_it_was_after_a_journey() -> None:
    for each in (spread([], []), spread([0, 1, 5, 1 << 40], [4, 0, 1, 1])):
        assert Spread.from_dict(each.to_dict()).to_dict() == each.to_dict()
        (total := Spread()).add(Spread.from_dict(each.to_dict()))
        assert total.to_dict() == each.to_dict()
