"""Application threads append in three ways while one sender drains, answers, requeues, splits and expires."""

from __future__ import annotations

import array
import random
import threading
import time

import pytest

from kafkaprod._core.columns.columns import Column
from kafkaprod._core.queues.accumulator import Accumulator, memory_holders
from kafkaprod._core.queues.blocks import Block
from kafkaprod._core.queues.buffer_pool import BufferPool
from kafkaprod._core.queues.placement import Placement
from kafkaprod._core.requests.drain import Drain
from kafkaprod._core.requests.settlement import abort_batches, expired_batches
from kafkaprod._core.requests.split import split_batch
from kafkaprod.errors import DeliveryTimeoutError
from kafkaprod.results.batch import BatchCompletion
from tests.support.core.core_engine import batches_of
from tests.support.core.core_model import decode_batch

TOPICS = ["a", "b"]
FEW = 6
MANY = 200  # so many that blocks fetch ahead what other threads are writing to
LOST = DeliveryTimeoutError("lost on purpose")


class Sender(threading.Thread):
    """Drains until told to stop, with a fate for each batch drawn from `rng`; keeps what was written, per partition."""

    def __init__(self, drain: Drain, seed: int) -> None:
        super().__init__()
        self.drain = drain
        self.placement = Placement(drain.accumulator)
        self.rng = random.Random(seed)
        self.must_stop = threading.Event()
        self.log: dict[tuple[str, int], list[bytes]] = {}
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            while not self.must_stop.is_set() or self.drain.accumulator.incomplete_batch_count:
                if not self.turn():
                    self.drain.accumulator.pool.wake_waiters()
                    self.must_stop.wait(0.0005)
        except BaseException as error:
            self.error = error
            abort_batches(self.drain.accumulator, LOST)

    def turn(self) -> bool:
        """One round over both nodes; whether anything was sent."""
        is_busy = False
        now_ms = time.monotonic_ns() // 1_000_000
        if self.drain.wants_epoch:
            # A failed batch leaves a hole in its partition's sequence: a newer epoch lets it go on.
            self.drain.set_producer(4000, self.drain.producer_epoch + 1)
        self.placement.update_loads()
        for node_id in self.drain.ready(now_ms * 1000, self.must_stop.is_set())[0]:
            request = self.drain.drain(node_id, now_ms)
            if request is None:
                continue
            is_busy = True
            for ref, batch in zip(request.refs(), batches_of(request), strict=True):
                fate = self.rng.random()
                if fate < 0.1:
                    ref.requeue(now_ms, 0)
                elif fate < 0.15 and ref.record_count > 1:
                    split_batch(ref, ref.size_bytes // 2 + 1)
                elif fate < 0.2:
                    ref.fail(LOST)
                else:
                    log = self.log.setdefault((ref.topic, ref.partition), [])
                    base_offset = len(log)
                    log += [record.value or b"" for record in decode_batch(batch).records]
                    ref.succeed(base_offset)
            request.finish()
            self.drain.accumulator.pool.wake_waiters()
        if self.rng.random() < 0.02:
            for ref in expired_batches(self.drain.accumulator, now_ms - 1000):
                ref.fail(LOST)
            memory_holders(self.drain.accumulator)
        return is_busy


@pytest.mark.parametrize("partition_count", [FEW, MANY])
@pytest.mark.parametrize("is_idempotent", [False, True])
def test_every_record_gets_the_outcome_that_the_log_shows(is_idempotent: bool, partition_count: int) -> None:
    pool = BufferPool((1 << 18) if partition_count == FEW else (1 << 20))
    accumulator = Accumulator(pool, 4000, 1 << 16, BatchCompletion)
    drain = Drain(accumulator, 0, 20_000, is_idempotent)
    if is_idempotent:
        drain.set_producer(4000, 0)
    topics = [accumulator.set_topic(name, [1, 2] * (partition_count // 2)) for name in TOPICS]
    drain.update_leaders()
    sender = Sender(drain, seed=5)
    checks: list[tuple[str, list[bytes], object]] = []
    errors: list[BaseException] = []

    def now_ms() -> int:
        return time.monotonic_ns() // 1_000_000

    def append(index: int, rng: random.Random) -> None:
        for i in range(1500):
            value = b"%d-%d-" % (index, i) + b"x" * rng.choice([0, 10, 500, 3000])
            topic = rng.choice(topics)
            partition = rng.choice([-1, -1, 0, 3])
            key = rng.choice([None, b"k%d" % rng.randrange(20)])
            while (future := accumulator.append(topic, key, value, None, partition, 0, now_ms())) is None:
                time.sleep(0.0002)
            checks.append((topic.name, [value], future))

    def append_block(index: int, rng: random.Random) -> None:
        for i in range(30):
            values = [
                b"%d-%d-%d-" % (index, i, j) + b"y" * rng.choice([0, 100, 1000])
                for j in range(rng.choice([0, 7, 60, 600]))
            ]
            topic = rng.choice(topics)
            partitions = array.array("i", [rng.randrange(-1, partition_count) for _ in values])
            block = Block(accumulator, topic, Column.from_list(values), timestamp=0, partitions=partitions)
            while not block.run(now_ms()):
                time.sleep(0.0002)
            checks.append((topic.name, values, block))

    def work(index: int) -> None:
        try:
            (append if index % 2 else append_block)(index, random.Random(index))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(6)]
    sender.start()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sender.must_stop.set()
    sender.join(60)
    assert not sender.is_alive()
    assert errors == []
    assert sender.error is None
    assert (pool.in_use, pool.refused_release_count, accumulator.incomplete_batch_count) == (0, 0, 0)
    delivered = 0
    for topic_name, values, handle in checks:
        if isinstance(handle, Block):
            delivered += _check_block(sender, topic_name, values, handle)
            continue
        assert handle.done()  # type: ignore[attr-defined]
        if handle.succeeded():  # type: ignore[attr-defined]
            place = handle.result(0)  # type: ignore[attr-defined]
            assert sender.log[topic_name, place.partition][place.offset] == values[0]
            delivered += 1
    total = sum(len(values) for _, values, _ in checks)
    assert 0.7 * total < delivered == sum(map(len, sender.log.values()))


def _check_block(sender: Sender, topic: str, values: list[bytes], block: Block) -> int:
    rows: dict[int, list[bytes]] = {}
    for value, partition in zip(values, memoryview(block.partition_of_rows()), strict=True):
        rows.setdefault(partition, []).append(value)
    delivered = 0
    for result, partition, first, count in block.row_runs:
        for index in range(first, first + count):
            value = rows[partition].pop(0)
            leaf, at = result, index
            while leaf.is_split:
                start, child = next((s, c) for s, c in reversed(leaf.children) if at >= s)
                leaf, at = child, at - start
            assert leaf.is_done
            if leaf.error is None:
                assert sender.log[topic, partition][leaf.base_offset + at] == value
                delivered += 1
    assert not any(rows.values())
    return delivered


def test_threads_may_make_the_same_results_at_once() -> None:
    """Many threads appending to one batch get one result object."""
    pool = BufferPool(1 << 22)
    accumulator = Accumulator(pool, 1 << 20, 1 << 16, BatchCompletion)
    topic = accumulator.set_topic("t", [1])
    futures: list[object] = []
    barrier = threading.Barrier(8)

    def work() -> None:
        barrier.wait()
        for _ in range(500):
            futures.append(accumulator.append(topic, None, b"v", None, 0))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    drain = Drain(accumulator)
    drain.update_leaders()
    request = drain.drain(1, 1 << 40)
    assert request is not None
    assert request.record_count == 4000
    for ref in request.refs():
        ref.succeed(0)
    request.finish()
    assert sorted(future.result(0).offset for future in futures) == list(range(4000))  # type: ignore[attr-defined]
    assert pool.in_use == 0


def test_records_of_others_between_the_rows_of_a_block_keep_their_places() -> None:
    """A long block lets go of its locks now and then; whoever gets in between splits its rows into runs."""
    pool = BufferPool(1 << 26)
    accumulator = Accumulator(pool, 1 << 24, 1 << 16, BatchCompletion)
    topic = accumulator.set_topic("t", [1])
    rows = [b"row %d" % i for i in range(20_000)]
    blocks: list[Block] = []
    must_stop = threading.Event()

    def append_singly() -> None:
        while not must_stop.is_set():
            assert accumulator.append(topic, None, b"other", None, 0) is not None

    others = [threading.Thread(target=append_singly) for _ in range(2)]
    for thread in others:
        thread.start()
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and len(blocks) < 20:
        block = Block(accumulator, topic, Column.from_list(rows), timestamp=0, partition=0)
        assert block.run(0)
        blocks.append(block)
        if len(block.row_runs) > 1:
            break
    must_stop.set()
    for thread in others:
        thread.join()
    assert len(blocks[-1].row_runs) > 1, "nobody got in between: the test has tested nothing"
    drain = Drain(accumulator, 0, 1 << 30)
    drain.update_leaders()
    written: dict[int, list[bytes]] = {}
    while (request := drain.drain(1, 1 << 40)) is not None:
        for number, (ref, batch) in enumerate(zip(request.refs(), batches_of(request), strict=True), len(written)):
            written[number] = [record.value or b"" for record in decode_batch(batch).records]
            ref.succeed(number << 32)
        request.finish()
    for block in blocks:
        found = []
        for result, _, first, count in block.row_runs:
            found += written[result.base_offset >> 32][first : first + count]
        assert found == rows
