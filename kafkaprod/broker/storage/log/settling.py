"""What the start makes of directories that have a partition twice, topics of one name, or copies of what was moving.

    two topics of a name      the one that the metadata knows; of unknown ones that which was made last: the other was
                              deleted while its directory was away
    two logs of a partition   the whole one; the one that was followed later; the longer one; the one that was made last
    a copy                    the move continues; without the partition it is left as it is
What is not kept is set aside, for a person.
"""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Mapping, Sequence

from kafkaprod.broker.storage.format.log_files import PARTITION_METADATA
from kafkaprod.broker.storage.log.directory_files import DELETE_SUFFIX, find_futures, read_present_file, renamed
from kafkaprod.broker.storage.log.log_dir import LogDir
from kafkaprod.broker.storage.log.replica_move import ReplicaMove
from kafkaprod.broker.storage.log.replica_moves import ReplicaMoves
from kafkaprod.broker.storage.recovery.checkpoints import parse_partition_metadata
from kafkaprod.errors import CorruptDataError
from kafkaprod.structs import TopicPartition

logger = logging.getLogger(__name__)


def settle(
    directories: Sequence[LogDir],
    moves: ReplicaMoves | None,
    ids: Mapping[str, uuid.UUID],
    reserved: Sequence[TopicPartition],
) -> set[TopicPartition]:
    """Keep one of each topic and partition, and begin the moves that copies were made for.

    Args:
        directories: Those that could be opened.
        moves: Take what was moving; None if the broker has one directory.
        ids: Ids of topics that are known.
        reserved: Partitions that were opened before the others, in the first directory.

    Returns:
        The partitions of which there are copies alone.

    Raises:
        LogError: KAFKA_STORAGE_ERROR, a directory could not be renamed.
    """
    _settle_ids(directories, ids)
    for key in {key for directory in directories[1:] for key in directory.partitions}:
        places = [directory for directory in directories if directory.get(key) is not None]
        best = directories[0] if key in reserved else max(places, key=lambda each: _wholeness(each, key))
        for directory in places:
            if directory is not best:
                logger.warning("%r has %s, too: the one in %r is set aside", best.path, key, directory.path)
                directory.set_aside(key)
    left_copies: set[TopicPartition] = set()
    for target in directories if moves is not None else ():
        for key, copies in find_futures(target.path).items():
            source = next((each for each in directories if each.get(key) is not None), None)
            if source is None:
                left_copies.add(key)
                logger.warning("%r has a copy of %s, which no directory has: it is left as it is", target.path, key)
            elif moves is not None:
                _continue(key, source, target, copies, moves)
    return left_copies


def _settle_ids(directories: Sequence[LogDir], known: Mapping[str, uuid.UUID]) -> None:
    found: dict[str, set[uuid.UUID]] = {}
    for directory in directories:
        for topic, topic_id in directory.topic_ids.items():
            found.setdefault(topic, set()).add(topic_id)
    for topic, ids in found.items():
        if len(ids) == 1:
            continue
        right = known[topic] if known.get(topic) in ids else _newest_id(directories, topic)
        for directory in directories:
            if directory.topic_id(topic) != right:
                logger.warning("%r has partitions of another topic %r: set aside", directory.path, topic)
                for key in [key for key in directory.partitions if key.topic == topic]:
                    directory.set_aside(key)


def _newest_id(directories: Sequence[LogDir], topic: str) -> uuid.UUID | None:
    logs = {
        log: directory.topic_id(topic)
        for directory in directories
        for key, log in directory.partitions.items()
        if key.topic == topic
    }
    return logs[max(logs, key=lambda log: _made_ns(log.directory))]


def _continue(key: TopicPartition, source: LogDir, target: LogDir, copies: Sequence[str], moves: ReplicaMoves) -> None:
    """Continue a move with one of its copies; the others go."""
    log = source.get(key)
    for copy in copies:
        is_of_topic = _topic_id_of(copy) == source.topic_id(key.topic)
        if log is not None and is_of_topic and source is not target and moves.get(key) is None:
            moves.begin(ReplicaMove(log, source, target, copy))
        else:
            target.environment.disk.rename(copy, os.path.join(target.path, renamed(key, DELETE_SUFFIX)))


def _wholeness(directory: LogDir, key: TopicPartition) -> tuple[bool, int, int, int, int]:
    """Order the places of a partition; of equal ones the last is where it has just moved to, as it was made last.

    A log that has a newer leader's epoch was followed later, whatever another one has at its end: a replica is made
    again without its disk, and has less than what was never acknowledged on that disk.
    """
    log = directory.partitions[key]
    made_ns = _made_ns(log.directory)
    return log.damage is None, log.latest_epoch, log.log_end_offset, log.log_start_offset, made_ns


def _made_ns(directory: str) -> int:
    try:
        return os.stat(os.path.join(directory, PARTITION_METADATA)).st_mtime_ns  # nothing writes it again
    except OSError:
        return 0


def _topic_id_of(directory: str) -> uuid.UUID | None:
    try:
        return parse_partition_metadata(read_present_file(os.path.join(directory, PARTITION_METADATA)))
    except CorruptDataError:
        return None
