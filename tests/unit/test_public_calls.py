"""What frameworks do with the public classes: type hints, timeouts of all kinds, copies, pickles."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import inspect
import math
import pickle
import typing
from collections.abc import Callable, Iterator
from datetime import timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

import kafkaprod
import kafkaprod.broker
from kafkaprod import AsyncProducer, BlockResult, Producer
from kafkaprod.errors import ArgumentTypeError, BootstrapError, BufferFullError, InvalidRecordError, KafkaError
from kafkaprod.results.snapshot import PENDING, RowsSnapshot
from kafkaprod.tables.result import TableResult

SERVERS = "127.0.0.1:1"  # nothing listens there


@pytest.fixture
def producer() -> Iterator[Producer]:
    producer = Producer(bootstrap_servers=SERVERS, max_block_ms=20, buffer_memory=2 << 20)
    producer.accumulator.set_topic("t", [-1])  # without a leader: records stay queued
    yield producer
    producer.close(0)


def public_methods() -> Iterator[Any]:
    for module in (kafkaprod, kafkaprod.broker):
        for name in module.__all__:
            kind = getattr(module, name)
            if not inspect.isclass(kind):
                continue
            for member in dir(kind):
                found = inspect.getattr_static(kind, member)
                function = getattr(found, "fget", None) or getattr(found, "__func__", found)
                if callable(function) and not member.startswith("_"):
                    yield pytest.param(function, id=f"{name}.{member}")


@pytest.mark.parametrize("function", list(public_methods()))
def test_type_hints_of_public_methods_resolve(function: Any) -> None:
    typing.get_type_hints(function)


CALLS: dict[str, Callable[[Producer, Any], object]] = {
    "flush": lambda producer, timeout: producer.flush(timeout),
    "result": lambda producer, timeout: producer.send("t", b"x", partition=0).result(timeout),
    "exception": lambda producer, timeout: producer.send("t", b"x", partition=0).exception(timeout),
    "rows": lambda producer, timeout: producer.send_many("t", [b"x"]).result(timeout),
    "wait": lambda producer, timeout: producer.send_many("t", [b"x"]).wait(timeout),
    "check": lambda producer, timeout: producer.check(timeout),
    "list_topics": lambda producer, timeout: producer.list_topics(timeout=timeout),
    "close": lambda producer, timeout: producer.close(timeout),
}


@pytest.mark.parametrize("call", list(CALLS.values()), ids=list(CALLS))
@pytest.mark.parametrize("timeout", [0, -1, 0.001, Decimal("0.001"), timedelta(milliseconds=1), np.float64(0.001)])
def test_each_call_takes_a_timeout_of_any_kind(
    call: Callable[[Producer, Any], object], timeout: Any, producer: Producer
) -> None:
    with contextlib.suppress(TimeoutError, BootstrapError):  # what each of them is for
        call(producer, timeout)


@pytest.mark.parametrize("call", list(CALLS.values()), ids=list(CALLS))
@pytest.mark.parametrize(("timeout", "kind"), [(math.nan, InvalidRecordError), ("5", ArgumentTypeError)])
def test_each_call_refuses_the_same_timeouts_and_changes_nothing(
    call: Callable[[Producer, Any], object], timeout: Any, kind: type[Exception], producer: Producer
) -> None:
    with pytest.raises(kind, match="must be a number of seconds"):
        call(producer, timeout)
    producer.send("t", b"still open", partition=0)


def test_close_waits_for_ever_with_a_timeout_that_never_ends() -> None:
    for timeout in (math.inf, 1e20):
        Producer(bootstrap_servers=SERVERS).close(timeout)


def test_an_async_producer_is_closed_by_aclosing() -> None:
    async def use() -> AsyncProducer:
        async with contextlib.aclosing(AsyncProducer(bootstrap_servers=SERVERS)) as producer:
            return producer

    assert "closed" in repr(asyncio.run(use()))


def test_flush_names_a_callback_only_where_one_runs(producer: Producer) -> None:
    producer.send("t", b"x", partition=0)
    with pytest.raises(TimeoutError, match=r"no outcome of 1 batch after 0.01 s of flush\(\)"):
        producer.flush(0.01)
    assert producer.engine.describe_callback() is None


# -- results in other processes ------------------------------------------------------------------------------------


def partly_queued(producer: Producer) -> BufferFullError:
    with pytest.raises(BufferFullError) as caught:
        producer.send_many("t", [b"x" * 100_000] * 100)
    return caught.value


def test_an_error_with_a_partial_result_takes_it_to_another_process(producer: Producer) -> None:
    error = partly_queued(producer)
    arrived = pickle.loads(pickle.dumps(error))
    assert type(arrived) is BufferFullError
    assert str(arrived) == str(error)
    rows = arrived.result
    assert isinstance(rows, RowsSnapshot)
    assert rows.row_count == 100
    assert list(rows.error_codes) == list(error.result.error_codes)
    assert set(rows.errors) == set(error.result.errors)
    assert isinstance(rows.first_error(), BufferFullError)
    assert not rows.done()
    assert not rows.wait()
    again = pickle.loads(pickle.dumps(rows))
    assert list(again.partitions) == list(rows.partitions)
    assert "RowsSnapshot of 100 rows" in repr(again)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
def test_a_copy_of_an_error_has_the_same_result(copied: Callable[[Any], Any], producer: Producer) -> None:
    error = partly_queued(producer)
    assert copied(error).result is error.result
    assert copied({"error": error})["error"].result is error.result
    assert copied(error.result) is error.result


def test_a_result_of_a_table_is_pickled_with_all_its_blocks(producer: Producer) -> None:
    block = producer.send_many("t", [b"a", b"b"])
    table = TableResult()
    table.add(range(2), "t", block)
    assert isinstance(block, BlockResult)
    rows = pickle.loads(pickle.dumps(table))
    assert list(rows.error_codes) == [PENDING, PENDING]
    assert rows.errors == {}
    assert rows.failed_count == 0


def test_errors_keep_what_they_say_through_pickle_and_copies() -> None:
    error = KafkaError("late", topic="t")
    error.possibly_persisted = True
    error.add_note("a note")
    for other in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert str(other) == "late"
        assert other.context == {"topic": "t"}
        assert other.possibly_persisted
        assert other.__notes__ == ["a note"]
