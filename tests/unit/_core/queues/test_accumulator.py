"""Appending: topics, futures, full pool, flush marks, wakeups, who holds the memory."""

import gc

import pytest

from kafkaprod._core.queues.accumulator import Accumulator, memory_holders
from kafkaprod._core.queues.topic_queues import TopicQueues
from kafkaprod._core.requests.settlement import abort_batches, oldest_created_ms
from kafkaprod.errors import InvalidRecordError, ProducerClosedError, RecordTooLargeError
from tests.support.core.core_engine import TIMESTAMP, TOPIC, CountingResult, Engine, snapshot, succeed, values_of

# Topics


def test_topic_is_made_once_and_grows():
    engine = Engine(leaders=[1])
    first = engine.accumulator.topics[TOPIC]
    assert engine.lead([1, 2, 3]) is first
    assert (first.name, first.name_utf8, first.index, first.partition_count) == (TOPIC, b"orders", 0, 3)
    assert engine.lead([1], "other").index == 1


def test_topic_made_anew_with_fewer_partitions_takes_records_for_those_only():
    engine = Engine(leaders=[1, 1, 1], batch_size=1000)
    lost = engine.append(b"v", 2)
    engine.lead([1, 1])
    engine.clock.advance(1000)
    assert engine.drain.ready(engine.now_us) == ([], {TOPIC})  # what is left over there has no leader
    with pytest.raises(InvalidRecordError, match=r"partition=2 of topic 'orders' is outside 0..1"):
        engine.append(b"v", 2)
    assert {engine.append(b"x" * 900, -1).partition for _ in range(100)} == {0, 1}
    assert not lost.done()
    engine.lead([1, 1, 1])
    assert values_of(engine.take_all()[0])[-1] == b"v"


def test_growing_keeps_what_is_queued():
    engine = Engine(leaders=[1])
    engine.append(b"before")
    engine.lead([1] * 100)
    engine.append(b"after")
    assert values_of(engine.take()) == [b"before", b"after"]


def test_forgotten_topic_keeps_its_queues_until_it_is_known_again():
    engine = Engine(leaders=[1])
    queues = engine.accumulator.topics[TOPIC]
    future = engine.append(b"queued")
    engine.accumulator.forget_topic(TOPIC)
    engine.accumulator.forget_topic("never heard of")
    assert TOPIC not in engine.accumulator.topics
    assert engine.lead([1]) is queues
    request = engine.take()
    assert values_of(request) == [b"queued"]
    succeed(request)
    assert future.succeeded()


def test_use_of_a_topic_is_noticed_while_records_wait_and_once_after():
    engine = Engine(leaders=[1])
    assert not engine.accumulator.take_used(TOPIC)
    assert not engine.accumulator.take_used("never heard of")
    engine.append(b"v")
    assert engine.accumulator.take_used(TOPIC)
    assert engine.accumulator.take_used(TOPIC)  # it still waits
    succeed(engine.take())
    assert not engine.accumulator.take_used(TOPIC)
    engine.append(b"v")
    succeed(engine.take())
    assert engine.accumulator.take_used(TOPIC)
    assert not engine.accumulator.take_used(TOPIC)


def test_forgotten_topic_keeps_its_leaders_and_is_noticed_when_it_is_used_again():
    engine = Engine(leaders=[1, -1])
    queues = engine.accumulator.topics[TOPIC]
    engine.accumulator.forget_topic(TOPIC)
    assert queues.leaders == (1, -1)
    assert engine.accumulator.forgotten_topics_in_use() == []
    assert engine.accumulator.append(queues, None, b"v", None, 0) is not None
    assert engine.accumulator.forgotten_topics_in_use() == [TOPIC]
    engine.lead([2, 1])
    assert queues.leaders == (2, 1)
    assert engine.accumulator.forgotten_topics_in_use() == []


def test_topic_that_is_not_utf8_is_refused():
    engine = Engine()
    before = snapshot(engine)
    with pytest.raises(InvalidRecordError, match=r"topic '\\ud800' cannot be written as UTF-8"):
        engine.accumulator.set_topic("\ud800", [1])
    assert snapshot(engine) == before


def test_topic_without_partitions_is_refused():
    engine = Engine()
    with pytest.raises(InvalidRecordError, match="'empty' needs at least one partition"):
        engine.accumulator.set_topic("empty", [])
    assert "empty" not in engine.accumulator.topics


@pytest.mark.parametrize("seed", range(20))
def test_records_without_a_key_go_to_a_partition_with_a_leader_from_the_first_on(seed):
    engine = Engine(leaders=[-1, -1, 3, -1], seed=seed)
    assert engine.append(b"v", -1).partition == 2
    engine.lead([1, -1, -1, -1])  # the sticky partition has lost its leader
    assert engine.append(b"v", -1).partition == 0
    engine.lead([-1, -1, -1, -1])
    assert engine.append(b"v", -1).partition == 0


def test_topics_are_made_by_the_accumulator_only():
    with pytest.raises(TypeError, match="cannot create"):
        TopicQueues("x", 0)


# Refused records


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"value": "text"}, InvalidRecordError, "value must be bytes-like or None, not str"),
        ({"value": b"v", "key": 7}, InvalidRecordError, "key must be bytes-like or None, not int"),
        ({"value": b"v", "headers": [("h", 1)]}, InvalidRecordError, r"headers\[0\] value"),
        ({"value": b"v", "partition": -2}, InvalidRecordError, r"partition=-2 of topic 'orders' is outside 0..2"),
        ({"value": b"v", "partition": 3}, InvalidRecordError, r"partition=3 of topic 'orders' is outside 0..2"),
        ({"value": b"v", "timestamp": -2}, InvalidRecordError, "timestamp=-2 is outside -1"),
        (
            {"value": b"x" * 2000},
            RecordTooLargeError,
            r"record of up to 2025 bytes for topic 'orders' exceeds 2000 bytes",
        ),
    ],
)
def test_refused_record_changes_nothing(arguments, error, message):
    engine = Engine(leaders=[1, 1, 1], max_record_bytes=2000)
    engine.append(b"here before")
    before = snapshot(engine)
    with pytest.raises(error, match=message):
        engine.append(**arguments)
    assert snapshot(engine) == before
    assert values_of(engine.take()) == [b"here before"]


def test_record_of_exactly_the_limit_is_taken():
    engine = Engine(max_record_bytes=2000)
    engine.append(b"x" * (2000 - 21 - 2 - 1 - 1))


def test_limit_never_exceeds_what_the_pool_holds():
    engine = Engine(pool_bytes=4096, max_record_bytes=1 << 20)
    with pytest.raises(RecordTooLargeError, match="exceeds 3840 bytes, the limit"):
        engine.append(b"x" * 4000)


def test_closed_accumulator_takes_nothing():
    engine = Engine()
    engine.accumulator.close()
    before = snapshot(engine)
    with pytest.raises(ProducerClosedError):
        engine.append(b"v")
    assert snapshot(engine) == before


# Full pool


def test_full_pool_refuses_without_writing_and_goes_on_after_a_release():
    engine = Engine(pool_bytes=4096, batch_size=1024)
    count = 0
    while engine.try_append(b"x" * 400) is not None:
        count += 1
    before = snapshot(engine)
    assert engine.try_append(b"y" * 400) is None
    assert snapshot(engine) == before
    request = engine.take()
    assert engine.try_append(b"y" * 400) is None  # still referenced by the request
    succeed(request)
    engine.append(b"y" * 400)
    values = [value for request in engine.take_all() for value in values_of(request)]
    assert values == [b"x" * 400] * (count - 2) + [b"y" * 400]


def test_record_that_fits_the_open_batch_needs_no_memory():
    engine = Engine(pool_bytes=1024)
    engine.append(b"a")
    engine.append(b"b")
    assert engine.pool.available == 0
    assert values_of(engine.take()) == [b"a", b"b"]


def test_ticket_holder_appends_when_its_turn_has_come():
    engine = Engine(leaders=[1, 1], pool_bytes=2048)
    engine.append(b"a" * 800, 0)
    engine.append(b"b" * 800, 1)
    need = Accumulator.memory_need(None, b"c" * 800)
    assert need == 1024
    woken = []
    ticket = engine.pool.enqueue_waiter(need, lambda: woken.append(True))
    assert engine.try_append(b"c" * 800, 0, ticket=ticket) is None
    assert engine.ready_nodes() == [1]  # a waiter makes everything sendable
    succeed(engine.take())
    assert engine.pool.wake_waiters()
    assert woken == [True]
    engine.append(b"d" * 800, 1)  # there is enough for both
    assert engine.try_append(b"overtakes" * 100, 1) is None
    engine.append(b"c" * 800, 0, ticket=ticket)
    engine.pool.dequeue_waiter(ticket)
    assert engine.pool.waiter_count == 0


def test_report_of_memory_names_who_holds_the_memory_largest_first():
    engine = Engine(leaders=[7, 8, 9])
    engine.append(b"x" * 100, 0)
    for _ in range(40):
        engine.append(b"x" * 1000, 1)
    held = memory_holders(engine.accumulator)
    assert [(topic, partition, leader) for topic, partition, leader, _, _ in held] == [(TOPIC, 1, 8), (TOPIC, 0, 7)]
    assert sum(size for _, _, _, size, _ in held) == engine.pool.in_use
    assert sum(batches for *_, batches in held) == engine.accumulator.incomplete_batch_count
    assert len(memory_holders(engine.accumulator, 1)) == 1


def test_report_of_memory_counts_what_is_in_flight():
    engine = Engine(leaders=[7])
    engine.append(b"x")
    request = engine.take(7)
    assert memory_holders(engine.accumulator) == [(TOPIC, 0, 7, 1024, 1)]
    succeed(request)
    assert memory_holders(engine.accumulator) == []


# Flush and wakeup


def _held_by_node(engine):
    return {node: held for node, held, _ in engine.pool.shares() if held}


def test_memory_of_a_queue_goes_with_its_leader_and_stays_in_flight():
    engine = Engine(leaders=[1], batch_size=2000)
    for _ in range(2):
        engine.append(b"x" * 900)
    first_batch = engine.pool.in_use
    engine.append(b"x" * 900)
    second_batch = engine.pool.in_use - first_batch
    in_flight = engine.take()
    engine.lead([2])
    assert _held_by_node(engine) == {1: first_batch, 2: second_batch}
    succeed(in_flight)
    assert _held_by_node(engine) == {2: second_batch}
    engine.append(b"x" * 900)  # the open batch goes on under its new leader
    engine.lead([-1])
    assert list(_held_by_node(engine)) == [-1]
    engine.lead([1])
    assert list(_held_by_node(engine)) == [1]
    for request in engine.take_all():
        succeed(request)
    assert _held_by_node(engine) == {}


def test_flush_is_over_when_everything_before_its_mark_has_an_outcome():
    engine = Engine(leaders=[1, 1])
    engine.append(b"a", 0)
    mark = engine.accumulator.begin_flush()
    request = engine.take()
    engine.append(b"b", 1)
    assert 0 < engine.accumulator.oldest_serial <= mark
    succeed(request)
    assert engine.accumulator.oldest_serial > mark
    engine.accumulator.end_flush()


def test_flush_of_nothing_is_over_at_once():
    engine = Engine()
    assert engine.accumulator.begin_flush() == 0
    assert engine.accumulator.oldest_serial == 0


def test_sleeping_sender_is_woken_once_by_news():
    engine = Engine(batch_size=1000)
    engine.append(b"v")
    assert engine.wakeups == 0  # it was not asleep
    engine.accumulator.set_sender_sleeps(True)
    engine.append(b"v")
    assert engine.wakeups == 0  # no news: the batch is neither full nor new
    engine.append(b"x" * 930)
    assert engine.wakeups == 1
    engine.append(b"x" * 930)
    assert engine.wakeups == 1  # told once, until it sleeps again
    engine.accumulator.set_sender_sleeps(True)
    engine.accumulator.begin_flush()
    assert engine.wakeups == 2
    engine.accumulator.set_sender_sleeps(True)
    engine.accumulator.close()
    assert engine.wakeups == 3


@pytest.mark.parametrize("partition", [-1, 0])
def test_sender_is_woken_before_python_code_makes_a_result(partition):
    """A signal handler may run there, and wait for a record: in this batch, which nobody else will tell of."""
    wakeups = []

    def make_result(topic, partition):
        wakeups.append(engine.wakeups)
        return CountingResult(topic, partition)

    engine = Engine(make_result=make_result)
    engine.accumulator.set_sender_sleeps(True)
    engine.append(b"v", partition=partition)
    assert wakeups == [1]
    assert engine.wakeups == 1


def test_sender_that_looks_again_soon_is_woken_by_full_batches_only():
    engine = Engine([1, 1], batch_size=1000)
    engine.accumulator.set_sender_sleeps(True)
    engine.accumulator.let_new_batches_linger()
    engine.append(b"v", partition=0)
    engine.append(b"v", partition=1)
    assert engine.wakeups == 0
    engine.append(b"x" * 990, partition=1)
    assert engine.wakeups == 1


def test_full_pool_wakes_the_sender():
    engine = Engine(pool_bytes=1024)
    engine.append(b"x" * 700)
    engine.accumulator.set_sender_sleeps(True)
    assert engine.try_append(b"x" * 700) is None
    assert engine.wakeups == 1


# Results


def test_one_result_object_per_batch():
    engine = Engine(batch_size=1000)
    futures = [engine.append(b"x" * 300) for _ in range(4)]
    assert len(engine.results) == 2
    for offset, request in zip([50, 90], engine.take_all(), strict=True):
        succeed(request, offset)
    assert [future.result(0).offset for future in futures] == [50, 51, 52, 90]
    assert [result.told_count for result in engine.results] == [1, 1]


def test_result_factory_may_run_anything():
    """The factory is Python: the sender may finish and free the very batch meanwhile."""
    engine = Engine()

    def factory(topic, partition):
        abort_batches(engine.accumulator, ValueError("closing"))
        gc.collect()
        result = CountingResult(topic, partition)
        engine.results.append(result)
        return result

    accumulator = Accumulator(engine.pool, 1000, 1000, factory)
    queues = accumulator.set_topic("t", [1])
    engine.accumulator = accumulator
    future = accumulator.append(queues, None, b"v", timestamp=TIMESTAMP)
    assert future is not None
    assert future.failed()
    assert str(future.exception(0)) == "closing"
    assert engine.pool.in_use == 0
    # The failure made a result of its own meanwhile; that one counts.
    assert sorted(result.told_count for result in engine.results) == [0, 1]


def test_factory_that_raises_leaves_the_record_queued():
    engine = Engine()

    def factory(topic, partition):
        raise ValueError("no result today")

    accumulator = Accumulator(engine.pool, 1000, 1000, factory)
    queues = accumulator.set_topic("t", [1])
    with pytest.raises(ValueError, match="no result today"):
        accumulator.append(queues, None, b"v")
    assert accumulator.incomplete_batch_count == 1


def test_oldest_batch_is_known_by_its_first_record():
    engine = Engine(leaders=[1, 1])
    assert oldest_created_ms(engine.accumulator) is None
    engine.append(b"a", 0)
    created = engine.now_ms
    engine.clock.advance(10)
    engine.append(b"b", 1)
    engine.append(b"a", 0)
    assert oldest_created_ms(engine.accumulator) == created


def test_dropping_everything_with_records_queued_and_in_flight_is_harmless():
    engine = Engine(leaders=[1, 1], batch_size=1000)
    pool = engine.pool
    futures = [engine.append(b"x" * 900, partition) for partition in (0, 0, 1)]
    request = engine.take()
    refs = request.refs()
    del engine, request, refs
    gc.collect()
    assert not any(future.done() for future in futures)
    assert pool.in_use == 0
