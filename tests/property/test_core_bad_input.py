"""Whatever is passed in, it is taken or refused with an error of ours, and a refusal changes nothing."""

from __future__ import annotations

import array
import re
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kafkaprod._core.columns.columns import Column, Headers
from kafkaprod._core.queues.blocks import Block
from kafkaprod.errors import InvalidRecordError, KafkaError, RecordTooLargeError
from tests.support.core.core_engine import TOPIC, Engine, batches_of, snapshot

ANYTHING = st.one_of(
    st.none(),
    st.binary(max_size=100),
    st.binary(min_size=1500, max_size=3000),
    st.text(max_size=5),
    st.integers(),
    st.floats(),
    st.booleans(),
    st.lists(st.integers(), max_size=3),
    st.builds(bytearray, st.binary(max_size=10)),
    st.builds(lambda data: memoryview(data)[::2], st.binary(min_size=4, max_size=10)),
    st.builds(lambda n: np.arange(n)[::2], st.integers(2, 6)),
    st.builds(object),
)
INTEGERS = st.integers() | st.integers(-5, 5)
HEADERS = st.one_of(ANYTHING, st.lists(st.tuples(st.one_of(st.text(), ANYTHING), ANYTHING), max_size=3))
NAMED = re.compile(r"topic|key|value|headers|partition|timestamp|record of up to|row_count|start|offsets|validity|rows")


def _engine() -> Engine:
    engine = Engine(leaders=[1, 1, 1], max_record_bytes=2000)
    engine.append(b"here before")
    return engine


def _assert_refused_well(error: Exception, name: str = "") -> None:
    """Ours, and it names the argument; a TypeError that names it (None where None may not be) will do, too."""
    assert name in str(error)
    if isinstance(error, TypeError) and not isinstance(error, KafkaError):
        assert re.search(r"Argument '\w+' (must not be None|has incorrect type)", str(error)), repr(error)
        return
    assert isinstance(error, InvalidRecordError | RecordTooLargeError), repr(error)
    assert NAMED.search(str(error)), str(error)
    if isinstance(error, RecordTooLargeError):
        assert re.search(r"record of up to \d+ bytes .* exceeds 2000 bytes", str(error))


@given(ANYTHING, ANYTHING, HEADERS, INTEGERS, INTEGERS)
def test_append_takes_or_refuses(key: Any, value: Any, headers: Any, partition: int, timestamp: int) -> None:
    engine = _engine()
    before = snapshot(engine)
    try:
        future = engine.append(value, partition, key=key, headers=headers, timestamp=timestamp)
    except KafkaError as error:
        _assert_refused_well(error)
        assert snapshot(engine) == before
        assert len(batches_of(engine.take())) == 1
    else:
        assert 0 <= future.partition < 3


@given(st.lists(ANYTHING, max_size=6), st.lists(ANYTHING, max_size=6), HEADERS)
def test_lists_are_taken_or_refused_whole(keys: list[Any], values: list[Any], headers: Any) -> None:
    engine = _engine()
    before = snapshot(engine)
    try:
        block = Block(
            engine.accumulator,
            engine.accumulator.topics[TOPIC],
            Column.from_list(values, "value"),
            key=Column.from_list(keys, "key"),
            headers=Headers.from_python(headers),
        )
    except KafkaError as error:
        _assert_refused_well(error)
        assert snapshot(engine) == before
    else:
        assert snapshot(engine) == before
        assert block.run(engine.now_ms)
        assert block.rows_appended == len(values)


ARRAYS = st.one_of(
    ANYTHING,
    st.lists(st.integers(-3, 5), max_size=5).map(lambda items: array.array("i", items)),
    st.lists(st.integers(-3, 2**40), max_size=5).map(lambda items: array.array("q", items)),
)


@given(ARRAYS, ARRAYS, INTEGERS, INTEGERS, st.none() | st.integers(-2, 6))
def test_arrays_of_a_block_are_taken_or_refused(
    timestamps: Any, partitions: Any, timestamp: int, partition: int, row_count: int | None
) -> None:
    engine = _engine()
    before = snapshot(engine)
    try:
        block = Block(
            engine.accumulator,
            engine.accumulator.topics[TOPIC],
            Column.from_list([b"a", b"b", b"c"], "value"),
            row_count=row_count,
            timestamps=timestamps,
            timestamp=timestamp,
            partitions=partitions,
            partition=partition,
        )
    except KafkaError as error:
        _assert_refused_well(error)
        assert snapshot(engine) == before
    else:
        assert block.run(engine.now_ms)


@given(ARRAYS, ANYTHING, st.none() | st.binary(max_size=2), INTEGERS, st.none() | INTEGERS)
def test_arrow_columns_are_taken_or_refused(
    offsets: Any, data: Any, validity: Any, start: int, row_count: int | None
) -> None:
    try:
        column = Column.from_offsets(offsets, data, validity, start, row_count, "value")
    except (KafkaError, TypeError) as error:
        _assert_refused_well(error)
    else:
        for i in range(len(column)):
            value = column[i]
            assert value is None or value in bytes(data)


@given(st.text(max_size=10))
def test_topic_names_are_taken_or_refused(name: str) -> None:
    engine = _engine()
    before = snapshot(engine)
    try:
        engine.lead([1], name)
    except InvalidRecordError as error:
        _assert_refused_well(error, "cannot be written as UTF-8")
        assert snapshot(engine) == before
        assert any(0xD800 <= ord(character) <= 0xDFFF for character in name)


@given(st.text(st.characters(categories=["Cs", "Lu"]), min_size=1, max_size=5))
def test_surrogates_never_pass(name: str) -> None:
    engine = _engine()
    try:
        engine.lead([1], name)
    except InvalidRecordError:
        assert any(0xD800 <= ord(character) <= 0xDFFF for character in name)
    else:
        name.encode()
