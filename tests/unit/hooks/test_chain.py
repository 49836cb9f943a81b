from __future__ import annotations

from array import array
from typing import Any

import pytest

from kafkaprod._core.columns.columns import Column
from kafkaprod._core.queues.completion import DeliveryFuture
from kafkaprod.config import ProducerConfig
from kafkaprod.errors import BrokerError, SerializationError
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
    assert (second[0].topic, second[0].offset, second[1]) == ("orders", -1, error)
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
