"""Results people hold: waiting, callbacks, splits, blocks, several event loops, failures nobody looked at."""

from __future__ import annotations

import array
import asyncio
import contextvars
import gc
import threading
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from kafkaprod._core.columns.columns import Column, Headers
from kafkaprod._core.machine.waking import Waiter
from kafkaprod._core.queues.blocks import Block
from kafkaprod._core.queues.completion import DeliveryFuture, ResultMaker
from kafkaprod._core.requests.split import split_batch
from kafkaprod.errors import BrokerError, BufferFullError, ForkedProducerError, IllegalStateError, KafkaError
from kafkaprod.protocol.error_codes import error_for
from kafkaprod.results.batch import MAX_UNSEEN_BATCHES, BatchCompletion, FailureLedger, WaitGuard
from kafkaprod.results.block import CLIENT_ERROR, PENDING, BlockResult
from kafkaprod.results.record_wait import RecordWait, end_waits
from tests.support.core.core_engine import TOPIC, Engine, only_ref, succeed

REFUSED = BrokerError("refused", code=87, name="INVALID_RECORD")


def note(found: list[int], item: int, _: object) -> None:
    found.append(item)


class Place(Engine):
    """The core with the completions of a producer."""

    def __init__(self, **options: Any) -> None:
        self.ledger = FailureLedger()
        self.guard = WaitGuard()
        make: Any = partial(BatchCompletion, ledger=self.ledger, guard=self.guard)
        super().__init__(**{"leaders": [1, 1], "linger_ms": 0, "make_result": make, **options})

    def block(self, values: list[bytes], partitions: list[int]) -> Block:
        return Block(
            self.accumulator,
            self.accumulator.topics[TOPIC],
            Column.from_list(values, "values"),
            None,
            Headers.from_python(None),
            None,
            None,
            0,
            array.array("i", partitions),
            -1,
        )

    def queued(self, values: list[bytes], partitions: list[int]) -> BlockResult:
        block = self.block(values, partitions)
        assert block.run(self.now_ms)
        return BlockResult(block)

    def fail(self, error: Exception = REFUSED, record_errors: dict[int, Exception] | None = None) -> None:
        request = self.take()
        for ref in request.refs():
            ref.fail(error, record_errors)
        request.finish()

    def split(self) -> None:
        """Split the one batch that is ready into single records or so."""
        request = self.take()
        split_batch(only_ref(request), 1)
        request.finish()


def test_offsets_of_a_block_count_from_its_place_in_the_batch() -> None:
    engine = Place()
    engine.append(b"before", 0)
    result = engine.queued([b"a", b"b"], [0, 0])
    succeed(engine.take(), 10)
    assert result.offsets.tolist() == [11, 12]
    assert result.ends() == {0: 13}


def test_batch_counts_as_unpublished_until_its_failure_is_in_the_ledger(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a flush() in between would find nothing to wait for and no failure to raise."""
    place = Place()
    counts: list[tuple[int, int]] = []

    def add(_: BatchCompletion) -> None:
        counts.append((place.accumulator.incomplete_batch_count, place.accumulator.unpublished_batch_count))

    monkeypatch.setattr(place.ledger, "add", add)
    place.append(b"v")
    assert place.accumulator.unpublished_batch_count == 1
    place.fail()
    assert counts == [(0, 1)]
    assert place.accumulator.unpublished_batch_count == 0


def in_thread(call: Any) -> tuple[threading.Thread, list[Any]]:
    out: list[Any] = []

    def run() -> None:
        try:
            out.append(call())
        except BaseException as error:
            out.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, out


def until_waited_for(future_or_batch: BatchCompletion, count: int = 1) -> None:
    for _ in range(20_000):
        if len(future_or_batch._waiters or ()) >= count:
            return
        threading.Event().wait(0.0005)
    raise AssertionError("nobody waits")


def test_collector_hears_of_a_result_when_something_is_attached_that_could_be_part_of_a_cycle() -> None:
    make = ResultMaker(BatchCompletion, FailureLedger(), WaitGuard())
    attach: list[Callable[[Any], object]] = [lambda it: it.add_listener(print), lambda it: it.add_waiter(Waiter())]
    for each in attach:
        result = make("t", 3)
        assert isinstance(result, BatchCompletion)
        assert (result.topic, result.partition, result.base_offset) == ("t", 3, -1)
        assert not gc.is_tracked(result)
        each(result)
        assert gc.is_tracked(result)


def test_failed_result_in_a_cycle_with_its_error_is_collected() -> None:
    place = Place()
    result = place.queued([b"v"], [0])._row_runs[0][0]
    error = BrokerError("refused", code=87)
    error.batch = result  # type: ignore[attr-defined]
    gone = weakref.ref(error)
    place.fail(error)
    assert result.error is error
    del place, result, error
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("kind", [dict, type("Own", (BatchCompletion,), {"__init__": lambda self: None})])
def test_result_maker_refuses_what_it_would_not_construct_rightly(kind: type[Any]) -> None:
    with pytest.raises(TypeError, match="no subclass of BatchResult, or has a constructor"):
        ResultMaker(kind)


class TestWaiting:
    def test_result_waits_until_the_batch_is_settled(self) -> None:
        place = Place()
        future = place.append(b"v")
        (segment,) = place.queued([b"w"], [0])._row_runs
        thread, out = in_thread(lambda: future.result(10))
        until_waited_for(segment[0])
        succeed(place.take(), 5)
        thread.join(10)
        assert out[0].offset == 5

    def test_all_who_wait_for_a_batch_are_woken(self) -> None:
        place = Place()
        result = place.queued([b"v"] * 8, [0] * 8)
        waits = [in_thread(lambda: result.wait(10)) for _ in range(8)]
        until_waited_for(result._row_runs[0][0], 8)
        succeed(place.take())
        for thread, out in waits:
            thread.join(10)
            assert out == [True]

    def test_wait_that_ends_in_vain_leaves_nothing_behind(self) -> None:
        place = Place()
        result = place.queued([b"v"], [0])
        for _ in range(10):
            assert not result.wait(0.001)
        assert result._row_runs[0][0]._waiters == []

    @pytest.mark.parametrize("timeout", [0, -1, -0.5])
    def test_timeout_that_is_over_does_not_wait(self, timeout: float) -> None:
        future = Place().append(b"v")
        with pytest.raises(TimeoutError, match=r"orders\[0\]"):
            future.result(timeout)

    def test_timeout_of_any_size_is_accepted(self) -> None:
        place = Place()
        future = place.append(b"v")
        thread, out = in_thread(lambda: future.result(1e300))
        succeed(place.take(), 1)
        thread.join(10)
        assert out[0].offset == 1

    def test_failed_record_raises_its_own_error(self) -> None:
        place = Place()
        futures = [place.append(b"v") for _ in range(3)]
        own = BrokerError("row 1", code=87)
        place.fail(record_errors={1: own})
        assert repr([future.exception(0) for future in futures]) == repr([REFUSED, own, REFUSED])

    def test_wait_inside_a_callback_is_refused_but_a_look_is_not(self) -> None:
        place = Place()
        pending = place.append(b"v", 1)
        place.guard.thread_id = threading.get_ident()
        with pytest.raises(IllegalStateError):
            pending.result()
        with pytest.raises(IllegalStateError):
            pending.exception(5)
        with pytest.raises(TimeoutError):
            pending.result(0)

    def test_wait_in_a_forked_child_is_refused(self) -> None:
        place = Place()
        future = place.append(b"v")
        place.guard.is_forked = True
        with pytest.raises(ForkedProducerError):
            future.result()


class TestCallbacks:
    def test_callback_is_called_once_with_the_future(self) -> None:
        place = Place()
        future = place.append(b"v")
        told: list[DeliveryFuture] = []
        future.add_done_callback(told.append)
        succeed(place.take())
        assert told == [future]
        future.add_done_callback(told.append)
        assert told == [future, future]

    def test_callbacks_come_in_order_and_each_is_freed_before_the_next(self) -> None:
        place = Place()
        told: list[DeliveryFuture] = []
        freed: list[int] = []
        freed_before: list[int] = []

        def made(number: int) -> Callable[[DeliveryFuture], None]:
            def callback(future: DeliveryFuture) -> None:
                told.append(future)
                freed_before.append(len(freed))

            weakref.finalize(callback, freed.append, number)
            return callback

        futures = [place.append(b"v") for _ in range(100)]
        for number, future in enumerate(futures):
            future.add_done_callback(made(number))
        succeed(place.take())
        assert told == futures
        assert freed_before == list(range(100))
        assert freed == list(range(100))

    @pytest.mark.parametrize("error", [RuntimeError("mine"), SystemExit(3), KeyboardInterrupt()])
    def test_callback_that_raises_is_counted_and_the_others_are_called(
        self, error: BaseException, caplog: pytest.LogCaptureFixture
    ) -> None:
        place = Place()
        told: list[int] = []

        def raise_error(_: DeliveryFuture) -> None:
            raise error

        for i in range(3):
            future = place.append(b"v")
            future.add_done_callback(raise_error)
            future.add_done_callback(partial(note, told, i))
        succeed(place.take())
        assert told == [0, 1, 2]
        assert place.ledger.callback_error_count == 3
        assert "a delivery callback for orders[0] raised" in caplog.text

    def test_kafka_python_s_callbacks_get_the_metadata_or_the_error(self) -> None:
        place = Place()
        told: list[Any] = []
        good, bad = place.append(b"v", 0), place.append(b"v", 1)
        for future in (good, bad):
            assert future.add_callback(lambda tag, metadata: told.append((tag, metadata.partition)), "ok") is future
            assert future.add_errback(lambda error: told.append(error)) is future
        request = place.take()
        first, second = request.refs()
        first.succeed(3)
        second.fail(REFUSED)
        request.finish()
        assert repr(told) == repr([("ok", 0), REFUSED])

    def test_callback_of_a_record_in_a_split_batch_waits_for_its_own_part(self) -> None:
        place = Place(leaders=[1])
        futures = [place.append(bytes(100)) for _ in range(4)]
        told: list[int] = []
        for i, future in enumerate(futures):
            future.add_done_callback(partial(note, told, i))
        place.split()
        assert told == []
        offset = 0
        while (request := place.drain.drain(1, place.now_ms)) is not None:
            count = only_ref(request).record_count
            succeed(request, offset)
            offset += count
            assert told == list(range(offset))
        assert [future.result(0).offset for future in futures] == [0, 1, 2, 3]


class TestBlocks:
    def test_rows_have_the_offsets_of_their_partitions(self) -> None:
        place = Place()
        result = place.queued([b"%d" % i for i in range(6)], [0, 1, 0, 1, 1, 0])
        assert not result.done()
        assert result.error_codes.tolist() == [PENDING] * 6
        request = place.take()
        for ref, base in zip(request.refs(), (100, 200), strict=True):
            ref.succeed(base, 55)
        request.finish()
        assert result.result(0) is result
        assert result.partitions.tolist() == [0, 1, 0, 1, 1, 0]
        assert result.offsets.tolist() == [100, 200, 101, 201, 202, 102]
        assert result.timestamps.tolist() == [55] * 6
        assert (result.failed_count, result.errors, len(result)) == (0, {}, 6)

    def test_failed_rows_have_code_and_error(self) -> None:
        place = Place()
        result = place.queued([b"a", b"b", b"c", b"d"], [0, 1, 0, 1])
        request = place.take()
        first, second = request.refs()
        first.succeed(7)
        second.fail(REFUSED, {1: KafkaError("row 3")})
        request.finish()
        assert result.error_codes.tolist() == [0, 87, 0, CLIENT_ERROR]
        assert result.offsets.tolist() == [7, -1, 8, -1]
        assert repr(place.ledger.take()) == repr((2, KafkaError("row 3")))  # the broker named it
        assert {row: str(error) for row, error in result.errors.items()} == {1: "refused", 3: "row 3"}
        assert result.failed_count == 2
        with pytest.raises(KafkaError, match="row 3"):
            result.result(0)

    @pytest.mark.parametrize("code", [10, 29, 87])
    def test_failed_rows_have_the_brokers_code_whatever_the_class_of_the_error(self, code: int) -> None:
        place = Place()
        result = place.queued([b"a", b"b"], [0, 0])
        request = place.take()
        only_ref(request).fail(error_for(code, topic=TOPIC, partition=0))
        request.finish()
        assert result.error_codes.tolist() == [code, code]

    def test_split_leaves_rows_where_they_are(self) -> None:
        place = Place(leaders=[1])
        result = place.queued([bytes(100) for _ in range(5)], [0] * 5)
        place.split()
        assert not result.done()
        offset = 10
        while (request := place.drain.drain(1, place.now_ms)) is not None:
            count = only_ref(request).record_count
            succeed(request, offset)
            offset += count
        assert result.done()
        assert result.offsets.tolist() == [10, 11, 12, 13, 14]

    def test_block_that_was_cut_short_names_the_rows_that_got_in(self) -> None:
        place = Place(leaders=[1], pool_bytes=8192, batch_size=1024)
        block = place.block([bytes(900) for _ in range(20)], [0] * 20)
        assert not block.run(place.now_ms)
        accepted = block.rows_appended
        assert 0 < accepted < 20
        full = BufferFullError("full")
        result = BlockResult(block).refuse_rest(full)
        for request in place.take_all():
            succeed(request, 0)
        codes = result.error_codes.tolist()
        assert codes == [0] * accepted + [CLIENT_ERROR] * (20 - accepted)
        assert list(result.errors) == list(range(accepted, 20))
        with pytest.raises(BufferFullError):
            result.result(0)

    def test_callback_comes_once_after_the_last_batch(self) -> None:
        place = Place()
        result = place.queued([b"a", b"b"], [0, 1])
        told: list[BlockResult] = []
        result.add_done_callback(told.append)
        request = place.take()
        first, second = request.refs()
        second.succeed(0)
        assert told == []
        first.succeed(0)
        request.finish()
        assert told == [result]

    def test_block_without_rows_is_done(self) -> None:
        result = Place().queued([], [])
        assert result.done()
        assert result.result(0).offsets.tolist() == []


class TestAsyncio:
    async def test_many_tasks_await_records_of_one_batch(self) -> None:
        place = Place()
        futures = [place.append(b"v") for _ in range(50)]

        async def outcome(future: DeliveryFuture) -> int:
            return int((await future).offset)

        tasks = [asyncio.create_task(outcome(future)) for future in futures]
        await asyncio.sleep(0)
        await asyncio.to_thread(succeed, place.take(), 0)
        assert await asyncio.gather(*tasks) == list(range(50))

    async def test_cancelled_task_leaves_the_others_waiting(self) -> None:
        place = Place()
        cancelled, other = (asyncio.ensure_future(place.append(b"v")) for _ in range(2))
        await asyncio.sleep(0)
        cancelled.cancel("enough")
        with pytest.raises(asyncio.CancelledError, match="enough"):
            await cancelled
        assert not other.done()
        await asyncio.to_thread(succeed, place.take(), 3)
        assert (await other).offset == 4

    async def test_timeout_ends_a_wait(self) -> None:
        place = Place()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(place.append(b"v"), 0.001)
        await asyncio.to_thread(succeed, place.take(), 0)

    async def test_task_cancels_another_that_waits_for_the_same_batch(self) -> None:
        place = Place()
        futures = [place.append(b"v") for _ in range(2)]

        async def first() -> int:
            offset = (await futures[0]).offset
            assert other.cancel()
            return int(offset)

        task = asyncio.create_task(first())
        other = asyncio.ensure_future(futures[1])
        await asyncio.sleep(0)
        await asyncio.to_thread(succeed, place.take(), 7)
        assert await task == 7
        with pytest.raises(asyncio.CancelledError):
            await other

    async def test_task_continues_in_its_own_context(self) -> None:
        place = Place()
        futures = [place.append(b"v") for _ in range(2)]
        name: contextvars.ContextVar[int] = contextvars.ContextVar("name")

        async def wait(number: int) -> int:
            name.set(number)
            await futures[number]
            return name.get()

        tasks = [asyncio.create_task(wait(number)) for number in range(2)]
        await asyncio.sleep(0)
        await asyncio.to_thread(succeed, place.take(), 0)
        assert await asyncio.gather(*tasks) == [0, 1]

    async def test_exit_in_one_task_leaves_none_waiting(self) -> None:
        """Ctrl-C and sys.exit() leave the loop at once; the other tasks go on when it runs again."""
        place = Place()
        loop = asyncio.get_running_loop()
        futures = [place.append(b"v") for _ in range(2)]
        waits = [RecordWait(loop, future) for future in futures]
        continued: list[RecordWait] = []

        def leave(_: RecordWait) -> None:
            raise SystemExit

        waits[0].add_done_callback(leave)
        waits[1].add_done_callback(continued.append)
        with pytest.raises(SystemExit):
            end_waits(waits)
        await asyncio.sleep(0)
        assert continued == [waits[1]]
        await asyncio.to_thread(succeed, place.take(), 0)

    async def test_error_is_raised_in_the_task(self) -> None:
        place = Place()
        future = place.append(b"v")
        waiting = asyncio.ensure_future(future)
        await asyncio.sleep(0)
        await asyncio.to_thread(place.fail)
        with pytest.raises(BrokerError, match="refused"):
            await waiting

    async def test_split_batch_is_awaited_to_its_parts(self) -> None:
        place = Place(leaders=[1])
        futures = [place.append(bytes(100)) for _ in range(4)]
        tasks = [asyncio.ensure_future(future) for future in futures]
        await asyncio.sleep(0)
        place.split()
        await asyncio.sleep(0)
        offset = 0
        while (request := place.drain.drain(1, place.now_ms)) is not None:
            count = only_ref(request).record_count
            succeed(request, offset)
            offset += count
        assert [(await task).offset for task in tasks] == [0, 1, 2, 3]

    async def test_block_is_awaited(self) -> None:
        place = Place()
        result = place.queued([b"a", b"b"], [0, 1])
        task = asyncio.ensure_future(result)
        await asyncio.sleep(0)
        await asyncio.to_thread(succeed, place.take(), 9)
        assert (await task).offsets.tolist() == [9, 9]

    def test_several_loops_await_the_same_record(self) -> None:
        place = Place()
        future = place.append(b"v")
        ready = threading.Barrier(4)

        def run() -> int:
            async def wait() -> int:
                waiting = asyncio.ensure_future(future)
                await asyncio.sleep(0)
                ready.wait(10)
                return int((await waiting).offset)

            return asyncio.run(wait())

        waits = [in_thread(run) for _ in range(3)]
        ready.wait(10)
        succeed(place.take(), 4)
        for thread, out in waits:
            thread.join(10)
            assert out == [4]

    def test_loop_that_was_closed_meanwhile_hurts_nobody(self) -> None:
        place = Place()
        future = place.append(b"v")
        loop = asyncio.new_event_loop()

        async def wait() -> None:
            await future

        task = loop.create_task(wait())
        loop.run_until_complete(asyncio.sleep(0))
        task.cancel()
        loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
        loop.close()
        succeed(place.take(), 1)
        assert future.result(0).offset == 1


class TestLedger:
    def test_failures_nobody_looked_at_are_counted_once(self) -> None:
        place = Place()
        seen = place.append(b"v", 0)
        for _ in range(3):
            place.append(b"v", 1)
        place.fail()
        assert repr(seen.exception(0)) == repr(REFUSED)
        assert repr(place.ledger.take()) == repr((3, REFUSED))
        assert place.ledger.take() == (0, None)

    def test_long_outage_costs_bounded_memory_and_no_count(self) -> None:
        ledger = FailureLedger()
        for _ in range(MAX_UNSEEN_BATCHES + 500):
            place = Engine(make_result=partial(BatchCompletion, ledger=ledger))
            place.append(b"v")
            request = place.take()
            only_ref(request).fail(REFUSED)
            request.finish()
        assert len(ledger._unseen) == MAX_UNSEEN_BATCHES
        assert repr(ledger.take()) == repr((MAX_UNSEEN_BATCHES + 500, REFUSED))
