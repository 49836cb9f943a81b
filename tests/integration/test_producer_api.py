"""What `Producer` promises besides delivery, against librdkafka's mock cluster."""

from __future__ import annotations

import json
import threading
import time
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from kafkaprod import AsyncProducer, DeliveryFuture, Producer, RecordMetadata
from kafkaprod.errors import (
    BrokerError,
    DeliveryFailedError,
    IllegalStateError,
    InvalidRecordError,
    MetadataTimeoutError,
    ProducerClosedError,
    SerializationError,
)
from kafkaprod.hooks.interceptors import ProducerRecord
from kafkaprod.hooks.serializers import SerializationContext
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.error_codes import ErrorCode
from tests.kafka.reading import ReadRecord, read_all
from tests.support.kafka.fixtures_mock_cluster import MockCluster

LIMIT_S = 30.0
SOON_MS = 300
PARTITIONS = 4  # of the topics the mock cluster makes


def read(cluster: MockCluster, topic: str = "topic") -> list[ReadRecord]:
    """All records of a topic, partition by partition."""
    return [record for records in read_all(cluster.bootstrap, topic).values() for record in records]


def refuse_next_produce(cluster: MockCluster) -> None:
    cluster.push_errors(ApiKey.PRODUCE, [ErrorCode.POLICY_VIOLATION])


# -- flush, close, with ------------------------------------------------------------------------------------------------


def test_flush_of_what_is_delivered_already_returns_at_once(mock_cluster: MockCluster) -> None:
    with Producer(bootstrap_servers=mock_cluster.bootstrap) as producer:
        producer.flush(LIMIT_S)
        for _ in range(20):
            producer.send("topic", b"value").result(LIMIT_S)
            producer.flush(LIMIT_S)


def test_flush_sends_what_lingers(mock_cluster: MockCluster) -> None:
    with Producer(bootstrap_servers=mock_cluster.bootstrap, linger_ms=60_000) as producer:
        futures = [producer.send("topic", b"%d" % i) for i in range(100)]
        assert not any(future.done() for future in futures)
        producer.flush(LIMIT_S)
        assert all(future.succeeded() for future in futures)


def test_flush_raises_what_nobody_looked_at_and_once(mock_cluster: MockCluster) -> None:
    with Producer(bootstrap_servers=mock_cluster.bootstrap) as producer:
        producer.send("topic", b"delivered").result(LIMIT_S)
        refuse_next_produce(mock_cluster)
        producer.send_many("topic", [b"refused"] * 3, partition=0)
        with pytest.raises(DeliveryFailedError, match=r"3 records.*POLICY_VIOLATION") as caught:
            producer.flush(LIMIT_S)
        assert caught.value.failed_count == 3
        assert isinstance(caught.value.__cause__, BrokerError)
        producer.flush(LIMIT_S)


def test_flush_does_not_repeat_a_failure_that_was_looked_at(mock_cluster: MockCluster) -> None:
    with Producer(bootstrap_servers=mock_cluster.bootstrap) as producer:
        producer.partitions_for("topic")
        refuse_next_produce(mock_cluster)
        assert isinstance(producer.send("topic", b"refused").exception(LIMIT_S), BrokerError)
        producer.flush(LIMIT_S)


def test_leaving_the_with_block_raises_what_nobody_looked_at(mock_cluster: MockCluster) -> None:
    def work() -> None:
        with Producer(bootstrap_servers=mock_cluster.bootstrap) as producer:
            producer.partitions_for("topic")
            refuse_next_produce(mock_cluster)
            producer.send("topic", b"refused")

    with pytest.raises(DeliveryFailedError, match="1 record not delivered"):
        work()


def test_leaving_the_with_block_by_an_error_delivers_and_keeps_the_error(mock_cluster: MockCluster) -> None:
    futures = []

    def work() -> None:
        with Producer(bootstrap_servers=mock_cluster.bootstrap, linger_ms=60_000) as producer:
            futures.append(producer.send("topic", b"value"))
            raise KeyError("the user's own")

    with pytest.raises(KeyError):
        work()
    assert futures[0].result(0).offset == 0


def test_closed_producer_refuses_every_verb(mock_cluster: MockCluster) -> None:
    producer = Producer(bootstrap_servers=mock_cluster.bootstrap)
    producer.send("topic", b"value")
    producer.close()
    producer.close()
    calls: list[Any] = [
        lambda: producer.send("topic", b"value"),
        lambda: producer.send_many("topic", [b"value"]),
        lambda: producer.send_columns("topic", (np.array([0, 1], np.int32), b"v")),
        lambda: producer.partitions_for("topic"),
        producer.flush,
    ]
    for call in calls:
        with pytest.raises(ProducerClosedError):
            call()
    assert [record.value for record in read(mock_cluster)] == [b"value"]


def test_close_with_a_timeout_fails_what_is_left(mock_cluster: MockCluster) -> None:
    producer = Producer(bootstrap_servers=mock_cluster.bootstrap)
    producer.partitions_for("topic")
    mock_cluster.set_round_trip_ms(-1, 20_000)
    future = producer.send("topic", b"value")
    started = time.monotonic()
    producer.close(0.2)
    assert time.monotonic() - started < 10
    with pytest.raises(ProducerClosedError):
        future.result(0)


# -- topics and partitions ---------------------------------------------------------------------------------------------


def test_metadata_that_cannot_be_used_is_the_reason_given(mock_cluster: MockCluster) -> None:
    mock_cluster.push_errors(ApiKey.METADATA, [ErrorCode.UNKNOWN_SERVER_ERROR] * 100)
    with Producer(bootstrap_servers=mock_cluster.bootstrap, max_block_ms=SOON_MS) as producer:
        with pytest.raises(BrokerError, match="UNKNOWN_SERVER_ERROR"):
            producer.send("topic", b"value")
        assert not producer.bootstrap_connected()


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "\u00fc", "x" * 250])
def test_illegal_topic_names_are_refused_at_once(mock_cluster: MockCluster, name: str) -> None:
    with Producer(bootstrap_servers=mock_cluster.bootstrap) as producer:
        with pytest.raises(InvalidRecordError, match="legal name"):
            producer.send(name, b"value")
        with pytest.raises(InvalidRecordError, match="legal name"):
            producer.send_many(name, [b"value"])
        with pytest.raises(InvalidRecordError, match="legal name"):
            producer.partitions_for(name)


def test_partition_out_of_range_names_how_many_there_are(mock_cluster: MockCluster) -> None:
    with Producer(bootstrap_servers=mock_cluster.bootstrap, max_block_ms=SOON_MS) as producer:
        for call in (producer.send, producer.send_many):
            with pytest.raises(MetadataTimeoutError, match=r"partition 7 of topic 'topic'.*it has 4 partitions"):
                call("topic", [b"value"] if call == producer.send_many else b"value", partition=7)
            with pytest.raises(InvalidRecordError, match="partition"):
                call("topic", [b"value"] if call == producer.send_many else b"value", partition=-1)


def test_partitions_for_names_them_all(mock_cluster: MockCluster) -> None:
    mock_cluster.create_topic("wide", partitions=12)
    with Producer(bootstrap_servers=mock_cluster.bootstrap) as producer:
        assert producer.partitions_for("wide") == set(range(12))
        assert producer.bootstrap_connected()


# -- the user's code on the way of a record ----------------------------------------------------------------------------


def test_serializers_see_the_record_and_their_bytes_are_sent(mock_cluster: MockCluster) -> None:
    seen: list[SerializationContext] = []

    def serialize(data: Any, ctx: SerializationContext) -> bytes | None:
        seen.append(ctx)
        return None if data is None else json.dumps(data).encode()

    headers = [("h", b"1")]
    with Producer(bootstrap_servers=mock_cluster.bootstrap, key_serializer=str.encode, value_serializer=serialize) as p:
        p.send("topic", {"n": 1}, key="k", headers=headers, partition=0)
        p.send("topic", None, key="tombstone", partition=0)
        p.send_many("topic", [[1], [2]], keys=["a", "b"], partition=0)
    assert [(record.key, record.value) for record in read(mock_cluster)] == [
        (b"k", b'{"n": 1}'),
        (b"tombstone", None),
        (b"a", b"[1]"),
        (b"b", b"[2]"),
    ]
    assert seen[0] == SerializationContext("topic", "value", headers)


def test_failing_serializer_is_the_callers_error(mock_cluster: MockCluster) -> None:
    with Producer(bootstrap_servers=mock_cluster.bootstrap, value_serializer=json.dumps) as producer:
        with pytest.raises(SerializationError):  # text is not bytes
            producer.send("topic", 1)
        with pytest.raises(SerializationError, match="row 1"):
            Producer(bootstrap_servers=mock_cluster.bootstrap, value_serializer=str.encode).send_many("topic", ["a", 1])


def test_interceptors_change_records_and_hear_outcomes(mock_cluster: MockCluster) -> None:
    outcomes: list[tuple[RecordMetadata, BaseException | None]] = []

    class Stamp:
        def on_send(self, record: ProducerRecord) -> ProducerRecord:
            return record._replace(headers=[*(record.headers or ()), ("stamp", b"1")])

        def on_acknowledgement(self, metadata: RecordMetadata, error: BaseException | None) -> None:
            outcomes.append((metadata, error))

    class Broken:
        def on_send(self, record: ProducerRecord) -> ProducerRecord:
            raise ValueError("broken")

    with Producer(bootstrap_servers=mock_cluster.bootstrap, interceptors=[Broken(), Stamp()]) as producer:
        delivered = producer.send("topic", b"value", headers=[("mine", None)], partition=1).result(LIMIT_S)
        refuse_next_produce(mock_cluster)
        refused = producer.send("topic", b"value", partition=1)
        assert refused.exception(LIMIT_S) is not None
        with pytest.raises(InvalidRecordError):
            producer.send("topic", b"value", partition=-5)
    assert [record.headers for record in read(mock_cluster)] == [[("mine", None), ("stamp", b"1")]]
    assert outcomes[0] == (delivered, None)
    assert outcomes[1][0] == RecordMetadata("topic", 1, -1, -1)
    assert repr(outcomes[1][1]) == repr(refused.exception(0))  # each look has an error of its own
    assert isinstance(outcomes[2][1], InvalidRecordError)


class ByLength:
    """A partitioner that looks at the value's length."""

    def partition(self, topic: str, key: Any, value: Any, partition_count: int, available: Sequence[int]) -> int:
        assert (topic, partition_count, tuple(available)) == ("topic", PARTITIONS, tuple(range(PARTITIONS)))
        return len(value) % partition_count


class ByLengths(ByLength):
    """The same, for blocks in one call."""

    def partition_many(self, topic: str, keys: Any, values: Any, partition_count: int, available: Any) -> Any:
        return np.array([len(value) for value in values]) % partition_count


@pytest.mark.parametrize("partitioner", [ByLength(), ByLengths()])
def test_the_users_partitioner_places_records(mock_cluster: MockCluster, partitioner: Any) -> None:
    values = [b"x" * length for length in range(50)]
    with Producer(bootstrap_servers=mock_cluster.bootstrap, partitioner=partitioner) as producer:
        futures = [producer.send("topic", value, key=b"ignored") for value in values]
        block = producer.send_many("topic", values)
        explicit = producer.send("topic", b"", partition=3)
    expected = [len(value) % PARTITIONS for value in values]
    assert [future.partition for future in futures] == expected
    assert block.partitions.tolist() == expected
    assert explicit.partition == 3
    log = read_all(mock_cluster.bootstrap, "topic")
    for partition in range(PARTITIONS - 1):
        assert all(len(record.value or b"") % PARTITIONS == partition for record in log[partition])


def test_partitioner_out_of_range_is_the_callers_error(mock_cluster: MockCluster) -> None:
    class Beyond(ByLength):
        def partition(self, *_: Any) -> int:
            return PARTITIONS

    with Producer(bootstrap_servers=mock_cluster.bootstrap, partitioner=Beyond()) as producer:
        for call in (producer.send, producer.send_many):
            with pytest.raises(InvalidRecordError, match="Beyond chose partition 4"):
                call("topic", [b"value"] if call == producer.send_many else b"value")


def test_round_robin_visits_every_partition(mock_cluster: MockCluster) -> None:
    with Producer(bootstrap_servers=mock_cluster.bootstrap, partitioner="round_robin") as producer:
        futures = [producer.send("topic", b"value", key=b"same") for _ in range(2 * PARTITIONS)]
    assert [future.partition for future in futures] == [*range(PARTITIONS), *range(PARTITIONS)]


def test_keys_go_where_librdkafkas_murmur2_puts_them(mock_cluster: MockCluster) -> None:
    from confluent_kafka import Producer as ConfluentProducer

    keys = [b"key-%d" % i for i in range(200)]
    theirs = ConfluentProducer({"bootstrap.servers": mock_cluster.bootstrap, "partitioner": "murmur2_random"})
    for key in keys:
        theirs.produce("theirs", key=key)
    assert theirs.flush(LIMIT_S) == 0
    with Producer(bootstrap_servers=mock_cluster.bootstrap) as producer:
        placed = {key: producer.send("topic", b"value", key=key).partition for key in keys}
    for partition, records in read_all(mock_cluster.bootstrap, "theirs").items():
        assert all(placed[record.key or b""] == partition for record in records)


# -- results and callbacks ---------------------------------------------------------------------------------------------


def test_callbacks_run_on_the_sender_thread_once_for_each_record(mock_cluster: MockCluster) -> None:
    told: list[tuple[str, Any, int]] = []

    def note(what: str) -> Any:
        return lambda value: told.append((what, value, threading.get_ident()))

    with Producer(bootstrap_servers=mock_cluster.bootstrap) as producer:
        future = producer.send("topic", b"value", partition=0)
        future.add_callback(note("delivered")).add_errback(note("failed")).add_done_callback(note("done"))
        producer.flush(LIMIT_S)
        refuse_next_produce(mock_cluster)
        refused = producer.send("topic", b"value", partition=0)
        refused.add_both(note("both"))
        assert refused.exception(LIMIT_S) is not None
    assert [(what, value) for what, value, _ in told[:2]] == [("delivered", future.result(0)), ("done", future)]
    assert [(what, repr(value)) for what, value, _ in told[2:]] == [("both", repr(refused.exception(0)))]
    assert {thread for _, _, thread in told}.isdisjoint({threading.get_ident()})


def test_callback_of_a_known_outcome_runs_at_once(mock_cluster: MockCluster) -> None:
    told: list[DeliveryFuture] = []
    with Producer(bootstrap_servers=mock_cluster.bootstrap) as producer:
        future = producer.send("topic", b"value")
        future.result(LIMIT_S)
        future.add_done_callback(told.append)
        assert told == [future]


def test_raising_callback_disturbs_nobody(mock_cluster: MockCluster, caplog: pytest.LogCaptureFixture) -> None:
    with Producer(bootstrap_servers=mock_cluster.bootstrap) as producer:
        futures = [producer.send("topic", b"value") for _ in range(10)]
        for future in futures:
            future.add_done_callback(lambda _: 1 // 0)
        producer.flush(LIMIT_S)
        assert all(future.succeeded() for future in futures)
        assert producer.send("topic", b"after").result(LIMIT_S) is not None
    assert "ZeroDivisionError" in caplog.text


def test_callback_may_send_but_not_wait(mock_cluster: MockCluster) -> None:
    followers: list[DeliveryFuture] = []
    refusals: list[Exception] = []

    def go_on(_: DeliveryFuture) -> None:
        followers.append(producer.send("topic", b"second"))
        for wait in (producer.flush, followers[0].result):
            try:
                wait()
            except IllegalStateError as error:
                refusals.append(error)

    with Producer(bootstrap_servers=mock_cluster.bootstrap) as producer:
        first = producer.send("topic", b"first")
        first.add_done_callback(go_on)
        first.result(LIMIT_S)
    assert followers[0].result(0) is not None
    assert len(refusals) == 2


def test_block_callback_hears_of_all_rows(mock_cluster: MockCluster) -> None:
    told = threading.Event()
    with Producer(bootstrap_servers=mock_cluster.bootstrap) as producer:
        block = producer.send_many("topic", [b"%d" % i for i in range(1000)], keys=[b"%d" % i for i in range(1000)])
        block.add_done_callback(lambda result: told.set() if result.done() else None)
        assert told.wait(LIMIT_S)
    assert block.failed_count == 0
    assert not block.error_codes.any()


def test_failed_rows_of_a_block_are_told_apart(mock_cluster: MockCluster) -> None:
    mock_cluster.create_topic("topic", PARTITIONS)
    for partition in range(PARTITIONS):
        mock_cluster.set_leader("topic", partition, 1 + partition % 2)
    with Producer(bootstrap_servers=mock_cluster.bootstrap) as producer:
        producer.partitions_for("topic")
        partitions = np.array([0, 1, 2, 3] * 25, np.int32)
        refuse_next_produce(mock_cluster)  # of the first broker that is asked, for all its partitions
        block = producer.send_many("topic", [b"%d" % i for i in range(100)], partitions=partitions)
        assert block.wait(LIMIT_S)
        failed = set(block.errors)
    assert 0 < len(failed) < 100
    assert {int(partitions[row]) for row in failed}.isdisjoint(
        {int(partitions[row]) for row in range(100) if row not in failed}
    )
    assert all((block.error_codes[row] == ErrorCode.POLICY_VIOLATION) == (row in failed) for row in range(100))
    assert all((block.offsets[row] == -1) == (row in failed) for row in range(100))
    with pytest.raises(BrokerError, match="POLICY_VIOLATION"):
        block.result(0)


def test_result_metadata_tells_the_sizes(mock_cluster: MockCluster) -> None:
    with Producer(bootstrap_servers=mock_cluster.bootstrap) as producer:
        metadata = producer.send("topic", b"value", key=b"k", partition=2).result(LIMIT_S)
        null = producer.send("topic", partition=2).result(LIMIT_S)
    assert metadata[:3] == ("topic", 2, 0)
    assert (metadata.serialized_key_size, metadata.serialized_value_size) == (1, 5)
    assert (null.serialized_key_size, null.serialized_value_size) == (-1, -1)


async def test_failed_records_raise_where_they_are_awaited(mock_cluster: MockCluster) -> None:
    async with AsyncProducer(bootstrap_servers=mock_cluster.bootstrap) as producer:
        await producer.partitions_for("topic")
        refuse_next_produce(mock_cluster)
        with pytest.raises(BrokerError, match="POLICY_VIOLATION"):
            await producer.send_and_wait("topic", b"refused")
        refuse_next_produce(mock_cluster)
        await producer.send("topic", b"refused")
        with pytest.raises(DeliveryFailedError):
            await producer.flush()


def test_metrics_add_up(mock_cluster: MockCluster) -> None:
    values = [zlib.crc32(b"%d" % i).to_bytes(4) * 25 for i in range(5000)]
    with Producer(bootstrap_servers=mock_cluster.bootstrap, batch_size=16_384, compression_type="gzip") as producer:
        producer.send_many("topic", values)
        producer.flush(LIMIT_S)
        mock_cluster.push_errors(ApiKey.PRODUCE, [ErrorCode.NOT_ENOUGH_REPLICAS])
        producer.send("topic", b"retried", partition=0).result(LIMIT_S)
        refuse_next_produce(mock_cluster)
        assert producer.send("topic", b"refused", partition=0).exception(LIMIT_S) is not None
        metrics = producer.metrics()["producer-metrics"]
    assert metrics["record-send-total"] >= 5002
    assert metrics["record-retry-total"] == 1
    assert metrics["record-error-total"] == 1
    assert metrics["buffer-available-bytes"] == metrics["buffer-total-bytes"]
    assert 0 < metrics["batch-size-avg"] <= 16_384
    assert 1 <= metrics["records-per-request-avg"] <= 5002
    assert 0 < metrics["request-latency-avg"] <= metrics["request-latency-max"] < LIMIT_S * 1000
    assert metrics["connection-count"] >= 1
    assert metrics["waiting-threads"] == 0
