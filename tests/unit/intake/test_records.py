"""The intake alone: no thread runs, what is missing comes out as steps."""

from __future__ import annotations

import ast
import contextlib
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkaprod import AsyncProducer, Producer
from kafkaprod._core.queues import send_path
from kafkaprod._core.queues.send_path import RecordSender
from kafkaprod.clock import SystemClock
from kafkaprod.config import ProducerConfig
from kafkaprod.engine.engine import Engine
from kafkaprod.engine.host import EngineHost
from kafkaprod.engine.steps import run
from kafkaprod.errors import BufferFullError, IllegalStateError, InvalidRecordError
from kafkaprod.intake.blocks import BlockIntake
from kafkaprod.intake.records import Intake


class Note:
    """A waiter that only counts."""

    def __init__(self) -> None:
        self.woken = 0

    def wake(self) -> None:
        self.woken += 1

    def __call__(self) -> None:
        self.wake()

    def start_with(self, start: Callable[[], None]) -> None:
        start()


class Place:
    def __init__(self, **options: Any) -> None:
        config = ProducerConfig.from_options({"bootstrap_servers": "127.0.0.1:1", "linger_ms": 0, **options})
        self.engine = Engine(config, SystemClock())
        self.host = EngineHost(self.engine)
        self.intake = Intake(self.host)
        self.notes: list[Note] = []

    def make_waiter(self) -> Note:
        self.notes.append(Note())
        return self.notes[-1]

    def metric(self, name: str) -> float:
        return float(self.engine.snapshot()["producer-metrics"][name])


@pytest.fixture
def place() -> Iterator[Place]:
    place = Place(max_block_ms=60_000, buffer_memory=64 << 10, batch_size=16384)
    yield place
    place.engine.node_pool.close()


def send(place: Place, *record: Any) -> Any:
    """What the faces do, with the steps not run."""
    call = place.intake.begin(record)
    future = place.intake.attempt(call)
    return place.intake.finish(call, place.make_waiter) if future is None else future


def test_record_that_misses_nothing_takes_no_step(place: Place) -> None:
    place.engine.accumulator.set_topic("t", [-1])
    assert send(place, "t", b"v").partition == 0
    assert place.notes == []


def test_unknown_topic_is_requested_and_waited_for(place: Place) -> None:
    steps = send(place, "t", b"v")
    waiter, patience_s = next(steps)
    assert 0 < patience_s <= 60
    assert place.engine.topic_watch.take_wanted() == ["t"]
    place.engine.accumulator.set_topic("t", [-1])
    place.engine.topic_watch.tell({}, {})
    assert waiter.woken == 1
    with pytest.raises(StopIteration):
        steps.send(True)
    assert not place.engine.topic_watch._waiters
    assert place.metric("metadata-wait-time-ns-total") > 0


def test_full_buffer_is_waited_for_in_line_and_left_when_the_steps_are_closed(place: Place) -> None:
    place.engine.accumulator.set_topic("t", [-1])
    pool = place.engine.accumulator.pool
    while not hasattr(steps := send(place, "t", b"x" * 10_000), "send"):
        pass
    next(steps)
    assert pool.waiter_count == 1
    steps.close()
    assert pool.waiter_count == 0
    assert place.metric("buffer-exhausted-total") == 0, "it was not refused, only given up"


def test_error_names_the_node_that_holds_all_that_it_can_deliver() -> None:
    place = Place(max_block_ms=0, buffer_memory=1 << 20, batch_size=16384)
    place.engine.accumulator.set_topic("t", [3])
    place.engine.accumulator.pool.set_limit(3, 4096)
    message = (
        r"4096 of buffer_memory=1048576 bytes in use, most by t\[0\] on node 3: 4096 bytes in 1 batches; "
        r"node 3 holds 4096 of the 4096 bytes that it may: what it delivers in a quarter of delivery_timeout_ms, "
        r"and no more than leaves room for other nodes. Send less"
    )
    with pytest.raises(BufferFullError, match=message):  # noqa: PT012  (how many find room does not matter)
        for _ in range(100):
            place.intake.send_blocking("t", b"x" * 100)
    place.engine.node_pool.close()


def test_error_names_the_quota_that_holds_the_producer_back() -> None:
    place = Place(max_block_ms=0, buffer_memory=1 << 20, batch_size=16384)
    place.engine.accumulator.set_topic("t", [3])
    place.engine.sender.states.on_throttle(3, 4_000, place.engine.clock.now_ms())
    message = (
        r"; node 3 throttles: a quota holds this producer back; its records hold \d+ bytes. Send less, or find out why "
        r"these partitions are slow"
    )
    with pytest.raises(BufferFullError, match=message):  # noqa: PT012  (how many find room does not matter)
        for _ in range(200):
            place.intake.send_blocking("t", b"x" * 10_000)
    place.engine.node_pool.close()


@pytest.mark.parametrize("verb", ["send", "send_many"])
def test_records_refused_for_lack_of_memory_are_counted(verb: str) -> None:
    place = Place(max_block_ms=0, buffer_memory=64 << 10, batch_size=16384)
    place.engine.accumulator.set_topic("t", [-1])
    blocks = BlockIntake(place.intake, place.host)
    calls: dict[str, Callable[[], Any]] = {
        "send": lambda: place.intake.send_blocking("t", b"x" * 10_000),
        "send_many": lambda: run(blocks.send_many("t", [b"x" * 10_000] * 3)),
    }
    for _ in range(8):
        with contextlib.suppress(BufferFullError):
            calls[verb]()
    with pytest.raises(BufferFullError):
        calls[verb]()
    assert place.metric("buffer-exhausted-total") >= 1
    assert place.metric("bufferpool-wait-time-ns-total") > 0
    place.engine.node_pool.close()


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ((5, b"v"), "topic must be str"),
        (("t", b"v", None, None, -1), "partition=-1"),
        (("no such!", b"v"), "is not a legal name"),
    ],
)
def test_wrong_record_is_refused_before_any_wait(place: Place, record: Any, message: str) -> None:
    with pytest.raises(InvalidRecordError, match=message):
        send(place, *record)


def test_subclass_that_forgets_init_is_refused_and_does_not_crash() -> None:
    class Forgetful(Producer):
        def __init__(self) -> None:
            pass

    producer = Forgetful()
    for call in (producer.send, producer.try_send):
        with pytest.raises(IllegalStateError, match=r"Forgetful\.__init__\(\) has not run"):
            call("t", b"v")


@pytest.mark.parametrize("kind", [Producer, AsyncProducer])
def test_producer_cannot_be_pickled_and_says_what_to_do(kind: Any) -> None:
    import copy
    import pickle

    producer = kind(bootstrap_servers="127.0.0.1:1")
    for call in (pickle.dumps, copy.deepcopy, copy.copy):
        with pytest.raises(TypeError, match="make one in each process or task"):
            call(producer)
    producer._host._begin_close(0)


def stub_parameters(name: str) -> list[str]:
    """The parameters of a method of RecordSender in its stub, with their defaults."""
    source = Path(send_path.__file__).with_name("send_path.pyi").read_text()
    (method,) = (
        node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef) and node.name == name
    )
    defaults = [ast.unparse(default) for default in method.args.defaults]
    names = [argument.arg for argument in method.args.args]
    return [*names[: -len(defaults)], *(f"{n}={d}" for n, d in zip(names[-len(defaults) :], defaults, strict=True))]


def parameters(function: Any) -> list[str]:
    return [str(each.replace(annotation=each.empty)) for each in inspect.signature(function).parameters.values()]


def test_send_has_the_same_signature_wherever_it_is_written() -> None:
    signature = parameters(Producer.send)
    for written in (RecordSender.try_send, AsyncProducer.send, AsyncProducer.send_and_wait):
        assert parameters(written) == signature
    assert stub_parameters("send") == stub_parameters("try_send") == signature
    hints = [str(inspect.signature(each).parameters) for each in (AsyncProducer.send, AsyncProducer.send_and_wait)]
    assert hints[0] == hints[1]


def test_blocks_of_an_async_producer_have_the_signatures_of_a_producers() -> None:
    for name in ("send_many", "send_columns", "send_table"):
        assert inspect.signature(getattr(AsyncProducer, name)) == inspect.signature(getattr(Producer, name))


def test_a_callback_that_finds_no_memory_hears_that_it_cannot_wait(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.engine.accumulator.set_topic("t", [-1])
    monkeypatch.setattr(EngineHost, "is_in_callback", True)
    with pytest.raises(BufferFullError, match=r"no memory .* now, for which a delivery callback cannot wait: "):  # noqa: PT012
        while True:
            place.intake.send_blocking("t", b"x" * 10_000, None, None, None, None)
