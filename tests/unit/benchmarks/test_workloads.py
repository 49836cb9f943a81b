"""Benchmark data is what its name says, and the same for the same seed."""

import json
import zlib

import numpy as np
import pytest

from benchmarks.workloads import KEY_BYTES, VALUE_SIZES, Column, make_workload


@pytest.mark.parametrize("content", ["random", "json"])
@pytest.mark.parametrize("size", VALUE_SIZES)
def test_every_value_has_the_size_asked_for(size: int, content: str) -> None:
    workload = make_workload(50, size, content=content)
    assert [len(value) for value in workload.values.as_list()] == [size] * 50
    assert workload.keys is not None
    assert [len(key) for key in workload.keys.as_list()] == [KEY_BYTES] * 50
    assert workload.payload_bytes == 50 * (size + KEY_BYTES)


@pytest.mark.parametrize("size", VALUE_SIZES)
def test_json_values_parse(size: int) -> None:
    for value in make_workload(20_000, size, content="json").values.as_list()[9_990:10_010]:
        assert "n" in json.loads(value)


def test_same_seed_gives_the_same_bytes_and_another_seed_others() -> None:
    first, again, other = (make_workload(100, 100, seed=seed).values.as_list() for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_keys_are_as_many_as_asked_for() -> None:
    keys = make_workload(5_000, 10, distinct_keys=7).keys
    assert keys is not None
    assert len(set(keys.as_list())) == 7


def test_unkeyed_workload_has_no_keys_and_headers_only_on_request() -> None:
    assert make_workload(1, 10, keyed=False).keys is None
    assert make_workload(1, 10).headers == ()
    assert len(make_workload(1, 10, headers=True).headers) == 2


def test_random_does_not_compress_and_json_does() -> None:
    ratios = {}
    for content in ("random", "json"):
        data = make_workload(500, 1_000, content=content).values.data.tobytes()
        ratios[content] = len(data) / len(zlib.compress(data))
    assert ratios["random"] < 1.01
    assert ratios["json"] > 2


def test_column_round_trips_a_list_of_uneven_strings() -> None:
    strings = [b"", b"a", b"bcd", b"", b"e" * 300]
    column = Column.of(strings)
    assert column.as_list() == strings
    assert len(column) == 5
    assert column.offsets.dtype == np.int32
    assert column.data.dtype == np.uint8
