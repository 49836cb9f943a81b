"""The user's code in the compiled path: what it may do to a record, and what it must not do to others."""

import contextlib
from typing import Any, cast

import pytest

from kafkaprod._core.queues.completion import DeliveryFuture
from kafkaprod._core.queues.record_hooks import HookedRecord, InterceptorCalls, RecordHooks, SerializerCall
from kafkaprod._core.queues.send_path import RecordSender
from kafkaprod.config import ProducerConfig
from kafkaprod.errors import InvalidRecordError, ProducerClosedError, SerializationError
from kafkaprod.hooks.chain import Hooks
from kafkaprod.hooks.interceptors import ProducerRecord
from tests.support.core.core_engine import TOPIC, Engine, sent_records, snapshot


class Sender(RecordSender):
    """Notes what cannot go straight in."""

    def __init__(self, engine, **options):
        config = ProducerConfig.from_options({"bootstrap_servers": "h:1"}, **options)
        super().__init__(engine.accumulator, self.take, Hooks.from_config(config), self.take_hooked)
        self.general = []
        self.hooked = []

    def take(self, *arguments):
        self.general.append(arguments)

    def take_hooked(self, hooked):
        self.hooked.append(hooked)


class Watcher:
    """Notes records and outcomes; changes the records it is told to."""

    def __init__(self, **changes):
        self.records = []
        self.outcomes = []
        self.changes = changes

    def on_send(self, record):
        self.records.append(record)
        return record._replace(**self.changes)

    def on_acknowledgement(self, metadata, error):
        self.outcomes.append((metadata.topic, metadata.partition, metadata.offset, error))


def pairs(engine):
    return [(record.key, record.value) for record in sent_records(engine)]


def test_serializers_partitioner_and_interceptors_see_a_record_in_turn():
    engine = Engine(leaders=[1, -1, 1])
    seen = []

    class Last:
        def partition(self, *arguments):
            seen.append(arguments)
            return 2

    watcher = Watcher(value="VALUE")
    sender = Sender(
        engine, key_serializer=str.encode, value_serializer=str.encode, partitioner=Last(), interceptors=[watcher]
    )
    future = sender.send(TOPIC, "value", "key", timestamp_ms=5)
    assert watcher.records == [ProducerRecord(TOPIC, "value", "key", None, None, 5)]
    assert type(watcher.records[0]) is ProducerRecord
    assert seen == [(TOPIC, b"key", b"VALUE", 3, (0, 2))]
    assert future.partition == 2
    assert pairs(engine) == [(b"key", b"VALUE")]
    assert watcher.outcomes == [(TOPIC, 2, 0, None)]
    assert (sender.general, sender.hooked) == ([], [])


def test_serializer_may_send_records_itself():
    engine = Engine()

    def serialize(value):
        if value != "inner":
            sender.send(TOPIC, "inner", headers=[("of", value.encode())])
        return value.encode()

    sender = Sender(engine, value_serializer=serialize)
    sender.send(TOPIC, "a", bytearray(b"key"), headers=[("h", b"1")])
    assert [(r.key, r.value, r.headers) for r in sent_records(engine)] == [
        (None, b"inner", (("of", b"a"),)),
        (b"key", b"a", (("h", b"1"),)),
    ]


def test_serializer_may_close_the_producer():
    engine = Engine()
    before = snapshot(engine)

    def closing(value: object) -> bytes:
        engine.accumulator.close()
        return b"v"

    sender = Sender(engine, value_serializer=closing)
    with pytest.raises(ProducerClosedError):
        sender.send(TOPIC, "a")
    assert snapshot(engine) == before


def test_serializer_may_make_the_topic_smaller():
    engine = Engine(leaders=[1, 1, 1])
    sender = Sender(engine, value_serializer=lambda value: engine.accumulator.set_topic(TOPIC, [1]) and b"v")
    with pytest.raises(InvalidRecordError, match=r"partition=2 of topic 'orders' is outside 0\.\.0"):
        sender.send(TOPIC, "a", partition=2)
    assert sender.send(TOPIC, "a", partition=0).partition == 0


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_interrupt_passes_through_and_queues_nothing(error):
    engine = Engine()
    before = snapshot(engine)

    def interrupted(data):
        raise error

    watcher = Watcher()
    with pytest.raises(error):
        Sender(engine, value_serializer=interrupted, interceptors=[watcher]).send(TOPIC, "a")
    assert snapshot(engine) == before
    assert watcher.outcomes == []


def test_what_a_serializer_returns_is_copied_before_it_can_change():
    engine = Engine()
    buffer = bytearray()

    def reuse(value):
        buffer.clear()  # a BufferError if the record before still held it
        buffer.extend(value.encode())
        return buffer

    sender = Sender(engine, value_serializer=reuse)
    for value in ("one", "two", "three"):
        sender.send(TOPIC, value)
    buffer.clear()
    assert pairs(engine) == [(None, b"one"), (None, b"two"), (None, b"three")]


def test_bytes_with_code_of_their_own_are_taken_as_they_are():
    class Odd(bytes):
        def __len__(self):
            return 1 << 40

        def __iter__(self):
            raise AssertionError

    engine = Engine()
    Sender(engine, value_serializer=lambda value: Odd(value)).send(TOPIC, b"odd")
    assert pairs(engine) == [(None, b"odd")]


def test_headers_are_the_records_own_and_both_serializers_add_to_them():
    engine = Engine()
    mine = [("mine", b"0")]

    class Adding:
        def serialize(self, topic, headers, data):
            headers.append((data, b"1"))
            return data.encode()

    sender = Sender(engine, key_serializer=Adding(), value_serializer=Adding())
    sender.send(TOPIC, "v", "k", mine)
    sender.send(TOPIC, "v", "k")
    sender.send(TOPIC, "v", "k", {"mine": b"0"})
    assert mine == [("mine", b"0")]
    added = (("k", b"1"), ("v", b"1"))
    assert [r.headers for r in sent_records(engine)] == [(*mine, *added), added, (*mine, *added)]


@pytest.mark.parametrize("result", ["text", 5, object()])
def test_refused_record_is_reported_once(result):
    engine = Engine()
    before = snapshot(engine)
    watcher = Watcher()
    sender = Sender(engine, value_serializer=lambda value: result, interceptors=[watcher])
    with pytest.raises(SerializationError, match="expected bytes or None") as caught:
        sender.send(TOPIC, "a", partition=0)
    assert watcher.outcomes == [(TOPIC, 0, -1, caught.value)]
    assert snapshot(engine) == before


def test_record_of_a_topic_that_is_not_known_is_serialized_later():
    calls: list[object] = []
    sender = Sender(Engine(), value_serializer=calls.append)
    sender.send("unknown", "v")
    sender.send(TOPIC, "v", partition=7)
    assert sender.general == [("unknown", "v", None, None, None, None), (TOPIC, "v", None, None, 7, None)]
    watcher = Watcher(topic="elsewhere")
    sender = Sender(Engine(), value_serializer=calls.append, interceptors=[watcher])
    sender.send(TOPIC, "v")
    assert sender.general == []
    assert [(hooked.record.topic, hooked.is_prepared) for hooked in sender.hooked] == [("elsewhere", False)]
    assert len(watcher.records) == 1
    assert calls == []


def test_record_that_finds_no_memory_is_serialized_once():
    engine = Engine(pool_bytes=1024, batch_size=1000)
    calls = []

    def serialize(value):
        calls.append(value)
        return value.encode()

    watcher = Watcher()
    sender = Sender(engine, value_serializer=serialize, interceptors=[watcher])
    assert isinstance(sender.send(TOPIC, "x" * 700), DeliveryFuture)
    sender.send(TOPIC, "y" * 700, timestamp_ms=7)
    (hooked,) = sender.hooked
    assert hooked.is_prepared
    assert hooked.append(0) is None
    assert hooked.need() >= 700
    assert pairs(engine) == [(None, b"x" * 700)]
    assert isinstance(hooked.append(0), DeliveryFuture)
    assert pairs(engine) == [(None, b"y" * 700)]
    assert (len(calls), len(watcher.records)) == (2, 2)


@pytest.mark.parametrize("topic", [5, None, "name"])
def test_interceptor_may_return_any_topic(topic):
    sender = Sender(Engine(), interceptors=[Watcher(topic=topic)])
    sender.send(TOPIC, b"v")
    (hooked,) = sender.hooked
    assert hooked.record.topic == topic


def test_serializer_may_change_the_rows_of_its_block():
    rows = ["a", "b", "c"]

    def shorten(value):
        rows.clear()
        return value.encode()

    serializer = SerializerCall(shorten, "data", "value", "shorten")
    assert serializer.rows("t", None, rows) == [b"a"]


def test_parts_without_their_constructor_do_no_harm():
    for kind in (RecordHooks, InterceptorCalls, SerializerCall, HookedRecord):
        made = kind.__new__(kind)
        for call in ("append", "need", "on_send", "rows", "__call__", "on_acknowledgement"):
            if hasattr(made, call):
                with contextlib.suppress(TypeError, AttributeError, SerializationError):
                    getattr(made, call)(*(["t", [], ["d"]][: 0 if call == "need" else 1 if call != "rows" else 3]))
    for metadata_type in (int, None, list, type("Wide", (tuple,), {})):
        with pytest.raises(TypeError):
            InterceptorCalls([], cast(Any, metadata_type))
