"""Sequence numbers under fire: wrap, epochs used up, gaps, moves; a batch that may be written is never renumbered."""

from __future__ import annotations

import os
import random
import threading
from functools import partial
from typing import Any

import pytest

from kafkaprod.errors import RecordTooLargeError
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from kafkaprod.protocol.schema import Response
from tests.fault.producer_load import send_one, send_stamped
from tests.fault.record_checker import SendLedger, check_records
from tests.fault.scripted_broker import ScriptedCluster
from tests.fault.scripted_load import checked, producer_of
from tests.kafka.cluster import wait_until
from tests.native import building

OUT_OF_ORDER, TOO_LARGE, INVALID_RECORD = 45, 10, 87
SEEDS = int(os.environ.get("KAFKAPROD_SEEDS", "6"))
SMALL = {"batch_size": 400}  # three records a batch


def is_complete(ledger: SendLedger) -> bool:
    return all(send.completions for send in ledger.sends)


def has_requests(cluster: ScriptedCluster, count: int) -> bool:
    return len(cluster.requests) >= count


def test_sequences_wrap_behind_the_last_one() -> None:
    """2**31 - 1 is followed by 0; the state before the wrap is put there, as 2**31 records would take hours."""
    with ScriptedCluster({"t": 1}) as cluster, producer_of(cluster, **SMALL) as producer:
        ledger = SendLedger()
        assert send_one(producer, ledger, "t", 0).exception(20) is None
        start = 0x7FFFFFFF - 50
        building.load("partition_probe").set_sequences(producer.accumulator.topics["t"], 0, start, start - 1)
        with cluster.lock:
            (state,) = cluster.topics["t"].partitions[0].producers.values()
            state.last_sequence = start - 1
            state.window.clear()
        cluster.refuse(ApiKey.PRODUCE, 7, times=3, is_written=True)
        for _ in range(300):
            send_one(producer, ledger, "t", 0)
        producer.flush(20)
        assert checked(cluster, ledger).acknowledged == 301
        sequences = [attempt.producer[2] for attempt in cluster.produced]
        assert max(sequences) > start
        assert 0 <= min(sequences[2:]) < 300
        assert {attempt.producer[1] for attempt in cluster.produced} == {0}


def test_used_up_epoch_is_followed_by_a_new_producer_id() -> None:
    with ScriptedCluster({"t": 2}) as cluster:
        cluster.first_producer = (77, 32_765)
        with producer_of(cluster, **SMALL) as producer:
            ledger = SendLedger()
            for _ in range(6):
                assert send_one(producer, ledger, "t", 0).exception(20) is None
                cluster.refuse(ApiKey.PRODUCE, INVALID_RECORD, partition=0)
                assert send_one(producer, ledger, "t", 0).exception(20) is not None
                assert send_one(producer, ledger, "t", 1).exception(20) is None
            checked(cluster, ledger)
        assert {attempt.producer[0] for attempt in cluster.produced} == {77, 78}
        assert {attempt.producer[1] for attempt in cluster.produced} >= {32_765, 32_766, 32_767, 0}


def test_a_gap_that_the_broker_made_costs_no_further_record_and_nothing_is_written_twice() -> None:
    """The broker misses records that it acknowledged: the next ones are sent again under a new epoch."""
    with ScriptedCluster({"t": 1}) as cluster, producer_of(cluster) as producer:
        ledger = SendLedger()
        for _ in range(50):
            assert send_one(producer, ledger, "t", 0).exception(20) is None
            cluster.refuse(ApiKey.PRODUCE, OUT_OF_ORDER)
            assert send_one(producer, ledger, "t", 0).exception(20) is None
        assert send_one(producer, ledger, "t", 0).exception(20) is None
        assert checked(cluster, ledger).failed == 0


def test_out_of_order_for_a_later_batch_waits_for_the_first() -> None:
    """The first of five in flight is refused for a moment; the others are out of order until it is in."""
    with ScriptedCluster({"t": 1}) as cluster, producer_of(cluster, **SMALL) as producer:
        ledger = SendLedger()
        assert send_one(producer, ledger, "t", 0).exception(20) is None
        for _ in range(20):
            cluster.refuse(ApiKey.PRODUCE, 19)
            for _ in range(30):
                send_one(producer, ledger, "t", 0)
            producer.flush(20)
        assert OUT_OF_ORDER in {attempt.code for attempt in cluster.produced}
        assert checked(cluster, ledger).acknowledged == 601


def test_new_epoch_of_one_partition_leaves_batches_of_others_in_flight_alone() -> None:
    """Partition 0 loses batch after batch while the answers of the others, already written, are lost."""
    source = random.Random(4)
    with ScriptedCluster({"t": 16}, nodes=2) as cluster, producer_of(cluster, **SMALL) as producer:
        ledger = SendLedger()
        for number in range(100):
            cluster.refuse(ApiKey.PRODUCE, INVALID_RECORD, partition=0)
            if number % 5 == 0:
                cluster.hold(1)
            for _ in range(40):
                send_one(producer, ledger, "t", source.randrange(16))
            send_one(producer, ledger, "t", 0)
            if number % 5 == 3:
                cluster.reset_connections()
            if number % 5 == 4:
                cluster.release(1)
        cluster.release(1)
        producer.flush(30)
        report = checked(cluster, ledger)
        assert report.failed > 0
        assert len({attempt.producer[1] for attempt in cluster.produced}) > 10
        only_0 = {send.partition for send in ledger.sends if send.completions[0].error}
        assert only_0 == {0}


def test_batches_queued_behind_a_gap_are_renumbered_together() -> None:
    """The first is refused for a moment, so that the others are queued again with their numbers; then for good."""
    with ScriptedCluster({"t": 1}) as cluster, producer_of(cluster, **SMALL) as producer:
        ledger = SendLedger()
        for _ in range(20):
            assert send_one(producer, ledger, "t", 0).exception(20) is None
            cluster.refuse(ApiKey.PRODUCE, 19)
            cluster.refuse(ApiKey.PRODUCE, OUT_OF_ORDER, times=4)
            cluster.refuse(ApiKey.PRODUCE, INVALID_RECORD)
            for _ in range(30):
                send_one(producer, ledger, "t", 0)
            producer.flush(10)
        assert checked(cluster, ledger).acknowledged >= 20 * 20


@pytest.mark.parametrize("code", [19, 7])
def test_batch_in_flight_behind_a_gap_is_refused_for_a_moment(code: int) -> None:
    """Three in flight: refused for good, hence out of order, and an answer that says to try again."""
    with ScriptedCluster({"t": 1}) as cluster, producer_of(cluster, **SMALL) as producer:
        ledger = SendLedger()
        for _ in range(10):
            assert send_one(producer, ledger, "t", 0).exception(20) is None
            for each in (INVALID_RECORD, OUT_OF_ORDER, code):
                cluster.refuse(ApiKey.PRODUCE, each)
            cluster.hold(0)
            before = len(cluster.produced)
            for _ in range(9):
                send_one(producer, ledger, "t", 0)
            cluster.wait_for_batches(before + 3)
            cluster.release(0)
            producer.flush(10)
        assert checked(cluster, ledger).acknowledged >= 10


def test_leader_that_moves_while_answers_are_held_never_outruns_the_window() -> None:
    """The old leader keeps five answers back; the new one must not forget those batches before they are repeated."""
    options = {"metadata_max_age_ms": 20, **SMALL}
    with ScriptedCluster({"t": 1}, nodes=2) as cluster, producer_of(cluster, **options) as producer:
        ledger = SendLedger()
        assert send_one(producer, ledger, "t", 0).exception(20) is None
        for number in range(10):
            node = number % 2
            cluster.hold(node)
            sent = len(cluster.produced)
            for _ in range(15):
                send_one(producer, ledger, "t", 0)
            cluster.wait_for_batches(sent + 1)
            cluster.move_leader("t", 0, 1 - node)
            asked = len(cluster.requests)
            wait_until(partial(has_requests, cluster, asked + 2), 20, "metadata")
            for _ in range(60):
                send_one(producer, ledger, "t", 0)
            cluster.reset_connections()
            cluster.release(node)
            producer.flush(20)
        assert checked(cluster, ledger).failed == 0


def test_split_keeps_order_and_flush_waits_for_the_parts() -> None:
    """Batches of 60 records meet a limit of 1 KB, with other refusals in between."""
    source = random.Random(6)
    with ScriptedCluster({"t": 2}, largest_batch=1000) as cluster:
        with producer_of(cluster, batch_size=8192, linger_ms=5) as producer:
            ledger = SendLedger()
            for _ in range(40):
                futures = [send_one(producer, ledger, "t", source.randrange(2)) for _ in range(120)]
                cluster.refuse(ApiKey.PRODUCE, source.choice((6, 7, 19, 20)), is_written=False)
                producer.flush(20)
                assert all(future.done() for future in futures)
            assert checked(cluster, ledger).acknowledged == 4800
        assert sum(attempt.code == TOO_LARGE for attempt in cluster.produced) > 40


def test_single_record_too_large_fails_alone() -> None:
    with ScriptedCluster({"t": 1}, largest_batch=1000) as cluster, producer_of(cluster, linger_ms=20) as producer:
        ledger = SendLedger()
        sizes = [100] * 10 + [1500] + [100] * 10
        futures = [send_one(producer, ledger, "t", 0, size=size) for size in sizes]
        failed = [number for number, future in enumerate(futures) if future.exception(20) is not None]
        assert failed == [10]
        error = futures[10].exception(0)
        assert isinstance(error, RecordTooLargeError)
        checked(cluster, ledger)


def test_errors_of_single_records_reach_those_records() -> None:
    """KIP-467: the broker names the records that made it refuse the batch."""
    with ScriptedCluster({"t": 1}) as cluster, producer_of(cluster, linger_ms=50) as producer:
        ledger = SendLedger()
        assert send_one(producer, ledger, "t", 0).exception(20) is None
        cluster.refuse(ApiKey.PRODUCE, INVALID_RECORD, record_errors=((1, "no key"), (3, None)))
        futures = [send_one(producer, ledger, "t", 0) for _ in range(5)]
        errors = [str(future.exception(20)) for future in futures]
        assert "no key" in errors[1]
        assert all("no key" not in error for index, error in enumerate(errors) if index != 1)
        assert all("INVALID_RECORD" in error for error in errors)
        checked(cluster, ledger)


def _without_partition(response: Response) -> Response:
    assert isinstance(response, ProduceResponse)
    response.responses[0].partition_responses.pop()
    if not response.responses[0].partition_responses:
        response.responses.pop(0)
    return response


def _repeated(response: Response) -> Response:
    assert isinstance(response, ProduceResponse)
    topic = response.responses[0]
    first = topic.partition_responses[0]
    again = PartitionProduceResponse(index=first.index, error_code=87, base_offset=-1)
    topic.partition_responses.append(again)
    return response


def _repeated_topic(response: Response) -> Response:
    assert isinstance(response, ProduceResponse)
    topic = response.responses[0]
    response.responses.append(
        TopicProduceResponse(
            name=topic.name,
            topic_id=topic.topic_id,
            partition_responses=[
                PartitionProduceResponse(index=each.index, error_code=0, base_offset=123456)
                for each in topic.partition_responses
            ],
        )
    )
    return response


def _unknown_partition(response: Response) -> Response:
    assert isinstance(response, ProduceResponse)
    response.responses[0].partition_responses.append(PartitionProduceResponse(index=99, error_code=0, base_offset=5))
    return response


def _empty(response: Response) -> Response:
    return ProduceResponse(responses=[], throttle_time_ms=0)


def _never(_: Response) -> Response | None:
    return None


@pytest.mark.parametrize("change", [_without_partition, _repeated, _repeated_topic, _unknown_partition, _empty, _never])
@pytest.mark.parametrize("versions", [(3, 13), (3, 12), (3, 8), (3, 3)])
def test_answers_that_omit_repeat_or_invent_partitions(change: Any, versions: tuple[int, int]) -> None:
    """Omitted: retried. Repeated: the first counts. Unknown: the connection is not believed any more. None: timeout."""
    with ScriptedCluster({"t": 2}) as cluster:
        cluster.versions[ApiKey.PRODUCE] = versions
        options = {"request_timeout_ms": 300, "delivery_timeout_ms": 20_000} if change is _never else {}
        with producer_of(cluster, **SMALL, **options) as producer:
            ledger = SendLedger()
            assert send_one(producer, ledger, "t", 0).exception(20) is None
            for _ in range(5 if change is not _never else 1):
                cluster.edit(ApiKey.PRODUCE, change)
                for number in range(20):
                    send_one(producer, ledger, "t", number % 2)
                producer.flush(20)
            assert checked(cluster, ledger).failed == 0


def test_throttled_node_gets_nothing_until_the_time_is_over_and_others_go_on() -> None:
    with ScriptedCluster({"t": 2}, nodes=2) as cluster, producer_of(cluster) as producer:
        ledger = SendLedger()
        for partition in range(2):
            assert send_one(producer, ledger, "t", partition).exception(20) is None
        with cluster.lock:
            cluster.throttle_ms = 400
        assert send_one(producer, ledger, "t", 0).exception(20) is None
        throttled = cluster.produced[-1]
        waiting = send_one(producer, ledger, "t", 0)
        while not waiting.done():
            assert send_one(producer, ledger, "t", 1).exception(20) is None
        batches = [attempt for attempt in cluster.produced if attempt.at_s > throttled.at_s]
        assert min(attempt.at_s for attempt in batches if attempt.node == throttled.node) - throttled.at_s >= 0.39
        assert sum(attempt.node != throttled.node for attempt in batches) > 5
        checked(cluster, ledger)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_random_faults_lose_duplicate_and_reorder_nothing(seed: int) -> None:
    """Refusals of every kind, moves, held answers and resets at random, from two threads with a producer each."""
    source = random.Random(seed)
    with ScriptedCluster({"t": 4, "u": 3}, nodes=3) as cluster:
        with producer_of(cluster, **SMALL) as one, producer_of(cluster, batch_size=1200) as two:
            ledgers = [SendLedger(), SendLedger()]
            stop = threading.Event()

            def send(producer: Any, ledger: SendLedger) -> None:
                topics = random.Random(seed)
                while not stop.wait(0.001) and len(ledger.sends) < 5000:
                    topic, count = topics.choice((("t", 4), ("u", 3)))
                    send_stamped(producer, ledger, topic, topics.randrange(count))

            threads = [threading.Thread(target=send, args=pair) for pair in zip((one, two), ledgers, strict=True)]
            for thread in threads:
                thread.start()
            for _ in range(60):
                _random_fault(cluster, source)
                batches = len(cluster.produced)
                cluster.wait_for_batches(batches + 3)
            for node in range(3):
                cluster.release(node)
            stop.set()
            for thread in threads:
                thread.join(10)
            one.flush(30)
            two.flush(30)
            for ledger in ledgers:
                wait_until(partial(is_complete, ledger), 20, "completions")

        report = check_records(ledgers, cluster.logs())
        assert report.is_ok, str(report)
        assert not cluster.renumbered_in_doubt()
        assert report.acknowledged > 0.5 * report.sent


def _random_fault(cluster: ScriptedCluster, source: random.Random) -> None:
    node = source.randrange(3)
    match source.randrange(8):
        case 0:
            cluster.reset_connections()
        case 1:
            cluster.move_leader("t", source.randrange(4), node)
        case 2:
            cluster.hold(node)
            cluster.release((node + 1) % 3)
        case 3:
            cluster.release(node)
        case 4:
            cluster.refuse(ApiKey.PRODUCE, source.choice((7, 20, 6, 56)), times=3, is_written=True)
        case 5:
            cluster.refuse(ApiKey.PRODUCE, source.choice((2, 3, 5, 6, 7, 14, 19, 51, 74, 100)), times=5)
        case 6:
            cluster.refuse(ApiKey.PRODUCE, source.choice((87, 44, 29, 18)))
        case _:
            cluster.edit(ApiKey.PRODUCE, source.choice((_without_partition, _repeated, _unknown_partition, _empty)))
