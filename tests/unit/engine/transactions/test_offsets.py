from __future__ import annotations

import struct
from types import SimpleNamespace
from typing import Any

import confluent_kafka
import pytest
from aiokafka.consumer.group_coordinator import GroupCoordinator, NoGroupCoordinator
from kafka.structs import ConsumerGroupMetadata
from kafka.structs import OffsetAndMetadata as KafkaPythonOffset
from kafka.structs import TopicPartition as KafkaPythonPartition

from kafkaprod.engine.transactions.offsets import (
    GroupMetadata,
    OffsetAndMetadata,
    read_group_metadata,
    read_offsets,
)
from kafkaprod.errors import InvalidRecordError
from kafkaprod.structs import TopicPartition

T0 = TopicPartition("t", 0)


def confluent(generation: int, group: bytes, member: bytes, instance: bytes | None) -> bytes:
    end = b"\1" if instance is None else b"\0" + instance + b"\0"
    return b"CGMDv2:" + struct.pack("=i", generation) + group + b"\0" + member + b"\0" + end


GROUPS: list[tuple[Any, GroupMetadata]] = [
    ("g", GroupMetadata("g")),
    (GroupMetadata("g", 5, "m"), GroupMetadata("g", 5, "m")),
    (ConsumerGroupMetadata("g", 5, "m", "i"), GroupMetadata("g", 5, "m", "i")),
    ({"group_id": "g", "generation_id": 5, "member_id": "m"}, GroupMetadata("g", 5, "m")),
    (confluent(5, b"g", b"m", None), GroupMetadata("g", 5, "m")),
    (confluent(-1, b"g", b"", b"i"), GroupMetadata("g", -1, "", "i")),
]


@pytest.mark.parametrize(("source", "expected"), GROUPS)
def test_group_metadata_of_any_client_is_read(source: Any, expected: GroupMetadata) -> None:
    assert read_group_metadata(source) == expected


def test_what_confluent_kafka_gives_is_read() -> None:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "g"})
    try:
        group = read_group_metadata(consumer.consumer_group_metadata())
    finally:
        consumer.close()
    assert (group.group_id, group.generation_id, group.member_id, group.group_instance_id) == ("g", -1, "", None)


def test_aiokafka_has_the_names_that_are_read() -> None:
    """Nothing of it is public: this pins the names."""
    coordinator = GroupCoordinator.__new__(GroupCoordinator)
    coordinator.group_id, coordinator.generation, coordinator.member_id = "g", 5, "m"  # type: ignore[misc]
    coordinator._group_instance_id = "i"
    consumer = SimpleNamespace(_coordinator=coordinator, getone=None)
    assert read_group_metadata(consumer) == GroupMetadata("g", 5, "m", "i")
    lonely = SimpleNamespace(_coordinator=NoGroupCoordinator.__new__(NoGroupCoordinator), getone=None)
    with pytest.raises(InvalidRecordError, match="no group"):
        read_group_metadata(lonely)


@pytest.mark.parametrize(
    ("source", "what"),
    [
        (5, "int is not understood"),
        ("", "no group id"),
        (GroupMetadata("g", 5, ""), "no member_id"),
        ({"group_id": 7}, "group_id and member_id must be str"),
        ({"group_id": "g", "generation_id": "5"}, "generation_id int"),
        (b"CGMDv1:" + b"\0" * 10, "does not begin with"),
        (b"CGMDv2:", "7 bytes"),
        (confluent(5, b"g", b"m", b"i")[:-1], "no end"),
        (confluent(5, b"g", b"m", None)[:-1], "ends before"),
        (confluent(5, b"g", b"m", None) + b"x", "1 bytes too many"),
        (confluent(5, b"\xff", b"m", None), "utf-8"),
    ],
)
def test_bad_group_metadata_is_refused(source: Any, what: str) -> None:
    with pytest.raises(InvalidRecordError, match=what):
        read_group_metadata(source)


OFFSETS: list[tuple[Any, dict[TopicPartition, OffsetAndMetadata]]] = [
    ({("t", 0): 42}, {T0: OffsetAndMetadata(42)}),
    ({T0: (42, "x")}, {T0: OffsetAndMetadata(42, "x")}),
    ({T0: OffsetAndMetadata(42, "x", 3)}, {T0: OffsetAndMetadata(42, "x", 3)}),
    ({KafkaPythonPartition("t", 0): KafkaPythonOffset(42, "x", 3)}, {T0: OffsetAndMetadata(42, "x", 3)}),
    ([confluent_kafka.TopicPartition("t", 0, 42)], {T0: OffsetAndMetadata(42)}),
    ([confluent_kafka.TopicPartition("t", 0, 42, metadata="x", leader_epoch=3)], {T0: OffsetAndMetadata(42, "x", 3)}),
    ([confluent_kafka.TopicPartition("t", 0)], {}),
    ({}, {}),
    ([], {}),
]


@pytest.mark.parametrize(("source", "expected"), OFFSETS)
def test_offsets_of_any_client_are_read(source: Any, expected: dict[TopicPartition, OffsetAndMetadata]) -> None:
    assert read_offsets(source) == expected


@pytest.mark.parametrize(
    ("source", "what"),
    [
        ({("t", 0): -1}, "offset -1"),
        ({("t", 0): True}, "offset True"),
        ({("t", 0): 1 << 63}, "2\\*\\*63"),
        ({("t", 0): "1"}, "offset '1'"),
        ({("t", 0): (1, 2)}, "metadata must be str"),
        ({("t", -1): 1}, "partition -1 of topic 't' is not in"),
        ({("t", "0"): 1}, "topic must be str"),
        ({("", 0): 1}, "topic must be str"),
        ({"t": 1}, "is not a partition"),
        ([("t", 0)], "has no offset"),
        ({("t", 0): (1, "m" * 40_000)}, "the metadata of .* has 40000 bytes in UTF-8, .* at most 32767"),
        ({("t", 0): (1, "\ud800")}, "lone surrogate"),
        ({("t" * 40_000, 0): 1}, "a topic name has 40000 bytes"),
        ({("t", 0): (1, "", 1 << 31)}, "leader_epoch 2147483648"),
        ({("t", 0): (1, "", -2)}, "leader_epoch -2"),
        ({("t", 0): (1, "", True)}, "leader_epoch int"),
        ("t", "not str"),
        (5, "not int"),
    ],
)
def test_bad_offsets_are_refused(source: Any, what: str) -> None:
    with pytest.raises(InvalidRecordError, match=what):
        read_offsets(source)


@pytest.mark.parametrize(
    ("group", "what"),
    [
        ("g" * 40_000, "group_id has 40000 bytes"),
        ("\udc80", "group_id has the lone surrogate"),
        (GroupMetadata("g", 1 << 31, "m"), "generation_id=2147483648 is not in"),
        (GroupMetadata("g", -2, "m"), "generation_id=-2 is not in"),
        (GroupMetadata("g", 1, "m" * 40_000), "member_id has 40000 bytes"),
        (GroupMetadata("g", 1, "m", "i" * 40_000), "group_instance_id has 40000 bytes"),
    ],
)
def test_group_metadata_that_no_request_can_hold_is_refused(group: Any, what: str) -> None:
    with pytest.raises(InvalidRecordError, match=what):
        read_group_metadata(group)
