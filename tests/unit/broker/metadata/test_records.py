"""Records of the metadata log: Kafka's bytes, and what is refused."""

import uuid

import pytest

from kafkaprod.broker.metadata.records import (
    RECORD_TYPES,
    BrokerEndpoint,
    ClientQuotaRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
    decode,
    encode,
)
from kafkaprod.errors import CorruptDataError

TOPIC_ID = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")


def test_topic_record_has_kafkas_bytes() -> None:
    # frame 1, type 2, version 0 | compact string | uuid | no tagged fields
    assert encode(TopicRecord(name="t", topic_id=TOPIC_ID)) == bytes([1, 2, 0, 2]) + b"t" + TOPIC_ID.bytes + b"\x00"


def test_partition_change_writes_only_what_changed() -> None:
    record = PartitionChangeRecord(partition_id=3, topic_id=TOPIC_ID, isr=[1, 2], leader=2)
    # two tagged fields: 0 with a compact array of two, 1 with an int32
    tagged = bytes([2, 0, 9, 3]) + b"\x00\x00\x00\x01\x00\x00\x00\x02" + bytes([1, 4]) + b"\x00\x00\x00\x02"
    assert encode(record) == bytes([1, 5, 2]) + b"\x00\x00\x00\x03" + TOPIC_ID.bytes + tagged


@pytest.mark.parametrize("record_class", RECORD_TYPES, ids=lambda record_class: record_class.__name__)
def test_every_record_survives_the_log(record_class: type) -> None:
    record = record_class()
    assert decode(encode(record)) == record


def test_nested_and_nullable_fields_survive() -> None:
    point = BrokerEndpoint(name="PLAINTEXT", host="127.0.0.1", port=65535, security_protocol=0)
    for record in (
        RegisterBrokerRecord(broker_id=1, incarnation_id=TOPIC_ID, end_points=[point], rack="a", log_dirs=[TOPIC_ID]),
        PartitionRecord(partition_id=0, topic_id=TOPIC_ID, replicas=[1, 2], isr=[1], leader=1, leader_recovery_state=1),
    ):
        assert decode(encode(record)) == record


@pytest.mark.parametrize("value", [b"", b"\x02\x02\x00", b"\x01\x63\x00", encode(NoOpRecord()) + b"\x00"])
def test_foreign_bytes_are_refused(value: bytes) -> None:
    with pytest.raises(CorruptDataError):
        decode(value)


def test_a_quota_has_kafkas_only_version_and_one_of_an_older_log_is_read() -> None:
    record = ClientQuotaRecord(key="producer_byte_rate", value=1000.0)
    value = encode(record)
    assert value[:3] == bytes([1, 14, 0])
    assert decode(bytes([1, 14, 1]) + value[3:]) == record
