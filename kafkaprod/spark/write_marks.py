"""The write mark of a task: a committed offset that says which micro-batch of a query's partition is in Kafka.

The mark of query q and partition p is what the group `<txn.prefix>-<q>-<p>` has committed for partition 0 of the
mark topic: b + 1, once micro-batch b is written. It is committed in the transaction of the rows. The transactional id
has the name of the group. The text beside the offset says whose the mark is:

    kp2  rows, sum, at, run, write, stream
    kp1  the same without the stream, as kafkaprod 0.2 wrote it

A mark is believed by the stream alone whose id it has: micro-batch numbers of another one begin again at 0.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Self
from urllib.parse import parse_qsl, urlencode

from kafkaprod.admin.client import ClusterClient
from kafkaprod.admin.groups import list_groups
from kafkaprod.errors import ConfigError
from kafkaprod.marks.looks import CommittedOffset, read_offsets
from kafkaprod.spark.options import TransactionOptions
from kafkaprod.structs import TopicPartition

_FORMAT: Final = "kp2"
_FORMER: Final = "kp1"
_LATER: Final = re.compile(r"kp[0-9]+")


@dataclass(frozen=True, slots=True)
class MarkPlace:
    """Where the mark of a task is.

    Attributes:
        name: The name of the group, and the transactional id.
        partition: Partition 0 of the mark topic.
    """

    name: str
    partition: TopicPartition

    @classmethod
    def of(cls, options: TransactionOptions, query: str, partition: int) -> Self:
        """Return the place for a partition of a query, which is the same for every attempt and micro-batch."""
        return cls(f"{options.prefix}-{query}-{partition}", TopicPartition(options.mark_topic, 0))


@dataclass(frozen=True, slots=True)
class WriteMark:
    """What is known of the last micro-batch that was written.

    Attributes:
        batch: Its number; 0 for a write that is no stream.
        rows: The number of rows of the task.
        checksum: The checksum of their content; None: it was not computed.
        attempt: Which attempt at the task wrote them.
        run: The id of this start of the stream; "" for a write that is no stream.
        write: Identifies the write, which all attempts at its tasks share.
        stream: The id of the stream, which its checkpoint keeps; "" for a write that is no stream; None: the mark is of
            a version that did not note it.
    """

    batch: int
    rows: int
    checksum: int | None
    attempt: int
    run: str
    write: str
    stream: str | None

    def to_text(self) -> str:
        """Return the metadata of the committed offset."""
        checksum = "" if self.checksum is None else f"{self.checksum:x}"
        fields = {"rows": self.rows, "sum": checksum, "at": self.attempt, "run": self.run, "write": self.write}
        if self.stream is None:
            return f"{_FORMER} {urlencode(fields)}"
        fields["stream"] = self.stream
        return f"{_FORMAT} {urlencode(fields)}"

    @classmethod
    def from_committed(cls, committed: CommittedOffset, place: MarkPlace) -> Self:
        """Read a committed offset.

        Raises:
            ConfigError: It is no write mark: something else uses the group. Or a later version wrote it.
        """
        kind, _, text = committed.metadata.partition(" ")
        fields = dict(parse_qsl(text, keep_blank_values=True))
        if kind not in (_FORMAT, _FORMER) and _LATER.fullmatch(kind):
            raise ConfigError(
                f"group {place.name!r} has a write mark of format {kind!r}, which this version of kafkaprod cannot "
                "read: a later version wrote it. Use that version, or another txn.prefix and a new write.id"
            )
        try:
            if kind not in (_FORMAT, _FORMER):
                raise ValueError(kind)
            return cls(
                batch=committed.offset - 1,
                rows=int(fields["rows"]),
                checksum=int(fields["sum"], 16) if fields["sum"] else None,
                attempt=int(fields["at"]),
                run=fields["run"],
                write=fields["write"],
                stream=fields["stream"] if kind == _FORMAT else None,
            )
        except (KeyError, ValueError) as error:
            raise ConfigError(
                f"group {place.name!r} has committed offset {committed.offset} with metadata {committed.metadata!r} "
                f"for {place.partition.topic}-{place.partition.partition}, which is no write mark of a transactional "
                "write: something else uses this group. Set another txn.prefix"
            ) from error


def read_mark(client: ClusterClient, place: MarkPlace, patience_ms: int) -> WriteMark | None:
    """Return the mark; None: the partition was never written.

    Args:
        client: A client of the cluster.
        place: The partition of the mark.
        patience_ms: How long to wait for an unfinished transaction that holds a mark.

    Raises:
        ConfigError: Something else uses the group.
        BrokerError: UNSTABLE_OFFSET_COMMIT after `patience_ms`, or as the coordinator answered.
    """
    committed = read_offsets(client, place.name, patience_ms).get(place.partition)
    return None if committed is None else WriteMark.from_committed(committed, place)


def marked_partitions(
    client: ClusterClient, options: TransactionOptions, query: str
) -> Iterator[tuple[int, MarkPlace]]:
    """Yield each partition of a query for which the cluster has a group, and the place of its mark.

    Raises:
        BrokerError: As a broker answered.
    """
    begin = f"{options.prefix}-{query}-"
    for name in list_groups(client):
        number = name.removeprefix(begin)
        if number != name and number.isascii() and number.isdecimal() and str(int(number)) == number:
            yield int(number), MarkPlace.of(options, query, int(number))
