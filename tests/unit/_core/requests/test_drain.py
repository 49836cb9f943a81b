"""Ready and drain: every rule as a case, with time as an argument.

Rules: producer-side semantics of RecordAccumulator.ready and drain (KIP-480, KIP-951), in drain.pyx; those of sequence
numbers are cases of test_sequences.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest

from kafkaprod._core.queues.accumulator import Accumulator
from kafkaprod._core.queues.buffer_pool import BufferPool
from kafkaprod._core.records.batch_reader import read_batches
from kafkaprod._core.requests.drain import Drain
from kafkaprod.compression import Codec, decompress, make_codec
from tests.support.codecs import codec_of
from tests.support.core.core_engine import (
    TOPIC,
    Engine,
    batches_of,
    body_of,
    partitions_of,
    requeue,
    succeed,
    values_of,
)
from tests.support.core.core_model import decode_produce_body

LINGER = 5
LINGER_SLACK_US = 150
FULL = b"x" * 900  # two of them do not fit batch_size=1000


def _requeued(engine: Engine, backoff_ms: int = 100) -> None:
    engine.append(b"v")
    requeue(engine.take(), engine.now_ms, backoff_ms)


def _two_batches(engine: Engine) -> None:
    engine.append(FULL)
    engine.append(FULL)


def _closed_by_a_record_that_did_not_fit(engine: Engine) -> None:
    _two_batches(engine)
    succeed(engine.take())  # the first one; the second is open


def _exhausted(engine: Engine) -> None:
    engine.append(b"v")
    engine.pool.enqueue_waiter(engine.pool.capacity, lambda: None)


def _waited_for_bytes_that_are_free(engine: Engine) -> None:
    engine.append(b"v")
    engine.pool.enqueue_waiter(1024, lambda: None)


def _flush(engine: Engine) -> None:
    engine.append(b"v")
    engine.accumulator.begin_flush()


def _ended_flush(engine: Engine) -> None:
    _flush(engine)
    engine.accumulator.end_flush()


def _closed(engine: Engine) -> None:
    engine.append(b"v")
    engine.accumulator.close()


def _leader_changed_while_backing_off(engine: Engine) -> None:
    engine.lead([1], epochs=[7])
    _requeued(engine)
    engine.lead([1], epochs=[8])


def _leader_stayed_while_backing_off(engine: Engine) -> None:
    engine.lead([1], epochs=[7])
    _requeued(engine)
    engine.lead([1], epochs=[7])


@dataclass(frozen=True)
class Case:
    """What is in the queue, and from when on (ms after it was put there) the node is ready; None: not by time."""

    name: str
    arrange: Callable[[Engine], None]
    ready_after_ms: int | None


CASES = [
    Case("nothing queued", lambda engine: None, None),
    Case("open batch lingers", lambda engine: engine.append(b"v") and None, LINGER),
    Case("more than one batch queued", _two_batches, 0),
    Case("only the open rest is left", _closed_by_a_record_that_did_not_fit, LINGER),
    Case("requeued batch backs off", _requeued, 100),
    Case("requeued without backoff", lambda engine: _requeued(engine, 0), 0),
    Case("somebody waits for memory", _exhausted, 0),
    Case("somebody waits for bytes that are free by now", _waited_for_bytes_that_are_free, LINGER),
    Case("flush in progress", _flush, 0),
    Case("flush is over", _ended_flush, LINGER),
    Case("closing", _closed, 0),
    Case("leader changed while backing off", _leader_changed_while_backing_off, 0),
    Case("leader stayed while backing off", _leader_stayed_while_backing_off, 100),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_node_becomes_ready(case: Case) -> None:
    engine = Engine(batch_size=1000, linger_ms=LINGER)
    case.arrange(engine)
    if case.ready_after_ms is None:
        engine.clock.advance(1_000_000)
        assert engine.ready_nodes() == []
        return
    if case.ready_after_ms > 0:
        engine.clock.advance(case.ready_after_ms - 1)
        assert engine.ready_nodes() == []
        assert 0 < engine.drain.next_check_us - engine.now_us <= 1000
        engine.clock.advance(1)
    assert engine.ready_nodes() == [1]
    succeed(engine.take())


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.name == "requeued batch backs off"], ids=lambda c: c.name
)
@pytest.mark.parametrize("hurry", [_exhausted, _flush, _closed], ids=["memory", "flush", "close"])
def test_hurry_does_not_lift_backoff(case: Case, hurry: Callable[[Engine], None]) -> None:
    engine = Engine(batch_size=1000)
    case.arrange(engine)
    hurry(engine)
    assert engine.ready_nodes() == []
    assert engine.drain.drain(1, engine.now_ms) is None


def test_who_waits_for_a_node_makes_its_batches_sendable_and_no_others() -> None:
    engine = Engine(leaders=[1, 2])
    engine.append(b"v", 0)
    engine.append(b"v", 1)
    engine.pool.set_limit(1, 1024)
    ticket = engine.pool.enqueue_waiter(2048, lambda: None)
    assert engine.ready_nodes() == []
    assert engine.try_append(b"v" * 1500, 0, ticket=ticket) is None
    assert engine.ready_nodes() == [1]
    engine.pool.dequeue_waiter(ticket)
    assert engine.ready_nodes() == []


def test_request_says_whether_its_node_has_more_to_send() -> None:
    engine = Engine(batch_size=1000, max_request_bytes=1500)
    engine.append(b"v")
    assert not engine.take().leaves_more
    for _ in range(2):
        engine.append(FULL)
    assert engine.take().leaves_more  # one batch of a partition at most
    assert not engine.take().leaves_more
    engine.lead([1, 1])
    for partition in (0, 1):
        engine.append(FULL, partition)
    assert engine.take().leaves_more  # both would be larger than a request
    assert not engine.take().leaves_more


def test_asking_for_hurry_makes_an_open_batch_sendable() -> None:
    engine = Engine()
    engine.append(b"v")
    assert engine.drain.ready(engine.now_us, hurry=False)[0] == []
    assert engine.drain.ready(engine.now_us, hurry=True)[0] == [1]


def test_full_batch_is_ready_before_linger_once_a_record_did_not_fit() -> None:
    engine = Engine(batch_size=1000)
    engine.append(FULL)
    assert engine.ready_nodes() == []
    engine.append(b"y" * 200)
    assert engine.ready_nodes() == [1]


def test_partition_without_leader_names_its_topic_and_sends_nothing() -> None:
    engine = Engine(leaders=[-1, 1])
    engine.append(b"v", 0)
    engine.clock.advance(1_000)
    assert engine.drain.ready(engine.now_us) == ([], {TOPIC})
    engine.lead([2, 1])
    assert engine.drain.ready(engine.now_us) == ([2], set())


def test_leaderless_partition_without_data_is_not_asked_for() -> None:
    engine = Engine(leaders=[-1, 1])
    engine.append(b"v", 1)
    assert engine.drain.ready(engine.now_us)[1] == set()


def test_linger_ends_early_by_what_timers_are_late() -> None:
    engine = Engine(linger_ms=LINGER)
    engine.append(b"v")
    end_us = engine.now_us + LINGER * 1000 - LINGER_SLACK_US
    assert engine.drain.ready(end_us - 1)[0] == []
    assert engine.drain.next_check_us == end_us
    assert engine.drain.ready(end_us)[0] == [1]


def test_next_check_is_the_earliest_of_all_partitions() -> None:
    engine = Engine(leaders=[1, 2, 1])
    engine.append(b"v", 0)
    engine.clock.advance(2)
    engine.append(b"v", 1)
    engine.ready_nodes()
    assert engine.drain.next_check_us == engine.now_us + (LINGER - 2) * 1000 - LINGER_SLACK_US


def test_only_nodes_with_something_sendable_are_named() -> None:
    engine = Engine(leaders=[1, 2, 3])
    engine.append(b"v", 0)
    engine.clock.advance(LINGER)
    engine.append(b"v", 2)
    assert engine.ready_nodes() == [1]


def test_unknown_node_drains_nothing() -> None:
    assert Engine().drain.drain(99, 0) is None


def test_one_batch_per_partition_and_request() -> None:
    engine = Engine(leaders=[1, 1], batch_size=1000)
    for _ in range(3):
        engine.append(FULL, 0)
    engine.append(FULL, 1)
    assert [partitions_of(request) for request in engine.take_all()] == [[0, 1], [0], [0]]


def test_partitions_of_other_nodes_are_left_alone() -> None:
    engine = Engine(leaders=[1, 2])
    engine.append(b"one", 0)
    engine.append(b"two", 1)
    assert values_of(engine.take(2)) == [b"two"]
    assert values_of(engine.take(1)) == [b"one"]


def test_request_stops_before_its_size_limit_and_the_next_goes_on_there() -> None:
    engine = Engine(leaders=[1] * 5, max_request_bytes=2000)
    for partition in range(5):
        engine.append(FULL, partition)
    requests = engine.take_all()
    assert [partitions_of(request) for request in requests] == [[0, 1], [2, 3], [4]]
    assert all(sum(map(len, batches_of(request))) <= 2000 for request in requests)


def test_batch_above_the_size_limit_goes_alone() -> None:
    engine = Engine(leaders=[1] * 3, max_request_bytes=2000, batch_size=4000)
    engine.append(b"small", 0)
    engine.append(b"x" * 3000, 1)
    engine.append(b"small", 2)
    assert [partitions_of(request) for request in engine.take_all()] == [[0], [1], [2]]


def test_drain_goes_on_where_the_last_one_of_that_node_stopped() -> None:
    engine = Engine(leaders=[1, 2, 1, 2, 1], batch_size=1000, max_request_bytes=1000)
    order = []
    for _ in range(2):
        for partition in range(5):
            engine.append(FULL, partition)
    for node_id in [1, 2, 2, 1, 1, 1, 1, 2, 2, 1]:
        order += [(node_id, partition) for partition in partitions_of(engine.take(node_id))]
    assert [partition for node_id, partition in order if node_id == 1] == [0, 2, 4, 0, 2, 4]
    assert [partition for node_id, partition in order if node_id == 2] == [1, 3, 1, 3]


def test_starting_place_survives_a_metadata_update() -> None:
    engine = Engine(leaders=[1] * 3, max_request_bytes=1000)
    for partition in range(3):
        engine.append(FULL, partition)
    assert partitions_of(engine.take()) == [0]
    engine.lead([1] * 3)
    assert partitions_of(engine.take()) == [1]


def test_batch_that_backs_off_is_passed_over() -> None:
    engine = Engine(leaders=[1, 1])
    engine.append(b"later", 0)
    requeue(engine.take(), engine.now_ms)
    engine.append(b"now", 1)
    assert values_of(engine.take()) == [b"now"]
    engine.clock.advance(100)
    assert values_of(engine.take()) == [b"later"]


def test_records_are_in_time_for_a_batch_until_it_is_drained() -> None:
    engine = Engine()
    engine.append(b"first")
    engine.clock.advance(LINGER)
    engine.append(b"second")
    request = engine.take()
    engine.append(b"third")
    assert values_of(request) == [b"first", b"second"]


def test_muting_engine_keeps_one_batch_in_flight_per_partition() -> None:
    engine = Engine(leaders=[1, 1], batch_size=1000, mutes=True)
    _two_batches(engine)
    engine.append(FULL, 1)
    first = engine.take()
    assert partitions_of(first) == [0, 1]
    assert engine.ready_nodes() == []
    assert engine.drain.drain(1, engine.now_ms) is None
    succeed(first)
    assert engine.drain.ready(engine.now_us, hurry=True)[0] == [1]
    succeed(engine.take())


def test_muting_engine_sends_a_requeued_batch_before_newer_ones() -> None:
    engine = Engine(batch_size=1000, mutes=True)
    for value in [b"a", b"b"]:
        engine.append(value * 900)
    requeue(engine.take(), engine.now_ms, backoff_ms=100)
    assert engine.drain.drain(1, engine.now_ms) is None  # b must not overtake a
    engine.clock.advance(100)
    assert values_of(engine.take()) == [b"a" * 900]


# Compression


def test_estimate_of_the_compressed_size_lets_more_batches_into_a_request() -> None:
    engine = Engine(leaders=[1] * 50, max_request_bytes=3000, codec=make_codec("zstd"))
    for _ in range(40):
        for partition in range(50):
            engine.append(b"a" * 900, partition)
        counts = [len(request) for request in engine.take_all()]
    assert counts[0] > 3  # three fit uncompressed


def test_batch_that_the_codec_refuses_fails_and_the_others_go() -> None:
    def refuse(parts: Any) -> bytes:
        if any(b"bad" in bytes(part) for part in parts):
            raise ValueError("cannot compress this")
        return b"".join(bytes(part) for part in parts)

    engine = Engine(leaders=[1, 1, 1], codec=Codec(4, "zstd", None, refuse))
    futures = [engine.append(value, partition) for partition, value in enumerate([b"good", b"bad", b"good"])]
    request = engine.take()
    assert partitions_of(request) == [0, 2]
    assert str(futures[1].exception(0)) == "cannot compress this"
    succeed(request)
    assert [future.failed() for future in futures] == [False, True, False]
    assert engine.pool.in_use == 0


def test_batches_of_a_request_are_compressed_by_several_workers() -> None:
    threads = set()
    together = threading.Barrier(2, timeout=10)

    def compress(parts: Any) -> bytes:
        threads.add(threading.current_thread().name)
        together.wait()  # only passed if two compress at the same time
        return b"".join(bytes(part) for part in parts)

    with ThreadPoolExecutor(2, "compressor") as workers:
        engine = Engine(leaders=[1, 1], codec=Codec(4, "zstd", None, compress), workers=workers)
        engine.append(b"one", 0)
        engine.append(b"two", 1)
        request = engine.take()
        assert [batch[22] & 7 for batch in batches_of(request)] == [4, 4]
        succeed(request)
    assert threads == {"compressor_0", "compressor_1"}


def test_worker_that_refuses_one_batch_fails_only_that() -> None:
    def refuse(parts: Any) -> bytes:
        if any(b"bad" in bytes(part) for part in parts):
            raise ValueError("cannot compress this")
        return b"".join(bytes(part) for part in parts)

    with ThreadPoolExecutor(2) as workers:
        engine = Engine(leaders=[1, 1], codec=Codec(4, "zstd", None, refuse), workers=workers)
        futures = [engine.append(b"good", 0), engine.append(b"bad", 1)]
        request = engine.take()
        succeed(request)
    assert [future.failed() for future in futures] == [False, True]
    assert engine.pool.in_use == 0


PARTITIONS = 8


@pytest.mark.parametrize("refused", [(), (0,), (3,), (7,), (1, 2, 6), tuple(range(1, PARTITIONS))])
@pytest.mark.parametrize("worker_count", [0, 1, 2, 4, PARTITIONS])
def test_each_batch_is_sent_with_what_its_own_records_became(worker_count: int, refused: tuple[int, ...]) -> None:
    codec = codec_of("lz4")

    def compress(parts: Any) -> bytes:
        content = b"".join(bytes(part) for part in parts)
        if any(content_of(partition) in content for partition in refused):
            raise ValueError("cannot compress this")
        return codec.compress([content])

    with ThreadPoolExecutor(worker_count or 1) as executor:
        workers = executor if worker_count else None
        engine = Engine(leaders=[1] * PARTITIONS, codec=codec._replace(compress=compress), workers=workers)
        futures = [engine.append(content_of(partition), partition) for partition in range(PARTITIONS)]
        request = engine.take()
        batches = decode_produce_body(7, body_of(request)).batches
        succeed(request)
    found = {partition: values_in(batch) for _, partition, batch in batches}
    sent = [partition for partition in range(PARTITIONS) if partition not in refused]
    assert found == {partition: [content_of(partition)] for partition in sent}
    assert [number for number, future in enumerate(futures) if future.failed()] == list(refused)
    assert engine.pool.in_use == 0


def content_of(partition: int) -> bytes:
    """Content of which no two partitions have the same, nor of the same length."""
    return b"content of partition %d, " % partition * (partition + 1)


def values_in(batch: bytes) -> list[bytes | None]:
    return [record.value for reader in read_batches(batch, decompress) for record in reader.records()]


def test_workers_that_have_shut_down_are_done_without() -> None:
    workers = ThreadPoolExecutor(1)
    workers.shutdown()
    engine = Engine(leaders=[1, 1], codec=make_codec("gzip"), workers=workers)
    engine.append(b"one", 0)
    engine.append(b"two", 1)
    request = engine.take()
    assert len(batches_of(request)) == 2
    succeed(request)


def test_request_whose_every_batch_the_codec_refuses_is_none() -> None:
    def refuse(parts: Any) -> bytes:
        raise ValueError("cannot compress anything")

    engine = Engine(codec=Codec(4, "zstd", None, refuse))
    future = engine.append(b"v")
    assert engine.drain.drain(1, engine.now_ms) is None
    assert future.failed()
    assert (engine.pool.in_use, engine.accumulator.incomplete_batch_count) == (0, 0)


# Fairness


@pytest.mark.parametrize("count", [2, 3, 7])
@pytest.mark.parametrize("between", [[], ["same"], ["same", "same"], ["grown"], ["another topic"]])
def test_each_partition_has_its_turn_whatever_the_metadata_says_meanwhile(count: int, between: list[str]) -> None:
    engine = Engine(leaders=[1] * count, batch_size=1000, max_request_bytes=1000, linger_ms=0)
    leaders, topics = [1] * count, 0
    for partition in range(count):
        for _ in range(3):
            engine.append(FULL, partition)
    sent: list[int] = []
    while len(sent) < 3 * count:
        (partition,) = partitions_of(request := engine.take())
        succeed(request)
        sent.append(partition)
        for change in between:
            leaders += [1] * (change == "grown")
            topics += change == "another topic"
            engine.lead(leaders)
            if topics:
                engine.lead([1], f"topic {topics}")
    for first in range(0, 3 * count, count):
        assert sorted(sent[first : first + count]) == list(range(count))


def test_a_node_with_one_partition_is_not_starved_by_one_with_two_thousand() -> None:
    """Everybody always has something to send; nobody waits more than one round longer than its share."""
    value = b"x" * 100
    batch_bytes = 61 + 109
    per_request = 10
    share = 2000 // per_request
    engine = Engine(leaders=[1] * 2000 + [2], max_request_bytes=per_request * batch_bytes, linger_ms=0)
    for partition in range(2001):
        engine.append(value, partition)
    sent_in_round: dict[int, list[int]] = {partition: [] for partition in range(2001)}
    for turn in range(3 * share):
        assert set(engine.ready_nodes()) == {1, 2}
        for node_id in (1, 2):
            request = engine.take(node_id)
            for partition in partitions_of(request):
                sent_in_round[partition].append(turn)
                engine.append(value, partition)
            succeed(request)
    assert sent_in_round.pop(2000) == list(range(3 * share))  # alone on its node: in every round
    for rounds in sent_in_round.values():
        assert len(rounds) == 3
        assert rounds[0] <= share
        assert all(after - before <= share + 1 for before, after in pairwise(rounds))


def test_constructing_a_drain_needs_no_topics() -> None:
    drain = Drain(Accumulator(BufferPool(4096)))
    drain.update_leaders()
    assert drain.ready(0) == ([], set())
