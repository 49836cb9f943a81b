"""The calls that the fuzzer makes: every public entry point, and the compiled functions beneath them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, cast

import numpy as np

from kafkaprod import AsyncProducer, AvroRows, JsonRows, Producer
from kafkaprod._core.columns.columns import Column, Headers
from kafkaprod._core.columns.row_partitions import (
    add_sizes,
    count_partitions,
    partitions_of_keys,
    partitions_of_runs,
)
from kafkaprod._core.columns.text_columns import fill_template, interleave, parse_numbers
from kafkaprod._core.records.batch_reader import read_batches
from kafkaprod._core.records.checksum import checksum
from kafkaprod._core.text.avro_rows import AvroBatch
from kafkaprod._core.text.csv_splitter import split_csv
from kafkaprod._core.text.json_rows import JsonEncoder
from kafkaprod._core.text.row_splitter import find_fields, split_elements, split_keys, split_lines
from kafkaprod.config import ProducerConfig
from kafkaprod.errors import KafkaError
from tests.fuzz.hostile_objects import Buffers, PlantedError, Text
from tests.fuzz.python_arguments import Arguments
from tests.support.broker.fixtures_log import make_batch

TOPIC = "t"
_BATCH = bytes(make_batch([b"one", b"two", b"three"]))
_PACKED = bytes(make_batch([b"one"], codec=1, section=b"not gzip"))
_AVRO_TYPES: tuple[Any, ...] = (
    *(("long", -1, None), ("string", 0, None), ("bytes", -1, None), ("fixed", -1, 4), ("array", -1, ("int", -1, None))),
    *(("record", -1, [("a", ("int", -1, None))]), ("nonsense", -1, None), ("fixed", -1, -1), (), None, 5),
)


class HostileHooks:
    """A serializer, a partitioner and an interceptor that return what the current call's generator draws."""

    arguments: Arguments

    def serialize(self, *_: Any) -> Any:
        return self.arguments.data()

    def partition(self, *_: Any) -> Any:
        return self.arguments.number()

    def on_send(self, record: Any) -> Any:
        return self.arguments.rng.choice([record, None, 5, (record, record)])

    def on_acknowledgement(self, *_: Any) -> None:
        raise PlantedError


class Session:
    """What the calls of one run share: producers, an event loop, and buffers that change."""

    def __init__(self, producer: Producer, hooked: Producer, hooks: HostileHooks, buffers: Buffers) -> None:
        self.producer = producer
        self.hooked = hooked
        self.hooks = hooks
        self.buffers = buffers
        self.loop = asyncio.new_event_loop()
        self.aio: AsyncProducer | None = None

    def close(self) -> None:
        """End what the session began itself."""
        if self.aio is not None:
            self.loop.run_until_complete(self.aio.close(5))
        self.loop.close()

    def run(self, call: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine for a moment."""
        return self.loop.run_until_complete(asyncio.wait_for(call, 0.01))


class Call(Arguments):
    """One call, made of a random generator of its own."""

    def __init__(self, session: Session, rng: random.Random) -> None:
        super().__init__(session.buffers, rng)
        self.session = session
        self.producer = session.producer
        session.hooks.arguments = self

    def run(self) -> Any:
        """Call one of the entry points."""
        name = self.rng.choice(ENTRY_POINTS)
        try:
            return getattr(self, name)()
        except (AttributeError, KeyError, NotImplementedError) as error:
            if not name.startswith("core_"):
                raise
            raise TypeError(name) from error

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
        data = self.pick(
            lambda: {"value": self.rows(), "key": self.rows()},
            lambda: {"value": [b"a", b"b"], "n": self.integers()},
            lambda: {"value": np.array(["a", "b"]), "n": np.zeros(2, "i8")},
            lambda: {"s": ["a", None], "n": [1, 2]},
            dict,
            self.rows,
            lambda: 5,
        )
        schema = '{"type": "record", "name": "r", "fields": [{"name": "n", "type": "long"}]}'
        value = self.pick(
            self._name,
            self._name,
            lambda: JsonRows(columns=self.pick(lambda: None, self.headers, lambda: ["n"])),
            lambda: AvroRows(schema=self.pick(lambda: schema, self.data), schema_id=self.number(), columns=["n"]),
        )
        partition = self.rng.choice([None, "n", 1])
        send = self.producer.send_table
        self.look(send(TOPIC, data, value=value, key=self._name(), headers=self.headers(), partition=partition))

    def call_send_changing_arrays(self) -> Any:
        """Rows of Arrow arrays of every layout, which another thread writes to."""
        arrays, rng = self.buffers.arrays, self.rng
        if arrays is None:
            return
        names = rng.sample(arrays.table.column_names, rng.randrange(1, 5))
        data = arrays.table.select(names).slice(rng.randrange(3), rng.choice([1, 100, 1000]))
        schema = self._schema(names)
        value = self.pick(
            lambda: JsonRows(), lambda: JsonRows(columns=names[:1]), lambda: AvroRows(schema=schema, schema_id=1)
        )
        key = rng.choice([None, None, names[0]])
        self.look(self.producer.send_table(TOPIC, data, value=rng.choice([value, value, names[-1]]), key=key))

    def core_changing_arrays(self) -> Any:
        """The encoders alone, with columns, headers and partitions of such arrays."""
        arrays = self.buffers.arrays
        if arrays is None:
            return
        from kafkaprod.tables.sources import read_batches

        count = len(arrays.table.column_names)
        (batch,) = read_batches(arrays.table)
        columns = self.rng.sample(range(count), self.rng.randrange(1, 5))
        index = columns[0]
        self.pick(
            lambda: JsonEncoder(batch, columns).encode(0, 1 << 20),
            lambda: JsonEncoder(batch, columns, self.rng.random() < 0.5).encode(self.rng.randrange(1000), 1 << 14),
            lambda: batch.to_pylist(columns, 0, 100),
            lambda: batch.byte_column(index).rows(0, 1000),
            lambda: batch.headers(index),
            lambda: batch.partitions(index),
            lambda: batch.timestamps_ms(index, 1000),
            lambda: batch.topics(index, None),
        )

    def _schema(self, names: list[str]) -> str:
        from tests.fuzz.changing_arrays import avro_schema

        return avro_schema(names)

    def _name(self) -> Any:
        return self.rng.choice(["value", "key", "n", "json", None, 5, b"same"])

    def call_hooked(self) -> Any:
        hooked = self.session.hooked
        self.pick(
            lambda: hooked.send(TOPIC, self.data(), self.data(), self.headers(), self.number()),
            lambda: self.look(hooked.send_many(TOPIC, self.rows(), self.rows(), self.headers())),
            lambda: self.look(hooked.send_columns(TOPIC, self.column())),
        )

    def call_asyncio(self) -> Any:
        self.session.run(self._asyncio_call())

    async def _asyncio_call(self) -> Any:
        if self.session.aio is None:
            self.session.aio = AsyncProducer(self.producer.config)
            self.session.aio._engine.accumulator.set_topic(TOPIC, [1])
        aio: Any = self.session.aio
        topic = self.rng.choice([TOPIC, TOPIC, "", None, 5])
        if self.rng.random() < 0.7:
            future = await aio.send(topic, self.data(), self.data(), self.headers(), self.number(), self.number())
            if self.rng.random() < 0.05:
                await future
        elif self.rng.random() < 0.1:
            await self.rng.choice([aio.purge, aio.flush])()
        else:
            await self.pick(
                lambda: aio.send_many(topic, self.rows(), self.rows(), self.headers()),
                lambda: aio.send_columns(topic, self.column(), None),
                lambda: aio.send_table(topic, {"value": self.rows()}, value=self._name()),
            )

    def call_purge(self) -> Any:
        if self.rng.random() < 0.1:
            self.rng.choice([self.producer, self.session.hooked]).purge(in_queue=True, in_flight=bool(self.number()))
        elif self.rng.random() < 0.02:
            self.producer.flush(cast(Any, self.rng.choice([0, -1, 0.01, "1", 2**70, float("nan")])))

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
        value = self.pick(self.number, self.data, self.headers)
        ProducerConfig.from_options({cast(str, self.rng.choice(names)): value})

    def call_others(self) -> Any:
        self.producer.partitions_for(cast(Any, self.rng.choice([TOPIC, None, "", 5, "\ud800"])))
        len(self.producer)
        self.producer.metrics()

    def core_split(self) -> Any:
        text = self.text()
        views, *_ = self.pick(
            lambda: split_lines(text, self.rng.choice([10, 0, 127, 300, -1]), True, self.rng.random() < 0.5),
            lambda: split_csv(text, 44, self.rng.choice([34, -1, 300]), True, self._size(), self._size()),
            lambda: split_elements(text),
            lambda: (self.views(),),
        )
        other: Any = text if self.rng.random() < 0.8 else self.text()
        self.pick(
            lambda: find_fields(other, views, cast(Any, self.rng.choice([b"k", b"", b"n", None]))),
            lambda: split_keys(other, views, cast(Any, self.rng.choice([b"\t", b"", b"--", None]))),
            lambda: Column.from_views(views, [other], start=0, row_count=self.number()),
        )

    def _size(self) -> Any:
        return self.rng.choice([0, 1, 100, -1, 2**31, 2**63 - 1]) if self.rng.random() < 0.9 else self.number()

    def core_text_columns(self) -> Any:
        columns = [
            self.pick(self.good_column, self.good_column, self.made_column) for _ in range(self.rng.randrange(4))
        ]
        count = self.rng.choice([0, 1, 3, 5]) if self.rng.random() < 0.7 else self.number()
        column = self.good_column()
        self.pick(
            lambda: fill_template([b"<"] * (len(columns) + self.rng.randrange(2)), columns, count),
            lambda: fill_template(self.rows(), columns, count),
            lambda: interleave(columns, count),
            lambda: parse_numbers(column, self.zeros(5, "i8"), self.zeros(self.rng.choice([5, 4]), "u1"), True),
            lambda: parse_numbers(column, self.buffers.timestamps, self.zeros(255, "u1")),
            lambda: parse_numbers(column, self.integers(), self.views()),
        )

    def core_row_partitions(self) -> Any:
        column = self.pick(self.good_column, self.made_column)
        self.pick(
            lambda: partitions_of_keys(column, self.number(), self.integers()),
            lambda: partitions_of_keys(column, self.rng.choice([0, 1, 7]), self.buffers.partitions),
            lambda: partitions_of_runs(
                self.buffers.timestamps, self.number(), self.number(), 3, self.buffers.partitions
            ),
            lambda: partitions_of_runs(self.integers(), 0, 2**62, self.number(), self.zeros(5, "i4")),
            lambda: count_partitions(self.buffers.partitions, self.zeros(self.rng.choice([0, 1, 5001]), "i8")),
            lambda: add_sizes(column, self.pick(self.integers, lambda: self.buffers.timestamps)),
        )

    def core_arrow_batch(self) -> Any:
        batch, index = self.arrow_batch(), self.rng.choice([0, 1, 2, -1])
        self.pick(
            lambda: batch.byte_column(index),
            lambda: batch.headers(index),
            lambda: batch.partitions(index),
            lambda: batch.timestamps_ms(index, self.number()),
            lambda: batch.topics(index, self.data()),
            lambda: batch.to_pylist([0, index], self.number(), self.number()),
            lambda: JsonEncoder(batch, cast(Any, self.rng.choice([[0], [0, 1], [5], [None], ()]))).encode(
                0, self.number()
            ),
            lambda: JsonEncoder(batch, [0, 1], False).encode(self.number(), 1 << 16),
            lambda: AvroBatch(batch, [(index, self.rng.choice(_AVRO_TYPES))], b"\0").encode(
                self.number(), self.number()
            ),
            lambda: AvroBatch(batch, [(0, self.rng.choice(_AVRO_TYPES))], b"").encode(0, batch.row_count),
        )

    def core_read_batches(self) -> Any:
        def decompress(*_: Any) -> Any:
            return self.pick(self.data, lambda: self.buffers.data, lambda: _BATCH[61:])

        data = self.pick(
            lambda: _BATCH, lambda: _BATCH * 3 + _BATCH[:70], lambda: _PACKED, self._broken_batch, self.text
        )
        for reader in read_batches(data, decompress, self.rng.random() < 0.2, self._size()):
            latest = cast(dict[Any, Any], self.rng.choice([{}, {b"k": 0, None: Text("x")}, {b"one": -1}]))
            self.pick(
                reader.records,
                reader.scan,
                lambda: reader.find_timestamp(self.number(), self.number()),  # noqa: B023
                lambda: reader.note_keys(latest, self._size(), self.number()),  # noqa: B023
                lambda: reader.compact(latest, self.number(), True, self.number()),  # noqa: B023
            )

    def _broken_batch(self) -> bytes:
        batch = bytearray(_BATCH)
        for _ in range(self.rng.randrange(1, 4)):
            batch[self.rng.randrange(len(batch))] = self.rng.randrange(256)
        return bytes(batch)

    def core_checksum(self) -> Any:
        checksum(self.data(), self.number())

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


ENTRY_POINTS = sorted(name for name in dir(Call) if name.startswith(("call_", "core_")))
"""Those of `core_` are not public: what they raise is not looked at, only what becomes of memory."""
