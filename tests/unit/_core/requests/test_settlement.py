"""Outcomes and returns: success, failure, requeue, expiry, abort, and when memory may go back."""

import gc
from typing import Any

import pytest

from kafkaprod._core.requests.settlement import BatchRef, abort_batches, expired_batches, incomplete_batches
from kafkaprod._core.requests.split import split_batch
from kafkaprod.errors import DeliveryTimeoutError, IllegalStateError, ProducerClosedError
from tests.support.core.core_engine import TOPIC, Engine, only_ref, requeue, succeed, values_of

ERROR = DeliveryTimeoutError("too late")


def test_success_gives_every_record_its_offset():
    engine = Engine()
    futures = [engine.append(b"v%d" % i, key=b"k", timestamp=1000 + i) for i in range(3)]
    request = engine.take()
    assert only_ref(request).succeed(40)
    request.finish()
    assert [future.result(0).offset for future in futures] == [40, 41, 42]
    assert [future.result(0).timestamp for future in futures] == [1000, 1001, 1002]
    assert (futures[0].result(0).serialized_key_size, futures[0].result(0).serialized_value_size) == (1, 2)


def test_append_time_of_the_broker_replaces_the_records_timestamps():
    engine = Engine()
    future = engine.append(b"v")
    request = engine.take()
    only_ref(request).succeed(7, log_append_time=5_000)
    assert future.result(0).timestamp == 5_000


def test_unknown_offset_stays_unknown():
    engine = Engine()
    futures = [engine.append(b"a"), engine.append(b"b")]
    request = engine.take()
    only_ref(request).succeed()
    assert [future.result(0).offset for future in futures] == [-1, -1]


def test_failure_reaches_every_record_and_named_records_get_their_own():
    engine = Engine()
    futures = [engine.append(b"v") for _ in range(3)]
    request = engine.take()
    own = ValueError("this very record")
    assert only_ref(request).fail(ERROR, {1: own})
    request.finish()
    assert repr([future.exception(0) for future in futures]) == repr([ERROR, own, ERROR])
    with pytest.raises(DeliveryTimeoutError):
        futures[0].result(0)


def test_an_outcome_is_final_and_told_once():
    engine = Engine()
    engine.append(b"v")
    request = engine.take()
    ref = only_ref(request)
    assert ref.fail(ERROR)
    assert not ref.succeed(1)
    assert not ref.fail(ValueError("again"))
    request.finish()
    (result,) = engine.results
    assert (result.told_count, result.error, result.record_count) == (1, ERROR, 1)


# Memory


def test_memory_of_a_batch_that_expires_in_flight_stays_until_the_request_is_finished():
    engine = Engine()
    future = engine.append(b"x" * 3000)
    request = engine.take()
    buffers = request.body(7, -1, 1000).from_byte(0)
    before = [bytes(memoryview(buffer)) for buffer in buffers]
    (expired,) = expired_batches(engine.accumulator, engine.now_ms)
    assert expired.fail(ERROR)
    assert future.failed()
    assert engine.pool.in_use == 4096
    for _ in range(100):
        engine.append(b"y" * 3000)  # would reuse the slab if it were free
    assert [bytes(memoryview(buffer)) for buffer in buffers] == before
    in_use = engine.pool.in_use
    request.finish()
    assert engine.pool.in_use == in_use - 4096


def test_exported_buffer_keeps_the_memory_beyond_finish():
    engine = Engine()
    engine.append(b"x" * 3000)
    request = engine.take()
    buffers = request.body(7, -1, 1000).from_byte(0)
    held = memoryview(buffers[1])
    before = bytes(held)
    succeed(request)
    assert engine.pool.in_use == 4096
    engine.append(b"y" * 3000)
    assert bytes(held) == before
    held.release()
    assert engine.pool.in_use == 4096  # only the new batch's
    with pytest.raises(BufferError, match="finished"):
        memoryview(buffers[1])


def test_requeued_batch_keeps_its_memory():
    engine = Engine()
    engine.append(b"x" * 500)
    requeue(engine.take(), engine.now_ms, 0)
    assert engine.pool.in_use == 1024
    request = engine.take()
    assert values_of(request) == [b"x" * 500]
    succeed(request)
    assert engine.pool.in_use == 0


def test_finishing_twice_does_nothing():
    engine = Engine()
    engine.append(b"v")
    request = engine.take()
    succeed(request)
    request.finish()
    assert (engine.pool.in_use, engine.pool.refused_release_count) == (0, 0)


def test_reference_outlives_the_batch():
    engine = Engine()
    engine.append(b"v")
    request = engine.take()
    ref = only_ref(request)
    succeed(request)
    del request
    gc.collect()
    assert (ref.topic, ref.partition, ref.record_count, ref.state) == (TOPIC, 0, 1, "done")


def test_dropped_request_loses_no_batch():
    """A request that is thrown away unanswered: its batches expire in time, and nothing dangles."""
    engine = Engine()
    future = engine.append(b"v")
    request = engine.take()
    del request
    gc.collect()
    (ref,) = expired_batches(engine.accumulator, engine.now_ms)
    assert ref.state == "sent"
    assert ref.fail(ERROR)
    del ref
    assert future.failed()
    assert engine.pool.in_use == 0


def test_request_is_not_finished_before_its_batches_are_settled():
    engine = Engine()
    future = engine.append(b"v")
    request = engine.take()
    with pytest.raises(IllegalStateError, match="neither settled nor requeued"):
        request.finish()
    assert engine.pool.in_use == 1024
    succeed(request, 3)
    assert future.result(0).offset == 3
    assert engine.pool.in_use == 0


def test_references_are_made_by_the_core_only():
    with pytest.raises(TypeError):
        BatchRef()


# Requeue


@pytest.mark.parametrize("order", [[0, 1, 2], [2, 1, 0], [1, 0, 2], [2, 0, 1]])
@pytest.mark.parametrize("is_idempotent", [False, True])
def test_order_is_kept_whatever_comes_back_first(order, is_idempotent):
    engine = Engine(batch_size=1000, is_idempotent=is_idempotent)
    engine.introduce()
    for i in range(4):
        engine.append(bytes([97 + i]) * 900)
    requests = [engine.take() for _ in range(3)]
    for i in order:
        requeue(requests[i], engine.now_ms, 0)
    values = []
    while (request := engine.drain.drain(1, engine.now_ms)) is not None:
        values += [(value or b"")[:1] for value in values_of(request)]
        succeed(request)
    assert values == [b"a", b"b", b"c", b"d"]


def test_requeue_counts_attempts_and_remembers_doubt():
    engine = Engine()
    engine.append(b"v")
    requeue(engine.take(), engine.now_ms, 0)
    request = engine.take()
    ref = only_ref(request)
    assert (ref.attempts, ref.maybe_persisted) == (1, False)
    requeue(request, engine.now_ms, 0, maybe_persisted=True)
    request = engine.take()
    requeue(request, engine.now_ms, 0)
    ref = only_ref(engine.take())
    assert (ref.attempts, ref.maybe_persisted) == (3, True)


def test_queued_batch_cannot_be_requeued():
    engine = Engine()
    engine.append(b"v")
    (ref,) = expired_batches(engine.accumulator, engine.now_ms)
    with pytest.raises(IllegalStateError, match="not in a request"):
        ref.requeue(engine.now_ms, 0)
    assert ref.state == "open"


def test_requeued_batch_takes_no_more_records():
    engine = Engine()
    engine.append(b"a")
    requeue(engine.take(), engine.now_ms, 0)
    engine.append(b"b")
    assert [values_of(request) for request in engine.take_all()] == [[b"a"], [b"b"]]


# Expiry and abort


def test_expiry_counts_from_the_first_record():
    engine = Engine(leaders=[1, 1])
    engine.append(b"old", 0)
    old = engine.now_ms
    engine.clock.advance(100)
    engine.append(b"old, too", 0)
    engine.append(b"young", 1)
    assert expired_batches(engine.accumulator, old - 1) == []
    assert [ref.partition for ref in expired_batches(engine.accumulator, old)] == [0]
    assert [ref.partition for ref in expired_batches(engine.accumulator, engine.now_ms)] == [0, 1]


def test_expiry_finds_queued_requeued_and_sent_batches_oldest_first():
    engine = Engine(leaders=[1, 1, 1])
    for partition in (2, 0, 1):
        engine.append(b"v", partition)
        engine.clock.advance(1)
    request = engine.take()
    refs = {ref.partition: ref for ref in request.refs()}
    refs[0].requeue(engine.now_ms, 1_000)
    expired = expired_batches(engine.accumulator, engine.now_ms)
    assert [ref.partition for ref in expired] == [2, 0, 1]
    assert [ref.created_ms for ref in expired] == [1_000, 1_001, 1_002]


def test_open_batch_that_expires_makes_room_for_a_new_one():
    engine = Engine()
    late = engine.append(b"late")
    (ref,) = expired_batches(engine.accumulator, engine.now_ms)
    assert ref.fail(ERROR)
    assert engine.pool.in_use == 0
    in_time = engine.append(b"in time")
    request = engine.take()
    assert values_of(request) == [b"in time"]
    succeed(request)
    assert (late.failed(), in_time.succeeded()) == (True, True)


def test_batch_in_the_middle_of_the_queue_can_fail():
    engine = Engine(batch_size=1000)
    futures = [engine.append(bytes([97 + i]) * 900) for i in range(3)]
    refs = expired_batches(engine.accumulator, engine.now_ms)
    assert refs[1].fail(ERROR)
    assert [(values_of(request)[0] or b"")[:1] for request in engine.take_all()] == [b"a", b"c"]
    assert [future.failed() for future in futures] == [False, True, False]


def test_abort_fails_everything_and_counts_records():
    engine = Engine(leaders=[1, 2], batch_size=1000)
    futures = [engine.append(b"x" * 300, partition) for partition in (0, 0, 0, 0, 1)]
    request = engine.take()
    assert abort_batches(engine.accumulator, ERROR) == 5
    assert all(future.failed() for future in futures)
    assert engine.pool.in_use > 0  # the request may still read its batch
    request.finish()
    assert (engine.pool.in_use, engine.accumulator.incomplete_batch_count) == (0, 0)
    assert [result.told_count for result in engine.results] == [1] * len(engine.results)


def test_abort_of_the_unsent_spares_what_was_sent():
    engine = Engine(leaders=[1, 2], batch_size=1000)
    sent = engine.append(b"sent", 0)
    request = engine.take(1)
    retried = engine.append(b"retried", 1)
    requeue(engine.take(2), engine.now_ms, 1_000)
    unsent = engine.append(b"unsent", 0)
    assert abort_batches(engine.accumulator, ERROR, unsent_only=True) == 1
    assert [future.failed() for future in (sent, retried, unsent)] == [False, False, True]
    succeed(request)


def test_sequence_of_a_failed_batch_is_missed():
    engine = Engine(is_idempotent=True, leaders=[1, 1])
    engine.append(b"a", 0)
    engine.append(b"b", 1)
    request = engine.take()
    failed, fine = request.refs()
    failed.fail(ERROR)
    fine.succeed(0)
    assert (failed.partition_needs_new_epoch, fine.partition_needs_new_epoch) == (True, False)


def test_unsent_batch_that_fails_misses_no_sequence():
    engine = Engine(is_idempotent=True)
    engine.append(b"a")
    (ref,) = expired_batches(engine.accumulator, engine.now_ms)
    ref.fail(ERROR)
    assert not ref.partition_needs_new_epoch


def test_records_whose_attempt_had_no_definite_answer_say_that_they_may_be_in_the_log():
    for maybe_before, maybe_now in ((False, False), (True, False), (False, True)):
        engine = Engine()
        future = engine.append(b"v")
        requeue(engine.take(), engine.now_ms, 0, maybe_before)
        request = engine.take()
        shared = ProducerClosedError("closed")
        shared.__cause__ = cause = ValueError("why")
        only_ref(request).fail(shared, None, maybe_now)
        error: Any = future.exception(0)
        assert (error.possibly_persisted, str(error), error.__cause__) == (maybe_before or maybe_now, "closed", cause)
        assert not shared.possibly_persisted


def test_abort_tells_records_in_flight_from_those_in_the_queue():
    engine = Engine(batch_size=200)
    sent = engine.append(b"x" * 150)
    request = engine.take()
    queued = engine.append(b"x" * 150)
    abort_batches(engine.accumulator, ProducerClosedError("closed"))
    errors: list[Any] = [sent.exception(0), queued.exception(0)]
    assert [error.possibly_persisted for error in errors] == [True, False]

    request.finish()


def test_part_of_a_batch_that_may_be_in_the_log_counts_as_sent():
    engine = Engine()
    for i in range(4):
        engine.append(b"%d" % i)
    requeue(engine.take(), engine.now_ms, 0, maybe_persisted=True)
    request = engine.take()
    assert split_batch(only_ref(request), 1) == 4
    request.finish()
    parts = incomplete_batches(engine.accumulator)
    assert [(ref.was_sent, ref.maybe_persisted, ref.attempts) for ref in parts] == [(True, True, 0)] * 4
    assert abort_batches(engine.accumulator, ERROR, unsent_only=True) == 0
