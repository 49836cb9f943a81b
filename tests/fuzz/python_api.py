"""Call every public entry point with hostile objects: `python -m tests.fuzz.python_api --calls N --seed S`.

Numbers that differ each time they are asked, sequences that change while they are read, buffers of wrong types, and a
thread that writes to the buffers meanwhile. A crash of the interpreter, an exception that no caller could expect
(SystemError, AttributeError ...) or memory that is not given back ends the run with status 1. Call i depends on the
seed and i only: `--first i --calls 1` repeats it. No broker is needed; with `--broker` an embedded one gets them.
"""

from __future__ import annotations

import argparse
import array
import asyncio
import collections
import faulthandler
import logging
import random
import resource
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, cast

import numpy as np

from kafkaprod import Producer
from kafkaprod._core.columns.columns import Column, Headers
from kafkaprod.config import ProducerConfig
from kafkaprod.errors import KafkaError

TOPIC = "t"
PARTITIONS = 3
EXPECTED = (KafkaError, TimeoutError, TypeError, ValueError, OverflowError, IndexError, BufferError, MemoryError)
OPTIONS: dict[str, Any] = {
    "request_timeout_ms": 100,
    "delivery_timeout_ms": 200,
    "max_block_ms": 20,
    "linger_ms": 0,
    "batch_size": 4096,
    "buffer_memory": 1 << 20,
    "max_request_size": 1 << 16,
}


class PlantedError(Exception):
    """What hostile objects raise: it may come out of any call."""


class Number:
    """A number that is another one each time it is asked, in each of the ways to ask."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def __index__(self) -> Any:
        if self._rng.random() < 0.05:
            raise PlantedError
        return self._rng.choice([0, 1, 2, -1, -3, 2**31, 2**62, 2**63 - 1, -(2**63), 2**70, LyingInt(1)])

    def __int__(self) -> int:
        return self._rng.choice([-3, 0, 2**40])

    def __lt__(self, other: Any) -> bool:
        return self._rng.random() < 0.5

    __le__ = __gt__ = __ge__ = __lt__

    def __add__(self, other: Any) -> Any:
        return self._rng.choice([0, -5, 2**60])

    __radd__ = __sub__ = __rsub__ = __mul__ = __add__


class LyingInt(int):
    """An int whose methods say something else than its digits."""

    def __index__(self) -> int:
        return -3

    __int__ = __trunc__ = __index__

    def __lt__(self, other: Any) -> bool:
        return False

    __le__ = __gt__ = __ge__ = __eq__ = __lt__

    def __hash__(self) -> int:
        return 7


class Sequence(list[Any]):
    """A list that changes itself, or raises, when it is looked at."""

    rng: random.Random

    def _twist(self) -> None:
        chance = self.rng.random()
        if chance < 0.2:
            self.clear()
        elif chance < 0.3:
            self.extend([b"more"] * 50)
        elif chance < 0.33:
            raise PlantedError

    def __len__(self) -> int:
        self._twist()
        return self.rng.choice([super().__len__(), 0, 2, 10**6])

    def __getitem__(self, item: Any) -> Any:
        self._twist()
        return super().__getitem__(item)

    def __iter__(self) -> Iterator[Any]:
        self._twist()
        return super().__iter__()


class Text(str):
    """Text with a hash and equality of its own."""

    __slots__ = ()

    def __hash__(self) -> int:
        return 1

    def __eq__(self, other: object) -> bool:
        return False


class Buffers:
    """Buffers that another thread writes to while calls use them."""

    def __init__(self, rng: random.Random) -> None:
        self.offsets32 = np.arange(0, 2048, 8, dtype=np.int32)
        self.offsets64 = np.arange(0, 2048, 8, dtype=np.int64)
        self.partitions = np.zeros(255, np.int32)
        self.timestamps = np.zeros(255, np.int64)
        self.mask = np.ones(255, np.bool_)
        self.bitmap = np.full(32, 255, np.uint8)
        self.data = bytearray(b"x" * 4096)
        self._rng = rng
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._spoil, daemon=True)

    @contextmanager
    def spoiled(self) -> Iterator[None]:
        """While the block runs, the buffers change."""
        self._thread.start()
        try:
            yield
        finally:
            self._is_over.set()
            self._thread.join()

    def restore(self) -> None:
        """Make them a well-formed column again."""
        self.offsets32[:] = np.arange(0, 2048, 8)
        self.offsets64[:] = np.arange(0, 2048, 8)
        self.partitions[:] = 0

    def _spoil(self) -> None:
        while not self._is_over.wait(0.0002):
            target: Any = self._rng.choice(
                [self.offsets32, self.offsets64, self.partitions, self.timestamps, self.bitmap]
            )
            target[self._rng.randrange(len(target))] = (
                self._rng.choice([0, 255, 1, 127])
                if target is self.bitmap
                else (self._rng.choice([-1, 2**31 - 1, -(2**31), 0, 5000]))
            )


class Call:
    """One call, made of a random generator of its own."""

    def __init__(self, producer: Producer, buffers: Buffers, rng: random.Random) -> None:
        self.producer = producer
        self.buffers = buffers
        self.rng = rng

    def run(self) -> Any:
        """Call one of the entry points."""
        name = self.rng.choice([name for name in dir(self) if name.startswith("call_")])
        return getattr(self, name)()

    # --- arguments -------------------------------------------------------------------------------------------------

    def number(self) -> Any:
        return self.rng.choice(
            [
                None,
                0,
                1,
                2,
                5,
                -1,
                -2,
                2**31,
                2**62 - 1,
                2**63 - 1,
                10**5000,
                True,
                1.0,
                "1",
                b"1",
                np.int64(1),
                LyingInt(1),
            ]
            + [Number(self.rng)] * 4
        )

    def sequence(self, items: list[Any]) -> Any:
        made = Sequence(items)
        made.rng = self.rng
        return made

    def data(self) -> Any:
        return self.rng.choice(
            [
                *[b"v", b"", None, b"x" * 5000, b"x" * 70000, bytearray(b"ba"), memoryview(b"mv")],
                *[memoryview(b"mvmv")[::2], "text", 5, object(), np.zeros(3)],
                *[np.zeros((2, 2))[:, 0], array.array("d", [1]), self.buffers.data],
            ]
        )

    def pair(self) -> Any:
        pair = [self.rng.choice(["h", "\ud800", b"h", None, Text("h")]), self.data()]
        return self.rng.choice([tuple(pair), pair, self.sequence(pair), tuple(pair[:1]), None, "ab", (*pair, 1)])

    def headers(self) -> Any:
        good: list[Any] = [("h", b"1"), ("g", None)]
        return self.rng.choice(
            [
                *[None, good, dict(good), self.sequence(good)],
                *[self.sequence([self.pair() for _ in range(5)]), [self.pair() for _ in range(3)]],
                *[iter(good), 5, "ab", self.many(good), Headers.from_python(good)],
            ]
        )

    def many(self, item: Any) -> Any:
        return self.rng.choice(
            [[item] * 5, self.sequence([item] * 5), (item,) * 5, iter([item] * 3), [item, None, item]]
        )

    def rows(self) -> Any:
        return self.rng.choice(
            [None, self.many(b"v"), self.many(self.data()), [self.data() for _ in range(5)], b"abc", "abc", 5]
        )

    def integers(self) -> Any:
        given: list[Any] = [self.number() for _ in range(5)]
        return self.rng.choice(
            [
                *[None, None, [0] * 5, given, self.sequence(given), np.zeros(5), np.zeros(5, "i8")],
                *[np.zeros(5, "M8[ms]"), self.buffers.partitions, self.buffers.timestamps],
                *[np.zeros((5, 1), "i4"), np.zeros(10, "i4")[::2], "01234"],
                *[array.array("i", [0, 1, 2, 0, 9]), np.full(5, -1, "i4"), np.zeros(5, ">i4")],
                *[self.data()],
            ]
        )

    def column(self) -> Any:
        offsets = self.rng.choice(
            [
                self.buffers.offsets32,
                self.buffers.offsets64,
                np.arange(6),
                np.arange(6.0),
                np.zeros(0, "i4"),
                self.integers(),
            ]
        )
        validity = self.rng.choice([None, None, self.buffers.bitmap, self.buffers.mask, np.ones(5, "i8"), self.data()])
        data = self.rng.choice([self.buffers.data, b"abcdefgh", self.data()])
        return self.rng.choice(
            [None, (offsets, data), (offsets, data, validity), (offsets,), offsets, self.made_column()]
        )

    def made_column(self) -> Any:
        kind = self.rng.randrange(6)
        options = {"start": self.number(), "row_count": self.number()} if self.rng.random() < 0.5 else {}
        if kind == 0:
            return Column.from_offsets(self.buffers.offsets32, self.buffers.data, self.buffers.bitmap, **options)
        if kind == 1:
            return Column.from_fixed(self.buffers.data, self.rng.choice([1, 8, 0, -1, 2**62]), **options)
        if kind == 2:
            return Column.from_list(self.rows())
        if kind == 3:
            return Column.constant(self.data())
        if kind == 4:
            views = np.frombuffer(self.rng.randbytes(80), "u1")
            return Column.from_views(views, self.many(self.buffers.data), **options)
        return Column.nulls()

    # --- entry points ----------------------------------------------------------------------------------------------

    def call_send(self) -> Any:
        topic = self.rng.choice([TOPIC, TOPIC, TOPIC, "unknown!", "", None, 5, b"t", Text(TOPIC), "\ud800"])
        arguments: list[Any] = [self.data(), self.data(), self.headers(), self.number(), self.number()]
        send: Any = self.rng.choice([self.producer.send, self.producer.try_send])
        future = send(topic, *arguments[: self.rng.randrange(6)])
        if future is not None and self.rng.random() < 0.2:
            repr(future)
            future.add_done_callback(cast(Any, self.rng.choice([lambda _: None, lambda _: 1 / 0, 5, None])))
            self.rng.choice([future.add_callback, future.add_errback, future.add_both])(lambda *_: None, 1)
            future.exception(0)

    def call_send_again(self) -> Any:
        self.producer.send(TOPIC, b"v", self.rng.choice([None, b"k"]))

    def call_send_many(self) -> Any:
        self.look(
            self.producer.send_many(
                TOPIC, self.rows(), self.rows(), self.headers(), self.integers(), self.integers(), self.number()
            )
        )

    def call_send_columns(self) -> Any:
        rng = self.rng
        optional = {
            "headers": self.headers,
            "timestamps_ms": self.integers,
            "partitions": self.integers,
            "partition": self.number,
            "row_count": self.number,
        }
        options = {name: make() for name, make in optional.items() if rng.random() < 0.2}
        self.look(
            self.producer.send_columns(TOPIC, self.column(), self.column() if rng.random() < 0.5 else None, **options)
        )

    def call_send_table(self) -> Any:
        data = self.rng.choice(
            [
                {"value": self.rows(), "key": self.rows()},
                {"value": [b"a", b"b"], "n": self.integers()},
                {"value": np.array(["a", "b"]), "n": np.zeros(2, "i8")},
                {},
                self.rows(),
                5,
            ]
        )
        names = ["value", "key", "n", "json", None, 5, b"same"]
        choice = self.rng.choice
        self.look(
            self.producer.send_table(
                TOPIC,
                data,
                value=cast(Any, choice(names)),
                key=cast(Any, choice(names)),
                headers=self.headers(),
                partition=choice([None, "n", 1]),
            )
        )

    def call_column(self) -> Any:
        column = self.made_column()
        len(column)
        self.rng.choice([column.slice, lambda a, b: column[a], lambda a, b: column.take(a)])(
            self.number(), self.number()
        )
        column.take(np.array([0, self.rng.choice([0, -1, 2**40])]))

    def call_headers(self) -> Any:
        headers = Headers.from_python(self.headers())
        headers.slice(self.number(), self.number())
        headers.take(self.rng.choice([np.zeros(2, "i8"), np.array([2**40]), self.integers()]))
        Headers.from_columns(self.integers(), self.made_column(), self.made_column(), self.number())

    def call_config(self) -> Any:
        names = [
            "linger_ms",
            "batch.size",
            "acks",
            "partitioner",
            "interceptors",
            "value_serializer",
            "nonsense",
            5,
            "",
        ]
        ProducerConfig.from_options(
            {cast(str, self.rng.choice(names)): self.rng.choice([self.number(), self.data(), self.headers()])}
        )

    def call_others(self) -> Any:
        self.producer.partitions_for(cast(Any, self.rng.choice([TOPIC, None, "", 5, "\ud800"])))
        len(self.producer)
        self.producer.metrics()

    def look(self, result: Any) -> None:
        """Look at a result in one of the ways there are."""
        ways: list[Callable[[], Any]] = [
            result.done,
            lambda: result.offsets,
            lambda: result.partitions,
            lambda: result.error_codes,
            lambda: result.errors,
            lambda: result.wait(0),
            lambda: result.add_done_callback(lambda _: None),
            lambda: asyncio.run(_await_briefly(result)),
        ]
        self.rng.choice(ways[: 8 if self.rng.random() < 0.02 else 7])()


async def _await_briefly(result: Any) -> None:
    with suppress(KafkaError, TimeoutError):
        await asyncio.wait_for(_awaited(result), 0.01)


async def _awaited(result: Any) -> None:
    await result


def fuzz(producer: Producer, seed: int, first: int, calls: int) -> tuple[collections.Counter[str], list[str]]:
    """Make the calls; return how often each outcome came, and what no caller could expect."""
    buffers = Buffers(random.Random(seed))
    outcomes: collections.Counter[str] = collections.Counter()
    wrong: list[str] = []
    with buffers.spoiled():
        for i in range(first, first + calls):
            if i % 64 == 0:
                buffers.restore()
            try:
                Call(producer, buffers, random.Random(f"{seed}:{i}")).run()
                outcomes["accepted"] += 1
            except PlantedError:
                outcomes["planted"] += 1
            except EXPECTED as error:
                outcomes[type(error).__name__] += 1
            except Exception as error:
                if not isinstance(error.__cause__ or error.__context__, PlantedError):
                    wrong.append(f"--seed {seed} --first {i} --calls 1: {''.join(traceback.format_exception(error))}")
                outcomes[type(error).__name__] += 1
    return outcomes, wrong


def main(arguments: list[str] | None = None) -> int:
    """Run as the command line says; 0 if nothing was wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--calls", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--broker", action="store_true", help="deliver to an embedded broker")
    parser.add_argument(
        "--memory-limit", type=int, default=4 << 30, help="bytes of address space; 0: none (sanitizers)"
    )
    options = parser.parse_args(arguments)
    if options.memory_limit:  # a huge row count is legal: it must end in a MemoryError, not with the machine's memory
        resource.setrlimit(resource.RLIMIT_AS, (options.memory_limit, resource.getrlimit(resource.RLIMIT_AS)[1]))
    faulthandler.enable()
    logging.disable(logging.CRITICAL)
    if options.broker:
        from kafkaprod.broker.embedding.embedded import EmbeddedBroker

        with EmbeddedBroker(topics={TOPIC: PARTITIONS}) as broker:
            return report(options, broker.bootstrap_servers)
    return report(options, "127.0.0.1:9")


def report(options: argparse.Namespace, bootstrap_servers: str) -> int:
    """Fuzz one producer and print what came of it."""
    producer = Producer(bootstrap_servers=bootstrap_servers, **OPTIONS)
    if not options.broker:
        producer.accumulator.set_topic(TOPIC, [1] * PARTITIONS)
    pool = producer.accumulator.pool
    outcomes, wrong = fuzz(producer, options.seed, options.first, options.calls)
    producer.close(5)
    if pool.in_use:
        wrong.append(f"{pool.in_use} bytes of the pool were not given back")
    print(
        f"seed {options.seed}, {options.calls} calls:", ", ".join(f"{name} {n}" for name, n in outcomes.most_common())
    )
    for text in wrong[:20]:
        print(text)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
