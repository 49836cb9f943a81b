"""Any order of append, drain, answers, expiry, split, abort, disconnect and close, against a small pool.

What must hold whatever happens:
- bytes that a request exported do not change until it is finished and nobody holds them (KAFKA-19012);
- every record gets exactly one outcome, and a delivered one the offset under which its bytes stand in the log;
- a sequence number of a producer epoch never stands for two different records, unless the first was definitely
  rejected and no newer epoch can be had; a record that may be in the log is never numbered anew;
- what the nodes hold is what is in use, and at the end every byte is back in the pool.
Run it on a debug build too (KAFKAPROD_DEBUG=1): freed slabs are poisoned there, and a stale write aborts.
"""

from __future__ import annotations

import array
from dataclasses import dataclass, field
from typing import cast

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kafkaprod._core.columns.columns import Column
from kafkaprod._core.queues.accumulator import memory_holders
from kafkaprod._core.queues.blocks import Block
from kafkaprod._core.queues.completion import BatchResult, DeliveryFuture
from kafkaprod._core.requests.produce_request import ProduceRequest
from kafkaprod._core.requests.settlement import BatchRef, abort_batches, expired_batches, incomplete_batches
from kafkaprod._core.requests.split import split_batch
from kafkaprod.compression import decompress, make_codec
from kafkaprod.errors import DeliveryTimeoutError, IllegalStateError, ProducerClosedError
from tests.support.core.core_engine import TOPIC, Engine
from tests.support.core.core_model import decode_batch, decode_produce_body

PARTITIONS = 4
SIZES = st.sampled_from([0, 50, 300, 700, 1500, 5000])
EXPIRED = DeliveryTimeoutError("expired")
REJECTED = ValueError("rejected")
CLOSED = ProducerClosedError("closed")


@dataclass
class Live:
    """A request on its way: its buffers, what they held when it was drained, and what the batches hold."""

    request: ProduceRequest
    buffers: list[object]
    snapshot: bytes
    contents: dict[int, list[bytes]]  # partition -> values


@dataclass
class Placed:
    """A record appended with a block: where its outcome will be."""

    result: BatchResult
    index: int
    partition: int
    value: bytes


@dataclass
class Model:
    """What a broker and an attentive user would know."""

    appended: list[tuple[bytes, int, DeliveryFuture]] = field(default_factory=list)
    placed: list[Placed] = field(default_factory=list)
    logs: dict[int, list[bytes]] = field(default_factory=lambda: {p: [] for p in range(PARTITIONS)})
    numbered: dict[tuple[int, int, int, int], bytes] = field(default_factory=dict)
    in_doubt: dict[bytes, tuple[int, int, int]] = field(default_factory=dict)


class CoreMachine(RuleBasedStateMachine):
    @initialize(
        is_idempotent=st.booleans(),
        mutes=st.booleans(),
        codec=st.sampled_from(["none", "none", "none", "zstd"]),
        pool_bytes=st.sampled_from([8192, 20_000, 100_000]),
        reuses=st.booleans(),
        max_batch_size=st.sampled_from([None, 6000, 7500]),
    )
    def start(
        self, is_idempotent: bool, mutes: bool, codec: str, pool_bytes: int, reuses: bool, max_batch_size: int | None
    ) -> None:
        self.engine = Engine(
            leaders=[1, 1, 2, 2],
            pool_bytes=pool_bytes,
            batch_size=4000,
            max_batch_size=max_batch_size,
            max_request_bytes=8000,
            is_idempotent=is_idempotent,
            mutes=mutes,
            codec=make_codec(codec),
        )
        self.reuses = reuses and is_idempotent
        if self.reuses:
            self.engine.drain.set_producer(4000, 1, reuses_sequences=True)
        self.model = Model()
        self.live: list[Live] = []
        self.held: list[tuple[memoryview, bytes]] = []
        self.tickets: list[int] = []
        self.epoch = 1
        self.count = 0
        self.is_closed = False

    def _value(self, size: int) -> bytes:
        self.count += 1
        return b"%08d" % self.count + bytes([self.count % 251]) * size

    # The application

    @rule(partition=st.integers(0, PARTITIONS - 1), size=SIZES, with_key=st.booleans())
    def append(self, partition: int, size: int, with_key: bool) -> None:
        value = self._value(size)
        if self.is_closed:
            with pytest.raises(ProducerClosedError):
                self.engine.try_append(value, partition)
            return
        future = self.engine.try_append(value, partition, key=b"k" if with_key else None)
        if future is not None:
            self.model.appended.append((value, partition, future))

    @rule(sizes=st.lists(SIZES, max_size=12), seed=st.integers(0, PARTITIONS - 1))
    def append_block(self, sizes: list[int], seed: int) -> None:
        values = [self._value(size) for size in sizes]
        partitions = [(seed + 3 * i) % PARTITIONS for i in range(len(sizes))]
        accumulator = self.engine.accumulator
        block = Block(
            accumulator,
            accumulator.topics[TOPIC],
            Column.from_list(values),
            timestamp=1,
            partitions=array.array("i", partitions),
        )
        if self.is_closed:
            with pytest.raises(ProducerClosedError):
                block.run(self.engine.now_ms)
            return
        finished = block.run(self.engine.now_ms)
        assert finished == (block.rows_appended == len(values))
        rows: dict[int, list[bytes]] = {}
        left = set(block.rows_left)
        for row, (value, partition) in enumerate(zip(values, partitions, strict=False)):
            if row in left:
                continue
            rows.setdefault(partition, []).append(value)
        for result, partition, first, count in block.row_runs:
            for i in range(count):
                self.model.placed.append(Placed(result, first + i, partition, rows[partition].pop(0)))
        assert not any(rows.values())

    @precondition(lambda self: len(self.tickets) < 3)
    @rule(need=st.sampled_from([1024, 4096, 8192]))
    def wait_for_memory(self, need: int) -> None:
        self.tickets.append(self.engine.pool.enqueue_waiter(need, lambda: None))

    @precondition(lambda self: self.tickets)
    @rule(data=st.data())
    def give_up_waiting(self, data: st.DataObject) -> None:
        self.engine.pool.dequeue_waiter(self.tickets.pop(data.draw(st.integers(0, len(self.tickets) - 1))))

    # The sender

    @rule(node_id=st.sampled_from([1, 2]))
    def drain(self, node_id: int) -> None:
        request = self.engine.drain.drain(node_id, self.engine.now_ms)
        if request is None:
            return
        buffers = request.body(7, -1, 1000).from_byte(0)
        snapshot = b"".join(bytes(memoryview(buffer)) for buffer in buffers)
        contents = {}
        for _, partition, batch in decode_produce_body(7, snapshot).batches:
            codec_id = batch[22] & 7
            plain = bytes(decompress(codec_id, batch[61:], 1 << 20)) if codec_id else None
            decoded = decode_batch(batch, plain)
            assert len(decoded.records) > 0
            contents[partition] = [record.value or b"" for record in decoded.records]
            for i, value in enumerate(contents[partition]):
                self._check_number(
                    partition, decoded.producer_id, decoded.producer_epoch, decoded.base_sequence, i, value
                )
        self.live.append(Live(request, list(buffers), snapshot, contents))

    def _check_number(self, partition: int, pid: int, epoch: int, base: int, i: int, value: bytes) -> None:
        if base < 0:
            assert not self.engine.drain.is_idempotent
            return
        assert self.model.numbered.setdefault((partition, pid, epoch, base + i), value) == value
        if value in self.model.in_doubt:
            assert self.model.in_doubt[value] == (pid, epoch, base + i)

    def _free_numbers(self, ref: BatchRef) -> None:
        """A batch that is not in the log fails: where no newer epoch can be had, its numbers may be given again."""
        pid, epoch, base = ref.producer
        if self.reuses and not ref.maybe_persisted:
            for i in range(ref.record_count):
                self.model.numbered.pop((ref.partition, pid, epoch, base + i), None)

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        """A response: each batch has its own fate; then the request is over."""
        live = self.live.pop(data.draw(st.integers(0, len(self.live) - 1)))
        for ref in live.request.refs():
            self._settle(
                data.draw(st.sampled_from(["ok", "ok", "ok", "requeue", "reject", "split", "renumber"])), ref, live
            )
        live.request.finish()

    def _settle(self, fate: str, ref: BatchRef, live: Live) -> None:
        values = live.contents[ref.partition]
        if ref.is_done:
            assert not ref.succeed(0)
        elif fate == "ok":
            log = self.model.logs[ref.partition]
            base_offset = len(log)
            log += values
            assert ref.succeed(base_offset)
        elif fate == "reject":
            self._free_numbers(ref)
            assert ref.fail(REJECTED)
        elif fate == "split" and ref.record_count > 1:
            assert split_batch(ref, max(1, ref.size_bytes // 2)) >= 1
        else:
            assert ref.requeue(self.engine.now_ms, 10)
            if fate == "renumber":
                before = ref.producer
                if ref.forget_sequence():
                    assert not any(value in self.model.in_doubt for value in values)
                    assert before[2] >= 0
                    for i in range(len(values) if self.reuses else 0):
                        self.model.numbered.pop((ref.partition, *before[:2], before[2] + i), None)

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def disconnect(self, data: st.DataObject) -> None:
        """No answer will come: the records may be in the log."""
        live = self.live.pop(data.draw(st.integers(0, len(self.live) - 1)))
        for ref in live.request.refs():
            if ref.requeue(self.engine.now_ms, 10, maybe_persisted=True) and self.engine.drain.is_idempotent:
                pid, epoch, base = ref.producer
                for i, value in enumerate(live.contents[ref.partition]):
                    self.model.in_doubt[value] = (pid, epoch, base + i)
        live.request.finish()

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def finish_too_early(self, data: st.DataObject) -> None:
        live = self.live[data.draw(st.integers(0, len(self.live) - 1))]
        if not all(ref.is_done for ref in live.request.refs()):
            with pytest.raises(IllegalStateError):
                live.request.finish()

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def drop_request(self, data: st.DataObject) -> None:
        """The engine forgot a request: its batches still expire in time."""
        self.live.pop(data.draw(st.integers(0, len(self.live) - 1)))

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def hold_buffers(self, data: st.DataObject) -> None:
        live = self.live[data.draw(st.integers(0, len(self.live) - 1))]
        view = memoryview(cast(bytes, live.buffers[data.draw(st.integers(0, len(live.buffers) - 1))]))
        self.held.append((view, bytes(view)))

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def let_buffers_go(self, data: st.DataObject) -> None:
        self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))[0].release()

    @rule(ms=st.sampled_from([1, 10, 100]))
    def pass_time(self, ms: int) -> None:
        self.engine.clock.advance(ms)
        ready, unknown = self.engine.drain.ready(self.engine.now_us)
        assert set(ready) <= {1, 2}
        assert unknown <= {TOPIC}

    @rule(age_ms=st.sampled_from([0, 50, 200]))
    def expire(self, age_ms: int) -> None:
        for ref in expired_batches(self.engine.accumulator, self.engine.now_ms - age_ms):
            if ref.state != "sent":
                self._free_numbers(ref)
            assert ref.fail(EXPIRED, maybe_persisted=ref.state == "sent")

    @rule(unsent_only=st.booleans())
    def abort(self, unsent_only: bool) -> None:
        for ref in incomplete_batches(self.engine.accumulator):
            if ref.state != "sent" and not (unsent_only and ref.was_sent):
                self._free_numbers(ref)
        abort_batches(self.engine.accumulator, CLOSED, unsent_only)

    @rule(
        leaders=st.lists(st.sampled_from([-1, 1, 2]), min_size=PARTITIONS, max_size=PARTITIONS), epoch=st.integers(0, 9)
    )
    def change_leaders(self, leaders: list[int], epoch: int) -> None:
        self.engine.lead(leaders, epochs=[epoch] * PARTITIONS)

    @rule(node=st.sampled_from([1, 2]), limit=st.sampled_from([1024, 8192, 1 << 40]))
    def limit_memory(self, node: int, limit: int) -> None:
        self.engine.pool.set_limit(node, limit)

    @rule()
    def bump_epoch(self) -> None:
        if self.engine.drain.is_idempotent:
            self.epoch += 1
            self.engine.drain.set_producer(4000, self.epoch, self.reuses)

    @rule()
    def sticky_and_reports(self) -> None:
        self.engine.placement.update_loads()
        held = sum(size for *_, size, _ in memory_holders(self.engine.accumulator, 1000))
        assert held <= self.engine.pool.in_use

    @precondition(lambda self: self.count > 20)
    @rule()
    def close(self) -> None:
        self.engine.accumulator.close()
        self.is_closed = True

    # What always holds

    @invariant()
    def exported_bytes_stay(self) -> None:
        for live in getattr(self, "live", ()):
            assert b"".join(bytes(memoryview(buffer)) for buffer in live.buffers) == live.snapshot  # type: ignore[arg-type]
        for view, before in getattr(self, "held", ()):
            assert bytes(view) == before

    @invariant()
    def outcomes_are_told_once(self) -> None:
        if hasattr(self, "engine"):
            assert all(result.told_count <= 1 for result in self.engine.results)
            assert self.engine.pool.refused_release_count == 0

    @invariant()
    def memory_adds_up_by_node(self) -> None:
        if hasattr(self, "engine"):
            held = [held for _, held, _ in self.engine.pool.shares()]
            assert min(held) >= 0
            assert sum(held) == self.engine.pool.in_use

    def teardown(self) -> None:
        if not hasattr(self, "engine"):
            return
        engine = self.engine
        self.exported_bytes_stay()
        for ticket in self.tickets:
            engine.pool.dequeue_waiter(ticket)
        abort_batches(engine.accumulator, CLOSED)
        self.exported_bytes_stay()  # failing records does not return memory that is referenced
        for live in self.live:
            live.request.finish()
        self.live.clear()
        self.outcomes_are_told_once()
        for view, before in self.held:
            assert bytes(view) == before
            view.release()
        assert engine.pool.in_use == 0
        assert engine.pool.waiter_count == 0
        assert engine.accumulator.incomplete_batch_count == 0
        assert all(result.told_count == 1 for result in engine.results)
        for value, partition, future in self.model.appended:
            assert future.done()
            if future.succeeded():
                assert self.model.logs[partition][future.result(0).offset] == value
        for placed in self.model.placed:
            self._check_placed(placed)

    def _check_placed(self, placed: Placed) -> None:
        result, index = placed.result, placed.index
        while result.is_split:
            first, child = next((f, c) for f, c in reversed(result.children) if index >= f)
            result, index = child, index - first
        assert result.is_done
        if result.error is None:
            assert self.model.logs[placed.partition][result.base_offset + index] == placed.value


CoreMachine.TestCase.settings = settings(max_examples=80, stateful_step_count=60, deadline=None)
TestCoreMachine = CoreMachine.TestCase
