"""Programs written for kafka-python, with the import changed and nothing else."""

from __future__ import annotations

import inspect
import json
import re
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import kafka
import kafka.errors
import pytest
from kafka.future import Future as TheirFuture
from kafka.partitioner.default import murmur2 as their_murmur2
from kafka.producer.future import RecordMetadata as TheirMetadata

from kafkaprod.broker import EmbeddedBroker
from kafkaprod.compat import kafka_python as compat
from kafkaprod.compat.kafka_python import KafkaProducer, TopicPartition, errors
from kafkaprod.compat.kafka_python.future import Future
from kafkaprod.compat.kafka_python.options import effective, engine_options
from kafkaprod.compat.kafka_python.partitioner import DefaultPartitioner, Partitioner
from kafkaprod.compat.kafka_python.producer.future import RecordMetadata
from kafkaprod.structs import murmur2
from tests.kafka.ports import free_ports
from tests.support.compat.standins import without_original

Read = Callable[[str, int], list[Any]]


@pytest.fixture
def producer(servers: str) -> Iterator[KafkaProducer]:
    producer = KafkaProducer(bootstrap_servers=[servers])
    yield producer
    producer.close(10)


def test_a_program_with_a_serializer_callbacks_and_get(servers: str, topic: str, read: Read) -> None:
    delivered: list[Any] = []
    producer = KafkaProducer(
        bootstrap_servers=[servers], value_serializer=lambda v: json.dumps(v).encode("utf-8"), retries=5, acks="all"
    )
    future = producer.send(topic, {"id": 1}, key=b"k", headers=[("h", b"1")], timestamp_ms=1_700_000_000_000)
    future.add_callback(lambda tag, metadata: delivered.append((tag, metadata)), "x").add_errback(delivered.append)
    metadata = future.get(timeout=10)
    producer.flush()
    assert future.is_done
    assert future.succeeded()
    assert future.value == metadata
    assert future.exception is None
    assert delivered == [("x", metadata)]
    assert metadata == RecordMetadata(
        topic, metadata.partition, TopicPartition(topic, metadata.partition), 0, 1_700_000_000_000, None, 1, 9, 2
    )
    producer.close()
    (record,) = read(topic, 1)
    assert (record.key(), record.value(), record.headers()) == (b"k", b'{"id": 1}', [("h", b"1")])
    with pytest.raises(errors.IllegalStateError):
        producer.send(topic, {"id": 2})


def test_options_that_conflict_with_idempotence_switch_it_off(servers: str, topic: str) -> None:
    with KafkaProducer(bootstrap_servers=servers, acks=1, max_in_flight_requests_per_connection=10) as producer:
        assert producer.send(topic, b"value").get(10).topic == topic
    with pytest.raises(errors.KafkaConfigurationError):
        KafkaProducer(bootstrap_servers=servers, acks=1, enable_idempotence=True)


def test_every_option_of_the_original_is_taken_with_its_default(servers: str) -> None:
    theirs = dict(kafka.KafkaProducer.DEFAULT_CONFIG)
    assert theirs.keys() == KafkaProducer.DEFAULT_CONFIG.keys()
    with pytest.warns(DeprecationWarning, match="selector: the platform's best one is used"):
        KafkaProducer(**{**theirs, "bootstrap_servers": servers}).close()


def test_options_of_version_2_are_taken(servers: str) -> None:
    with pytest.warns(DeprecationWarning, match="api_version: versions are always negotiated"):
        producer = KafkaProducer(
            bootstrap_servers=servers, api_version=(0, 10, 1), buffer_memory=33554432, api_version_auto_timeout_ms=3000
        )
    producer.close()


def test_an_unknown_option_is_refused_in_its_words() -> None:
    with pytest.raises(ValueError, match=re.escape("Unrecognized configs: ['batchsize']")):
        KafkaProducer(batchsize=1)


@pytest.mark.parametrize("name", ["sasl_password", "password", "ssl_key_password", "sasl_kerberos_name"])
def test_the_value_of_an_unknown_or_refused_option_is_not_shown(name: str) -> None:
    """A password under a name that is misremembered; kafka-python shows it."""
    secret = "-".join(["not", "to", "be", "seen"])  # nor is it in a line of source that a traceback has
    with pytest.raises((ValueError, errors.KafkaConfigurationError)) as caught:
        KafkaProducer(**{name: secret})
    assert secret not in "".join(traceback.format_exception(caught.value)) + repr(caught.value.args)


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        ({"metric_reporters": [object]}, "metrics()"),
        ({"socket_options": [(1, 2, 3)]}, "send_buffer_bytes"),
    ],
)
def test_what_is_not_offered_says_what_to_do(options: dict[str, Any], advice: str) -> None:
    with pytest.raises(errors.KafkaConfigurationError, match=re.escape(advice)):
        KafkaProducer(**options)


@pytest.mark.parametrize(
    ("given", "service"),
    [
        ({}, (None, None)),
        ({"sasl_kerberos_service_name": "brokers"}, ("brokers", None)),
        ({"sasl_kerberos_domain_name": "all.example.com"}, (None, "all.example.com")),
        ({"sasl_kerberos_name": "brokers@all.example.com"}, ("brokers", "all.example.com")),
        ({"sasl_kerberos_name": "kafka/b1.example.com@EXAMPLE.COM"}, ("kafka", "b1.example.com")),
    ],
)
def test_a_login_with_kerberos_names_the_service_as_there(
    given: dict[str, Any], service: tuple[str | None, str | None]
) -> None:
    login = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "GSSAPI", **given}
    options = engine_options(login, effective(login))
    assert (options.get("sasl_kerberos_service_name"), options.get("sasl_kerberos_domain_name")) == service
    others = engine_options(given, effective(given))
    assert not [name for name in others if "kerberos" in name]


def test_no_broker_is_an_error_of_the_constructor_in_a_retry_loop() -> None:
    (port,) = free_ports(1)
    started = time.monotonic()
    for _ in range(2):
        with pytest.raises(errors.NoBrokersAvailable, match=rf"127.0.0.1:{port} \(connect\)"):
            KafkaProducer(bootstrap_servers=f"127.0.0.1:{port}", bootstrap_timeout_ms=300)
    assert time.monotonic() - started < 30


def test_a_given_api_version_leaves_the_constructor_without_a_connection() -> None:
    with pytest.warns(DeprecationWarning, match="api_version"):
        producer = KafkaProducer(bootstrap_servers="127.0.0.1:1", api_version=(2, 5, 0), max_block_ms=50)
    with pytest.raises(errors.KafkaError):
        producer.send("t", b"value")
    assert not producer.bootstrap_connected()
    producer.close(0)


def test_arguments_are_checked_as_there(producer: KafkaProducer, topic: str) -> None:
    with pytest.raises(ValueError, match="at least one"):
        producer.send(topic)
    with pytest.raises(TypeError, match="serialized value"):
        producer.send(topic, "text")  # type: ignore[arg-type,unused-ignore]
    with pytest.raises(TypeError, match="headers"):
        producer.send(topic, b"v", headers={"a": b"1"})  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="tuples"):
        producer.send(topic, b"v", headers=[("a", "1")])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="Unrecognized partition 9"):
        producer.send(topic, b"v", partition=9)
    with pytest.raises(errors.MessageSizeTooLargeError):
        producer.send(topic, b"v" * 2_000_000)


def test_a_serializers_error_comes_out_as_it_is(servers: str, topic: str) -> None:
    with (
        KafkaProducer(bootstrap_servers=servers, value_serializer=lambda v: v.encode()) as producer,
        pytest.raises(AttributeError),
    ):
        producer.send(topic, 5)


def test_partitioners_of_both_kinds_choose(servers: str, topic: str) -> None:
    class Last(Partitioner):
        def partition(
            self, topic: str, key: Any, serialized_key: Any, value: Any, serialized: Any, cluster: Any
        ) -> int:
            assert (key, serialized_key) == ("k", b"k")
            return int(max(cluster.partitions_for_topic(topic)))

    with KafkaProducer(bootstrap_servers=servers, partitioner=Last(), key_serializer=str.encode) as producer:
        assert producer.send(topic, b"v", key="k").get(10).partition == 2
    with KafkaProducer(bootstrap_servers=servers, partitioner=lambda key, every, available: every[1]) as producer:
        assert producer.send(topic, b"v").get(10).partition == 1
    with KafkaProducer(bootstrap_servers=servers, partitioner=DefaultPartitioner()) as producer:
        partition = producer.send(topic, b"v", key=b"key").get(10).partition
        assert partition == (their_murmur2(b"key") & 0x7FFFFFFF) % 3


def test_murmur2_is_theirs() -> None:
    for length in range(20):
        data = bytes(range(200, 200 + length))
        assert murmur2(data) == their_murmur2(data) & 0xFFFFFFFF


def test_flush_does_not_raise_for_failed_records_and_times_out_as_there(servers: str, topic: str) -> None:
    with pytest.warns(DeprecationWarning, match="api_version"):
        producer = KafkaProducer(bootstrap_servers=servers, api_version=(2, 5), linger_ms=60_000)
    future = producer.send(topic, b"value")
    with pytest.raises(errors.KafkaTimeoutError):
        future.get(timeout=0.01)
    producer.flush(10)
    assert future.is_done
    producer.close()


def test_questions_have_answers(producer: KafkaProducer, topic: str) -> None:
    assert producer.partitions_for(topic) == {0, 1, 2}
    assert producer.bootstrap_connected()
    metrics = producer.metrics()
    assert metrics is not None
    assert "record-send-rate" in metrics["producer-metrics"]
    assert KafkaProducer.max_usable_produce_magic((2, 0)) == 2


def test_a_transaction_commits_and_aborts(servers: str, topic: str, read: Read) -> None:
    with KafkaProducer(bootstrap_servers=servers, transactional_id=topic) as producer:
        producer.init_transactions()
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"lost")
        producer.abort_transaction()
        producer.begin_transaction()
        producer.send(topic, b"kept")
        producer.commit_transaction()
        with pytest.raises(errors.IllegalStateError):
            producer.commit_transaction()
    assert [record.value() for record in read(topic, 1)] == [b"kept"]


def test_callbacks_run_on_another_thread_and_may_fail(producer: KafkaProducer, topic: str) -> None:
    ran = threading.Event()
    future = producer.send(topic, b"value")
    future.add_callback(lambda _: 1 / 0)
    future.add_both(lambda _: ran.set())
    assert ran.wait(10)


def test_every_public_name_of_the_original_is_there() -> None:
    names = {name for name in dir(kafka.KafkaProducer) if not name.startswith("_")}
    assert names <= set(dir(KafkaProducer))
    for name in names - {"DEFAULT_CONFIG", "DEPRECATED_CONFIGS"}:
        theirs = inspect.signature(getattr(kafka.KafkaProducer, name)).parameters
        assert list(inspect.signature(getattr(KafkaProducer, name)).parameters) == list(theirs), name
    assert {name for name in dir(TheirFuture) if not name.startswith("_")} <= set(dir(Future))
    assert RecordMetadata._fields == TheirMetadata._fields
    assert compat.KafkaConsumer is kafka.KafkaConsumer  # handed on


def test_without_kafka_python_every_error_is_there_with_its_code_and_bases() -> None:
    standins = without_original(errors, "kafka")
    theirs: dict[str, Any] = {
        n: c for n, c in vars(kafka.errors).items() if inspect.isclass(c) and issubclass(c, Exception)
    }
    for name, kind in theirs.items():
        ours = getattr(standins, name)
        assert ours is not kind, name
        assert getattr(ours, "errno", None) == getattr(kind, "errno", None), name
        assert ours.retriable == kind.retriable, name
        assert ours.invalid_metadata == kind.invalid_metadata, name
        for base in kind.__mro__[1:]:
            if base.__module__ == "kafka.errors":
                assert issubclass(ours, getattr(standins, base.__name__)), (name, base)
    assert len(theirs) >= 157


def test_a_tracing_agent_finds_the_partition_of_a_record(servers: str, topic: str) -> None:
    with KafkaProducer(bootstrap_servers=servers, value_serializer=str.encode) as producer:
        assert producer._partition(topic, None, b"k", b"v", b"k", b"v") is None, "the topic is not known yet"
        future = producer.send(topic, "v", key=b"k")
        found = producer._partition(topic, None, b"k", "v", b"k", b"v")
        assert future._produce_future is not None
        assert future._produce_future.topic_partition == (topic, found) == future.get(10).topic_partition
        assert producer._partition(topic, 2, None, "v", None, b"v") == 2
        assert producer._partition(topic, None, None, "v", None, b"v") is None
        assert producer._serialize(producer.config["value_serializer"], topic, [], "v") == b"v"
        assert producer._serialize(producer.config["value_serializer"], topic, "v") == b"v"


def test_a_tracing_agent_asks_the_partitioner_of_the_program(servers: str, topic: str) -> None:
    with KafkaProducer(bootstrap_servers=servers, partitioner=lambda key, all_of_them, available: 1) as producer:
        producer.send(topic, b"v").get(10)
        assert producer._partition(topic, None, None, b"v", None, b"v") == 1


def test_a_tracing_agent_finds_the_controller_after_a_send(servers: str, topic: str) -> None:
    producer = KafkaProducer(bootstrap_servers=servers)
    producer.send(topic, b"x").get(10)
    controller = producer._metadata.controller
    assert controller is not None
    assert f"{controller.host}:{controller.port}" == servers
    assert producer._metadata.partitions_for_topic(topic) == {0, 1, 2}
    assert producer._metadata.partitions_for_topic("none") is None
    producer.close()


def test_names_that_scripts_and_health_checks_look_at(topic: str) -> None:
    with EmbeddedBroker(topics={topic: 3}, record_requests=True) as broker:
        producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers)
        producer.send(topic, b"x").get(10)
        assert not producer._closed
        assert producer._sender.is_alive()
        client = producer._sender._client
        assert client.check_version() == (0, 11)
        assert client.bootstrap_connected()
        metadata = producer._metadata
        (node,) = client.cluster.brokers()
        assert metadata.broker_metadata(node.nodeId) == node
        assert metadata.broker_metadata(99) is None
        assert metadata.leader_for_partition(TopicPartition(topic, 2)) == node.nodeId
        assert metadata.leader_for_partition(TopicPartition(topic, 3)) is None
        assert metadata.leader_for_partition(TopicPartition("none", 0)) is None
        assert metadata.cluster_id
        assert producer._wait_on_metadata(topic, 1000) == {0, 1, 2}
        mark = broker.mark()
        metadata.request_update()
        producer._sender.wakeup()
        broker.wait_for_requests("METADATA", since=mark)
        broker.kill()
        with pytest.raises(errors.NoBrokersAvailable):
            client.check_version()
        producer.close(0)
    assert producer._closed
    assert not producer._sender.is_alive()
