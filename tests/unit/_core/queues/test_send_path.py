"""The compiled send: plain bytes go straight in, everything else to the general path."""

import time

import pytest

from kafkaprod._core.queues.record_hooks import RecordHooks, SerializerCall
from kafkaprod._core.queues.send_path import RecordSender
from kafkaprod.errors import InvalidRecordError, ProducerClosedError, RecordTooLargeError
from tests.support.core.core_engine import TOPIC, Engine, sent_records, snapshot


class Sender(RecordSender):
    """Notes what the fast path leaves to the general one."""

    def __init__(self, engine, hooks=None):
        super().__init__(engine.accumulator, self.take, hooks, self.take)
        self.general = []

    def take(self, *arguments):
        self.general.append(arguments)
        return "general"


def test_plain_bytes_go_straight_in():
    engine = Engine(leaders=[1, 1, 1])
    sender = Sender(engine)
    future = sender.send(TOPIC, b"v", b"k", partition=2, timestamp_ms=77)
    assert (future.partition, sender.general) == (2, [])
    assert sent_records(engine) == [(b"k", b"v", (), 77)]


def test_buffers_and_headers_go_straight_in_too():
    engine = Engine()
    sender = Sender(engine)
    sender.send(TOPIC, bytearray(b"v"), memoryview(b"k"), [("h", None)], timestamp_ms=1)
    sender.send(TOPIC, None, headers={"h": b"x"}, timestamp_ms=2)
    assert sender.general == []
    assert sent_records(engine) == [(b"k", b"v", (("h", None),), 1), (None, None, (("h", b"x"),), 2)]


def test_record_without_timestamp_gets_the_time_of_day():
    engine = Engine()
    before = time.time_ns() // 1_000_000
    Sender(engine).send(TOPIC, b"v")
    (record,) = sent_records(engine)
    # The clock that is read is up to a kernel tick behind.
    assert before - 20 <= record.timestamp <= time.time_ns() // 1_000_000 + 1


def test_batch_made_by_send_lingers_from_now():
    engine = Engine()
    Sender(engine).send(TOPIC, b"v")
    now_ms = time.monotonic_ns() // 1_000_000
    assert engine.drain.ready((now_ms - 1000) * 1000)[0] == []
    assert engine.drain.ready((now_ms + 1000) * 1000)[0] == [1]


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        (("unknown topic", b"v"), {}),
        ((TOPIC, b"v"), {"partition": 7}),
    ],
)
def test_what_is_not_plain_goes_the_general_way(arguments, options):
    engine = Engine()
    sender = Sender(engine)
    before = snapshot(engine)
    assert sender.send(*arguments, **options) == "general"
    assert len(sender.general) == 1
    assert snapshot(engine) == before


def test_try_send_takes_no_record_that_hooks_must_see():
    sender = Sender(Engine(), RecordHooks(value_serializer=SerializerCall(str.encode, "data", "value", "encode")))
    assert sender.try_send(TOPIC, "v") is None
    assert sender.general == []


def test_full_pool_goes_the_general_way():
    engine = Engine(pool_bytes=1024, batch_size=1000)
    sender = Sender(engine)
    sender.send(TOPIC, b"x" * 700)
    assert sender.send(TOPIC, b"x" * 700) == "general"


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"value": b"x" * 3000}, RecordTooLargeError, "exceeds 2000 bytes"),
        ({"value": "text"}, InvalidRecordError, "value must be bytes-like"),
        ({"value": b"v", "key": 5}, InvalidRecordError, "key must be bytes-like"),
        ({"value": b"v", "headers": [("h", 5)]}, InvalidRecordError, r"headers\[0\] value"),
        ({"partition": -1}, InvalidRecordError, "partition=-1 is outside"),
        ({"partition": 2**40}, InvalidRecordError, "partition=1099511627776 is outside"),
        ({"partition": "one"}, InvalidRecordError, "partition must be int or None, not str"),
        ({"timestamp_ms": -1}, InvalidRecordError, "timestamp_ms=-1 is outside"),
        ({"timestamp_ms": 2**70}, InvalidRecordError, "timestamp_ms=1180591620717411303424 is outside"),
        ({"timestamp_ms": "now"}, InvalidRecordError, "timestamp_ms must be int or None, not str"),
        ({"topic": 5}, TypeError, "topic"),
        ({"topic": None}, TypeError, "topic"),
    ],
)
def test_wrong_record_is_refused(options, error, message):
    engine = Engine(max_record_bytes=2000)
    before = snapshot(engine)
    with pytest.raises(error, match=message):
        Sender(engine).send(**{"topic": TOPIC, **options})
    assert snapshot(engine) == before


class Turncoat:
    """A number that is 0 when it is checked, and another one if it is converted again."""

    def __init__(self, first=0, later=-3):
        self.answers = [first, later]

    def __index__(self):
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    def __int__(self):
        return -3


@pytest.mark.parametrize("name", ["send", "try_send"])
def test_partition_and_timestamp_are_converted_once(name):
    engine = Engine()
    future = getattr(Sender(engine), name)(TOPIC, b"v", partition=Turncoat(), timestamp_ms=Turncoat(5))
    assert future.partition == 0
    assert [record.timestamp for record in sent_records(engine)] == [5]


def test_closed_accumulator_leaves_it_to_the_general_way_to_say_why():
    engine = Engine()
    engine.accumulator.close()
    assert Sender(engine).send(TOPIC, b"v") == "general"
    with pytest.raises(ProducerClosedError):
        engine.append(b"v")
