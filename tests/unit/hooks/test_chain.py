from __future__ import annotations

from array import array
from typing import Any

import pytest

from kafkaprod._core.columns.columns import Column
from kafkaprod._core.queues.completion import DeliveryFuture
from kafkaprod.config import ProducerConfig
from kafkaprod.errors import BrokerError, InvalidRecordError, SerializationError
from kafkaprod.hooks.chain import Hooks
from kafkaprod.hooks.interceptors import ProducerRecord
from kafkaprod.results.batch import BatchCompletion
from tests.support.core.core_engine import Engine, only_ref, succeed

RECORD = ProducerRecord("t", "value", "key", [("h", b"1")], None, None)


def hooks(**options: Any) -> Hooks:
    return Hooks.from_config(ProducerConfig.from_options({"bootstrap_servers": "h:1"}, **options))


class Fixed:
    """A partitioner with one answer."""

    def partition(self, *_: Any) -> int:
        return 1


class Notes:
    def __init__(self) -> None:
        self.outcomes: list[tuple[Any, Any]] = []

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        return record

    def on_acknowledgement(self, metadata: Any, error: BaseException | None) -> None:
        self.outcomes.append((metadata, error))


def test_without_options_there_are_none() -> None:
    plain = hooks()
    assert not plain.has_any
    assert plain.on_send(RECORD) is RECORD
    assert plain.serialize(RECORD) == ("key", "value")
    assert plain.choose_partition(RECORD, b"k", b"v", (1, 2)) is None
    assert plain.serialize_block("t", None, [b"v"], None) == (None, [b"v"], None)


def test_each_option_makes_records_pass_through() -> None:
    assert hooks(key_serializer=str.encode).has_any
    assert hooks(value_serializer=str.encode).has_any
    assert hooks(partitioner=Fixed()).has_any
    assert hooks(interceptors=[Notes()]).has_any


def test_serializers_make_bytes_of_key_and_value() -> None:
    both = hooks(key_serializer=str.encode, value_serializer=str.encode)
    assert both.serialize(RECORD) == (b"key", b"value")
    assert both.serialize_block("t", ["a"], ["b", "c"], None) == ([b"a"], [b"b", b"c"], None)


def test_serializer_that_fails_in_a_block_names_the_row() -> None:
    with pytest.raises(SerializationError, match="row 1: "):
        hooks(value_serializer=str.encode).serialize_block("t", None, ["a", 5, "c"], None)


def test_partition_of_the_record_goes_before_the_partitioner() -> None:
    chosen = hooks(partitioner=Fixed())
    assert chosen.choose_partition(RECORD, b"k", b"v", (1, 1, 1)) == 1
    with_partition = ProducerRecord("t", "value", "key", None, 2, None)
    assert chosen.choose_partition(with_partition, b"k", b"v", (1, 1, 1)) == 2


def test_interceptors_hear_success_failure_and_refusal() -> None:
    notes = Notes()
    watching = hooks(interceptors=[notes])
    engine = _engine()
    good = engine.append(b"v", 0)
    watching.watch(good)
    succeed(engine.take(), 5)
    bad = engine.append(b"v", 0)
    watching.watch(bad)
    request = engine.take()
    error = BrokerError("no", code=87)
    only_ref(request).fail(error)
    request.finish()
    refusal = SerializationError("bad")
    watching.on_refused("t", None, refusal)
    (first, second, third) = notes.outcomes
    assert (first[0].offset, first[1]) == (5, None)
    assert (second[0].topic, second[0].offset, repr(second[1])) == ("orders", -1, repr(error))
    assert (third[0].topic, third[0].partition, third[1]) == ("t", -1, refusal)
    assert isinstance(good, DeliveryFuture)


def _engine() -> Engine:
    return Engine(linger_ms=0, make_result=BatchCompletion)


def test_partitioner_decides_for_rows_of_a_block_that_name_no_partition() -> None:
    chosen = hooks(partitioner=Fixed()).choose_partitions(
        "t", None, Column.from_list([b"a", b"b", b"c"]), 3, array("i", [-1, 0, -1]), (1, 2)
    )
    assert list(chosen) == [1, 0, 1]
    named = array("i", [0, 0, 1])
    again = hooks(partitioner=Fixed()).choose_partitions("t", None, Column.constant(b"v"), 3, named, (1, 2))
    assert again is named


def test_partitioner_sees_every_row_of_a_block_as_bytes() -> None:
    class Seen:
        def __init__(self) -> None:
            self.rows: list[tuple[Any, Any]] = []

        def partition(self, topic: str, key: Any, value: Any, *_: Any) -> int:
            self.rows.append((key, value))
            return len(self.rows) % 2

    values = [b"%d" % number for number in range(3000)]
    given: list[Any] = [*values[:2500], None, bytearray(values[2501]), *values[2502:]]
    expected = [None if each is None else bytes(each) for each in given]
    columns = [Column.from_list(given), Column.from_list([b"", *given]).slice(1, 3000)]
    for column in columns:
        seen = Seen()
        chosen = hooks(partitioner=seen).choose_partitions("t", Column.constant(b"k"), column, 3000, None, (1, 2))
        assert seen.rows == [(b"k", value) for value in expected]
        assert list(chosen) == [1, 0] * 1500
    assert all(mine is theirs for mine, theirs in zip(columns[0].rows(0, 2500), values, strict=False))


@pytest.mark.parametrize("place", [(-1, 1), (0, -1), (0, 4), (3, 1)])
def test_rows_outside_of_a_column_are_refused(place: tuple[int, int]) -> None:
    with pytest.raises(IndexError, match="outside the column's 3"):
        Column.from_list([b"a", b"b", b"c"]).rows(*place)


def test_a_partitioner_that_fails_in_a_block_is_named() -> None:
    class Outside:
        def partition(self, *_: Any) -> int:
            return 2

    with pytest.raises(InvalidRecordError, match=r"partitioner .*Outside chose partition 2 of topic 't', which has 2"):
        hooks(partitioner=Outside()).choose_partitions("t", None, Column.from_list([b"v"]), 1, None, (1, 2))
