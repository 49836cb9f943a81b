"""Programs written for confluent-kafka, with the import changed and nothing else."""

from __future__ import annotations

import inspect
import json
import threading
import time
from collections.abc import Callable
from typing import Any

import confluent_kafka
import confluent_kafka.error
import confluent_kafka.serialization
import pytest

from kafkaprod import errors
from kafkaprod.compat import confluent_kafka as compat
from kafkaprod.compat.confluent_kafka import (
    KafkaError,
    KafkaException,
    Message,
    Producer,
    SerializingProducer,
    standins,
)
from kafkaprod.compat.confluent_kafka import error as our_error
from kafkaprod.compat.confluent_kafka.codes import CODES
from kafkaprod.compat.confluent_kafka.options import read as read_options
from kafkaprod.compat.confluent_kafka.serialization import IntegerSerializer, StringSerializer
from tests.kafka.ports import free_ports
from tests.support.compat.standins import without_original

Read = Callable[[str, int], list[Any]]
Reports = list[tuple[KafkaError | None, Message]]


def test_a_program_with_callbacks_poll_and_flush(servers: str, topic: str, read: Read) -> None:
    reports: Reports = []
    threads = set()

    def acked(error: KafkaError | None, message: Message) -> None:
        threads.add(threading.current_thread())
        reports.append((error, message))

    producer = Producer({"bootstrap.servers": servers, "client.id": "program", "acks": 1})
    for number in range(20):
        producer.produce(topic, f"value {number}", key=str(number), headers={"h": "1"}, callback=acked)
        producer.poll(0)
    assert producer.flush() == 0
    assert len(producer) == 0
    assert threads == {threading.current_thread()}
    assert [error for error, _ in reports] == [None] * 20
    message = next(message for _, message in reports if message.key() == b"0")
    assert (message.topic(), message.value(), message.error()) == (topic, b"value 0", None)
    offset = message.offset()
    assert offset is not None
    assert offset >= 0
    assert message.timestamp()[0] == compat.TIMESTAMP_CREATE_TIME
    assert (message.latency() or -1) > 0
    records = read(topic, 20)
    assert {record.value() for record in records} == {f"value {number}".encode() for number in range(20)}
    assert records[0].headers() == [("h", b"1")]


@pytest.mark.parametrize("partitioner", ["consistent_random", "consistent", "murmur2_random", "fnv1a", "fnv1a_random"])
def test_keys_go_to_the_partitions_that_librdkafka_chooses(servers: str, topic: str, partitioner: str) -> None:
    places: dict[type, dict[bytes, int]] = {}
    for kind in (Producer, confluent_kafka.Producer):
        producer = kind({"bootstrap.servers": servers, "partitioner": partitioner})
        found = places[kind] = {}

        def acked(_: Any, message: Any, found: dict[bytes, int] = found) -> None:
            found[message.key()] = message.partition()

        for number in range(40):
            producer.produce(topic, b"v", key=f"key {number}", on_delivery=acked)
        assert producer.flush(20) == 0
    assert places[Producer] == places[confluent_kafka.Producer]


def test_produce_does_not_wait_for_metadata_and_keeps_the_order(servers: str, topic: str, read: Read) -> None:
    (port,) = free_ports(1)
    lost = Producer({"bootstrap.servers": f"127.0.0.1:{port}", "message.timeout.ms": 60_000})
    started = time.monotonic()
    lost.produce(topic, b"v")
    assert time.monotonic() - started < 10
    assert lost.flush(0.1) == len(lost) == 1

    producer = Producer({"bootstrap.servers": servers})
    for number in range(3000):
        producer.produce(topic, str(number), partition=0)
    assert producer.flush(20) == 0
    assert [int(record.value()) for record in read(topic, 3000)] == list(range(3000))


def test_callbacks_wait_for_poll_and_len_counts_them(servers: str, topic: str) -> None:
    reports: Reports = []
    producer = Producer({"bootstrap.servers": servers, "on_delivery": lambda *report: reports.append(report)})
    producer.produce(topic, "a")
    deadline = time.monotonic() + 20
    while producer._events.under_way and time.monotonic() < deadline:
        time.sleep(0.001)
    assert reports == []
    assert len(producer) == 1
    assert producer.poll(20) == 1
    assert len(reports) == 1
    assert len(producer) == 0
    assert producer.poll(0) == 0


def test_a_full_queue_raises_buffer_error_until_poll_serves(servers: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": servers, "queue.buffering.max.messages": 10, "linger.ms": 0})
    sent = 0
    refused = False
    while sent < 50:
        try:
            producer.produce(topic, b"v", callback=lambda *_: None)
            sent += 1
        except BufferError:
            refused = True
            producer.poll(1)
    assert refused
    assert producer.flush() == 0


def test_a_callback_that_raises_comes_out_of_poll_and_the_others_stay(servers: str, topic: str) -> None:
    served = []

    def acked(_: Any, message: Message) -> None:
        served.append(message.value())
        if len(served) == 1:
            raise RuntimeError("of the program")

    producer = Producer({"bootstrap.servers": servers})
    producer.produce(topic, b"1", callback=acked)
    producer.produce(topic, b"2", callback=acked)
    with pytest.raises(RuntimeError, match="of the program"):
        producer.flush(20)
    assert producer.flush(20) == 0
    assert len(served) == 2


def test_a_cluster_that_cannot_be_reached_is_reported_to_the_callback() -> None:
    (port,) = free_ports(1)
    reports: Reports = []
    producer = Producer({"bootstrap.servers": f"127.0.0.1:{port}", "message.timeout.ms": 300})
    producer.produce("t", b"v", callback=lambda *report: reports.append(report))
    assert producer.flush(20) == 0
    ((error, message),) = reports
    assert error is not None
    assert error.code() == KafkaError._MSG_TIMED_OUT
    assert f"127.0.0.1:{port} (connect)" in error.str()
    assert (message.offset(), message.error()) == (None, error)
    with pytest.raises(KafkaException) as caught:
        producer.list_topics(timeout=10)
    assert caught.value.args[0].code() == KafkaError._TRANSPORT
    producer.close()


def test_a_wrong_type_is_told_from_a_wrong_value_by_its_class_alone(
    servers: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = Producer({"bootstrap.servers": servers})
    producer.produce(topic, b"v")
    assert producer.flush(20) == 0  # the topic is known now: what is wrong is raised
    with pytest.raises(TypeError, match="timestamp_ms must be int"):
        producer.produce(topic, b"v", timestamp="now")  # type: ignore[arg-type]
    for error, expected in (
        (errors.ArgumentTypeError("in other words"), TypeError),
        (errors.InvalidRecordError("the partition must be below 3"), KafkaException),
    ):

        def refuse(*_: object, raised: Exception = error) -> None:
            raise raised

        monkeypatch.setattr(producer, "_send", refuse)
        with pytest.raises(expected) as caught:
            producer.produce(topic, b"v")
        assert not isinstance(caught.value, errors.KafkaError)
    producer.close()


def test_arguments_are_checked_as_there(servers: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": servers})
    with pytest.raises(TypeError):
        producer.produce(topic, 5)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        producer.produce(topic, b"v", headers=5)
    with pytest.raises(KafkaException) as caught:
        producer.produce(topic, b"v" * 2_000_000)
    assert caught.value.args[0] == KafkaError.MSG_SIZE_TOO_LARGE
    reports: Reports = []
    producer.produce(topic, b"v", partition=7, callback=lambda *report: reports.append(report))
    assert producer.flush(20) == 0
    assert reports[0][0] == KafkaError._UNKNOWN_PARTITION  # now that the topic is known it is raised
    with pytest.raises(KafkaException) as caught:
        producer.produce(topic, b"v", partition=7)
    assert caught.value.args[0] == KafkaError._UNKNOWN_PARTITION
    assert len(producer) == 0
    with pytest.raises(TypeError):
        Producer()
    for options in ({"nope": 1}, {"acks": "many"}, {"partitioner": "nope"}):
        with pytest.raises(KafkaException) as caught:
            Producer({"bootstrap.servers": servers, **options})
        assert caught.value.args[0].code() == KafkaError._INVALID_ARG


def test_options_of_the_samples_are_taken(servers: str, topic: str) -> None:
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "acks": 1,
            "batch.num.messages": 1000,
            "compression.type": "gzip",
            "compression.level": 6,
            "debug": "broker",
            "delivery.timeout.ms": 5000,
            "enable.auto.commit": False,
            "group.id": "of a consumer",
            "linger.ms": 0.5,
            "max.in.flight": 1000000,
            "queue.buffering.max.kbytes": 1048576,
            "queue.buffering.max.messages": 10000000,
            "request.timeout.ms": 20000,
            "retries": 3,
            "retry.backoff.ms": 2000,
            "sasl.mechanisms": "PLAIN",
            "socket.keepalive.enable": True,
            "socket.timeout.ms": 10000,
        },
        logger=None,
    )
    producer.produce(topic, b"v")
    assert producer.flush(20) == 0


@pytest.mark.parametrize("name", ["throttle_cb", "log_cb", "logger"])
def test_callback_that_is_never_called_leaves_a_warning(
    servers: str, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    Producer({"bootstrap.servers": servers}, **{name: print}).close()
    assert f"{name} is never called" in caplog.text
    caplog.clear()
    Producer({"bootstrap.servers": servers}, **{name: None}).close()
    assert not caplog.text


def test_statistics_without_servers_name_no_broker() -> None:
    statistics: list[str] = []
    options = {"bootstrap.servers": None, "statistics.interval.ms": 1, "stats_cb": statistics.append}
    with Producer(options) as producer:
        while not statistics:
            producer.poll(1)
    assert json.loads(statistics[0])["brokers"] == {}


def test_statistics_and_errors_are_served_by_poll(servers: str, topic: str) -> None:
    statistics: list[str] = []
    producer = Producer({"bootstrap.servers": servers, "statistics.interval.ms": 1, "stats_cb": statistics.append})
    producer.produce(topic, b"v")
    producer.flush(20)
    while not statistics:
        producer.poll(1)
    known = json.loads(statistics[0])
    assert (known["type"], known["msg_max"]) == ("producer", 100_000)
    producer.close()

    (port,) = free_ports(1)
    errors: list[KafkaError] = []
    lost = Producer({"bootstrap.servers": f"127.0.0.1:{port}", "message.timeout.ms": 200, "error_cb": errors.append})
    lost.produce("t", b"v")
    while not errors:
        lost.poll(5)
    assert errors[0].code() == KafkaError._ALL_BROKERS_DOWN
    lost.close()


def test_statistics_have_the_fields_that_librdkafka_has(servers: str, topic: str) -> None:
    options = {"bootstrap.servers": servers, "client.id": "till", "statistics.interval.ms": 20}
    theirs: list[str] = []
    original = confluent_kafka.Producer({**options, "stats_cb": theirs.append})
    ours: list[str] = []
    producer = Producer({**options, "stats_cb": ours.append})
    for one in (original, producer):
        for number in range(5):
            one.produce(topic, b"value", key=b"k", partition=number % 2)
        while len(one):  # not flush(), which sends at once what was kept for the topic's metadata
            one.poll(0.1)
    end = time.monotonic() + 20

    def last(texts: list[str], producer: Any) -> dict[str, Any]:
        """Return the first statistics with all records, and all brokers by their addresses."""
        while True:
            assert time.monotonic() < end, texts
            producer.poll(0.1)
            read: dict[str, Any] = json.loads(texts[-1]) if texts else {"txmsgs": 0}
            if read["txmsgs"] == 5 and f"{servers}/0" in read["brokers"] and topic in read["topics"]:
                return read

    expected, found = last(theirs, original), last(ours, producer)
    producer.close()
    assert found.keys() <= expected.keys()
    assert expected.keys() - found.keys() <= {"eos", "cgrp"}
    for name in ("name", "client_id", "type", "msg_cnt", "msg_max", "txmsgs", "rxmsgs"):
        assert found[name] == pytest.approx(expected[name]) if name != "name" else found[name][:13] == "till#producer"
    broker, their_broker = found["brokers"][f"{servers}/0"], expected["brokers"][f"{servers}/0"]
    assert broker.keys() <= their_broker.keys()
    assert (broker["nodeid"], broker["nodename"], broker["source"]) == (0, servers, "learned")
    for name in ("int_latency", "outbuf_latency", "rtt"):  # whose p99 arroyo makes into metrics
        assert {"avg", "max", "p99"} <= broker[name].keys() <= their_broker[name].keys()
        assert broker[name]["avg"] <= broker[name]["max"]
    assert broker["int_latency"]["p99"] >= 4000  # of linger.ms, in us
    partitions = found["topics"][topic]["partitions"]
    for partition, records in (("0", 3), ("1", 2)):
        assert partitions[partition].keys() <= expected["topics"][topic]["partitions"][partition].keys()
        assert partitions[partition]["txmsgs"] == records
        assert expected["topics"][topic]["partitions"][partition]["txmsgs"] == records
        assert partitions[partition]["txbytes"] == 6 * records


def test_metadata_has_brokers_topics_and_partitions(servers: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": servers})
    producer.produce(topic, b"v")
    producer.flush(20)
    cluster = producer.list_topics(timeout=10)
    assert sorted(cluster.topics[topic].partitions) == [0, 1, 2]
    assert cluster.topics[topic].partitions[0].leader in cluster.brokers
    assert cluster.topics[topic].error is None
    assert producer.cluster_id(10) == cluster.cluster_id
    missing = producer.list_topics("missing", 10).topics["missing"].error
    assert missing is not None
    assert missing.code() == KafkaError.UNKNOWN_TOPIC_OR_PART


@pytest.mark.parametrize("name", ["\ud800", "x" * 40_000])
def test_a_name_that_no_request_can_hold_is_an_invalid_argument(servers: str, name: str) -> None:
    with pytest.raises(KafkaException, match="topics: name") as caught:
        Producer({"bootstrap.servers": servers}).list_topics(name, 10)
    assert caught.value.args[0].code() == KafkaError._INVALID_ARG


def test_a_batch_of_dicts_is_produced_with_headers(servers: str, topic: str, read: Read) -> None:
    producer = Producer({"bootstrap.servers": servers})
    messages: list[dict[str, Any]] = [
        {"value": "a", "headers": {"h": b"1"}, "timestamp": 1_700_000_000_000},
        {"value": b"x" * 2_000_000},
        {"value": "b", "partition": 1},
    ]
    assert producer.produce_batch(topic, messages) == 2
    assert messages[1]["_error"].code() == KafkaError.MSG_SIZE_TOO_LARGE
    assert producer.flush(20) == 0
    assert sorted(record.value() for record in read(topic, 2)) == [b"a", b"b"]


def test_a_transaction_commits_and_aborts(servers: str, topic: str, read: Read) -> None:
    producer = Producer({"bootstrap.servers": servers, "transactional.id": topic})
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce(topic, b"lost")
    producer.abort_transaction()
    producer.begin_transaction()
    producer.produce(topic, b"kept")
    producer.commit_transaction(20)
    with pytest.raises(KafkaException) as caught:
        producer.commit_transaction()
    assert caught.value.args[0].code() == KafkaError._STATE
    assert producer.close()
    assert [record.value() for record in read(topic, 1)] == [b"kept"]
    with pytest.raises(KafkaException) as caught:
        Producer({"bootstrap.servers": servers}).begin_transaction()
    assert caught.value.args[0].code() == KafkaError._NOT_CONFIGURED


def test_the_serializing_producer_serializes(servers: str, topic: str, read: Read) -> None:
    producer = SerializingProducer(
        {
            "bootstrap.servers": servers,
            "key.serializer": StringSerializer("utf_8"),
            "value.serializer": IntegerSerializer(),
        }
    )
    producer.produce(topic, key="k", value=7)
    with pytest.raises(compat.error.ValueSerializationError) as caught:
        producer.produce(topic, key="k", value="seven")
    assert caught.value.code == KafkaError._VALUE_SERIALIZATION
    assert producer.flush(20) == 0
    (record,) = read(topic, 1)
    assert (record.key(), record.value()) == (b"k", b"\0\0\0\7")


def test_purge_fails_what_waits_for_metadata_and_a_producer_without_servers_is_made() -> None:
    reports: Reports = []
    producer = Producer({"message.timeout.ms": 60_000})
    producer.produce("t", b"v", callback=lambda *report: reports.append(report))
    producer.purge(in_queue=False)
    assert producer.flush(0.01) == 1
    producer.purge()
    assert producer.flush(10) == 0
    assert reports[0][0] == KafkaError._PURGE_QUEUE
    producer.close()
    with pytest.raises(RuntimeError, match="Producer has been closed"):
        producer.produce("t", b"v")


def test_purge_fails_batched_records_too(servers: str, topic: str) -> None:
    reports: Reports = []
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 60_000})
    producer.produce(topic, b"first", callback=lambda *report: reports.append(report))
    assert producer.flush(20) == 0
    for number in range(5):
        producer.produce(topic, b"%d" % number, callback=lambda *report: reports.append(report))
    producer.purge(in_queue=False)
    assert len(producer) == 5
    producer.purge()
    assert producer.flush(10) == 0
    assert [error for error, _ in reports] == [None] + [KafkaError._PURGE_QUEUE] * 5
    error, message = reports[1]
    assert error is not None
    assert "purged in the queue" in error.str()
    assert message.value() == b"0"
    producer.close()


def test_every_public_name_of_the_original_is_there() -> None:
    for kind in ("Producer", "Message", "KafkaError", "SerializingProducer"):
        theirs = {name for name in dir(getattr(confluent_kafka, kind)) if not name.startswith("_")}
        theirs -= {"set_headers", "set_key", "set_value", "delivery_count"}  # of messages that consumers get
        theirs -= {"set_topic", "set_error", "deserialized_key", "deserialized_value"}
        ours = standins.KafkaError if kind == "KafkaError" else getattr(compat, kind)
        assert theirs <= set(dir(ours)), kind
    theirs_produce = inspect.signature(confluent_kafka.SerializingProducer.produce).parameters
    assert list(inspect.signature(SerializingProducer.produce).parameters) == list(theirs_produce)
    assert compat.Consumer is confluent_kafka.Consumer


def test_every_constant_is_there_with_its_code_and_name() -> None:
    theirs = {name: getattr(confluent_kafka.KafkaError, name) for name in dir(confluent_kafka.KafkaError)}
    theirs = {name: code for name, code in theirs.items() if name.isupper()}
    assert theirs == dict(CODES)
    for name, code in theirs.items():
        assert getattr(standins.KafkaError, name) == code
        assert standins.KafkaError(code).name() == confluent_kafka.KafkaError(code).name()
    ours, original = (kind(-192) for kind in (standins.KafkaError, confluent_kafka.KafkaError))
    assert str(ours) == str(original)
    assert ours == -192
    assert hash(ours) == hash(original)


def test_without_confluent_kafka_there_are_errors_with_its_names_and_bases() -> None:
    ours = without_original(our_error, "confluent_kafka")
    assert ours.KafkaException is standins.KafkaException
    theirs = {n: c for n, c in vars(confluent_kafka.error).items() if inspect.isclass(c) and issubclass(c, Exception)}
    assert len(theirs) >= 8
    for name, kind in theirs.items():
        if not name.startswith("_"):
            assert getattr(ours, name) is not kind, name
            bases = {base.__name__ for base in kind.__mro__} - {"_KafkaClientError"}
            assert bases <= {base.__name__ for base in getattr(ours, name).__mro__}, name


def test_options_of_kerberos_are_read_with_its_mechanism_only() -> None:
    given = {"security.protocol": "SASL_SSL", "sasl.kerberos.keytab": "f", "sasl.kerberos.service.name": "brokers"}
    relogin = {"sasl.kerberos.min.time.before.relogin": 60_000}
    read = read_options({**given, **relogin, "sasl.mechanisms": "GSSAPI"}).engine
    assert (read["sasl.mechanism"], read["sasl.kerberos.service.name"]) == ("GSSAPI", "brokers")
    assert read["sasl.kerberos.keytab"] == "f"
    others = read_options({**given, "sasl.mechanisms": "PLAIN"}).engine
    assert not [name for name in (*read, *others) if "relogin" in name or (name in others and "kerberos" in name)]
