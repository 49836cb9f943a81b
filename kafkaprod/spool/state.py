"""What a journal says of each partition: ranks, producer ids, grants, what is resolved.

The same rules hold for an entry that is written and for one that is found again: `apply` and `add_batch` serve both.
Pure: no I/O.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Final

from kafkaprod.errors import CorruptDataError, IllegalStateError
from kafkaprod.spool.entries import (
    HELD,
    NO_INCARNATION,
    RANK_MASK,
    Control,
    EntryType,
    SpooledPartition,
    parse_grant,
    parse_incarnation,
    parse_progress,
    parse_snapshot,
    parse_topic,
)
from kafkaprod.storage.batch_header import BatchHeader

MOST_GRANTS: Final = 10  # of a partition: a broker remembers the last five batches, and five may be in flight


@dataclass(slots=True)
class JournalState:
    """What the entries say.

    Attributes:
        mark: The mark of the slot; None: no snapshot was read.
        table: The partitions, by reference.
    """

    mark: int | None = None
    table: dict[int, SpooledPartition] = field(default_factory=dict)

    def find(self, topic: str, topic_id: bytes, partition: int) -> int | None:
        """Return the reference of a partition; None: the table does not have it."""
        for reference, item in self.table.items():
            if (item.topic, item.topic_id, item.partition) == (topic, topic_id, partition):
                return reference
        return None

    def apply(self, control: Control) -> None:
        """Take a control entry into account.

        Raises:
            CorruptDataError: It is about a partition that is not in the table, or its value is cut.
        """
        try:
            self._apply(control)
        except (KeyError, struct.error, UnicodeDecodeError) as error:
            raise CorruptDataError(f"a {control.type.name} entry of the journal cannot be used: {error!r}") from error

    def _apply(self, control: Control) -> None:
        match control.type:
            case EntryType.SNAPSHOT:
                self.mark, self.table = parse_snapshot(control.value)
            case EntryType.TOPIC:
                reference, item = parse_topic(control.value)
                self.table[reference] = item
            case EntryType.INCARNATION:
                reference, incarnation = parse_incarnation(control.value)
                self.table[reference].incarnation = incarnation
            case EntryType.PROGRESS:
                for reference, (rank, offset) in parse_progress(control.value).items():
                    item = self.table[reference]
                    item.resolved_rank, item.last_offset = max(item.resolved_rank, rank), offset
                    item.grants = tuple(grant for grant in item.grants if grant[1] >= item.resolved_rank)
            case EntryType.GRANT:
                for reference, first, last in parse_grant(control.value):
                    self.table[reference].grants += ((first, last),)

    def check_new_incarnation(self, reference: int) -> None:
        """Refuse to begin a producer id or epoch while batches of the one before may still enter the topic.

        Raises:
            IllegalStateError: Some are not resolved.
        """
        item = self.table[reference]
        if item.grants:
            first, last = item.grants[0][0], item.grants[-1][1]
            raise IllegalStateError(
                f"{item.topic}[{item.partition}]: records {first} to {last} may have been sent under producer id "
                f"{item.incarnation.producer_id} and are not resolved: no other id or epoch may begin"
            )

    def check_grant(self, reference: int, first: int) -> None:
        """Refuse to let a batch be sent that is not the next one, has no producer id, or is one too many.

        Raises:
            IllegalStateError: That is so for one of them.
        """
        item = self.table[reference]
        due = item.grants[-1][1] + 1 if item.grants else item.resolved_rank
        if item.incarnation == NO_INCARNATION:
            raise IllegalStateError(f"{item.topic}[{item.partition}] has no producer id: no batch of it may be sent")
        if first != due:
            raise IllegalStateError(
                f"{item.topic}[{item.partition}]: a batch from record {first} on may not be sent, {due} is next"
            )
        if len(item.grants) >= MOST_GRANTS:
            raise IllegalStateError(
                f"{item.topic}[{item.partition}]: {MOST_GRANTS} batches may have been sent and are not resolved, the "
                "most that a later process finds out about"
            )

    def check_resolved(self, resolved: dict[int, tuple[int, int]]) -> None:
        """Refuse progress beyond the records that there are, or back.

        Raises:
            IllegalStateError: That is so for one of them.
        """
        for reference, (rank, _) in resolved.items():
            item = self.table[reference]
            if not item.resolved_rank <= rank <= item.next_rank:
                raise IllegalStateError(
                    f"{item.topic}[{item.partition}] cannot be resolved up to {rank}: it is up to "
                    f"{item.resolved_rank}, and has {item.next_rank} records"
                )

    def rank_of(self, header: BatchHeader) -> int | None:
        """Return the rank of a stored batch's first record; None: it is of no partition of the table."""
        item = self.table.get(header.producer_id)
        if item is None:
            return None
        return item.next_rank + (header.base_sequence - item.next_rank & RANK_MASK)

    def add_batch(self, header: BatchHeader, rank: int) -> None:
        """Take a stored batch into account; ranks that it leaves out were damaged, and are counted at the end."""
        item = self.table[header.producer_id]
        last = rank + header.last_offset_delta
        item.next_rank = last + 1
        if header.producer_epoch != HELD:
            item.grants += ((rank, last),)
