"""Which batches go out in a transaction, and when records are let in."""

from __future__ import annotations

import gc

import pytest

from kafkaprod._core.columns.columns import Column, Headers
from kafkaprod._core.queues.accumulator import Accumulator
from kafkaprod._core.queues.blocks import Block
from kafkaprod._core.queues.buffer_pool import BufferPool
from kafkaprod._core.requests.settlement import abort_batches, expired_batches
from kafkaprod.errors import IllegalStateError, KafkaError, ProducerClosedError
from tests.support.core.core_engine import TOPIC, Engine, batches_of, only_ref, partitions_of, requeue, succeed


def attributes_of(engine: Engine) -> int:
    request = engine.take()
    (batch,) = batches_of(request)
    succeed(request)
    return int.from_bytes(batch[21:23], "big")


def transactional(leaders: list[int] | None = None) -> Engine:
    engine = Engine(leaders, is_idempotent=True, linger_ms=0)
    engine.drain.set_transaction(0, False)
    engine.accumulator.failed_batches = []
    return engine


def test_nothing_goes_out_while_no_transaction_is_open() -> None:
    engine = transactional()
    engine.append(b"v")
    assert engine.ready_nodes() == []
    assert engine.drain.drain(1, engine.now_ms) is None
    engine.drain.set_transaction(1, True)
    assert engine.ready_nodes() == [1]


def test_batches_of_a_transaction_carry_its_bit() -> None:
    engine = transactional()
    engine.drain.set_transaction(1, True)
    engine.append(b"v")
    assert not engine.drain.has_drained
    assert attributes_of(engine) == 0x10
    assert engine.drain.has_drained
    plain = Engine(is_idempotent=True)
    plain.append(b"v")
    assert attributes_of(plain) == 0


def test_partition_waits_until_it_is_added() -> None:
    engine = transactional([1, 1])
    engine.drain.set_transaction(1, False)
    engine.append(b"v", 1)
    assert engine.ready_nodes() == []
    assert engine.drain.has_new_members
    assert engine.drain.new_members() == [(TOPIC, 1)]
    assert not engine.drain.has_new_members
    engine.append(b"v", 0)
    engine.drain.add_members([(TOPIC, 1)])
    assert engine.ready_nodes() == [1]
    request = engine.take()
    assert partitions_of(request) == [1]
    succeed(request)
    assert engine.ready_nodes() == []
    assert engine.drain.new_members() == [(TOPIC, 0)]


def test_partition_is_added_once_for_each_transaction() -> None:
    engine = transactional()
    for number in (1, 2):
        engine.drain.set_transaction(number, False)
        assert not engine.drain.has_drained
        engine.append(b"v")
        assert engine.ready_nodes() == []
        assert engine.drain.new_members() == [(TOPIC, 0)]
        engine.drain.add_members(engine.drain.new_members() or [(TOPIC, 0)])
        succeed(engine.take())
        engine.append(b"w")
        succeed(engine.take())
        engine.drain.set_transaction(0, False)


def test_batch_that_was_sent_goes_out_again_in_its_transaction() -> None:
    engine = transactional()
    engine.drain.set_transaction(1, False)
    engine.drain.add_members([(TOPIC, 0)])
    engine.append(b"v")
    requeue(engine.take(), engine.now_ms, backoff_ms=0)
    assert engine.ready_nodes() == [1]
    succeed(engine.take())


def test_closed_gate_refuses_records_and_makes_those_queued_sendable() -> None:
    engine = transactional()
    engine.drain.set_transaction(1, True)
    engine.append(b"v")
    engine.accumulator.set_gate(False)
    with pytest.raises(IllegalStateError, match="no transaction is open"):
        engine.append(b"v")
    block = Block(
        engine.accumulator,
        engine.accumulator.topics[TOPIC],
        Column.from_list([b"v"], "v"),
        None,
        Headers.from_python(None),
    )
    with pytest.raises(IllegalStateError, match="no transaction is open"):
        block.run(0)
    assert engine.ready_nodes() == [1]
    engine.accumulator.set_gate(True)
    engine.append(b"v")


def test_closing_the_gate_leaves_the_sender_asleep() -> None:
    """Whoever closes it waits for the sender next, and wakes it when it has released the GIL."""
    wakes: list[int] = []
    accumulator = Accumulator(BufferPool(1 << 20), wakeup=lambda: wakes.append(1))
    accumulator.set_sender_sleeps(True)
    accumulator.set_gate(False)
    assert not wakes
    accumulator.close()
    assert wakes


def test_closing_is_for_good() -> None:
    engine = transactional()
    engine.accumulator.close()
    engine.accumulator.set_gate(True)
    with pytest.raises(ProducerClosedError):
        engine.append(b"v")


def test_failed_batches_are_collected_with_what_they_failed_of() -> None:
    engine = transactional([1, 1])
    engine.drain.set_transaction(1, True)
    engine.append(b"v", 0)
    first, second = KafkaError("sent"), KafkaError("never sent")
    only_ref(engine.take()).fail(first)
    engine.append(b"v", 1)
    for ref in expired_batches(engine.accumulator, engine.now_ms):
        ref.fail(second)
    assert engine.accumulator.failed_batches == [(TOPIC, 0, first, True), (TOPIC, 1, second, False)]


def test_failed_batches_of_other_producers_are_not_collected() -> None:
    engine = Engine()
    engine.append(b"v")
    abort_batches(engine.accumulator, KafkaError("no"))
    assert engine.accumulator.failed_batches is None


def test_request_can_be_collected_together_with_its_accumulator() -> None:
    """The garbage collector empties lists first: the partitions' memory must not hang on one."""
    for _ in range(20):
        engine = Engine([1] * 40)
        for partition in range(40):
            engine.append(b"v", partition)
        holder = {"engine": engine, "requests": {engine.take()}}
        holder["self"] = holder
        del engine, holder
    gc.collect()


def test_partition_that_waits_is_named_once_so_that_the_sender_can_sleep() -> None:
    engine = transactional([1, 1])
    engine.drain.set_transaction(1, False)
    engine.append(b"v", 1)
    assert engine.ready_nodes() == []
    assert engine.drain.new_members() == [(TOPIC, 1)]
    assert engine.ready_nodes() == []
    assert not engine.drain.has_new_members  # while the coordinator is asked, which may take long
    engine.append(b"v", 0)
    assert engine.ready_nodes() == []
    assert engine.drain.has_new_members
    assert engine.drain.new_members() == [(TOPIC, 0)]
    engine.drain.set_transaction(0, False)
    engine.drain.set_transaction(2, False)
    assert engine.ready_nodes() == []
    assert engine.drain.new_members() == [(TOPIC, 0), (TOPIC, 1)]
