"""The names of the files of a partition directory.

    <20-digit base offset>.log .index .timeindex .txnindex .snapshot     leader-epoch-checkpoint     partition.metadata
Pure. Source: Kafka storage, LogFileUtils.
"""

from __future__ import annotations

import re

LOG_SUFFIX = ".log"
OFFSET_INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TRANSACTION_INDEX_SUFFIX = ".txnindex"
SNAPSHOT_SUFFIX = ".snapshot"
DELETED_SUFFIX = ".deleted"
CLEANED_SUFFIX = ".cleaned"  # behind .log: a segment that compaction writes
SWAP_SUFFIX = ".swap"  # behind .log: one that is complete and replaces others
INDEX_SUFFIXES = (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)
LEADER_EPOCHS = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"
COMPACTION = "compaction-checkpoint"  # up to where the log is compacted; not one of Kafka's, which ignores it
INDEX_CHECKSUMS = "index-checksum-checkpoint"  # not one of Kafka's, which ignores it

_NAMED_BY_OFFSET = re.compile(r"(\d{20})(\.log|\.index|\.timeindex|\.txnindex|\.snapshot)")
_LEFTOVER = re.compile(r".*(\.tmp|\.deleted|\.cleaned|\.swap)")


def file_name(offset: int, suffix: str) -> str:
    """The name of the file of `suffix` for the segment or snapshot at `offset`."""
    return f"{offset:020d}{suffix}"


def parse_file_name(name: str) -> tuple[int, str] | None:
    """The offset and suffix in a file name, or None for another kind of file."""
    match = _NAMED_BY_OFFSET.fullmatch(name)
    return (int(match[1]), match[2]) if match else None


def is_leftover(name: str) -> bool:
    """A file of an operation that a crash interrupted: to be deleted, the original is still there."""
    return _LEFTOVER.fullmatch(name) is not None
