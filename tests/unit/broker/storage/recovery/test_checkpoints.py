"""The text files of a log directory and the topic options."""

from __future__ import annotations

import uuid

import pytest

from kafkaprod.broker.storage.format.log_config import LogConfig, parse_properties
from kafkaprod.broker.storage.recovery.checkpoints import (
    IndexChecksums,
    decode_uuid,
    encode_index_checksums,
    encode_offsets,
    encode_partition_metadata,
    encode_properties,
    encode_uuid,
    parse_index_checksums,
    parse_offsets,
    parse_partition_metadata,
    parse_properties_file,
)
from kafkaprod.errors import ConfigError, CorruptDataError
from kafkaprod.structs import TopicPartition


def test_offset_checkpoint_is_kafkas_text() -> None:
    offsets = {TopicPartition("a-b", 0): 7, TopicPartition("c", 12): 2**40}
    assert encode_offsets(offsets) == b"0\n2\na-b 0 7\nc 12 1099511627776\n"
    assert parse_offsets(encode_offsets(offsets)) == offsets
    assert parse_offsets(b"") == {}


def test_every_proper_prefix_of_a_checkpoint_is_refused_or_lacks_only_the_last_newline() -> None:
    content = encode_offsets({TopicPartition("orders", 0): 1234, TopicPartition("orders", 1): 5})
    for size in range(1, len(content) - 1):
        with pytest.raises(CorruptDataError):
            parse_offsets(content[:size])


def test_index_checksums_round_trip() -> None:
    checksums = {0: IndexChecksums(1, 2, 3, 4), 99: IndexChecksums(0, 0, 0, 2**32 - 1)}
    assert parse_index_checksums(encode_index_checksums(checksums)) == checksums


def test_partition_metadata_is_kafkas_text_and_round_trips() -> None:
    topic_id = uuid.UUID(int=2**127 + 12345)
    content = encode_partition_metadata(topic_id)
    assert content.startswith(b"version: 0\ntopic_id: ")
    assert not content.endswith(b"\n")
    assert parse_partition_metadata(content) == topic_id
    for size in range(len(content)):
        with pytest.raises(CorruptDataError):
            parse_partition_metadata(content[:size])


def test_uuid_text_is_22_characters() -> None:
    value = uuid.uuid5(uuid.NAMESPACE_DNS, "x")
    assert len(encode_uuid(value)) == 22
    assert decode_uuid(encode_uuid(value)) == value


def test_java_properties_round_trip_and_comments_are_skipped() -> None:
    assert parse_properties_file(b"#Tue\n\nversion=1\n node.id = 3 \n") == {"version": "1", "node.id": "3"}
    assert parse_properties_file(encode_properties({"a.b": "c=d"})) == {"a.b": "c=d"}
    with pytest.raises(CorruptDataError):
        parse_properties_file(b"no equals sign")


def test_topic_options_have_kafkas_names_and_defaults() -> None:
    properties = LogConfig().to_properties()
    assert properties["max.message.bytes"] == "1048588"
    assert properties["segment.bytes"] == str(2**30)
    assert parse_properties(properties) == LogConfig()
    changed = parse_properties({"retention.ms": "5", "cleanup.policy": "compact,delete", "flush.ms": "9"})
    assert (changed.retention_ms, changed.is_compacted, changed.is_deleted) == (5, True, True)
    assert parse_properties({"retention.ms": None}, changed).retention_ms == 5


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("retention.ms", "soon"),
        ("segment.bytes", "0"),
        ("segment.bytes", str(2**31)),
        ("cleanup.policy", "shred"),
        ("message.timestamp.type", "Local"),
        ("compression.type", "rar"),
    ],
)
def test_wrong_topic_option_is_refused(name: str, value: str) -> None:
    with pytest.raises(ConfigError):
        parse_properties({name: value})
