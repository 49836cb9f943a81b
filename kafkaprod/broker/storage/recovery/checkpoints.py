"""The small text files of a log directory.

    offset checkpoints, leader epochs, index checksums     meta.properties          partition.metadata
      0                  version                             version=1                version: 0
      2                  number of entries                   cluster.id=...           topic_id: <22 characters of
      base64> orders 0 1234      one entry a line                    node.id=0
      orders 1 88                                            directory.id=...
A file is parsed whole or not at all. Pure: text in, text out. Source: Kafka CheckpointFile, PropertiesUtils,
PartitionMetadataFile.
"""

from __future__ import annotations

import base64
import uuid
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import NamedTuple

from kafkaprod.broker.storage.recovery.leader_epochs import EpochStart
from kafkaprod.errors import CorruptDataError
from kafkaprod.structs import TopicPartition

_VERSION = "0"


class IndexChecksums(NamedTuple):
    """CRC-32C of a closed segment's index files, 0 for one that does not exist, and the .log size they are for."""

    log_bytes: int
    offset_index: int
    time_index: int
    transaction_index: int


def encode_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    """An offset checkpoint."""
    return _encode_lines(f"{tp.topic} {tp.partition} {offset}" for tp, offset in offsets.items())


def parse_offsets(content: bytes) -> dict[TopicPartition, int]:
    """Parse an offset checkpoint; an empty file has no entries.

    Raises:
        CorruptDataError: Malformed, or fewer or more lines than announced.
    """
    found = {}
    for line in _parse_lines(content, 3):
        found[TopicPartition(line[0], _number(line[1]))] = _number(line[2])
    return found


def encode_epochs(entries: Iterable[EpochStart]) -> bytes:
    """A leader-epoch-checkpoint."""
    return _encode_lines(f"{entry.epoch} {entry.start_offset}" for entry in entries)


def parse_epochs(content: bytes) -> list[EpochStart]:
    """Parse a leader-epoch-checkpoint.

    Raises:
        CorruptDataError: Malformed, or epochs or offsets do not increase.
    """
    entries = [EpochStart(_number(line[0]), _number(line[1])) for line in _parse_lines(content, 2)]
    for earlier, later in pairwise(entries):
        if later.epoch <= earlier.epoch or later.start_offset <= earlier.start_offset:
            raise CorruptDataError(f"leader epochs do not increase: {earlier} before {later}")
    return entries


def encode_index_checksums(checksums: Mapping[int, IndexChecksums]) -> bytes:
    """The index checksums of a partition by segment base offset."""
    return _encode_lines(" ".join(map(str, (base, *sums))) for base, sums in checksums.items())


def parse_index_checksums(content: bytes) -> dict[int, IndexChecksums]:
    """Parse index checksums.

    Raises:
        CorruptDataError: Malformed.
    """
    return {_number(line[0]): IndexChecksums(*map(_number, line[1:])) for line in _parse_lines(content, 5)}


def encode_properties(properties: Mapping[str, str]) -> bytes:
    """A Java properties file; names and values are plain ASCII here."""
    return "".join(f"{name}={value}\n" for name, value in properties.items()).encode()


def parse_properties_file(content: bytes) -> dict[str, str]:
    """Parse a Java properties file without escapes; comments and blank lines are skipped.

    Raises:
        CorruptDataError: A line has no '=' or the text is not UTF-8.
    """
    found = {}
    for line in _decode(content).splitlines():
        if not line.strip() or line.lstrip().startswith(("#", "!")):
            continue
        name, equals, value = line.partition("=")
        if not equals:
            raise CorruptDataError(f"properties line without '=': {line!r}")
        found[name.strip()] = value.strip()
    return found


def encode_partition_metadata(topic_id: uuid.UUID) -> bytes:
    """A partition.metadata file."""
    return f"version: 0\ntopic_id: {encode_uuid(topic_id)}".encode()


def parse_partition_metadata(content: bytes) -> uuid.UUID:
    """Parse partition.metadata.

    Raises:
        CorruptDataError: Malformed.
    """
    lines = _decode(content).splitlines()
    if len(lines) != 2 or lines[0] != "version: 0" or not lines[1].startswith("topic_id: "):
        raise CorruptDataError(f"malformed partition.metadata: {content[:80]!r}")
    return decode_uuid(lines[1].removeprefix("topic_id: "))


def encode_uuid(value: uuid.UUID) -> str:
    """Kafka's text form of a UUID: 22 characters of URL-safe base64."""
    return base64.urlsafe_b64encode(value.bytes).decode().rstrip("=")


def decode_uuid(text: str) -> uuid.UUID:
    """The inverse of `encode_uuid`.

    Raises:
        CorruptDataError: Not 22 characters of base64.
    """
    try:
        return uuid.UUID(bytes=base64.b64decode(text + "==", altchars=b"-_", validate=True))
    except ValueError as error:
        raise CorruptDataError(f"{text!r} is not a UUID in base64") from error


def _encode_lines(lines: Iterable[str]) -> bytes:
    body = list(lines)
    return "\n".join([_VERSION, str(len(body)), *body, ""]).encode()


def _parse_lines(content: bytes, field_count: int) -> list[list[str]]:
    if not content:
        return []
    lines = _decode(content).split("\n")
    if lines[-1] == "":
        lines.pop()
    if len(lines) < 2 or lines[0] != _VERSION:
        raise CorruptDataError(f"checkpoint does not start with version {_VERSION} and a count: {content[:40]!r}")
    if _number(lines[1]) != len(lines) - 2:
        raise CorruptDataError(f"checkpoint announces {lines[1]} entries and holds {len(lines) - 2}")
    entries = [line.split(" ") for line in lines[2:]]
    for entry in entries:
        if len(entry) != field_count:
            raise CorruptDataError(f"checkpoint entry {entry} has not {field_count} fields")
    return entries


def _number(text: str) -> int:
    if not text.removeprefix("-").isdecimal():
        raise CorruptDataError(f"{text!r} in a checkpoint is not a number")
    return int(text)


def _decode(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise CorruptDataError(f"not UTF-8: {content[:40]!r}") from error
