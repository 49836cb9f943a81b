"""Allocations that fail, one after the other, in whole calls and in the sender thread of a producer.

Each record has one outcome: a call that raised queued nothing, or its `result` has what was queued; what was delivered
is in the log once; what failed is not.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

from kafkaprod import AsyncProducer, Producer, log_lines
from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from kafkaprod.errors import KafkaError
from tests.support.failing_memory import failing
from tests.support.loader.load_rig import run_here

pytestmark = pytest.mark.skipif(
    (3, 12) <= sys.version_info < (3, 13, 1),
    reason="this CPython frees the code of an inner function whose allocation fails (python/cpython#122752)",
)

CALL_POSITIONS = range(60)
"""More than a call allocates."""
TABLE_POSITIONS = range(600)
"""A call with a table allocates some 500 times."""
SENDER_POSITIONS = range(0, 250, 5)
"""A turn of the sender allocates about 100 times."""
ROWS = 7
BOUND_S = 60


@pytest.fixture(scope="module", autouse=True)
def running_thread_of_lines() -> Iterator[None]:
    """Let no thread be started while memory fails: `threading` may then keep the lock that all of its calls take."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_lines, "IDLE_S", 3600.0)
        assert log_lines.own_lines._has_thread()
        log_lines.own_lines.flush()  # one that was there before waits by the new limit from here on
        yield


@pytest.fixture
def producer(embedded_broker: EmbeddedBroker, topic_name: str) -> Iterator[Producer]:
    assert (
        run_here(["topics", "create", topic_name, "-b", embedded_broker.bootstrap_servers, "--partitions", "3"]).code
        == 0
    )
    with Producer(bootstrap_servers=embedded_broker.bootstrap_servers, linger_ms=0, retry_backoff_ms=1) as producer:
        producer.send(topic_name, b"first").result(BOUND_S)
        assert producer.send_many(topic_name, [b"first"]).wait(BOUND_S)
        yield producer


def values_of(position: int) -> list[bytes]:
    return [b"%d:%d" % (position, row) for row in range(ROWS)]


def send(producer: Producer, topic: str, values: list[bytes]) -> Callable[[], Any]:
    return lambda: producer.send(topic, values[0], b"key")


def send_many(producer: Producer, topic: str, values: list[bytes]) -> Callable[[], Any]:
    keys, headers = [b"%d" % row for row in range(ROWS)], [("name", b"value")]
    return lambda: producer.send_many(topic, values, keys, headers)


def send_columns(producer: Producer, topic: str, values: list[bytes]) -> Callable[[], Any]:
    column = np.cumsum([0, *map(len, values)]), b"".join(values)
    return lambda: producer.send_columns(topic, column)


def send_table(producer: Producer, topic: str, values: list[bytes]) -> Callable[[], Any]:
    table = {"value": values, "key": [f"{row}" for row in range(ROWS)]}
    return lambda: producer.send_table(topic, table, key="key", headers=[("name", b"value")])


def delivered_rows(result: Any) -> list[bool]:
    """Wait for the outcome of each row; whether it is in the log."""
    if hasattr(result, "error_codes"):
        assert result.wait(BOUND_S)
        return [code == 0 for code in result.error_codes]
    return [result.exception(BOUND_S) is None]


def check_log(broker: EmbeddedBroker, topic: str, expected: Counter[str]) -> None:
    done = run_here(["tail", topic, "-b", broker.bootstrap_servers, "-n", "1000000", "--json"])
    found = Counter(json.loads(line)["value"] for line in done.out.splitlines())
    del found["first"]
    assert found == expected


@pytest.mark.parametrize(
    ("prepare", "positions"),
    [
        (send, CALL_POSITIONS),
        (send_many, CALL_POSITIONS),
        (send_columns, CALL_POSITIONS),
        (send_table, TABLE_POSITIONS),
    ],
)
def test_each_allocation_of_a_call_may_fail(
    embedded_broker: EmbeddedBroker,
    topic_name: str,
    producer: Producer,
    prepare: Callable[..., Callable[[], Any]],
    positions: range,
) -> None:
    results = {}
    raised = 0
    for position in positions:
        call, result = prepare(producer, topic_name, values_of(position)), None
        try:
            with failing(position):
                result = call()
        except MemoryError as error:
            raised += 1
            result = getattr(error, "result", None)
        if result is not None:
            results[position] = result
    assert raised > 0
    expected: Counter[str] = Counter()
    for position, result in results.items():
        rows = zip(values_of(position), delivered_rows(result), strict=False)
        expected.update(value.decode() for value, is_delivered in rows if is_delivered)
    assert sum(expected.values()) > 0
    check_log(embedded_broker, topic_name, expected)
    assert producer.accumulator.pool.in_use == 0


@pytest.mark.parametrize("count", [1, 10])
def test_allocations_of_the_sender_thread_may_fail(
    embedded_broker: EmbeddedBroker, topic_name: str, producer: Producer, count: int
) -> None:
    expected: Counter[str] = Counter()
    for position in SENDER_POSITIONS:
        values = values_of(position)
        result = None
        with suppress(MemoryError), failing(position, count):
            result = producer.send_many(topic_name, values)
            result.wait(BOUND_S)  # this thread sleeps: what fails, fails in the sender
        if result is not None:
            rows = zip(values, delivered_rows(result), strict=True)
            expected.update(value.decode() for value, is_delivered in rows if is_delivered)
    assert producer.send_many(topic_name, [b"first"]).wait(BOUND_S)
    assert sum(expected.values()) > ROWS
    check_log(embedded_broker, topic_name, expected)


async def is_delivered(future: Awaitable[Any]) -> bool:
    """Await the outcome of a record on the event loop."""
    try:
        await future
    except (KafkaError, MemoryError):
        return False
    return True


def test_each_allocation_of_an_asyncio_send_may_fail(
    embedded_broker: EmbeddedBroker, topic_name: str, producer: Producer
) -> None:
    expected: Counter[str] = Counter()

    async def run(asynchronous: AsyncProducer) -> int:
        raised = 0
        for position in CALL_POSITIONS:
            value, result = values_of(position)[0], None
            try:
                with failing(position):
                    result = await asynchronous.send(topic_name, value, b"key")
            except MemoryError as error:
                raised += 1
                result = getattr(error, "result", None)
            if result is not None:
                expected[value.decode()] += await is_delivered(result)
        return raised

    async def open_and_run() -> int:
        options: dict[str, Any] = {"linger_ms": 0, "retry_backoff_ms": 1}
        async with AsyncProducer(bootstrap_servers=embedded_broker.bootstrap_servers, **options) as asynchronous:
            await asynchronous.send_and_wait(topic_name, b"first")
            raised = await asyncio.wait_for(run(asynchronous), BOUND_S)
            pool = asynchronous._engine.accumulator.pool
            async with asyncio.timeout(BOUND_S):
                while pool.in_use:  # an outcome comes just before its memory is free
                    await asyncio.sleep(0.001)
            return raised

    assert asyncio.run(open_and_run()) > 0
    assert sum(expected.values()) > 0
    check_log(embedded_broker, topic_name, expected)
