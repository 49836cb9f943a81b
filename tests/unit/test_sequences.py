"""Sequence numbers where they wrap; the other sequence rules are cases of test_drain."""

from types import ModuleType

import pytest

from tests.core_engine import TOPIC, Engine, batches_of, only_ref, requeue, succeed
from tests.core_model import INT32_MAX, decode_batch
from tests.native import building


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
