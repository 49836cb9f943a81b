"""Schemas and ids of a registry: confluent's mock client of one, and confluent's own (de)serializers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

from kafkaprod import AvroRows, Producer
from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from kafkaprod.errors import ConfigError, InvalidRecordError, SerializationError
from kafkaprod.tables import registry as registries
from tests.support.loader.load_rig import LoadRig
from tests.support.schema_registry import running_registry

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of authlib, which confluent's client imports

LIMIT_S = 20.0
SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "item", "type": ["null", "string"]}],
}
ROWS = [{"id": 1, "item": "tea"}, {"id": -5, "item": None}]


@pytest.fixture
def client(request: pytest.FixtureRequest) -> Any:
    return registries.client_of(f"mock://{request.node.name}")


@pytest.fixture
def producer(embedded_broker: EmbeddedBroker) -> Iterator[Producer]:
    with Producer(bootstrap_servers=embedded_broker.bootstrap_servers) as running:
        yield running


def values(broker: EmbeddedBroker, topic: str) -> list[bytes]:
    from confluent_kafka import Consumer

    options = {"bootstrap.servers": broker.bootstrap_servers, "group.id": topic, "auto.offset.reset": "earliest"}
    consumer = Consumer(options)
    try:
        consumer.subscribe([topic])
        found: list[bytes] = []
        while len(found) < len(ROWS):
            message = consumer.poll(LIMIT_S)
            assert message is not None, "no message came"
            assert message.error() is None, message.error()
            value = message.value()
            assert value is not None
            found.append(value)
        return found
    finally:
        consumer.close()


def read_avro(client: Any, topic: str, data: list[bytes]) -> list[Any]:
    from confluent_kafka.schema_registry.avro import AvroDeserializer
    from confluent_kafka.serialization import MessageField, SerializationContext

    deserialize = AvroDeserializer(client)
    return [deserialize(one, SerializationContext(topic, MessageField.VALUE)) for one in data]


def test_confluents_deserializer_reads_a_table(
    embedded_broker: EmbeddedBroker, producer: Producer, client: Any
) -> None:
    rows = AvroRows(SCHEMA, registry=client)
    producer.send_table("registered", pa.Table.from_pylist(ROWS), value=rows).result(LIMIT_S)
    assert sorted(read_avro(client, "registered", values(embedded_broker, "registered")), key=str) == sorted(
        ROWS, key=str
    )
    assert client.get_latest_version("registered-value").schema_id > 0


def test_ids_and_bytes_are_those_of_confluents_serializer(
    embedded_broker: EmbeddedBroker, producer: Producer, client: Any
) -> None:
    from confluent_kafka.schema_registry.avro import AvroSerializer
    from confluent_kafka.serialization import MessageField, SerializationContext

    serialize = AvroSerializer(client, json.dumps(SCHEMA))
    expected = [serialize(row, SerializationContext("same", MessageField.VALUE)) for row in ROWS]
    producer.send_table("same", pa.Table.from_pylist(ROWS), value=AvroRows(registry=client)).result(LIMIT_S)
    assert sorted(values(embedded_broker, "same")) == sorted(expected)


@pytest.mark.parametrize("is_registered", [False, True])
def test_confluents_deserializer_reads_a_load(
    embedded_broker: EmbeddedBroker, tmp_path: Path, topic_name: str, is_registered: bool
) -> None:
    from confluent_kafka.schema_registry import SchemaRegistryClient

    path, schema = tmp_path / "in.parquet", tmp_path / "order.avsc"
    pa.parquet.write_table(pa.Table.from_pylist(ROWS), path)
    schema.write_text(json.dumps(SCHEMA), encoding="utf-8")
    rig = LoadRig(embedded_broker.bootstrap_servers, tmp_path / "state", topic_name)
    with running_registry() as registry:
        source = ["--schema", str(schema)]
        if is_registered:  # then the load takes the subject's latest
            registry.add(f"{topic_name}-value", json.dumps(SCHEMA))
            source = []
        avro = ("--value", "avro", *source, "--schema-registry", registry.url)
        done = rig.run(str(path), "--create-topic", "1", *avro)
        assert done.code == 0, done.err
        assert len([asked for asked in registry.asked if asked.startswith("POST")]) == (0 if is_registered else 1)
        client = SchemaRegistryClient({"url": registry.url})
        assert read_avro(client, topic_name, rig.values()) == ROWS


def test_a_schema_that_is_not_registered_is_refused_where_that_is_not_wanted(producer: Producer, client: Any) -> None:
    rows = AvroRows(SCHEMA, registry=client, subject="other", register=False)
    with pytest.raises(SerializationError, match="subject 'other'"):
        producer.send_table("t", pa.Table.from_pylist(ROWS), value=rows)
    with pytest.raises(SerializationError, match="subject 't-value'"):
        producer.send_table("t", pa.Table.from_pylist(ROWS), value=AvroRows(registry=client))
    with pytest.raises(InvalidRecordError, match="needs a schema or a registry"):
        producer.send_table("t", pa.Table.from_pylist(ROWS), value=AvroRows())


def test_one_request_serves_all_calls(monkeypatch: pytest.MonkeyPatch, client: Any) -> None:
    count = 0
    register = client.register_schema

    def counted(*arguments: Any) -> Any:
        nonlocal count
        count += 1
        return register(*arguments)

    monkeypatch.setattr(client, "register_schema", counted)
    ids = {AvroRows(SCHEMA, registry=client).resolve("orders")[1] for _ in range(5)}
    assert (len(ids), count) == (1, 1)


def test_confluents_avro_serializer_runs_as_it_is(
    embedded_broker: EmbeddedBroker, producer: Producer, client: Any
) -> None:
    from confluent_kafka.schema_registry.avro import AvroSerializer
    from confluent_kafka.serialization import MessageField, SerializationContext

    serialize = AvroSerializer(client, json.dumps(SCHEMA))
    for row in ROWS:
        value = serialize(row, SerializationContext("by-avro", MessageField.VALUE))
        producer.send("by-avro", value, partition=0).result(LIMIT_S)
    assert read_avro(client, "by-avro", values(embedded_broker, "by-avro")) == ROWS


def test_confluents_json_serializer_runs_as_it_is(
    embedded_broker: EmbeddedBroker, producer: Producer, client: Any
) -> None:
    from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
    from confluent_kafka.serialization import MessageField, SerializationContext

    schema = json.dumps({"title": "Order", "type": "object", "properties": {"id": {"type": "integer"}}})
    serialize, deserialize = JSONSerializer(schema, client), JSONDeserializer(schema, schema_registry_client=client)
    context = SerializationContext("by-json", MessageField.VALUE)
    for row in ROWS:
        producer.send("by-json", serialize(row, context), partition=0).result(LIMIT_S)
    assert [deserialize(one, context) for one in values(embedded_broker, "by-json")] == ROWS


def test_confluents_protobuf_serializer_runs_as_it_is(
    embedded_broker: EmbeddedBroker, producer: Producer, client: Any
) -> None:
    from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
    from confluent_kafka.serialization import MessageField, SerializationContext
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(name="kafkaprod_order.proto", package="tests", syntax="proto3")
    file.message_type.add(name="Order").field.add(name="value", number=1, type=9, label=1)
    pool = descriptor_pool.Default()
    pool.Add(file)
    kind = message_factory.GetMessageClass(pool.FindMessageTypeByName("tests.Order"))
    serialize = ProtobufSerializer(kind, client, {"use.deprecated.format": False})
    deserialize = ProtobufDeserializer(kind, {"use.deprecated.format": False}, client)
    context = SerializationContext("by-protobuf", MessageField.VALUE)
    for text in ("a", "b"):
        producer.send("by-protobuf", serialize(kind(value=text), context), partition=0).result(LIMIT_S)
    assert [deserialize(one, context).value for one in values(embedded_broker, "by-protobuf")] == ["a", "b"]


def test_a_login_in_a_file_is_read_again_when_it_has_changed(tmp_path: Path) -> None:
    login = tmp_path / "login"
    login.write_text("ann:first\n", encoding="utf-8")
    options = {"url": "http://127.0.0.1:1", "basic.auth.user.info": f"file:{login}"}
    old = registries.client_of(options)
    assert registries.client_of(options) is old
    login.write_text("ann:second\n", encoding="utf-8")
    assert registries.client_of(options) is not old
    login.unlink()
    with pytest.raises(ConfigError, match=r"basic\.auth\.user\.info must be"):
        registries.client_of(options)
