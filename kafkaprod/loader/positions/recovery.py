"""Continue a load that was killed: find which of its rows are in the log, so that none is written twice.

1. Each row has its partition and its place among the load's rows there, its rank, by the input and the options alone:
   partition by key, column or row number, over the number of partitions at the start. Within a partition rows are sent
   in this order.
2. A load has one producer id and one epoch for its whole life, over all processes that work at it. They are in the
   manifest before the first record is sent. The epoch is never raised, no batch is ever given another sequence number:
   where a producer would do so, the attempt ends instead and recovery starts over. So a row's sequence number is its
   rank (modulo 2**31).
3. To continue, the tail of each partition is read, from the manifest's offset on. Batches with the load's producer id
   are its own: their number of records, added to the manifest's count, is the rank of the first row that is missing.
   Rows with lower ranks are skipped; sending continues with that rank as sequence number.
4. Requests of the killed process may still be in a broker's socket and be appended after the tail was read. Then the
   broker already has the sequence numbers that we send: it answers "duplicate" for the same batch, which is success, or
   "out of order" for any other cut, which ends the attempt, and step 3 is done again. So the broker's own check
   prevents that a row is written twice, whatever is still in flight.

Conditions: the input and the options are the same (names, sizes, times and options are compared); acks=all and
idempotence; nothing deletes or truncates the tail meanwhile (another topic or cluster is refused, and a log that starts
behind the manifest's offset, ends before it, or has something else where the last acknowledged row was); at most 2**31
rows of a partition between two manifests. Other producers may write to the topic at any time. Records carry nothing
extra. Cost: what the partitions got since the last manifest is read once, the input is read again from there on.
Source: KIP-98; ProducerStateManager, ProducerAppendInfo.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kafkaprod.admin.client import ClusterClient
from kafkaprod.admin.reading import PartitionReader
from kafkaprod.admin.topics import EARLIEST, LATEST, log_offsets
from kafkaprod.loader.opening.errors import LoadError
from kafkaprod.loader.positions.manifest import Manifest

SEQUENCE_MASK: Final = 0x7FFFFFFF


@dataclass(frozen=True, slots=True)
class Tail:
    """Holds what a partition has: `rank` rows of the load are before `offset`."""

    rank: int
    offset: int


def read_tails(client: ClusterClient, manifest: Manifest) -> dict[int, Tail]:
    """Return what the log has of the load, by partition.

    Raises:
        LoadError: The log is not the one of the manifest.
        KafkaError: It cannot be read.
    """
    starts = log_offsets(client, manifest.topic, EARLIEST)
    ends = log_offsets(client, manifest.topic, LATEST)
    _check_identity(client, manifest)
    tails = {}
    for number, known in manifest.partitions.items():
        name = f"{manifest.topic}[{number}]"
        if number not in ends or ends[number] < known.offset:
            raise LoadError(
                f"{name} ends at offset {ends.get(number)}, but {known.offset} was acknowledged: acknowledged records "
                "are gone, or the topic was created again. The load cannot be resumed; start over with --restart"
            )
        if starts[number] > known.offset:
            raise LoadError(
                f"{name} starts at offset {starts[number]}, after the manifest's {known.offset}: retention or "
                f"DeleteRecords removed the records that show how far the load came, and {manifest.sent_count:,} or "
                "more were acknowledged. It cannot be resumed; start over with --restart unless they were used"
            )
        first = max(known.offset - bool(known.sent), starts[number])  # the load's last row that was acknowledged
        reader = PartitionReader(client, manifest.topic, number)
        tails[number] = _read_tail(reader, manifest, number, first, ends[number])
    return tails


def check_complete(client: ClusterClient, manifest: Manifest) -> None:
    """Compare the log with the manifest of a complete load: its rows may be gone, or the topic another one.

    Raises:
        LoadError: The log is not the one of the manifest, or ends before it; the message names the difference.
        KafkaError: It cannot be read.
    """
    _check_identity(client, manifest)
    ends = log_offsets(client, manifest.topic, LATEST)
    for number, known in manifest.partitions.items():
        if ends.get(number, -1) < known.offset:
            raise LoadError(
                f"{manifest.topic}[{number}] ends at offset {ends.get(number)}, but the complete load was acknowledged "
                f"up to {known.offset}: acknowledged records are gone. Start over with --restart"
            )


def is_empty(client: ClusterClient, topic: str) -> bool:
    """Return whether all records of a topic were deleted, or there were none. Raises KafkaError."""
    return log_offsets(client, topic, EARLIEST) == log_offsets(client, topic, LATEST)


def _check_identity(client: ClusterClient, manifest: Manifest) -> None:
    """Refuse another topic of the same name, or another cluster: their offsets mean nothing for this load."""
    cluster = client.metadata([manifest.topic])
    topic_id = cluster.topics[0].topic_id
    for what, was, is_now in (
        ("cluster", manifest.cluster_id, cluster.cluster_id),
        (f"topic {manifest.topic!r}", manifest.topic_id, None if topic_id is None else str(topic_id)),
    ):
        if was is not None and is_now is not None and was != is_now:
            raise LoadError(
                f"the load began with the {what} of id {was}, and this one has {is_now}: the records that were "
                "acknowledged are not here. It cannot be resumed; start over with --restart"
            )


def _read_tail(reader: PartitionReader, manifest: Manifest, number: int, first: int, end: int) -> Tail:
    known = manifest.partitions[number]
    rank, offset = known.sent, known.offset
    for batch in reader.batches(first, end):
        if batch.producer_id != manifest.producer_id:
            if batch.base_offset < known.offset and known.sent:  # where the load's last row was
                raise LoadError(
                    f"{manifest.topic}[{number}] has another producer's record at offset {known.offset - 1}, where one "
                    "of this load was acknowledged: acknowledged records are gone. Start over with --restart"
                )
            continue
        passed = max(known.offset - batch.base_offset, 0)  # the manifest may name a place inside a batch
        sequence = (rank - passed) & SEQUENCE_MASK
        if batch.producer_epoch != manifest.producer_epoch or batch.base_sequence != sequence:
            raise LoadError(
                f"{manifest.topic}[{number}] has at offset {batch.base_offset} sequence {batch.base_sequence} of epoch "
                f"{batch.producer_epoch} instead of {sequence} of epoch "
                f"{manifest.producer_epoch}: the manifest belongs to another log; was the topic created again? "
                "Start over with --restart"
            )
        # Not the number of records: compaction may have taken some, the sequence numbers stay.
        rank += batch.last_offset_delta + 1 - passed
        offset = batch.last_offset + 1
    return Tail(rank, offset)
