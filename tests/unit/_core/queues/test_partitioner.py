"""Sticky partitioning (KIP-480), weighted by queue lengths (KIP-794)."""

from collections import Counter
from itertools import pairwise

import pytest

from kafkaprod._core.queues.partitioner import StickyPartitioner
from kafkaprod._core.requests.settlement import expired_batches
from kafkaprod.errors import InvalidRecordError
from tests.support.core.core_engine import TOPIC, Engine, partitions_of, succeed
from tests.support.core.faces import partition_of_key

DRAWS = 16_000


def _shares(partitioner):
    counts = Counter(partitioner.next() for _ in range(DRAWS))
    return {partition: count / DRAWS for partition, count in counts.items()}


def test_draw_is_uniform_without_loads():
    shares = _shares(StickyPartitioner(4, seed=7))
    assert shares == {partition: pytest.approx(0.25, abs=0.03) for partition in range(4)}


def test_short_queues_are_drawn_more_often():
    """Queues 0, 3, 1 give weights 4, 1, 3 (the example of KIP-794)."""
    partitioner = StickyPartitioner(3, seed=7)
    partitioner.set_loads([0, 1, 2], [0, 3, 1])
    expected = {0: 4 / 8, 1: 1 / 8, 2: 3 / 8}
    assert _shares(partitioner) == {partition: pytest.approx(share, abs=0.03) for partition, share in expected.items()}


def test_equal_queues_are_drawn_uniformly():
    partitioner = StickyPartitioner(2, seed=3)
    partitioner.set_loads([0, 1], [9, 9])
    assert _shares(partitioner)[0] == pytest.approx(0.5, abs=0.03)


def test_only_candidates_are_drawn():
    partitioner = StickyPartitioner(5, seed=1)
    partitioner.set_loads([1, 3])
    assert set(_shares(partitioner)) == {1, 3}


def test_current_is_what_was_drawn_last():
    partitioner = StickyPartitioner(100, seed=1)
    assert 0 <= partitioner.current < 100
    assert partitioner.next() == partitioner.current


def test_seeds_differ():
    def draws(seed):
        return [StickyPartitioner(1000, seed).current for _ in range(3)]

    assert len({tuple(draws(seed)) for seed in range(10)}) > 5


@pytest.mark.parametrize("count", [0, -3])
def test_topic_without_partitions_is_refused(count):
    with pytest.raises(InvalidRecordError, match=f"at least 1, not {count}"):
        StickyPartitioner(count)


@pytest.mark.parametrize(("candidates", "queues"), [([], None), ([1, 2], [1]), ([1], [])])
def test_loads_must_match_the_candidates(candidates, queues):
    partitioner = StickyPartitioner(3)
    with pytest.raises(InvalidRecordError, match="as many queue lengths as candidates"):
        partitioner.set_loads(candidates, queues)


# In the accumulator


def _unkeyed(engine, count, size=100):
    return [engine.append(b"x" * size, -1).partition for _ in range(count)]


def test_records_without_a_key_stay_on_one_partition_for_a_batch():
    engine = Engine(leaders=[1] * 50, batch_size=10_000)
    partitions = _unkeyed(engine, 1000)
    switches = sum(a != b for a, b in pairwise(partitions))
    bytes_per_batch = 10_000
    assert 1000 * 109 / bytes_per_batch / 2 - 2 <= switches <= 1000 * 109 / bytes_per_batch + 1


def test_records_without_a_key_reach_every_partition():
    engine = Engine(leaders=[1] * 8, batch_size=2_000)
    assert set(_unkeyed(engine, 3000)) == set(range(8))


def test_sticky_batches_are_nearly_full():
    engine = Engine(leaders=[1] * 8, batch_size=10_000)
    _unkeyed(engine, 2000)
    sizes = [ref.size_bytes for request in engine.take_all() for ref in request.refs()]
    assert sum(sizes) / len(sizes) > 0.8 * 10_000


def test_keyed_records_go_by_murmur2_over_all_partitions():
    engine = Engine(leaders=[1, -1, 1, -1, 1, -1, 1])
    for i in range(200):
        key = b"key-%d" % i
        assert engine.append(b"v", -1, key=key).partition == partition_of_key(key, 7)


def test_empty_key_is_a_key():
    engine = Engine(leaders=[1] * 10)
    assert {engine.append(b"v", -1, key=b"").partition for _ in range(50)} == {partition_of_key(b"", 10)}


def test_ignored_keys_are_placed_like_none():
    engine = Engine(leaders=[1] * 50)
    engine.accumulator.ignore_keys = True
    assert len({engine.append(b"v", -1, key=b"key-%d" % i).partition for i in range(50)}) == 1


def test_explicit_partition_wins_over_the_key():
    engine = Engine(leaders=[1] * 10)
    assert engine.append(b"v", 3, key=b"key-1").partition == 3


def test_loads_come_from_queues_of_partitions_with_a_leader():
    engine = Engine(leaders=[1, -1, 1], batch_size=1000)
    _unkeyed(engine, 1)
    engine.drain.update_loads()
    partitions = set(_unkeyed(engine, 200, size=900)[3:])
    assert 1 not in partitions


def test_long_queues_get_fewer_records():
    engine = Engine(leaders=[1, 2], batch_size=1000)
    for _ in range(40):
        engine.append(b"x" * 900, 0)
    counts = Counter[int]()
    for _ in range(300):
        counts.update(_unkeyed(engine, 1, size=900))
        for request in engine.take_all(2):
            succeed(request)
        engine.drain.update_loads()
    assert counts[1] > 5 * counts[0]


def test_new_partitions_of_a_grown_topic_are_used():
    engine = Engine(leaders=[1], batch_size=1000)
    assert set(_unkeyed(engine, 5, 900)) == {0}
    engine.lead([1, 1, 1, 1], TOPIC)
    assert set(_unkeyed(engine, 300, 900)) == {0, 1, 2, 3}
    assert partitions_of(engine.take()) == [0, 1, 2, 3]


# Availability and preference


def _engine_with_a_node_that_cannot_be_sent_to(timeout_ms, unavailable_ms):
    engine = Engine(leaders=[1, 1, 2, 2], batch_size=1000, availability_timeout_ms=timeout_ms)
    _unkeyed(engine, 1)
    engine.append(b"waits for node 2", 2)
    for node_id in (1, 2):
        engine.drain.note_node(node_id, engine.now_ms, can_send=True)
    engine.clock.advance(unavailable_ms)
    engine.drain.note_node(1, engine.now_ms, can_send=True)
    engine.drain.note_node(2, engine.now_ms, can_send=False)
    return engine


def _undrained_draws(engine, count=60):
    return set(_unkeyed(engine, count, size=900)[1:])


@pytest.mark.parametrize(
    ("timeout_ms", "unavailable_ms", "is_left_out"), [(100, 101, True), (100, 100, False), (0, 9_999, False)]
)
def test_partitions_whose_node_cannot_be_sent_to_are_left_out(timeout_ms, unavailable_ms, is_left_out):
    engine = _engine_with_a_node_that_cannot_be_sent_to(timeout_ms, unavailable_ms)
    engine.drain.update_loads()
    assert (2 not in _undrained_draws(engine)) == is_left_out


def test_node_is_drawn_again_when_it_can_be_sent_to():
    engine = _engine_with_a_node_that_cannot_be_sent_to(100, 500)
    engine.drain.note_node(2, engine.now_ms, can_send=True)
    engine.drain.update_loads()
    assert 2 in _undrained_draws(engine)


def test_node_is_drawn_again_once_nothing_waits_for_it():
    """Its batches expired: no drain will ever say that it is back, so it must get records to find out."""
    engine = _engine_with_a_node_that_cannot_be_sent_to(100, 500)
    for ref in expired_batches(engine.accumulator, engine.now_ms):
        ref.fail(TimeoutError("expired"))
    engine.drain.update_loads()
    assert _undrained_draws(engine) >= {2, 3}


@pytest.mark.parametrize("seed_records", range(1, 5))
def test_current_partition_is_left_when_its_node_cannot_be_sent_to(seed_records):
    engine = Engine(leaders=[1, 2], batch_size=1 << 20, availability_timeout_ms=100)
    first = _unkeyed(engine, seed_records)[-1]
    for node_id in (1, 2):
        engine.drain.note_node(node_id, engine.now_ms, can_send=True)
    engine.drain.update_loads()
    assert _unkeyed(engine, 1) == [first]  # nothing is wrong with it yet
    engine.clock.advance(101)
    engine.drain.note_node(first + 1, engine.now_ms, can_send=False)
    engine.drain.note_node(2 - first, engine.now_ms, can_send=True)
    engine.drain.update_loads()
    assert _unkeyed(engine, 3) == [1 - first] * 3


@pytest.mark.parametrize(("timeout_ms", "is_left"), [(100, True), (0, False)])
def test_current_partition_is_left_when_its_batches_wait_for_answers_that_do_not_come(timeout_ms, is_left):
    """Five batches of an idempotent producer are out, and the sixth may not go: the node is not even ready."""
    engine = Engine(leaders=[1, 2], is_idempotent=True, linger_ms=0, availability_timeout_ms=timeout_ms)
    for partition in (0, 1):
        engine.append(b"first", partition)
        succeed(engine.take(partition + 1))
    first = _unkeyed(engine, 1)[0]
    taken = [engine.take(first + 1)]
    for _ in range(4):
        engine.append(b"in flight", first)
        taken.append(engine.take(first + 1))
    for node_id in (1, 2):
        engine.drain.note_node(node_id, engine.now_ms, can_send=True)
    assert _unkeyed(engine, 1) == [first]
    engine.clock.advance(101)
    assert engine.drain.ready(engine.now_us) == ([], set())
    assert engine.drain.has_held == is_left
    engine.drain.update_loads()
    assert (_unkeyed(engine, 3) == [1 - first] * 3) == is_left
    succeed(taken[0])
    assert engine.drain.ready(engine.now_us)[0] != []
    assert not engine.drain.has_held


def test_current_partition_stays_when_no_node_can_be_sent_to():
    engine = Engine(leaders=[1, 2], batch_size=1 << 20, availability_timeout_ms=100)
    engine.append(b"waits", 0)
    engine.append(b"waits", 1)
    first = _unkeyed(engine, 1)[0]
    for can_send in (True, False):
        for node_id in (1, 2):
            engine.drain.note_node(node_id, engine.now_ms, can_send=can_send)
        engine.clock.advance(101)
    engine.drain.note_node(1, engine.now_ms, can_send=False)
    engine.drain.note_node(2, engine.now_ms, can_send=False)
    engine.drain.update_loads()
    assert _unkeyed(engine, 1) == [first]


def test_partition_that_is_left_keeps_its_order_and_begins_anew():
    engine = Engine(leaders=[1, 2], batch_size=1 << 20)
    first = _unkeyed(engine, 3)[0]
    engine.drain.prefer_nodes([2 - first])
    engine.drain.update_loads()
    assert _unkeyed(engine, 1) == [1 - first]
    engine.drain.prefer_nodes([first + 1])
    engine.drain.update_loads()
    assert _unkeyed(engine, 1) == [first]


@pytest.mark.parametrize("near", [1, 2, 3])
def test_first_record_of_a_topic_goes_to_a_preferred_node(near):
    engine = Engine(leaders=[1, 2, 3])
    engine.drain.prefer_nodes([near])
    for number in range(10):
        engine.lead([1, 2, 3], topic=f"topic {number}")
        assert engine.append(b"x", -1, topic=f"topic {number}").partition == near - 1


def test_partition_is_left_when_its_leader_moves_away_from_the_preferred_nodes():
    engine = Engine(leaders=[1, 1, 2])
    engine.drain.prefer_nodes([2])
    engine.lead([1, 1, 2])
    assert _unkeyed(engine, 1) == [2]
    engine.lead([2, 1, 1])
    assert _unkeyed(engine, 1) == [0]
    engine.lead([1, 1, 1])  # none is near: any will do
    assert _unkeyed(engine, 1)[0] in {0, 1, 2}


def test_near_partitions_are_preferred_while_there_are_any():
    engine = Engine(leaders=[1, 1, 2, 2], batch_size=1000)
    engine.drain.prefer_nodes([2])
    _unkeyed(engine, 1)
    engine.drain.update_loads()
    assert _undrained_draws(engine) == {2, 3}
    engine.drain.prefer_nodes([7])
    engine.drain.update_loads()
    assert _undrained_draws(engine) & {0, 1}
    engine.drain.prefer_nodes(None)
    assert engine.drain.preferred_nodes is None


def test_queue_lengths_do_not_matter_if_not_adaptive():
    engine = Engine(leaders=[1, 2], batch_size=1000, is_adaptive=False)
    for _ in range(40):
        engine.append(b"x" * 900, 0)
    _unkeyed(engine, 1)
    engine.drain.update_loads()
    counts = Counter(_unkeyed(engine, 400, size=900))
    assert 0.35 < counts[0] / 400 < 0.65


def test_records_without_a_key_leave_a_node_that_may_hold_no_more():
    engine = Engine(leaders=[1, 2, 1, 2], batch_size=1 << 20)
    first = _unkeyed(engine, 1)[0] % 2 + 1  # the node of the partition that was drawn
    engine.pool.set_limit(first, 4096)
    partitions = _unkeyed(engine, 200)
    held = {node: size for node, size, _ in engine.pool.shares()}
    assert held[first] <= 4096 < held[3 - first]
    assert all(partition % 2 + 1 != first for partition in partitions[-20:])


def test_records_without_a_key_wait_where_no_node_may_hold_more():
    engine = Engine(leaders=[1, 2], batch_size=1 << 20)
    for node in (1, 2):
        engine.pool.set_limit(node, 4096)
    while engine.try_append(b"x" * 100, -1) is not None:
        pass
    assert [held for _, held, limit in engine.pool.shares() if limit is not None] == [4096, 4096]
