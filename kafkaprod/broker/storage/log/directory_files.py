"""The names and the small files of a data directory: whose it is, which partition a directory is of, checkpoints.

    meta.properties  recovery-point-offset-checkpoint  log-start-offset-checkpoint  replication-offset-checkpoint
    <topic>-<partition>/  <topic>-<partition>.<uuid>-delete/  ...-stray/  ...-future/

Source: Kafka storage, LogManager, UnifiedLog.
"""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from kafkaprod.broker.storage.recovery.checkpoints import (
    encode_offsets,
    encode_properties,
    encode_uuid,
    parse_offsets,
    parse_properties_file,
)
from kafkaprod.errors import ConfigError, CorruptDataError
from kafkaprod.storage.disk import Disk, is_directory, read_file, replace_file_durably
from kafkaprod.structs import TopicPartition

META_PROPERTIES = "meta.properties"
RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"

DELETE_SUFFIX = "-delete"
STRAY_SUFFIX = "-stray"
MAX_NAME_BYTES = 255
"""Most bytes of a name that file systems take."""

_NAMES = (RECOVERY_POINTS, LOG_STARTS, HIGH_WATERMARKS)
_FUTURE_SUFFIX = "-future"
_FUTURE_NAME = re.compile(r"(.+)\.[0-9a-f]{32}-future")


def directory_name(topic_partition: TopicPartition) -> str:
    """`<topic>-<partition>`."""
    return f"{topic_partition.topic}-{topic_partition.partition}"


def parse_directory_name(name: str) -> TopicPartition | None:
    """The partition a directory is of, None if it is no partition directory (the last dash separates)."""
    topic, dash, partition = name.rpartition("-")
    if not topic or not dash or not partition.isdecimal():
        return None
    return TopicPartition(topic, int(partition))


def future_name(topic_partition: TopicPartition) -> str:
    """A new name for the directory of a copy. It may be too long for a file system."""
    return f"{directory_name(topic_partition)}.{uuid.uuid4().hex}{_FUTURE_SUFFIX}"


def renamed(topic_partition: TopicPartition, suffix: str) -> str:
    """A new name for a partition's directory that is no longer used."""
    suffix = f".{uuid.uuid4().hex}{suffix}"
    return directory_name(topic_partition)[: MAX_NAME_BYTES - len(suffix)] + suffix


def find_futures(path: str) -> dict[TopicPartition, list[str]]:
    """Return the directories of copies in a data directory, by their partitions."""
    found: dict[TopicPartition, list[str]] = {}
    for name in sorted(os.listdir(path)):
        match = _FUTURE_NAME.fullmatch(name)
        key = None if match is None else parse_directory_name(match[1])
        if key is not None and is_directory(os.path.join(path, name)):
            found.setdefault(key, []).append(os.path.join(path, name))
    return found


def purge_deleted(disk: Disk, path: str) -> None:
    """Remove the files of deleted partitions.

    Raises:
        OSError: Some are left.
    """
    for name in os.listdir(path):
        directory = os.path.join(path, name)
        if name.endswith(DELETE_SUFFIX) and is_directory(directory):
            for inner in os.listdir(directory):
                disk.unlink(os.path.join(directory, inner))
            disk.rmdir(directory)


@dataclass(frozen=True, slots=True)
class BrokerIdentity:
    """The directory's owner, from meta.properties."""

    cluster_id: str
    node_id: int
    directory_id: str


def load_identity(disk: Disk, path: str, node_id: int, cluster_id: str | None) -> BrokerIdentity:
    """Read meta.properties and compare; one that is missing or torn is written again."""
    file = os.path.join(path, META_PROPERTIES)
    try:
        found = parse_properties_file(read_present_file(file))
        identity = BrokerIdentity(found["cluster.id"], int(found["node.id"]), found["directory.id"])
    except (CorruptDataError, KeyError, ValueError):
        identity = BrokerIdentity(cluster_id or encode_uuid(uuid.uuid4()), node_id, encode_uuid(uuid.uuid4()))
        properties = {
            "version": "1",
            "cluster.id": identity.cluster_id,
            "node.id": str(identity.node_id),
            "directory.id": identity.directory_id,
        }
        replace_file_durably(disk, file, encode_properties(properties))
    if identity.node_id != node_id or cluster_id not in (None, identity.cluster_id):
        raise ConfigError(
            f"{path} belongs to node {identity.node_id} of cluster {identity.cluster_id}, "
            f"not to node {node_id} of cluster {cluster_id}"
        )
    return identity


def cluster_id_of(path: str) -> str | None:
    """Return the id of the cluster that a directory belongs to, None if it belongs to none yet."""
    try:
        return parse_properties_file(read_present_file(os.path.join(path, META_PROPERTIES))).get("cluster.id")
    except CorruptDataError:
        return None


class Checkpoints(NamedTuple):
    """Offsets of the partitions of a directory, as they were at one time.

    Attributes:
        recovery_points: Data below them is on the disk.
        log_starts: The first offsets that can be read; those that are missing are 0.
        high_watermarks: Those of replicated partitions.
    """

    recovery_points: Mapping[TopicPartition, int]
    log_starts: Mapping[TopicPartition, int]
    high_watermarks: Mapping[TopicPartition, int]


def read_checkpoints(path: str) -> Checkpoints:
    """Read the checkpoints of a directory; one that is missing or damaged is empty: recovery reads more than it has
    to.
    """
    return Checkpoints(*(_read_offsets(os.path.join(path, name)) for name in _NAMES))


def write_checkpoints(disk: Disk, path: str, checkpoints: Checkpoints) -> None:
    """Write the checkpoints of a directory.

    Raises:
        OSError: Some files may be of earlier; they are right, too.
    """
    starts = {key: offset for key, offset in checkpoints.log_starts.items() if offset}
    for name, offsets in zip(_NAMES, checkpoints._replace(log_starts=starts), strict=True):
        replace_file_durably(disk, os.path.join(path, name), encode_offsets(offsets))


def _read_offsets(path: str) -> dict[TopicPartition, int]:
    try:
        return parse_offsets(read_present_file(path))
    except CorruptDataError:
        return {}


def read_present_file(path: str) -> bytes:
    """Return the content of a file; raise CorruptDataError if it is missing."""
    try:
        return read_file(path)
    except FileNotFoundError as error:
        raise CorruptDataError(f"{path} is missing") from error
