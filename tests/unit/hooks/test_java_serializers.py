"""Kafka's own serializers: the bytes are Java's."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from kafkaprod import Producer
from kafkaprod.broker import EmbeddedBroker
from kafkaprod.errors import SerializationError
from kafkaprod.hooks.serializers import BoundSerializer, bind_serializer

# The bytes of Java's ByteBuffer and of Float.floatToRawIntBits, Double.doubleToLongBits.
JAVA = [
    ("ShortSerializer", -2, "fffe"),
    ("IntegerSerializer", 0x01020304, "01020304"),
    ("IntegerSerializer", -1, "ffffffff"),
    ("LongSerializer", 1_700_000_000_000, "0000018bcfe56800"),
    ("FloatSerializer", 1.5, "3fc00000"),
    ("DoubleSerializer", -2.25, "c002000000000000"),
    ("DoubleSerializer", 3, "4008000000000000"),
    ("BooleanSerializer", True, "01"),
    ("BooleanSerializer", False, "00"),
    ("UUIDSerializer", uuid.UUID(int=1), b"00000000-0000-0000-0000-000000000001".hex()),
    ("StringSerializer", "é", "c3a9"),
]


def serialize(name: str, data: Any) -> Any:
    bound = bind_serializer(name, "value")
    assert isinstance(bound, BoundSerializer)
    return bound("orders", [], data)


@pytest.mark.parametrize(("name", "data", "expected"), JAVA)
def test_bytes_are_javas_and_none_is_null(name: str, data: Any, expected: str) -> None:
    assert serialize(name, data) == bytes.fromhex(expected)
    assert serialize(name, None) is None


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("ShortSerializer", 1 << 15),
        ("IntegerSerializer", -(1 << 31) - 1),
        ("LongSerializer", 1 << 63),
        ("LongSerializer", 1.0),
        ("LongSerializer", True),
        ("LongSerializer", "1"),
        ("FloatSerializer", 1e39),
        ("DoubleSerializer", "1"),
        ("BooleanSerializer", 1),
        ("UUIDSerializer", str(uuid.UUID(int=1))),
    ],
)
def test_what_does_not_fit_is_refused(name: str, data: Any) -> None:
    with pytest.raises(SerializationError, match=name):
        serialize(name, data)


def test_a_producer_takes_names_from_a_properties_file_and_a_function_as_partitioner() -> None:
    def by_key(topic: str, key: Any, value: Any, partition_count: int, available: Any) -> int:
        return int(key[-1]) % partition_count

    java = "org.apache.kafka.common.serialization."
    with EmbeddedBroker(topics={"orders": 3}) as broker:
        options = {
            "bootstrap.servers": broker.bootstrap_servers,
            "key.serializer": f"{java}LongSerializer",
            "value.serializer": f"{java}StringSerializer",
            "partitioner": by_key,
        }
        with Producer(options) as producer:
            for number in range(3):
                producer.send("orders", f"v{number}", number)
        found = [(record.partition, record.key, record.value) for record in broker.records("orders", at_least=3)]
    assert found == [(number, bytes(7) + bytes([number]), b"v%d" % number) for number in range(3)]
