"""Many threads, hostile callbacks, every call against every other: one outcome a record, nothing lost, no hang."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import pytest

from benchmarks.sink import Sink
from kafkaprod import BlockResult, DeliveryFuture, Producer
from kafkaprod.errors import BufferFullError, IllegalStateError, KafkaError, ProducerClosedError
from tests.stress.scale import scaled, wait_until

THREADS = 16


def note(found: Counter[int], item: int, _: object) -> None:
    found[item] += 1


@pytest.fixture(scope="module")
def sink() -> Iterator[Sink]:
    with Sink({"t": 6, "later": 2}, check_crc=True) as sink:
        yield sink
        assert sink.counts().crc_errors == 0


@pytest.fixture
def producer(sink: Sink) -> Iterator[Producer]:
    sink.reset()
    with Producer(bootstrap_servers=sink.bootstrap, linger_ms=1) as producer:
        yield producer
    assert producer.accumulator.pool.in_use == 0
    assert producer.accumulator.pool.refused_release_count == 0


def run_threads(targets: list[Callable[[], None]], timeout_s: float = 60.0) -> None:
    """Run all at once; raise the first exception of any."""
    barrier = threading.Barrier(len(targets))
    errors: list[BaseException] = []

    def run(target: Callable[[], None]) -> None:
        barrier.wait(30)
        try:
            target()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(target,)) for target in targets]
    for thread in threads:
        thread.start()
    end = time.monotonic() + timeout_s
    for thread in threads:
        thread.join(max(end - time.monotonic(), 0))
    assert not [thread for thread in threads if thread.is_alive()], "a thread hangs"
    if errors:
        raise errors[0]


def test_tight_loop_of_sends_is_delivered_once_each(sink: Sink, producer: Producer) -> None:
    count = scaled(300_000, 10_000_000)
    for i in range(count):
        future = producer.send("t", b"x" * 40)
        if i % 1000 == 0:
            future.add_callback(lambda metadata: None)
    producer.flush(60)
    assert sink.counts().records == count


def test_sixteen_threads_share_a_small_buffer(sink: Sink) -> None:
    count = scaled(3000, 100_000)
    sink.reset()
    with Producer(bootstrap_servers=sink.bootstrap, buffer_memory=256 << 10, batch_size=8192) as producer:

        def send() -> None:
            for _ in range(count):
                producer.send("t", b"x" * 300)

        run_threads([send] * THREADS, 300)
        producer.flush(60)
        assert producer.accumulator.pool.waiter_count == 0
    assert sink.counts().records == THREADS * count
    assert producer.accumulator.pool.in_use == 0


def test_threads_that_wait_for_memory_still_fill_their_batches(sink: Sink) -> None:
    """Whoever waited for one who was told and had not run yet would find the next one waiting, for every slab."""
    sink.reset()
    count = scaled(100_000, 1_000_000)
    with Producer(
        bootstrap_servers=sink.bootstrap, buffer_memory=4 << 20, batch_size=1 << 16, linger_ms=1000
    ) as producer:

        def send() -> None:
            for i in range(count):
                producer.send("t", bytes(100), b"%d" % i)

        def answer_when_one_waits() -> None:
            try:
                wait_until(lambda: producer.accumulator.pool.waiter_count > 0, "a thread waits for memory")
            finally:
                os.kill(sink.pid, signal.SIGCONT)

        producer.partitions_for("t")
        os.kill(sink.pid, signal.SIGSTOP)
        run_threads([answer_when_one_waits, *[send] * 4])
        producer.flush()
        metrics = producer.metrics()["producer-metrics"]
    assert sink.counts().records == 4 * count
    assert metrics["bufferpool-wait-time-ns-total"] > 0
    assert metrics["batch-size-avg"] > 1 << 15


def test_every_completion_comes_exactly_once(sink: Sink, producer: Producer) -> None:
    told: Counter[int] = Counter()
    count = scaled(400, 20_000)

    def send(thread: int) -> Callable[[], None]:
        def run() -> None:
            for i in range(count):
                number = thread * count + i
                producer.send("t", b"x").add_done_callback(partial(note, told, number))

        return run

    run_threads([send(thread) for thread in range(THREADS)])
    producer.flush(60)
    assert len(told) == THREADS * count
    assert set(told.values()) == {1}


def raise_error(_: object) -> None:
    raise RuntimeError("from a callback")


def raise_exit(_: object) -> None:
    raise SystemExit(3)


@pytest.mark.parametrize("callback", [raise_error, raise_exit])
def test_callbacks_that_raise_cost_nobody_an_outcome(
    sink: Sink, producer: Producer, callback: Callable[[object], None], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("CRITICAL", "kafkaprod")
    futures = [producer.send("t", b"x") for _ in range(2000)]
    for future in futures:
        future.add_done_callback(callback)
    producer.flush(60)
    assert all(future.succeeded() for future in futures)
    assert producer._engine.ledger.callback_error_count == 2000
    assert sink.counts().records == 2000


def test_callbacks_may_send_but_not_wait(sink: Sink, producer: Producer) -> None:
    outcomes: list[object] = []
    finished = threading.Event()

    def call(function: Callable[[], object]) -> None:
        try:
            outcomes.append(type(function()))
        except Exception as error:
            outcomes.append(type(error))

    def callback(_: DeliveryFuture) -> None:
        sent = producer.send("t", b"from a callback")
        outcomes.append(type(sent))
        call(sent.result)
        call(lambda: sent.exception(timeout=5))
        call(producer.flush)
        call(lambda: producer.send_many("t", [b"x"]))
        call(lambda: producer.send("later", b"unknown yet"))
        finished.set()

    producer.send("t", b"x").add_done_callback(callback)
    assert finished.wait(20)
    producer.flush(20)
    kinds = [each.__name__ for each in outcomes if isinstance(each, type)]
    assert kinds == [
        "DeliveryFuture",
        "IllegalStateError",
        "IllegalStateError",
        "IllegalStateError",
        "BlockResult",
        "DeliveryFuture",
    ]
    producer.send("later", b"x").result(20)


def test_callback_that_meets_a_full_buffer_is_refused_at_once(sink: Sink) -> None:
    with Producer(bootstrap_servers=sink.bootstrap, buffer_memory=64 << 10, batch_size=4096) as producer:
        refused = threading.Event()

        def callback(_: DeliveryFuture) -> None:
            try:
                while True:
                    producer.send("t", b"x" * 4000)
            except BufferFullError:
                refused.set()

        producer.send("t", b"x").add_done_callback(callback)
        assert refused.wait(20)
        producer.flush(20)


def test_callback_that_blocks_holds_up_results_but_loses_none(sink: Sink, producer: Producer) -> None:
    go_on = threading.Event()
    first = producer.send("t", b"x")
    first.add_done_callback(lambda _: go_on.wait(20))
    first.result(20)
    futures = [producer.send("t", b"x") for _ in range(100)]
    with pytest.raises(TimeoutError):
        futures[0].result(0.05)
    with pytest.raises(TimeoutError):
        producer.flush(0.05)
    go_on.set()
    producer.flush(20)
    assert all(future.succeeded() for future in futures)


def test_flush_waits_for_the_callbacks_of_the_last_batch(sink: Sink, producer: Producer) -> None:
    began, go_on = threading.Event(), threading.Event()

    def hold_up(_: object) -> None:
        began.set()
        go_on.wait(60)

    producer.send("t", b"x").add_done_callback(hold_up)
    assert began.wait(20)
    assert producer.accumulator.incomplete_batch_count == 0
    with pytest.raises(TimeoutError, match=r"hold_up\(\)"):
        producer.flush(0.01)
    go_on.set()
    producer.flush(20)


def test_close_in_a_callback_ends_the_producer(sink: Sink) -> None:
    producer = Producer(bootstrap_servers=sink.bootstrap)
    producer.send("t", b"x").add_done_callback(lambda _: producer.close())
    producer._host._thread.join(20)
    assert not producer._host._thread.is_alive()
    with pytest.raises(ProducerClosedError):
        producer.send("t", b"x")
    producer.close()
    assert producer.accumulator.pool.in_use == 0


def test_close_of_a_callback_that_hangs_returns(sink: Sink) -> None:
    producer = Producer(bootstrap_servers=sink.bootstrap)
    began, go_on = threading.Event(), threading.Event()

    def hang(_: DeliveryFuture) -> None:
        began.set()
        go_on.wait(60)

    producer.send("t", b"x").add_done_callback(hang)
    assert began.wait(20)
    with pytest.raises(TimeoutError, match=r"it runs test_close_of_a_callback_that_hangs_returns.<locals>.hang\(\)"):
        producer.close(0)
    go_on.set()
    producer.close(20)
    assert not producer._host._thread.is_alive()


def send_records(producer: Producer, kept: list[DeliveryFuture]) -> None:
    while True:
        kept.append(producer.send("t", b"x" * 50))


def send_blocks(producer: Producer, kept: list[BlockResult]) -> None:
    rows = [b"x" * 50] * 300
    while True:
        kept.append(producer.send_many("t", rows))


def send_columns(producer: Producer, kept: list[BlockResult]) -> None:
    offsets = np.arange(0, 50 * 5001, 50, dtype=np.int32)
    data = bytes(50 * 5000)
    while True:
        kept.append(producer.send_columns("t", (offsets, data)))


@pytest.mark.parametrize("timeout", [0, 0.02, None])
@pytest.mark.parametrize("buffer_memory", [256 << 10, 32 << 20])
def test_close_against_send_and_flush_of_sixteen_threads(
    sink: Sink, timeout: float | None, buffer_memory: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("CRITICAL", "kafkaprod")
    for _ in range(scaled(4, 1700)):
        sink.reset()
        producer = Producer(bootstrap_servers=sink.bootstrap, buffer_memory=buffer_memory, batch_size=16384)
        producer.partitions_for("t")
        futures: list[list[DeliveryFuture]] = [[] for _ in range(7)]
        blocks: list[list[BlockResult]] = [[] for _ in range(4)]
        closers = threading.Barrier(3)

        def until_closed(call: Callable[[], object]) -> Callable[[], None]:
            def run() -> None:
                try:
                    call()
                except ProducerClosedError:
                    return

            return run

        def flush() -> None:
            while True:
                try:
                    producer.flush(5)  # noqa: B023
                except (KafkaError, RuntimeError, TimeoutError) as error:  # sixteen busy threads: 5 s may be too short
                    if isinstance(error, ProducerClosedError):
                        raise

        def close() -> None:
            while sum(map(len, futures)) < 50:  # noqa: B023
                time.sleep(0.001)
            closers.wait(20)  # noqa: B023
            # Among sixteen busy threads the sender may not get done with 32 MiB of records within close()'s second.
            with contextlib.suppress(TimeoutError):
                producer.close(timeout)  # noqa: B023
            producer._host._thread.join(30)  # noqa: B023
            assert not producer._host._thread.is_alive()  # noqa: B023

        run_threads(
            [
                *(until_closed(partial(send_records, producer, kept)) for kept in futures),
                *(until_closed(partial(send_blocks, producer, kept)) for kept in blocks[:2]),
                *(until_closed(partial(send_columns, producer, kept)) for kept in blocks[2:]),
                *[until_closed(flush)] * 2,
                *[close] * 3,
            ]
        )
        for future in [future for kept in futures for future in kept]:
            assert future.done()
        for block in [block for kept in blocks for block in kept]:
            assert block.done()
            assert not (block.error_codes == -3).any()
        assert producer.accumulator.incomplete_batch_count == 0
        assert producer.accumulator.pool.in_use == 0
        assert producer.accumulator.pool.waiter_count == 0


def test_flush_in_a_callback_is_refused(sink: Sink, producer: Producer) -> None:
    errors: list[BaseException] = []

    def callback(_: DeliveryFuture) -> None:
        try:
            producer.flush()
        except IllegalStateError as error:
            errors.append(error)

    producer.send("t", b"x").add_done_callback(callback)
    producer.flush(20)
    assert len(errors) == 1
