"""The same records to brokers that speak other versions: Kafka 3.9, Kafka 2.8 with ZooKeeper, librdkafka's mock."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kafkaprod import Producer, RecordMetadata
from kafkaprod.errors import CorruptDataError
from kafkaprod.protocol.api_keys import ApiKey
from tests.kafka.batches import codecs_of_large_batches, read_log
from tests.kafka.cluster import KafkaCluster
from tests.kafka.reading import CREATE_TIME, ReadRecord, read_all
from tests.kafka.runtime import OLD_BROKER_VERSION, OLDEST_BROKER_VERSION
from tests.support.kafka.fixtures_kafka import skipped_where_unavailable
from tests.support.kafka.fixtures_mock_cluster import MockCluster
from tests.support.producer.delivered import (
    CODECS,
    PARTITIONS,
    GivenRecord,
    Sends,
    assorted_records,
    send_block,
    send_columns,
    send_in_every_way,
    wait_until_served,
)

LISTENERS = {
    OLD_BROKER_VERSION: ("PLAINTEXT", "SASL_PLAINTEXT", "SASL_SSL"),
    OLDEST_BROKER_VERSION: ("PLAINTEXT", "SASL_PLAINTEXT"),  # takes no unencrypted PEM key
}
PLAIN_ONLY: dict[str, Any] = {"acks": 1, "enable_idempotence": False}
SAFE: dict[str, Any] = {}
# Of 3 to 10, the mock cluster's newest. Its answer in version 5 lacks the log start offset (it is written from 6 on).
PRODUCE_VERSIONS = (3, 4, 6, 7, 8, 9, 10)


@pytest.fixture(scope="module", params=[OLD_BROKER_VERSION, OLDEST_BROKER_VERSION])
def old_kafka(request: pytest.FixtureRequest) -> Iterator[KafkaCluster]:
    """One node of an old release."""
    cluster = KafkaCluster(1, listeners=LISTENERS[request.param], version=request.param)
    try:
        with skipped_where_unavailable():
            cluster.start()
        yield cluster
    finally:
        cluster.close()


def deliver_and_compare(cluster: KafkaCluster, topic: str, **options: Any) -> None:
    cluster.create_topic(topic, PARTITIONS)
    reader = cluster.direct_bootstrap()
    wait_until_served(reader, topic)
    sends = Sends()
    with Producer(**options) as producer:
        send_in_every_way(producer, topic, sends)
    sends.check(read_all(reader, topic))
    assert codecs_of_large_batches(read_log(reader, topic)) == {options.get("compression_type", "none")}


@pytest.mark.external
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("mode", [SAFE, PLAIN_ONLY], ids=["idempotent", "acks=1"])
def test_old_releases_keep_everything_in_its_place(
    old_kafka: KafkaCluster, topic_name: str, codec: str, mode: dict[str, Any]
) -> None:
    deliver_and_compare(old_kafka, topic_name, bootstrap_servers=old_kafka.bootstrap(), compression_type=codec, **mode)


@pytest.mark.external
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_old_releases_let_us_in(old_kafka: KafkaCluster, topic_name: str, mechanism: str) -> None:
    listener = LISTENERS[old_kafka.version][-1]
    certificates = old_kafka.certificates
    deliver_and_compare(
        old_kafka,
        topic_name,
        bootstrap_servers=old_kafka.bootstrap(listener),
        security_protocol=listener,
        sasl_mechanism=mechanism,
        sasl_plain_username="alice",
        sasl_plain_password="alice-secret",
        **({} if certificates is None else {"ssl_cafile": str(certificates.ca)}),
    )


def send_to_mock(cluster: MockCluster, topic: str, **options: Any) -> None:
    """Less than `send_in_every_way`: the mock cluster keeps a few megabytes a partition. It stamps records anew."""
    cluster.create_topic(topic, PARTITIONS)
    sends = Sends()
    with Producer(bootstrap_servers=cluster.bootstrap, **options) as producer:
        for record in assorted_records(60, seed=3):
            sends.add(producer.send(topic, record.value, record.key, record.headers, timestamp_ms=1), record)
        send_block(producer, topic, assorted_records(60, seed=4), sends)
        send_columns(producer, topic, [GivenRecord(b"%d" % i, b"value", [], None) for i in range(500)], sends)
    sends.check(read_all(cluster.bootstrap, topic), timestamps_kept=False)
    assert codecs_of_large_batches(read_log(cluster.bootstrap, topic)) == {options.get("compression_type", "none")}


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("mode", [SAFE, PLAIN_ONLY], ids=["idempotent", "acks=1"])
def test_the_mock_cluster_keeps_everything_in_its_place(
    mock_cluster: MockCluster, codec: str, mode: dict[str, Any]
) -> None:
    send_to_mock(mock_cluster, "topic", compression_type=codec, **mode)


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
def test_every_produce_version_is_spoken(mock_cluster: MockCluster, version: int) -> None:
    mock_cluster.set_api_version(ApiKey.PRODUCE, version, version)
    send_to_mock(mock_cluster, "topic", compression_type="gzip")


SENT = [GivenRecord(b"k", b"%d" % i, [("h", None)], i) for i in range(3)]
READ = [ReadRecord(i, b"k", b"%d" % i, [("h", None)], i, CREATE_TIME) for i in range(3)]


@pytest.mark.parametrize(
    "log",
    [
        {0: READ[:2]},
        {0: [*READ, READ[2]]},
        {0: [READ[1], READ[0], READ[2]]},
        {0: READ, 1: READ[:1]},
        {1: READ},
        *({0: [*READ[:2], READ[2]._replace(**wrong)]} for wrong in ({"offset": 3}, {"key": None}, {"value": b""})),
        *({0: [*READ[:2], READ[2]._replace(**wrong)]} for wrong in ({"headers": [("h", b"")]}, {"timestamp": 9})),
    ],
)
def test_the_comparison_notices_every_difference(log: dict[int, list[ReadRecord]]) -> None:
    sends = Sends()
    for i, record in enumerate(SENT):
        sends.add(RecordMetadata("topic", 0, i, i), record)
    sends.check({0: READ, 1: []})
    with pytest.raises(AssertionError):
        sends.check(log)


def test_an_answer_that_cannot_be_read_is_logged(mock_cluster: MockCluster, caplog: pytest.LogCaptureFixture) -> None:
    mock_cluster.set_api_version(ApiKey.PRODUCE, 5, 5)  # see PRODUCE_VERSIONS
    with Producer(bootstrap_servers=mock_cluster.bootstrap, enable_idempotence=False, retries=0) as producer:
        assert isinstance(producer.send("topic", b"value").exception(30), CorruptDataError)
    assert "the connection is closed" in caplog.text
