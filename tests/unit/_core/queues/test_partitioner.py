"""Sticky partitioning (KIP-480), weighted by queue lengths (KIP-794)."""

from collections import Counter
from itertools import pairwise

import pytest

from kafkaprod._core.columns.columns import Column
from kafkaprod._core.queues.blocks import Block
from kafkaprod._core.queues.partitioner import StickyPartitioner
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
    engine.placement.update_loads()
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
        engine.placement.update_loads()
    assert counts[1] > 5 * counts[0]


def test_new_partitions_of_a_grown_topic_are_used():
    engine = Engine(leaders=[1], batch_size=1000)
    assert set(_unkeyed(engine, 5, 900)) == {0}
    engine.lead([1, 1, 1, 1], TOPIC)
    assert set(_unkeyed(engine, 300, 900)) == {0, 1, 2, 3}
    assert partitions_of(engine.take()) == [0, 1, 2, 3]


# One batch a visit


def test_partition_is_left_when_its_batch_was_taken():
    engine = Engine(leaders=[1] * 6, batch_size=1 << 20)
    counts = Counter[int]()
    for _ in range(600):
        counts.update(_unkeyed(engine, 1))
        succeed(engine.take())
    assert max(counts.values()) <= 0.26 * 600
    assert min(counts.values()) >= 0.08 * 600


def test_partition_is_kept_while_its_batch_takes_records():
    engine = Engine(leaders=[1] * 6, batch_size=1 << 20)
    assert len(set(_unkeyed(engine, 500))) == 1


def test_block_leaves_a_partition_whose_batch_was_taken():
    engine = Engine(leaders=[1] * 6, batch_size=1 << 20)
    queues = engine.accumulator.topics[TOPIC]
    used = set[int]()
    for _ in range(60):
        block = Block(engine.accumulator, queues, Column.from_list([b"x" * 100] * 10, "values"))
        assert block.run(engine.now_ms)
        request = engine.take()
        (taken,) = partitions_of(request)
        used.add(taken)
        succeed(request)
    assert used == set(range(6))


def test_records_with_a_key_between_them_end_no_visit():
    engine = Engine(leaders=[1] * 6, batch_size=1 << 20)
    placed = set[int]()
    for number in range(200):
        engine.append(b"x" * 100, key=b"%d" % number, partition=-1)
        placed.update(_unkeyed(engine, 1))
    assert len(placed) == 1


def test_the_only_partition_is_drawn_again():
    engine = Engine(leaders=[1], batch_size=1000)
    for _ in range(5):
        assert _unkeyed(engine, 1) == [0]
        succeed(engine.take())


# Avoided and preferred nodes


def _draws(engine, count=60):
    return set(_unkeyed(engine, count, size=900)[1:])


def test_partitions_of_an_avoided_node_are_left_out_until_it_is_well():
    engine = Engine(leaders=[1, 1, 2, 2], batch_size=1000)
    engine.placement.avoid_nodes([2])
    assert _draws(engine) == {0, 1}
    engine.placement.update_loads()
    assert _draws(engine) == {0, 1}
    engine.placement.avoid_nodes([])
    assert _draws(engine) >= {2, 3}


@pytest.mark.parametrize("records", range(1, 5))
def test_current_partition_is_left_when_its_node_is_to_be_avoided(records):
    engine = Engine(leaders=[1, 2], batch_size=1 << 20)
    first = _unkeyed(engine, records)[-1]
    engine.placement.avoid_nodes([first + 1])
    assert _unkeyed(engine, 3) == [1 - first] * 3


def test_all_are_drawn_when_every_node_is_to_be_avoided():
    engine = Engine(leaders=[1, 2, -1], batch_size=1000, is_adaptive=False)
    engine.placement.avoid_nodes([1, 2])
    assert _draws(engine) == {0, 1}
    engine.lead([-1, -1, -1])
    assert _draws(engine) == {0, 1, 2}


def test_new_topic_begins_where_no_node_is_to_be_avoided():
    engine = Engine(leaders=[1, 2])
    engine.placement.avoid_nodes([1])
    for number in range(10):
        engine.lead([1, 2], topic=f"topic {number}")
        assert engine.append(b"x", -1, topic=f"topic {number}").partition == 1


def test_another_rack_is_better_than_a_sick_node():
    engine = Engine(leaders=[1, 2, 3], batch_size=1000)
    engine.placement.prefer_nodes([1, 2])
    engine.placement.avoid_nodes([1])
    assert _draws(engine) == {1}
    engine.placement.avoid_nodes([1, 2])
    assert _draws(engine) == {2}


def test_partition_that_is_left_keeps_its_order_and_begins_anew():
    engine = Engine(leaders=[1, 2], batch_size=1 << 20)
    first = _unkeyed(engine, 3)[0]
    engine.placement.prefer_nodes([2 - first])
    engine.placement.update_loads()
    assert _unkeyed(engine, 1) == [1 - first]
    engine.placement.prefer_nodes([first + 1])
    engine.placement.update_loads()
    assert _unkeyed(engine, 1) == [first]


@pytest.mark.parametrize("near", [1, 2, 3])
def test_first_record_of_a_topic_goes_to_a_preferred_node(near):
    engine = Engine(leaders=[1, 2, 3])
    engine.placement.prefer_nodes([near])
    for number in range(10):
        engine.lead([1, 2, 3], topic=f"topic {number}")
        assert engine.append(b"x", -1, topic=f"topic {number}").partition == near - 1


def test_partition_is_left_when_its_leader_moves_away_from_the_preferred_nodes():
    engine = Engine(leaders=[1, 1, 2])
    engine.placement.prefer_nodes([2])
    engine.lead([1, 1, 2])
    assert _unkeyed(engine, 1) == [2]
    engine.lead([2, 1, 1])
    assert _unkeyed(engine, 1) == [0]
    engine.lead([1, 1, 1])  # none is near: any will do
    assert _unkeyed(engine, 1)[0] in {0, 1, 2}


def test_near_partitions_are_preferred_while_there_are_any():
    engine = Engine(leaders=[1, 1, 2, 2], batch_size=1000)
    engine.placement.prefer_nodes([2])
    _unkeyed(engine, 1)
    engine.placement.update_loads()
    assert _draws(engine) == {2, 3}
    engine.placement.prefer_nodes([7])
    engine.placement.update_loads()
    assert _draws(engine) & {0, 1}
    engine.placement.prefer_nodes(None)
    assert engine.placement.preferred_nodes is None


def test_queue_lengths_do_not_matter_if_not_adaptive():
    engine = Engine(leaders=[1, 2], batch_size=1000, is_adaptive=False)
    for _ in range(40):
        engine.append(b"x" * 900, 0)
    _unkeyed(engine, 1)
    engine.placement.update_loads()
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


# Partitions that the sender has passed over


def _turn(engine, but=()):
    """Let a turn of the sender end that takes all that is due, but from these partitions' nodes."""
    for node in engine.ready_nodes():
        if node not in but and (request := engine.take(node)):
            succeed(request)
    engine.drain.end_turn(engine.now_ms * 1000, set())


def _append(engine, way):
    if way == "record":
        return engine.append(b"x" * 100, -1).partition
    block = Block(engine.accumulator, engine.accumulator.topics[TOPIC], Column.from_list([b"x" * 100] * 3))
    assert block.run(engine.now_ms)
    return block.row_runs[0][1]


WAYS = pytest.mark.parametrize("way", ["record", "block"])


@WAYS
def test_partition_that_the_sender_passed_over_is_left(way):
    engine = Engine(leaders=[1, 2], batch_size=1 << 20, linger_ms=5)
    counts = Counter[int]()
    for _ in range(200):
        partition = _append(engine, way)
        counts[partition] += 1
        engine.clock.advance(6)
        _turn(engine, but=(2,))
    assert counts[1] <= 10  # a draw finds nothing better in one of 2 ** MOST_DRAWS


@WAYS
def test_batch_that_still_lingers_was_not_passed_over(way):
    engine = Engine(leaders=[1] * 6, batch_size=1 << 20, linger_ms=50)
    placed = set[int]()
    for _ in range(10):
        placed.add(_append(engine, way))
        engine.clock.advance(4)
        _turn(engine)
    assert len(placed) == 1


def test_where_all_were_passed_over_records_of_a_turn_stay_together():
    engine = Engine(leaders=[1] * 50, batch_size=1 << 20)
    for partition in range(50):
        engine.append(b"x", partition)
    for _ in range(20):
        engine.clock.advance(10)
        engine.drain.end_turn(engine.now_ms * 1000, set())  # nothing was taken
        assert len({engine.append(b"x" * 100, -1).partition for _ in range(100)}) == 1


def test_partition_whose_batch_backs_off_is_left_with_what_is_queued_behind_it():
    engine = Engine(leaders=[1] * 3, batch_size=1 << 20, linger_ms=5)
    counts = Counter[int]()
    for _ in range(200):
        counts[_append(engine, "record")] += 1
        engine.clock.advance(6)
        if engine.ready_nodes():
            request = engine.take()
            for ref in request.refs():
                if ref.partition == 2:
                    ref.requeue(engine.now_ms, 1000)
                else:
                    ref.succeed()
            request.finish()
        engine.drain.end_turn(engine.now_ms * 1000, set())
    assert counts[2] <= 20


@WAYS
def test_partition_is_used_again_when_its_batches_were_taken(way):
    engine = Engine(leaders=[1, 2], batch_size=1 << 20, linger_ms=5)
    for behind in (True, False, True, False):
        counts = Counter[int]()
        for _ in range(100):
            counts[_append(engine, way)] += 1
            engine.clock.advance(6)
            _turn(engine, but=(2,) if behind else ())
        assert (counts[1] <= 8) if behind else (counts[1] >= 30), (behind, counts)
