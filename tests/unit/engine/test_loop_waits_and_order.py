"""The sender where nothing is plain: nodes that are not ready, answers that contradict, numbers that are lost."""

from __future__ import annotations

import struct
import uuid
from typing import Any

import pytest

from kafkaprod._core.machine.waking import Waiter
from kafkaprod.engine.identity import MAX_WAIT_MS
from kafkaprod.engine.steps import run
from kafkaprod.engine.upkeep import OBSERVATION_MS
from kafkaprod.errors import (
    AuthenticationError,
    BrokerError,
    ConnectionLostError,
    CorruptDataError,
    DeliveryTimeoutError,
    KafkaError,
    OutOfOrderSequenceError,
    UnsupportedVersionError,
)
from kafkaprod.metrics.sums import NodeCounters
from kafkaprod.protocol.messages.init_producer_id import InitProducerIdRequest
from kafkaprod.protocol.messages.metadata import MetadataRequest
from kafkaprod.protocol.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from tests.support.producer.sender_rig import TOPIC, Rig, Sent

NOT_LEADER = 6
NOT_ENOUGH_REPLICAS = 19
INVALID_RECORD = 87
OUT_OF_ORDER = 45
UNKNOWN_PRODUCER = 59
LOST = ConnectionLostError("cut")


def sequence(sent: Sent) -> int:
    (ref,) = sent.produce.refs()
    return int(ref.producer[2])


def epoch(sent: Sent) -> int:
    (ref,) = sent.produce.refs()
    return int(ref.producer[1])


def in_one_request(rig: Rig) -> tuple[list[Any], Sent]:
    """Send a record to each of two partitions in one request."""
    futures = [rig.send(partition=partition) for partition in (0, 1)]
    rig.turn()
    (sent,) = rig.produce_requests
    return futures, sent


def answer_some(rig: Rig, sent: Sent, codes: dict[int, int]) -> None:
    """Answer some of the partitions."""
    parts = [PartitionProduceResponse(index=index, error_code=code, base_offset=7) for index, code in codes.items()]
    rig.answer_topics(sent, {TOPIC: parts})


def acknowledged_once(rig: Rig, partition: int = 0) -> None:
    """Before that, an idempotent producer has one batch in flight per partition."""
    _, sent = rig.in_flight(partition=partition)
    rig.answer(sent)
    rig.turn()


class TestWaits:
    def test_no_node_that_can_be_asked_means_to_wait_for_the_first_that_may_be_tried(self) -> None:
        rig = Rig(topics={})
        rig.pool.ready.clear()
        rig.pool.node_ids = lambda: [1, 2, 3]  # type: ignore[method-assign]
        rig.pool.ready_delay_ms = lambda node_id, _: {1: 90, 2: 70, 3: None}[node_id]  # type: ignore[method-assign, assignment]
        rig.turn()
        assert rig.pool.poll_timeouts[-1] == 70
        assert not rig.pool.sent

    def test_node_that_connects_ends_the_wait_by_itself(self) -> None:
        rig = Rig(topics={})
        rig.pool.max_in_flight = 0
        rig.turn()
        assert rig.pool.poll_timeouts[-1] == MAX_WAIT_MS
        rig.pool.max_in_flight = 5
        rig.turn()
        assert len(rig.open_of(MetadataRequest)) == 1

    def test_producer_id_waits_for_a_node(self) -> None:
        rig = Rig(enable_idempotence=True)
        rig.drain.set_producer(-1, -1)
        rig.pool.ready.clear()
        rig.turn()
        assert not rig.open_of(InitProducerIdRequest)
        rig.pool.ready.add(1)
        rig.turn()
        assert len(rig.open_of(InitProducerIdRequest)) == 1

    def test_throttled_node_is_looked_at_again_when_its_time_is_over(self) -> None:
        rig = Rig(linger_ms=0)
        rig.send()
        rig.pool.max_in_flight = 0
        rig.pool.ready_delay_ms = lambda *_: 250  # type: ignore[method-assign]
        rig.turn(1000)
        assert rig.pool.poll_timeouts[-1] == 250
        assert not rig.produce_requests

    def test_linger_is_what_the_sender_waits_for(self) -> None:
        rig = Rig(linger_ms=40)
        rig.send()
        rig.turn(10)
        assert 29 < rig.pool.poll_timeouts[-1] <= 30
        assert not rig.produce_requests
        rig.turn(30)
        assert len(rig.produce_requests) == 1

    def test_only_the_first_of_the_batches_that_linger_wakes_the_sender(self) -> None:
        rig = Rig(topics={TOPIC: (1, 1)}, linger_ms=40)
        rig.pool.while_polled = lambda: rig.send(partition=0)
        rig.turn()
        assert rig.pool.wakeups == 1
        rig.pool.while_polled = lambda: rig.send(partition=1)
        rig.turn(10)
        assert 29 < rig.pool.poll_timeouts[-1] <= 30
        assert rig.pool.wakeups == 1, "it looks again before this one has lingered"

    def test_topic_of_shorter_linger_ends_the_sleep_for_others_and_is_sent_when_it_has_lingered(self) -> None:
        rig = Rig(topics={}, linger_ms=40)
        rig.accumulator.topic_batching = lambda topic: (1000, 1000, 5, 0, False) if topic == "urgent" else None
        rig.topics = {TOPIC: (1,), "urgent": (1,)}
        rig.learn()
        rig.send()
        rig.pool.while_polled = lambda: rig.send(topic="urgent")
        rig.turn()
        assert rig.pool.wakeups == 1
        rig.turn()
        assert 4 < rig.pool.poll_timeouts[-1] <= 5
        assert not rig.produce_requests
        rig.turn(5)
        assert len(rig.produce_requests) == 1

    def test_closing_sender_with_nothing_to_deliver_does_not_wait(self) -> None:
        rig = Rig()
        rig.sender.close(rig.clock.now_ms() + 60_000)
        rig.turn()
        assert rig.pool.poll_timeouts[-1] == 0

    def test_closing_sender_waits_no_longer_than_its_deadline(self) -> None:
        rig = Rig()
        rig.in_flight()
        rig.sender.close(rig.clock.now_ms() + 300)
        rig.turn(100)
        assert rig.pool.poll_timeouts[-1] == 200


class TestMetrics:
    def test_what_the_network_counted_is_in_the_metrics_before_the_sender_sleeps(self) -> None:
        rig = Rig()
        rig.turn(1000)
        counted = NodeCounters()
        rig.pool.metrics = lambda: {1: counted}  # type: ignore[method-assign]
        _, sent = rig.in_flight()
        counted.bytes_sent = 777
        rig.answer(sent)
        rig.turn()  # the answer comes
        rig.turn()  # too early for a look, so it must not sleep for long
        assert rig.pool.poll_timeouts[-1] == OBSERVATION_MS
        rig.turn(OBSERVATION_MS)
        assert rig.metric("outgoing-byte-total") == 777
        assert rig.pool.poll_timeouts[-1] > OBSERVATION_MS, "with nothing new it sleeps"

    @pytest.mark.parametrize("acks", [0, 1])
    def test_each_stage_of_a_batch_is_timed(self, acks: int) -> None:
        rig = Rig(acks=acks, linger_ms=20)
        rig.send()
        rig.turn(20)
        (sent,) = rig.produce_requests
        if acks == 0:
            rig.complete(sent, written_at_ms=4)
        else:
            rig.answer(sent, write_ms=4)
        rig.turn()
        latencies = rig.metrics.snapshot(rig.clock.now_ms())["producer-latency-metrics"]
        assert latencies["append-time-us-max"] >= 20_000
        assert "seal-time-us-max" in latencies  # a fast machine needs less than a microsecond
        assert rig.metrics.histograms["seal"].count == 1
        assert latencies["send-time-us-max"] >= 4000
        assert (latencies["ack-time-us-max"] > 0) == (acks == 1)


class TestMetadata:
    def test_refused_answer_is_asked_again_and_is_the_reason_of_those_who_wait(self) -> None:
        rig = Rig(topics={})
        rig.metadata.add_topic(TOPIC, rig.clock.now_ms())
        rig.turn()
        (sent,) = rig.open_of(MetadataRequest)
        response = rig.metadata_response()
        response.brokers.clear()
        rig.complete(sent, response=response)
        rig.turn()
        with pytest.raises(CorruptDataError, match="without brokers"):
            run(rig.watch.wait_for(TOPIC, None, rig.clock.now_ms(), lambda: None, Waiter))
        rig.turn(200)
        assert len(rig.open_of(MetadataRequest)) == 1

    def test_metadata_waits_for_a_place_where_all_requests_are_in_flight_and_cuts_nothing(self) -> None:
        rig = Rig()
        rig.pool.max_in_flight = 1
        future, sent = rig.in_flight()
        rig.metadata.add_topic("new", rig.clock.now_ms())
        rig.turn(1000)
        assert rig.pool.log == []
        assert rig.open_of(MetadataRequest) == []
        rig.answer(sent)
        rig.turn()
        assert future.succeeded()
        rig.turn()
        assert len(rig.open_of(MetadataRequest)) == 1

    def test_idle_topic_is_forgotten_and_one_with_records_is_not(self) -> None:
        rig = Rig(topics={TOPIC: (1,), "idle": (1,)})
        for _ in range(3):  # a topic in use is given another age
            rig.turn(150_000)
            future = rig.send()
            rig.turn()
            for sent in rig.open_of(MetadataRequest):
                rig.complete(sent, response=rig.metadata_response())
            for sent in rig.produce_requests:
                rig.answer(sent)
            rig.turn()
            assert future.succeeded()
        assert set(rig.accumulator.topics) == {TOPIC}

    def test_records_of_a_topic_forgotten_while_its_caller_held_it_follow_the_new_leader(self) -> None:
        rig = Rig()
        held = rig.accumulator.topics[TOPIC]
        rig.turn(300_000)
        assert not rig.accumulator.topics
        (sent,) = rig.open_of(MetadataRequest)
        rig.complete(sent, response=rig.metadata_response())
        rig.turn()
        assert held.leaders == (1,)
        future = rig.accumulator.append(held, None, b"v", None, 0, 0, rig.clock.now_ms())
        assert future is not None
        rig.turn()
        rig.topics[TOPIC] = (2,)
        rig.pool.ready = {1, 2}
        rig.answer(rig.produce_requests[0], NOT_LEADER)
        rig.turn()
        rig.turn(100)
        (sent,) = rig.open_of(MetadataRequest)
        assert [topic.name for topic in sent.request.topics] == [TOPIC]
        response = rig.metadata_response()
        response.topics[0].partitions[0].leader_epoch = 1
        rig.complete(sent, response=response)
        for request in rig.produce_requests:  # the old leader was asked again meanwhile
            rig.answer(request, NOT_LEADER)
        rig.turn()
        rig.turn(400)
        (request,) = rig.produce_requests
        assert request.node_id == 2
        rig.answer(request)
        rig.turn()
        assert future.result(0).offset == 7

    def test_records_of_a_partition_found_removed_when_they_are_due_fail(self) -> None:
        rig = Rig(topics={TOPIC: (1, 1)})
        lost = rig.send(partition=1)
        rig.accumulator.set_topic(TOPIC, [1], [0], uuid.uuid4().bytes)
        rig.drain.update_leaders()
        kept = rig.send(partition=0)
        rig.turn()
        error = lost.exception(0)
        assert isinstance(error, BrokerError)
        assert "created again with fewer partitions" in str(error)
        assert not kept.done()


class TestContradictions:
    def test_partition_told_twice_counts_as_it_was_told_first(self) -> None:
        rig = Rig()
        future, sent = rig.in_flight()
        twice = [PartitionProduceResponse(index=0, error_code=code, base_offset=3 + code) for code in (19, 0)]
        rig.answer_topics(sent, {TOPIC: twice})
        rig.turn()
        assert not future.done()
        rig.turn(100)
        assert len(rig.produce_requests) == 1

    def test_answer_for_a_topic_id_nobody_has_cuts_the_connection(self) -> None:
        rig = Rig()
        rig.pool.version = 13
        future, sent = rig.in_flight()
        partition = PartitionProduceResponse(index=0, error_code=0, base_offset=3)
        topic = TopicProduceResponse(name="", topic_id=uuid.uuid4(), partition_responses=[partition])
        response = ProduceResponse(responses=[topic], throttle_time_ms=0)
        rig.complete(sent, body=memoryview(response.encode(13)))
        rig.turn()
        assert not future.done()
        assert [node_id for node_id, _ in rig.pool.disconnected] == [1]

    @pytest.mark.parametrize("error", [AuthenticationError("no"), UnsupportedVersionError("too old")])
    def test_connection_that_can_never_be_used_fails_what_was_on_it(self, error: Any) -> None:
        rig = Rig()
        future, sent = rig.in_flight()
        rig.complete(sent, error=error)
        rig.turn()
        assert repr(future.exception(0)) == repr(error)
        assert rig.accumulator.pool.in_use == 0

    def test_answer_after_the_expiry_changes_nothing(self) -> None:
        rig = Rig(delivery_timeout_ms=1000)
        future, sent = rig.in_flight()
        rig.turn(1000)
        rig.answer(sent, NOT_ENOUGH_REPLICAS)
        rig.turn()
        rig.turn(5000)
        assert not rig.produce_requests
        assert isinstance(future.exception(0), DeliveryTimeoutError)
        assert rig.accumulator.pool.in_use == 0


class TestPartsLeftOut:
    """An answer that leaves a batch out says nothing of it: it may be in the log."""

    def test_batch_that_is_left_out_and_expires_may_have_been_written(self) -> None:
        rig = Rig(topics={TOPIC: (1, 1)}, delivery_timeout_ms=1000, retry_backoff_ms=5000, retry_backoff_max_ms=5000)
        (written, left_out), sent = in_one_request(rig)
        answer_some(rig, sent, {0: 0})
        rig.turn()
        assert written.result(0).offset == 7
        assert not left_out.done()
        rig.turn(1000)
        error = left_out.exception(0)
        assert isinstance(error, DeliveryTimeoutError)
        assert error.possibly_persisted

    @pytest.mark.parametrize("others", [{0: 0}, {0: NOT_ENOUGH_REPLICAS}, {}], ids=["written", "refused", "none"])
    def test_batch_that_is_left_out_keeps_its_number(self, others: dict[int, int]) -> None:
        rig = Rig(topics={TOPIC: (1, 1)}, enable_idempotence=True)
        for partition in (0, 1):
            acknowledged_once(rig, partition)
        _, sent = in_one_request(rig)
        before = {(ref.topic, ref.partition): ref.producer for ref in sent.produce.refs()}
        answer_some(rig, sent, others)
        rig.turn()
        rig.turn(1000)
        again = [ref for each in rig.produce_requests for ref in each.produce.refs() if ref.partition == 1]
        assert [ref.producer for ref in again] == [before[TOPIC, 1]]
        assert [ref.maybe_persisted for ref in again] == [True]

    @pytest.mark.parametrize(
        ("codes", "may_be_written"), [({0: 0}, True), ({}, True), ({0: 0, 1: NOT_ENOUGH_REPLICAS}, False)]
    )
    def test_batch_that_has_no_attempt_left_says_whether_it_may_have_been_written(
        self, codes: dict[int, int], may_be_written: bool
    ) -> None:
        rig = Rig(topics={TOPIC: (1, 1)}, retries=0)
        (_, second), sent = in_one_request(rig)
        answer_some(rig, sent, codes)
        rig.turn()
        error = second.exception(0)
        assert isinstance(error, KafkaError)
        assert error.possibly_persisted is may_be_written


class TestLostNumbers:
    def test_records_that_a_broker_lost_are_an_error_in_the_log_and_what_follows_gets_a_new_epoch(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        rig = Rig(enable_idempotence=True)
        acknowledged_once(rig)
        first, sent = rig.in_flight()
        second, sent_second = rig.in_flight()
        rig.answer(sent, OUT_OF_ORDER)
        rig.answer(sent_second, OUT_OF_ORDER)
        rig.turn()
        numbers = []
        for _ in range(8):
            rig.turn(300)
            for again in rig.produce_requests:
                numbers.append((epoch(again), sequence(again)))
                rig.answer(again)
        rig.turn()
        assert numbers == [(1, 0), (1, 1)]
        assert first.succeeded()
        assert second.succeeded()
        assert caplog.text.count("the broker misses earlier records") == 1

    def test_a_batch_that_may_be_written_fails_where_the_broker_lost_records(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        rig = Rig(enable_idempotence=True)
        acknowledged_once(rig)
        doubtful, sent = rig.in_flight()
        rig.complete(sent, error=LOST, is_possibly_persisted=True)
        for _ in range(4):
            rig.turn(300)
        (again,) = rig.produce_requests
        rig.answer(again, OUT_OF_ORDER)
        rig.turn()
        assert isinstance(doubtful.exception(0), OutOfOrderSequenceError)
        assert "the broker misses earlier records" in caplog.text
        after = rig.send()
        for _ in range(3):
            rig.turn()
        (again,) = rig.produce_requests
        assert (epoch(again), sequence(again)) == (1, 0)
        rig.answer(again)
        rig.turn()
        assert after.succeeded()

    def test_batch_behind_one_that_is_numbered_anew_is_numbered_anew_as_well(self) -> None:
        rig = Rig(enable_idempotence=True, topics={TOPIC: (1, 1)})
        acknowledged_once(rig)
        first, sent_first = rig.in_flight()
        second, sent_second = rig.in_flight()
        of_another, sent_other = rig.in_flight(partition=1)
        rig.answer(sent_second, NOT_ENOUGH_REPLICAS)  # certainly not written: it may get another number
        rig.answer(sent_other, NOT_ENOUGH_REPLICAS)
        rig.turn()
        rig.answer(sent_first, UNKNOWN_PRODUCER)
        rig.turn()
        numbers: dict[int, Any] = {}
        for _ in range(8):
            rig.turn(300)
            for sent in rig.produce_requests:
                for ref in sent.produce.refs():
                    numbers.setdefault(ref.partition, []).append(ref.producer[1:])
                rig.answer(sent)
        rig.turn()
        assert numbers[0] == [(1, 0), (1, 1)]
        assert numbers[1] == [(0, 0)], "another partition keeps its number"
        assert all(future.succeeded() for future in (first, second, of_another))

    def test_batch_behind_it_that_may_be_written_fails(self) -> None:
        rig = Rig(enable_idempotence=True)
        acknowledged_once(rig)
        first, sent_first = rig.in_flight()
        second, sent_second = rig.in_flight()
        rig.complete(sent_second, error=LOST, is_possibly_persisted=True)
        rig.turn()
        rig.answer(sent_first, UNKNOWN_PRODUCER)
        rig.turn()
        assert isinstance(second.exception(0), OutOfOrderSequenceError)
        for _ in range(4):
            rig.turn(300)
        (again,) = rig.produce_requests
        assert (epoch(again), sequence(again)) == (1, 0)
        rig.answer(again)
        rig.turn()
        assert first.succeeded()

    def test_retries_go_one_at_a_time_until_the_first_is_acknowledged(self) -> None:
        rig = Rig(enable_idempotence=True)
        acknowledged_once(rig)
        sent = [rig.in_flight()[1] for _ in range(3)]
        for each in sent:
            rig.complete(each, error=LOST, is_possibly_persisted=True)
        rig.turn()
        order = []
        for _ in range(3):
            rig.turn(300)
            (again,) = rig.produce_requests
            order.append(sequence(again))
            rig.answer(again)
            rig.turn()
        assert order == [1, 2, 3]

    def test_no_batch_but_the_first_goes_out_before_a_new_partition_has_answered(self) -> None:
        """A leader without state of the producer takes any sequence as the first."""
        rig = Rig(enable_idempotence=True)
        _, sent = rig.in_flight()
        rig.send()
        rig.turn()
        assert len(rig.produce_requests) == 1
        rig.answer(sent)
        rig.turn()
        rig.turn()
        assert [sequence(each) for each in rig.produce_requests] == [1]

    def test_expired_batch_in_flight_is_a_gap_for_those_behind_it(self) -> None:
        rig = Rig(enable_idempotence=True, delivery_timeout_ms=1000)
        acknowledged_once(rig)
        expired, sent_expired = rig.in_flight()
        rig.turn(600)
        later, sent_later = rig.in_flight()
        rig.turn(400)
        assert isinstance(expired.exception(0), DeliveryTimeoutError)
        rig.complete(sent_expired, error=LOST, is_possibly_persisted=False)
        rig.answer(sent_later, OUT_OF_ORDER)
        rig.turn()
        rig.turn(150)  # finds that it needs an epoch
        rig.turn()
        (again,) = rig.produce_requests
        assert (epoch(again), sequence(again)) == (1, 0)
        rig.answer(again)
        rig.turn()
        assert later.succeeded()


def test_bytes_of_a_retry_are_those_of_the_first_try() -> None:
    """A batch that was sent is never numbered, stamped or compressed again."""
    rig = Rig(enable_idempotence=True)
    acknowledged_once(rig)
    _, sent = rig.in_flight(b"x" * 100)
    bodies = {sent.body}
    for _ in range(3):
        rig.complete(sent, error=LOST, is_possibly_persisted=True)
        rig.turn()
        rig.turn(2000)
        (sent,) = rig.produce_requests
        bodies.add(sent.body)
    assert len(bodies) == 1
    assert struct.pack(">qhi", 4000, 0, 1) in sent.body
