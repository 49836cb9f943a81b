"""What a journal says of each partition: ranks, producer ids, what is resolved.

The same rules hold for an entry that is written and for one that is found again: `apply` and `add_batch` serve both.
Pure: no I/O.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from kafkaprod.errors import CorruptDataError, IllegalStateError
from kafkaprod.spool.entries import (
    NO_FACTS,
    RANK_MASK,
    Control,
    EntryType,
    SlotFacts,
    SpooledPartition,
    parse_incarnation,
    parse_progress,
    parse_snapshot,
    parse_topic,
)
from kafkaprod.storage.batch_header import BatchHeader


@dataclass(slots=True)
class JournalState:
    """What the entries say.

    Attributes:
        slot: What the last snapshot says of the slot, and what entries after it have changed.
        table: The partitions, by reference.
        contact_ms: When a broker last answered by the clock of the system; 0: it is not known.
    """

    slot: SlotFacts = NO_FACTS
    table: dict[int, SpooledPartition] = field(default_factory=dict)
    contact_ms: int = 0

    def find(self, topic: str, partition: int) -> int | None:
        """Return the reference of a partition; None: the table does not have it."""
        for reference, item in self.table.items():
            if (item.topic, item.partition) == (topic, partition):
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
                self.slot, self.table = parse_snapshot(control.value)
            case EntryType.TOPIC:
                reference, item = parse_topic(control.value)
                known = self.table.setdefault(reference, item)
                known.topic_id, known.partition_count = item.topic_id, item.partition_count
            case EntryType.INCARNATION:
                reference, incarnation = parse_incarnation(control.value)
                self.table[reference].incarnation = incarnation
                if incarnation.producer_id >= 0:
                    self.slot = self.slot._replace(
                        producer_id=incarnation.producer_id, producer_epoch=incarnation.producer_epoch
                    )
            case EntryType.PROGRESS:
                for reference, (rank, offset) in parse_progress(control.value).items():
                    item = self.table[reference]
                    item.resolved_rank, item.last_offset = max(item.resolved_rank, rank), offset
            case EntryType.CLUSTER:
                self.slot = self.slot._replace(cluster_id=control.value.decode())

    def check_incarnation(self, reference: int, first_rank: int) -> None:
        """Refuse to begin a producer id or epoch while batches of the one before may still enter the topic.

        Raises:
            IllegalStateError: Some are not resolved.
        """
        item = self.table[reference]
        if item.resolved_rank < first_rank:
            raise IllegalStateError(
                f"{item.topic}[{item.partition}]: records {item.resolved_rank} to {first_rank - 1} are not resolved: "
                f"no producer id or epoch may begin at {first_rank}"
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
        self.table[header.producer_id].next_rank = rank + header.last_offset_delta + 1
