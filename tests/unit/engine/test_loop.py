from __future__ import annotations

import struct
import uuid
from typing import Any

import pytest

from kafkaprod._core.machine.waking import Waiter
from kafkaprod.engine.flushes import Flush
from kafkaprod.engine.steps import run
from kafkaprod.errors import (
    AuthenticationError,
    AuthorizationError,
    BrokerError,
    ConnectionLostError,
    DeliveryTimeoutError,
    MetadataTimeoutError,
    ProducerClosedError,
    RecordTooLargeError,
    RequestTimedOutError,
    UnsupportedVersionError,
)
from kafkaprod.protocol.messages.init_producer_id import InitProducerIdRequest
from kafkaprod.protocol.messages.metadata import MetadataRequest
from kafkaprod.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from tests.support.producer.sender_rig import TOPIC, Rig, failure

NOT_ENOUGH_REPLICAS = 19
NOT_LEADER = 6
MESSAGE_TOO_LARGE = 10
OUT_OF_ORDER = 45
LOST = ConnectionLostError("cut")


def pool_is_free(rig: Rig) -> bool:
    return rig.accumulator.pool.in_use == 0 and rig.accumulator.incomplete_batch_count == 0


def base_sequence(sent: Any) -> int:
    """Of the first batch of a Produce request: 53 bytes into it, which starts with its base offset 0."""
    (sequence,) = {ref.producer[2] for ref in sent.produce.refs()}
    return int(sequence)


class TestMetadata:
    def test_wanted_topic_is_asked_for_and_known_after_the_answer(self) -> None:
        rig = Rig(topics={})
        rig.topics = {TOPIC: (1, 2)}
        with pytest.raises(MetadataTimeoutError):
            run(rig.watch.wait_for(TOPIC, None, rig.clock.now_ms(), lambda: None, Waiter))
        rig.turn()
        (sent,) = rig.open_of(MetadataRequest)
        assert [topic.name for topic in sent.request.topics] == [TOPIC]
        rig.answer_metadata()
        rig.turn()
        assert run(rig.watch.wait_for(TOPIC, 1, 0, lambda: None, Waiter)).partition_count == 2
        assert set(rig.pool.nodes) == {1, 2}
        assert rig.watch.is_connected

    def test_one_request_at_a_time(self) -> None:
        rig = Rig(topics={})
        rig.turn()
        rig.turn(5000)
        assert len(rig.open_of(MetadataRequest)) == 1

    def test_failed_request_is_repeated_after_the_backoff(self) -> None:
        rig = Rig(topics={})
        rig.turn()
        rig.complete(rig.open_of(MetadataRequest)[0], error=LOST)
        rig.turn()
        rig.turn(50)
        assert not rig.open_of(MetadataRequest)
        rig.turn(60)
        assert len(rig.open_of(MetadataRequest)) == 1

    def test_node_too_old_for_the_request_is_a_failure_and_not_the_end(self) -> None:
        rig = Rig(topics={})
        rig.pool.refuses = UnsupportedVersionError("speaks versions (0, 0)")
        rig.turn()
        rig.pool.refuses = None
        rig.turn(200)
        assert len(rig.open_of(MetadataRequest)) == 1

    def test_records_of_a_topic_without_leader_make_it_ask(self) -> None:
        rig = Rig(topics={TOPIC: (-1,)})
        future = rig.send()
        rig.turn(2000)
        rig.turn()
        rig.topics[TOPIC] = (1,)
        rig.answer_metadata()
        rig.turn()
        rig.turn()
        rig.answer(rig.produce_requests[0])
        rig.turn()
        assert future.result(0).offset == 7

    def test_it_sleeps_while_a_topic_has_no_leader_and_a_connection_is_made(self, monkeypatch: Any) -> None:
        rig = Rig(topics={TOPIC: (-1,)})
        rig.send()
        rig.pool.ready.clear()
        monkeypatch.setattr(rig.pool, "least_loaded_node", lambda *_, **__: 1)  # a node that is being connected
        rig.turn(2000)
        rig.turn()
        assert rig.pool.poll_timeouts[-1] > 0

    def test_stranger_to_the_cluster_starts_over_from_bootstrap(self) -> None:
        rig = Rig()
        rig.pool.is_rebootstrap_required = True
        rig.turn()
        assert rig.pool.log == ["rebootstrap"]
        rig.turn()
        assert len(rig.open_of(MetadataRequest)) == 1

    def test_partitions_gone_with_a_topic_made_anew_fail_their_records(self) -> None:
        rig = Rig(topics={TOPIC: (1, -1)})
        kept, lost = rig.send(partition=0), rig.send(partition=1)
        rig.turn(2000)
        rig.turn()
        rig.topics[TOPIC] = (1,)
        response = rig.metadata_response()
        response.topics[0].topic_id = uuid.uuid4()
        (sent,) = rig.open_of(MetadataRequest)
        rig.complete(sent, response=response)
        rig.turn()
        assert lost.failed()
        assert not kept.failed()

    def test_connection_trouble_before_the_first_answer_reaches_those_who_wait(self) -> None:
        rig = Rig(topics={})
        rig.pool.failures.append(failure(LOST))
        rig.turn()
        with pytest.raises(ConnectionError, match="no bootstrap server could be used"):
            run(rig.watch.wait_for(TOPIC, None, rig.clock.now_ms(), lambda: None, Waiter))

    def test_refused_credentials_fail_what_was_not_sent_and_leave_what_was(self) -> None:
        rig = Rig()
        sent_future, _ = rig.in_flight()
        rig.pool.ready.clear()
        queued = rig.send()
        rig.pool.failures.append(failure(AuthenticationError("no")))
        rig.turn()
        assert isinstance(queued.exception(0), AuthenticationError)
        assert not sent_future.done()

    def test_refused_credentials_that_rotate_fail_nothing(self) -> None:
        rig = Rig()
        rig.pool.rotates = True
        rig.pool.ready.clear()
        queued = rig.send()
        rig.pool.failures.append(failure(AuthenticationError("no")))
        rig.turn()
        assert not queued.done()


class TestProducerId:
    def test_nothing_is_sent_before_there_is_one(self) -> None:
        rig = Rig(topics={}, enable_idempotence=True)
        rig.topics = {TOPIC: (1,)}
        rig.metadata.add_topic(TOPIC, rig.clock.now_ms())
        rig.turn()
        rig.answer_metadata()
        rig.turn()
        rig.send()
        rig.turn()
        assert not rig.produce_requests
        (asked,) = rig.open_of(InitProducerIdRequest)
        assert asked.request.transactional_id is None
        rig.answer_producer_id(5, 2)
        rig.turn()
        rig.turn()
        (ref,) = rig.produce_requests[0].produce.refs()
        assert ref.producer == (5, 2, 0)

    def test_without_idempotence_none_is_asked_for(self) -> None:
        rig = Rig()
        rig.turn(5000)
        assert not rig.open_of(InitProducerIdRequest)

    def test_retriable_refusal_is_asked_again_after_the_backoff(self) -> None:
        rig = Rig(topics={}, enable_idempotence=True)
        rig.turn()
        rig.answer_producer_id(error_code=15)  # COORDINATOR_NOT_AVAILABLE
        rig.turn()
        rig.turn(99)
        assert not rig.open_of(InitProducerIdRequest)
        rig.turn(1)
        assert len(rig.open_of(InitProducerIdRequest)) == 1

    def test_final_refusal_fails_what_is_queued_with_it(self) -> None:
        rig = Rig(enable_idempotence=True)
        rig.drain.set_producer(-1, -1)
        future = rig.send()
        rig.turn()
        rig.answer_producer_id(error_code=31)  # CLUSTER_AUTHORIZATION_FAILED
        rig.turn()
        assert isinstance(future.exception(0), AuthorizationError)

    def test_node_too_old_for_it_fails_the_records_and_not_the_sender(self) -> None:
        rig = Rig(enable_idempotence=True)
        rig.drain.set_producer(-1, -1)
        future = rig.send()
        rig.pool.refuses = UnsupportedVersionError("speaks no InitProducerId")
        rig.turn()
        assert isinstance(future.exception(0), UnsupportedVersionError)


class TestEpoch:
    def two_in_flight(self, rig: Rig) -> Any:
        """A first batch is acknowledged, as it takes before others are in flight together; then two go out."""
        _, sent = rig.in_flight()
        rig.answer(sent)
        rig.turn()
        first, sent_first = rig.in_flight()
        second, sent_second = rig.in_flight()
        return first, second, sent_first, sent_second

    def test_gap_of_our_own_making_starts_an_epoch_under_which_the_rest_is_sent_again(self) -> None:
        rig = Rig(enable_idempotence=True)
        first, second, sent_first, sent_second = self.two_in_flight(rig)
        rig.answer(sent_first, 87)  # INVALID_RECORD: its sequence is missing from now on
        rig.turn()
        assert first.failed()
        rig.answer(sent_second, OUT_OF_ORDER)
        rig.turn()
        assert not second.done()
        for _ in range(3):
            rig.turn(200)
        (again,) = rig.produce_requests
        (ref,) = again.produce.refs()
        assert ref.producer == (4000, 1, 0)
        rig.answer(again)
        rig.turn()
        assert second.result(0).offset == 7

    def test_last_epoch_is_followed_by_a_new_producer_id(self) -> None:
        rig = Rig(enable_idempotence=True)
        rig.drain.set_producer(4000, 32_767)
        future, sent = rig.in_flight()
        rig.answer(sent, 87)
        rig.turn()
        assert future.failed()
        rig.send()
        rig.turn()
        rig.turn()
        assert len(rig.open_of(InitProducerIdRequest)) == 1

    def test_later_batch_out_of_order_waits_for_the_earlier_and_keeps_its_number(self) -> None:
        rig = Rig(enable_idempotence=True)
        first, second, sent_first, sent_second = self.two_in_flight(rig)
        rig.answer(sent_second, OUT_OF_ORDER)
        rig.complete(sent_first, error=LOST, is_possibly_persisted=True)
        rig.turn()
        rig.turn(150)
        again = rig.produce_requests[0]
        assert base_sequence(again) == 1
        rig.answer(again)
        rig.turn()
        rig.turn(150)
        (last,) = rig.produce_requests
        assert base_sequence(last) == 2
        rig.answer(last, offset=8)
        rig.turn()
        assert (first.result(0).offset, second.result(0).offset) == (7, 8)


class TestProduce:
    @pytest.mark.parametrize("version", range(3, 14))
    def test_success_is_told_with_the_offset(self, version: int) -> None:
        rig = Rig()
        rig.pool.version = version
        future, sent = rig.in_flight()
        assert sent.version == version
        rig.answer(sent)
        rig.turn()
        assert (future.result(0).offset, future.result(0).partition) == (7, 0)
        assert pool_is_free(rig)

    def test_topic_without_id_keeps_the_version_by_name(self) -> None:
        rig = Rig()
        rig.accumulator.set_topic(TOPIC, [1], [0], None)
        rig.drain.update_leaders()
        rig.pool.version = 13
        _, sent = rig.in_flight()
        assert sent.version == 12

    def test_acks_0_is_done_when_it_is_written(self) -> None:
        rig = Rig(acks=0)
        future, sent = rig.in_flight()
        assert not sent.expects_response
        rig.complete(sent)
        rig.turn()
        assert future.result(0).offset == -1
        assert pool_is_free(rig)

    def test_node_that_speaks_no_produce_fails_the_records(self) -> None:
        rig = Rig()
        rig.pool.version = None
        future = rig.send()
        rig.turn()
        assert isinstance(future.exception(0), UnsupportedVersionError)
        assert pool_is_free(rig)

    def test_no_more_requests_go_out_than_the_node_may_have_in_flight(self) -> None:
        rig = Rig(topics={TOPIC: (1,) * 8}, max_request_bytes=100)
        for partition in range(8):
            rig.send(b"x" * 50, partition)
        rig.turn()
        assert len(rig.produce_requests) == 5

    def test_append_time_of_the_broker_is_the_timestamp(self) -> None:
        rig = Rig()
        future, sent = rig.in_flight()
        rig.answer(sent, log_append_time_ms=123)
        rig.turn()
        assert future.result(0).timestamp == 123

    def test_error_of_one_record_is_its_own(self) -> None:
        rig = Rig()
        futures = [rig.send(), rig.send()]
        rig.turn()
        named = BatchIndexAndErrorMessage(batch_index=1, batch_index_error_message="too old")
        rig.answer(rig.produce_requests[0], 87, record_errors=[named], error_message="a bad record")
        rig.turn()
        errors = [str(future.exception(0)) for future in futures]
        assert "a bad record" in errors[0]
        assert "too old" in errors[1]
        assert pool_is_free(rig)

    def test_unknown_error_code_fails_with_its_number(self) -> None:
        rig = Rig()
        future, sent = rig.in_flight()
        rig.answer(sent, 999)
        rig.turn()
        error = future.exception(0)
        assert isinstance(error, BrokerError)
        assert error.code == 999

    def test_topic_made_anew_while_in_flight_is_known_by_its_old_id(self) -> None:
        """The answer names an id that the snapshot does not have any more."""
        rig = Rig()
        rig.pool.version = 13
        future, sent = rig.in_flight()
        snapshot = rig.metadata.snapshot
        rig.metadata.snapshot = type(snapshot)(snapshot.nodes, {}, "c", 1)
        rig.answer(sent, NOT_ENOUGH_REPLICAS)
        rig.turn()
        assert not future.done()
        assert not rig.pool.disconnected
        rig.turn(200)
        assert len(rig.produce_requests) == 1


class TestRetry:
    def test_retriable_error_is_sent_again_after_the_backoff(self) -> None:
        rig = Rig()
        future, sent = rig.in_flight()
        rig.answer(sent, NOT_ENOUGH_REPLICAS)
        rig.turn()
        rig.turn(99)
        assert not rig.produce_requests
        rig.turn(1)
        (again,) = rig.produce_requests
        assert again.body == sent.body
        rig.answer(again)
        rig.turn()
        assert future.succeeded()
        assert rig.metric("record-retry-total") == 1

    def test_backoff_doubles(self) -> None:
        rig = Rig()
        _, sent = rig.in_flight()
        for delay_ms in (100, 200, 400, 800, 1000, 1000):
            rig.answer(sent, NOT_ENOUGH_REPLICAS)
            rig.turn()
            rig.turn(delay_ms - 1)
            assert not rig.produce_requests
            rig.turn(1)
            (sent,) = rig.produce_requests

    def test_tries_run_out(self) -> None:
        rig = Rig(retries=2)
        future, sent = rig.in_flight()
        for _ in range(2):
            rig.answer(sent, NOT_ENOUGH_REPLICAS)
            rig.turn()
            rig.turn(1000)
            (sent,) = rig.produce_requests
        rig.answer(sent, NOT_ENOUGH_REPLICAS)
        rig.turn()
        assert isinstance(future.exception(0), BrokerError)
        assert pool_is_free(rig)

    def test_moved_leader_makes_it_ask_for_metadata(self) -> None:
        rig = Rig()
        _, sent = rig.in_flight()
        rig.answer(sent, NOT_LEADER)
        rig.turn()
        rig.turn(200)
        assert len(rig.open_of(MetadataRequest)) == 1

    def test_hint_of_the_new_leader_is_followed_without_backoff(self) -> None:
        rig = Rig()
        rig.pool.ready.add(2)
        rig.pool.version = 10
        future, sent = rig.in_flight()
        partition = PartitionProduceResponse(
            index=0, error_code=NOT_LEADER, base_offset=-1, current_leader=LeaderIdAndEpoch(leader_id=2, leader_epoch=5)
        )
        response = ProduceResponse(
            responses=[TopicProduceResponse(name=TOPIC, partition_responses=[partition])],
            throttle_time_ms=0,
            node_endpoints=[NodeEndpoint(node_id=2, host="h2", port=9092, rack=None)],
        )
        rig.complete(sent, body=memoryview(response.encode(10)))
        rig.turn()
        rig.turn()
        (again,) = rig.produce_requests
        assert again.node_id == 2
        rig.answer(again)
        rig.turn()
        assert future.succeeded()

    @pytest.mark.parametrize("error", [LOST, RequestTimedOutError("slow")])
    def test_request_without_answer_is_sent_again_and_counts_as_maybe_written(self, error: Any) -> None:
        rig = Rig()
        _, sent = rig.in_flight()
        rig.complete(sent, error=error, is_possibly_persisted=True)
        rig.turn()
        rig.turn(100)
        (again,) = rig.produce_requests
        (ref,) = again.produce.refs()
        assert ref.maybe_persisted
        assert ref.attempts == 1

    def test_partition_left_out_of_the_answer_is_sent_again(self) -> None:
        rig = Rig(topics={TOPIC: (1, 1)})
        first, second = rig.send(partition=0), rig.send(partition=1)
        rig.turn()
        (sent,) = rig.produce_requests
        only = PartitionProduceResponse(index=0, error_code=0, base_offset=3)
        rig.answer_topics(sent, {TOPIC: [only]})
        rig.turn()
        assert first.succeeded()
        assert not second.done()
        rig.turn(100)
        (again,) = rig.produce_requests
        assert [ref.partition for ref in again.produce.refs()] == [1]

    def test_answer_for_something_else_is_not_believed_at_all(self) -> None:
        rig = Rig()
        future, sent = rig.in_flight()
        partitions = [PartitionProduceResponse(index=i, error_code=0, base_offset=3) for i in (0, 9)]
        rig.answer_topics(sent, {TOPIC: partitions})
        rig.turn()
        assert not future.done()
        assert [node_id for node_id, _ in rig.pool.disconnected] == [1]
        rig.turn(100)
        assert len(rig.produce_requests) == 1

    def test_answer_with_more_elements_than_its_request_can_have_is_not_read(self) -> None:
        for count, is_read in ((10_000, True), (10_004, False)):
            rig = Rig()
            future, sent = rig.in_flight()
            errors = [BatchIndexAndErrorMessage(batch_index=0) for _ in range(count)]
            only = PartitionProduceResponse(index=0, error_code=87, base_offset=-1, record_errors=errors)
            rig.answer_topics(sent, {TOPIC: [only]})
            rig.turn()
            assert future.done() == is_read
            assert len(rig.pool.disconnected) == (not is_read)

    def test_answer_that_is_garbage_cuts_the_connection_and_retries(self) -> None:
        rig = Rig()
        future, sent = rig.in_flight()
        rig.complete(sent, body=memoryview(b"\xff" * 40))
        rig.turn()
        assert not future.done()
        assert len(rig.pool.disconnected) == 1

    def test_duplicate_of_what_is_written_is_success(self) -> None:
        rig = Rig(enable_idempotence=True)
        future, sent = rig.in_flight()
        rig.answer(sent, 46)
        rig.turn()
        assert future.result(0).offset == -1


class TestSplit:
    def test_batch_too_large_for_the_broker_goes_on_in_parts(self) -> None:
        rig = Rig()
        futures = [rig.send(bytes([i]) * 100) for i in range(10)]
        rig.turn()
        rig.answer(rig.produce_requests[0], 10)
        rig.turn()
        offset = 0
        for _ in range(10):
            rig.turn()
            for sent in rig.produce_requests:
                (ref,) = sent.produce.refs()
                rig.answer(sent, offset=offset)
                offset += ref.record_count
        assert [future.result(0).offset for future in futures] == list(range(10))
        assert rig.metric("batch-split-total") == 1
        assert pool_is_free(rig)

    def test_single_record_too_large_fails(self) -> None:
        rig = Rig()
        future, sent = rig.in_flight()
        rig.answer(sent, 10)
        rig.turn()
        assert isinstance(future.exception(0), RecordTooLargeError)

    def test_batches_of_the_topic_stay_below_what_was_refused(self) -> None:
        rig = Rig(topics={TOPIC: (1, 1)}, batch_size=100_000, max_request_bytes=1 << 20)
        for _ in range(90):
            rig.send(b"x" * 1000)
        rig.turn()
        rig.answer(rig.produce_requests[0], MESSAGE_TOO_LARGE)
        rig.turn()
        rig.turn()
        while rig.produce_requests:
            rig.answer(rig.produce_requests[0])
            rig.turn()
        for partition in (0, 1):
            for _ in range(200):
                rig.send(b"x" * 1000, partition)
        rig.turn()
        sizes = [ref.size_bytes for sent in rig.produce_requests for ref in sent.produce.refs()]
        assert len(sizes) > 4
        assert max(sizes) <= 91_000 // 2

    def test_batch_splits_down_to_single_records_and_then_fails(self) -> None:
        rig = Rig()
        futures = [rig.send(b"x" * 100) for _ in range(9)]
        for _ in range(40):
            rig.turn()
            for sent in rig.produce_requests:
                rig.answer(sent, 10)
        assert all(isinstance(future.exception(0), RecordTooLargeError) for future in futures)
        assert pool_is_free(rig)


class TestThrottle:
    def test_node_that_asks_to_hold_back_is_left_alone(self) -> None:
        rig = Rig()
        _, sent = rig.in_flight()
        rig.answer(sent, throttle_ms=300)
        rig.turn()
        assert rig.pool.throttled == [(1, 300)]
        assert rig.metric("produce-throttle-time-max") == 300

    def test_old_node_has_held_back_the_answer_itself(self) -> None:
        rig = Rig()
        rig.pool.version = 5
        _, sent = rig.in_flight()
        rig.answer(sent, throttle_ms=300)
        rig.turn()
        assert rig.pool.throttled == []

    def test_throttle_of_an_answer_with_errors_counts_too(self) -> None:
        rig = Rig()
        _, sent = rig.in_flight()
        rig.answer(sent, NOT_ENOUGH_REPLICAS, throttle_ms=300)
        rig.turn()
        assert rig.pool.throttled == [(1, 300)]

    def test_negative_throttle_is_none(self) -> None:
        rig = Rig()
        _, sent = rig.in_flight()
        rig.answer(sent, throttle_ms=-5)
        rig.turn()
        assert rig.pool.throttled == []


class TestExpiry:
    def test_record_that_was_never_sent_fails_on_time(self) -> None:
        rig = Rig(topics={TOPIC: (-1,)}, delivery_timeout_ms=5000)
        future = rig.send()
        rig.turn(4999)
        assert not future.done()
        rig.turn(1)
        error = future.exception(0)
        assert isinstance(error, DeliveryTimeoutError)
        assert not error.possibly_persisted
        assert pool_is_free(rig)

    def test_batch_takes_no_records_when_it_is_an_eighth_of_the_timeout_old(self) -> None:
        rig = Rig(topics={TOPIC: (-1,)}, delivery_timeout_ms=8000)
        old = rig.send()
        rig.turn(999)
        rig.send()
        assert rig.accumulator.incomplete_batch_count == 1
        rig.turn(1)
        young = rig.send()
        assert rig.accumulator.incomplete_batch_count == 2
        rig.turn(7000)
        assert old.done()
        assert not young.done()
        rig.turn(1000)
        assert young.done()

    def test_loop_wakes_to_close_an_old_batch(self) -> None:
        rig = Rig(topics={TOPIC: (-1,)}, delivery_timeout_ms=80)
        rig.send()
        rig.turn()
        assert rig.pool.poll_timeouts[-1] == 10

    @pytest.mark.parametrize(("timeout_ms", "look_again_ms"), [(160, 40), (800, 100), (120_000, 3750)])
    def test_loop_does_not_wake_often_to_look_for_old_batches(self, timeout_ms: int, look_again_ms: int) -> None:
        rig = Rig(topics={TOPIC: (-1,)}, delivery_timeout_ms=timeout_ms, metadata_max_age_ms=10**6)
        rig.send()
        rig.turn()
        rig.turn(timeout_ms // 8)
        assert rig.pool.poll_timeouts[-1] == look_again_ms

    def test_last_error_of_the_leader_is_the_cause(self) -> None:
        rig = Rig(delivery_timeout_ms=5000)
        future, sent = rig.in_flight()
        rig.complete(sent, error=LOST, is_possibly_persisted=True)
        rig.pool.last_failures[1] = failure(LOST, at_ms=rig.clock.now_ms())
        rig.pool.ready.clear()
        rig.turn()
        rig.turn(5000)
        error = future.exception(0)
        assert isinstance(error, DeliveryTimeoutError)
        assert error.__cause__ is LOST
        assert "the last error: cut" in str(error)

    @pytest.mark.parametrize("is_login_newer", [True, False])
    def test_newest_error_is_the_cause(self, is_login_newer: bool) -> None:
        rig = Rig(delivery_timeout_ms=5000)
        future, sent = rig.in_flight()
        refused = AuthenticationError("refused")
        rig.turn(100)
        rig.complete(sent, error=LOST, is_possibly_persisted=True)
        rig.turn()
        now_ms = rig.clock.now_ms()
        rig.pool.last_failures[-1] = failure(refused, at_ms=now_ms + 1 if is_login_newer else now_ms - 1)
        rig.pool.ready.clear()
        rig.turn(5000)
        error = future.exception(0)
        assert error is not None
        assert error.__cause__ is (refused if is_login_newer else LOST)

    def test_last_refusal_of_the_partition_is_the_cause(self) -> None:
        rig = Rig(delivery_timeout_ms=1000)
        future, sent = rig.in_flight()
        rig.answer(sent, NOT_ENOUGH_REPLICAS)
        rig.turn()
        rig.turn(1000)
        error = future.exception(0)
        assert error is not None
        cause = error.__cause__
        assert isinstance(cause, BrokerError)
        assert cause.code == NOT_ENOUGH_REPLICAS

    def test_errors_of_retries_are_forgotten_when_nothing_waits(self) -> None:
        rig = Rig(delivery_timeout_ms=1000)
        future, sent = rig.in_flight()
        rig.answer(sent, NOT_ENOUGH_REPLICAS)
        rig.turn()
        upkeep = rig.sender._upkeep
        assert list(upkeep.last_errors) == [(TOPIC, 0)]
        rig.turn(500)
        rig.answer(rig.produce_requests[-1])
        rig.turn()
        assert future.result(0).offset >= 0
        rig.turn()
        assert not upkeep.last_errors

    def test_sender_wakes_for_it(self) -> None:
        rig = Rig(topics={TOPIC: (-1,)}, delivery_timeout_ms=80)
        rig.send()
        rig.turn(30)
        assert rig.pool.poll_timeouts[-1] <= 50

    def test_record_in_flight_fails_on_time_and_its_memory_waits_for_the_answer(self) -> None:
        rig = Rig(delivery_timeout_ms=5000)
        future, sent = rig.in_flight()
        rig.turn(5000)
        error = future.exception(0)
        assert isinstance(error, DeliveryTimeoutError)
        assert error.possibly_persisted
        assert rig.accumulator.pool.in_use > 0
        rig.answer(sent)
        rig.turn()
        assert isinstance(future.exception(0), DeliveryTimeoutError)
        assert pool_is_free(rig)

    def test_retries_end_with_the_delivery_timeout(self) -> None:
        rig = Rig(delivery_timeout_ms=1000)
        future, sent = rig.in_flight()
        for _ in range(20):
            if future.done():
                break
            for sent in rig.produce_requests:
                rig.answer(sent, NOT_ENOUGH_REPLICAS)
            rig.turn(100)
        for sent in rig.produce_requests:
            rig.answer(sent, NOT_ENOUGH_REPLICAS)
        rig.turn()
        assert isinstance(future.exception(0), DeliveryTimeoutError)
        assert pool_is_free(rig)


class TestFlush:
    def test_flush_ends_with_the_outcome_of_what_was_queued_before_it(self) -> None:
        rig = Rig(linger_ms=10_000)
        rig.send()
        rig.turn()
        assert not rig.produce_requests
        told = Waiter()
        flush = Flush(told.wake)
        rig.sender.add_flush(flush)
        rig.turn()
        rig.turn()
        (sent,) = rig.produce_requests
        rig.send(b"later")
        assert not told.wait(0)
        rig.answer(sent)
        rig.turn()
        rig.turn()  # callers are woken right before the next wait
        assert told.wait(0)

    def test_flush_ends_before_the_sender_sleeps_again_if_the_last_batch_expires(self) -> None:
        rig = Rig(topics={TOPIC: (-1,)}, delivery_timeout_ms=1000)
        rig.send()
        told = Waiter()
        rig.sender.add_flush(Flush(told.wake))
        rig.turn()
        told_in_poll: list[bool] = []
        rig.pool.while_polled = lambda: told_in_poll.append(told.wait(0))
        rig.turn(999)
        rig.turn(1)
        assert told_in_poll == [False, True]

    def test_flush_nobody_waits_for_any_more_is_forgotten(self) -> None:
        rig = Rig(topics={TOPIC: (-1,)})
        rig.send()
        flush = Flush(lambda: None)
        rig.sender.add_flush(flush)
        rig.turn()
        flush.is_over = True
        rig.turn()
        assert not rig.sender.waiting_flushes

    def test_flush_of_an_ended_sender_does_not_wait(self) -> None:
        rig = Rig()
        rig.sender.close(0)
        rig.sender.run()
        told = Waiter()
        flush = Flush(told.wake)
        rig.sender.add_flush(flush)
        assert told.wait(0)


class TestEnd:
    def test_closing_sender_delivers_what_is_queued_and_ends(self) -> None:
        rig = Rig()
        future = rig.send()
        poll = rig.pool.poll

        def answering(timeout_ms: int) -> Any:
            for sent in rig.produce_requests:
                rig.answer(sent)
            return poll(timeout_ms)

        rig.pool.poll = answering  # type: ignore[method-assign, assignment]
        rig.sender.close(rig.clock.now_ms() + 60_000)
        rig.sender.run()
        assert future.succeeded()
        assert rig.sender.has_ended
        assert pool_is_free(rig)

    def test_records_fail_before_the_sockets_close_and_memory_goes_back_after(self) -> None:
        rig = Rig()
        future, _ = rig.in_flight()
        future.add_done_callback(lambda _: rig.pool.log.append(f"failed, {rig.accumulator.pool.in_use > 0}"))
        queued = rig.send()
        rig.sender.close(rig.clock.now_ms())
        rig.sender.run()
        assert rig.pool.log == ["failed, True", "pool closed"]
        assert isinstance(future.exception(0), ProducerClosedError)
        assert isinstance(queued.exception(0), ProducerClosedError)
        assert pool_is_free(rig)

    def test_earliest_of_several_ends_holds(self) -> None:
        rig = Rig()
        future, _ = rig.in_flight()
        rig.sender.close(rig.clock.now_ms())
        rig.sender.close(rig.clock.now_ms() + 60_000)
        rig.sender.run()
        assert future.failed()

    def test_sender_that_dies_fails_everything_with_the_cause(self) -> None:
        rig = Rig()
        in_flight, _ = rig.in_flight()
        queued = rig.send()
        told = Waiter()
        flush = Flush(told.wake)
        rig.sender.add_flush(flush)
        rig.turn()
        rig.pool.breaks = ZeroDivisionError("a bug")
        rig.sender.run()
        assert rig.sender.fatal_error is rig.pool.breaks
        for future in (in_flight, queued):
            error = future.exception(0)
            assert isinstance(error, ProducerClosedError)
            assert error.__cause__ is rig.pool.breaks
        assert told.wait(0)
        assert pool_is_free(rig)
        with pytest.raises(ProducerClosedError):
            rig.send()

    def test_memory_waiters_are_woken_when_memory_comes_back(self) -> None:
        rig = Rig()
        _, sent = rig.in_flight(b"x" * 1000)
        woken: list[bool] = []
        ticket = rig.accumulator.pool.enqueue_waiter(rig.accumulator.pool.capacity, lambda: woken.append(True))
        rig.turn()
        assert not woken
        rig.answer(sent)
        rig.turn()
        assert woken
        rig.accumulator.pool.dequeue_waiter(ticket)


def test_produce_body_is_what_the_version_says() -> None:
    rig = Rig(acks=1, request_timeout_ms=1234)
    rig.pool.version = 7
    _, sent = rig.in_flight()
    assert sent.body[:2] == b"\xff\xff"
    assert struct.unpack(">hi", sent.body[2:8]) == (1, 1234)
