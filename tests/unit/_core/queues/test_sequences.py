"""Which batch of an idempotent producer may go and with which numbers (sequences.pxd), and where the numbers wrap."""

from types import ModuleType

import pytest

from kafkaprod.errors import DeliveryTimeoutError
from tests.native import building
from tests.support.core.core_engine import TOPIC, Engine, batches_of, only_ref, requeue, succeed, values_of
from tests.support.core.core_model import INT32_MAX, decode_batch


def _sequences(engine: Engine) -> list[tuple[int, int, int]]:
    return [only_ref(request).producer for request in engine.take_all()]


def test_nothing_goes_out_without_a_producer_id() -> None:
    engine = Engine(is_idempotent=True)
    engine.drain.set_producer(-1, -1)
    engine.append(b"v")
    engine.clock.advance(1_000)
    assert engine.ready_nodes() == []
    assert engine.drain.drain(1, engine.now_ms) is None
    engine.drain.set_producer(4000, 0)
    assert engine.ready_nodes() == [1]
    assert _sequences(engine) == [(4000, 0, 0)]


def test_plain_batches_carry_no_producer() -> None:
    engine = Engine()
    engine.append(b"v")
    assert only_ref(engine.take()).producer == (-1, -1, -1)


def test_each_batch_continues_the_sequence_of_its_partition() -> None:
    engine = Engine(leaders=[1, 1], batch_size=1000, is_idempotent=True)
    engine.introduce()
    for _ in range(3):
        engine.append(b"x" * 400, 0)
        engine.append(b"x" * 400, 0)
    assert _sequences(engine) == [(4000, 1, 1), (4000, 1, 3), (4000, 1, 5)]
    engine.append(b"x", 1)
    assert _sequences(engine) == [(4000, 1, 0)]


def test_first_batches_go_one_at_a_time_until_one_is_acknowledged() -> None:
    engine = Engine(batch_size=1000, is_idempotent=True)
    for value in (b"a", b"b", b"c"):
        engine.append(value * 900)
    first = engine.take()
    assert engine.ready_nodes() == []
    assert engine.drain.drain(1, engine.now_ms) is None
    requeue(first, engine.now_ms, 0)  # the leader has not heard of the partition yet: it would let the next one in
    retry = engine.take()
    assert values_of(retry) == [b"a" * 900]
    assert engine.drain.drain(1, engine.now_ms) is None
    succeed(retry)
    assert _sequences(engine) == [(4000, 1, 1), (4000, 1, 2)]


@pytest.mark.parametrize("has_moved", [False, True])
def test_no_more_batches_are_out_than_a_broker_remembers(has_moved: bool) -> None:
    """Five: a repetition of the first one would not be known for a duplicate behind a sixth."""
    engine = Engine(batch_size=1000, is_idempotent=True)
    engine.introduce()
    for number in range(8):
        engine.append(b"%d" % number * 900)
    out = [engine.take() for _ in range(2)]
    if has_moved:  # the limit of a connection knows nothing of what is with the former leader
        engine.lead([2])
    out += [engine.take(2 if has_moved else 1) for _ in range(3)]
    assert engine.ready_nodes() == []
    assert engine.drain.drain(2 if has_moved else 1, engine.now_ms) is None
    succeed(out[1])  # the first one is still out
    assert engine.drain.drain(2 if has_moved else 1, engine.now_ms) is None
    succeed(out[0])
    rest = engine.take_all(2 if has_moved else 1)
    assert [values_of(request) for request in rest] == [[b"5" * 900], [b"6" * 900]]


def test_topic_made_anew_gets_its_first_batches_one_at_a_time() -> None:
    engine = Engine(batch_size=1000, is_idempotent=True)
    engine.lead([1], topic_id=b"a" * 16)
    engine.introduce()
    engine.lead([1], topic_id=b"a" * 16)
    for value in (b"a", b"b", b"c"):
        engine.append(value * 900)
    engine.take()
    succeed(engine.take())
    engine.lead([1], topic_id=b"b" * 16)
    assert engine.ready_nodes() == []
    assert engine.drain.drain(1, engine.now_ms) is None


def test_new_batch_waits_while_others_are_with_the_former_topic() -> None:
    engine = Engine(batch_size=1000, is_idempotent=True)
    engine.lead([1], topic_id=b"a" * 16)
    engine.introduce()
    for value in (b"a", b"b", b"c"):
        engine.append(value * 900)
    first, second = engine.take(), engine.take()
    engine.lead([1], topic_id=b"b" * 16)
    succeed(first)
    assert engine.ready_nodes() == []
    assert engine.drain.drain(1, engine.now_ms) is None
    requeue(second, engine.now_ms, 0)
    assert values_of(engine.take()) == [b"b" * 900]


def test_requeued_batch_keeps_its_numbers() -> None:
    engine = Engine(is_idempotent=True)
    engine.append(b"v")
    request = engine.take()
    before = batches_of(request)
    requeue(request, engine.now_ms, 0)
    again = engine.take()
    assert batches_of(again) == before


def test_only_the_first_outstanding_batch_is_sent_again() -> None:
    engine = Engine(batch_size=1000, is_idempotent=True)
    engine.introduce()
    for value in [b"a", b"b", b"c"]:
        engine.append(value * 900)
    requests = engine.take_all()
    for request in reversed(requests):
        requeue(request, engine.now_ms, 0)
    only = engine.take()
    assert values_of(only) == [b"a" * 900]
    assert engine.drain.drain(1, engine.now_ms) is None  # b waits for a's answer
    assert engine.ready_nodes() == []
    succeed(only)
    assert values_of(engine.take()) == [b"b" * 900]


def test_new_batches_wait_behind_a_retry() -> None:
    engine = Engine(batch_size=1000, is_idempotent=True)
    engine.introduce()
    engine.append(b"a" * 900)
    requeue(engine.take(), engine.now_ms, 0)
    engine.append(b"b" * 900)
    retry = engine.take()
    assert values_of(retry) == [b"a" * 900]
    # The retry is in flight; a new batch may follow it, as it continues the sequence.
    assert only_ref(engine.take()).producer == (4000, 1, 2)


def test_epoch_bump_waits_until_nothing_is_outstanding() -> None:
    engine = Engine(batch_size=1000, is_idempotent=True)
    engine.append(b"a" * 900)
    old = engine.take()
    engine.drain.set_producer(4000, 2)
    engine.append(b"b" * 900)
    engine.clock.advance(engine.drain.linger_ms)
    assert engine.ready_nodes() == []
    assert engine.drain.drain(1, engine.now_ms) is None
    succeed(old)
    assert engine.ready_nodes() == [1]
    assert _sequences(engine) == [(4000, 2, 0)]


def test_epoch_bump_does_not_renumber_a_batch_that_may_be_in_the_log() -> None:
    engine = Engine(is_idempotent=True)
    engine.append(b"v")
    requeue(engine.take(), engine.now_ms, 0, maybe_persisted=True)
    engine.drain.set_producer(4000, 2)
    assert _sequences(engine) == [(4000, 1, 0)]


def test_failed_batch_holds_new_ones_back_until_a_newer_epoch() -> None:
    engine = Engine(batch_size=1000, is_idempotent=True)
    engine.append(b"a" * 900)
    engine.append(b"b" * 900)
    request = engine.take()
    only_ref(request).fail(ValueError("rejected for good"))
    request.finish()
    engine.clock.advance(engine.drain.linger_ms)
    assert engine.ready_nodes() == []
    assert engine.drain.wants_epoch
    engine.drain.set_producer(4000, 2)
    assert not engine.drain.wants_epoch
    assert _sequences(engine) == [(4000, 2, 0)]


def test_failed_batch_whose_successor_was_acknowledged_needs_no_new_epoch() -> None:
    engine = Engine(batch_size=1000, is_idempotent=True)
    engine.introduce()
    for value in [b"a", b"b", b"c"]:
        engine.append(value * 900)
    first, second = engine.take(), engine.take()
    only_ref(first).fail(TimeoutError("expired, but the broker had it"))
    first.finish()
    engine.clock.advance(engine.drain.linger_ms)
    assert engine.drain.drain(1, engine.now_ms) is None  # b is outstanding: not known yet
    succeed(second)
    assert engine.ready_nodes() == [1]
    assert not engine.drain.wants_epoch
    assert _sequences(engine) == [(4000, 1, 3)]


def test_batches_in_flight_may_finish_while_a_new_epoch_is_wanted() -> None:
    engine = Engine(batch_size=1000, is_idempotent=True)
    engine.introduce()
    for value in [b"a", b"b"]:
        engine.append(value * 900)
    first, second = engine.take(), engine.take()
    only_ref(first).fail(ValueError("rejected"))
    first.finish()
    requeue(second, engine.now_ms, 0)
    retry = engine.take()
    assert only_ref(retry).producer == (4000, 1, 2)


def test_rejected_batch_that_forgets_its_sequence_is_numbered_anew() -> None:
    engine = Engine(is_idempotent=True)
    engine.append(b"v")
    request = engine.take()
    ref = only_ref(request)
    ref.requeue(engine.now_ms, 0)
    assert ref.forget_sequence()
    request.finish()
    assert engine.drain.drain(1, engine.now_ms) is None
    engine.drain.set_producer(4000, 2)
    assert _sequences(engine) == [(4000, 2, 0)]


def test_batch_with_a_new_number_is_sealed_again() -> None:
    engine = Engine(is_idempotent=True)
    engine.append(b"v")
    request = engine.take()
    assert decode_batch(batches_of(request)[0]).producer_epoch == 1
    ref = only_ref(request)
    ref.requeue(engine.now_ms, 0)
    assert ref.forget_sequence()
    request.finish()
    engine.drain.drain(1, engine.now_ms)
    engine.drain.set_producer(4000, 2)
    sealed = decode_batch(batches_of(engine.take())[0])  # checks the CRC
    assert (sealed.producer_id, sealed.producer_epoch, sealed.base_sequence) == (4000, 2, 0)


def test_batch_that_may_be_in_the_log_does_not_forget_its_sequence() -> None:
    engine = Engine(is_idempotent=True)
    engine.append(b"v")
    request = engine.take()
    ref = only_ref(request)
    ref.requeue(engine.now_ms, 0, maybe_persisted=True)
    request.finish()
    assert not ref.forget_sequence()
    assert ref.producer == (4000, 1, 0)


# Where no newer epoch can be had


def _reusing(*values: bytes) -> Engine:
    """An engine whose producer can get no newer epoch; its partition has one acknowledged record and these batches."""
    engine = Engine(batch_size=1000, is_idempotent=True)
    engine.drain.set_producer(4000, 1, reuses_sequences=True)
    engine.introduce()
    for value in values:
        engine.append(value * 900)
    return engine


def test_sequences_of_refused_batches_are_used_again_once_all_have_their_outcome() -> None:
    engine = _reusing(b"a", b"b", b"c")
    first, second = engine.take(), engine.take()
    only_ref(first).fail(ValueError("refused"))
    first.finish()
    engine.clock.advance(engine.drain.linger_ms)
    assert engine.drain.drain(1, engine.now_ms) is None  # b may still be on its way
    only_ref(second).fail(ValueError("out of order"))
    second.finish()
    assert engine.ready_nodes() == [1]
    assert not engine.drain.wants_epoch
    assert _sequences(engine) == [(4000, 1, 1)]


def test_first_sequence_of_a_partition_is_used_again() -> None:
    engine = Engine(is_idempotent=True)
    engine.drain.set_producer(4000, 1, reuses_sequences=True)
    engine.append(b"a")
    request = engine.take()
    only_ref(request).fail(ValueError("refused"))
    request.finish()
    engine.append(b"b")
    assert _sequences(engine) == [(4000, 1, 0)]


@pytest.mark.parametrize("is_requeued", [True, False])
@pytest.mark.parametrize("is_said_by_error", [True, False])
def test_sequence_that_may_be_in_the_log_is_not_used_again(is_requeued: bool, is_said_by_error: bool) -> None:
    engine = _reusing(b"a", b"b")
    request = engine.take()
    if is_requeued:  # the answer to the first attempt was lost, that to the second is definite
        requeue(request, engine.now_ms, 0, maybe_persisted=True)
        request = engine.take()
        only_ref(request).fail(ValueError("refused"))
    elif is_said_by_error:
        only_ref(request).fail(DeliveryTimeoutError("expired", possibly_persisted=True))
    else:
        only_ref(request).fail(ValueError("no answer"), maybe_persisted=True)
    request.finish()
    engine.clock.advance(engine.drain.linger_ms)
    assert engine.ready_nodes() == []
    assert engine.drain.wants_epoch
    engine.drain.set_producer(4000, 2, reuses_sequences=True)  # a doubt ends with its epoch
    request = engine.take()
    assert only_ref(request).producer == (4000, 2, 0)
    only_ref(request).fail(ValueError("refused"))
    request.finish()
    engine.append(b"c")
    assert _sequences(engine) == [(4000, 2, 0)]


def test_batches_for_a_leader_that_forgot_the_producer_begin_at_zero_one_at_a_time() -> None:
    engine = _reusing(b"a", b"b", b"c")
    request = engine.take()
    only_ref(request).fail(ValueError("the producer is not known"))
    only_ref(request).note_producer_unknown()
    request.finish()
    assert _sequences(engine) == [(4000, 1, 0)]


def test_other_producers_wait_for_an_epoch_after_a_refused_batch() -> None:
    engine = Engine(batch_size=1000, is_idempotent=True)
    engine.introduce()
    engine.append(b"a" * 900)
    request = engine.take()
    only_ref(request).fail(ValueError("refused"))
    request.finish()
    engine.append(b"b")
    assert engine.drain.drain(1, engine.now_ms) is None
    assert engine.drain.wants_epoch


# Where the numbers wrap


@pytest.fixture(scope="module")
def probe() -> ModuleType:
    return building.load("partition_probe")


def _engine_at(probe: ModuleType, next_sequence: int) -> Engine:
    engine = Engine(batch_size=1000, is_idempotent=True)
    engine.append(b"the partition's first batch takes the producer's id")
    succeed(engine.take())
    probe.set_sequences(engine.accumulator.topics[TOPIC], 0, next_sequence, next_sequence - 1)
    return engine


def _state(probe: ModuleType, engine: Engine) -> tuple[int, ...]:
    state: tuple[int, ...] = probe.sequences(engine.accumulator.topics[TOPIC], 0)
    return state


@pytest.mark.parametrize(
    ("start", "count", "following"),
    [(0, 1, 1), (INT32_MAX - 1, 1, INT32_MAX), (INT32_MAX, 1, 0), (INT32_MAX - 2, 3, 0), (INT32_MAX, 3, 2)],
)
def test_sequence_after_the_largest_is_zero(probe: ModuleType, start: int, count: int, following: int) -> None:
    engine = _engine_at(probe, start)
    for _ in range(count):
        engine.append(b"v")
    request = engine.take()
    assert only_ref(request).producer == (4000, 1, start)
    assert decode_batch(batches_of(request)[0]).base_sequence == start
    succeed(request)
    engine.append(b"next")
    assert only_ref(engine.take()).producer == (4000, 1, following)


def test_acknowledgements_are_compared_across_the_wrap(probe: ModuleType) -> None:
    engine = _engine_at(probe, INT32_MAX)
    engine.append(b"x" * 900)
    engine.append(b"y" * 900)
    before, after = engine.take(), engine.take()
    assert [only_ref(request).producer[2] for request in (before, after)] == [INT32_MAX, 0]
    succeed(after)
    succeed(before)  # late: must not take the mark back
    assert _state(probe, engine)[2:4] == (1, 0)


def test_partition_is_resolved_across_the_wrap(probe: ModuleType) -> None:
    engine = _engine_at(probe, INT32_MAX)
    engine.append(b"x" * 900)
    engine.append(b"y" * 900)
    lost, known = engine.take(), engine.take()
    only_ref(lost).fail(TimeoutError("expired"))
    lost.finish()
    succeed(known)
    engine.append(b"z")
    assert only_ref(engine.take()).producer == (4000, 1, 1)


@pytest.mark.parametrize("last", [INT32_MAX - 1, INT32_MAX])
def test_sequences_are_used_again_across_the_wrap(probe: ModuleType, last: int) -> None:
    engine = _engine_at(probe, last)
    engine.drain.set_producer(4000, 1, reuses_sequences=True)
    for _ in range(2):
        engine.append(b"acknowledged" * 80)
        engine.append(b"refused" * 130)
        acknowledged, refused = engine.take(), engine.take()
        succeed(acknowledged)
        only_ref(refused).fail(ValueError("refused"))
        refused.finish()
    engine.append(b"next")
    assert only_ref(engine.take()).producer == (4000, 1, (last + 2) & INT32_MAX)


def test_requeued_batches_keep_their_order_across_the_wrap(probe: ModuleType) -> None:
    engine = _engine_at(probe, INT32_MAX)
    for value in (b"x", b"y"):
        engine.append(value * 900)
    for request in reversed(engine.take_all()):
        requeue(request, engine.now_ms, 0)
    first = engine.take()
    assert only_ref(first).producer[2] == INT32_MAX
    succeed(first)
    assert only_ref(engine.take()).producer[2] == 0


def test_in_flight_count_returns_to_zero(probe: ModuleType) -> None:
    engine = _engine_at(probe, 0)
    engine.append(b"v")
    request = engine.take()
    assert _state(probe, engine)[4] == 1
    requeue(request, engine.now_ms, 0)
    assert _state(probe, engine)[4] == 0
    succeed(engine.take())
    assert _state(probe, engine)[4] == 0
