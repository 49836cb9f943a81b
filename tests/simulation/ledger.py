"""What programs know of their transactions, compared with what consumers of committed records see.

atomic       of a committed transaction they see all, once and in order; of one that was not, nothing; of one whose
             outcome nobody knows, all or nothing
undecided    no record of a transaction that its program has not ended is below a last stable offset
offsets      the offsets that a group has are those of the last committed transaction, or of one that may be committed
stable       the last stable offset is at most the high watermark, and the end of what is committed does not go back
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum

from kafkaprod.broker.metadata.image import PartitionKey
from tests.simulation.batch_logs import BatchLog
from tests.simulation.checker import ViolationError
from tests.simulation.world import World


class Fate(Enum):
    """What is certain about a transaction."""

    OPEN = "its program has not ended it"
    COMMITTING = "its program wants to commit it"
    ABORTING = "its program wants to abort it"
    COMMITTED = "committed"
    NOT_COMMITTED = "not committed"


@dataclass(slots=True, eq=False)
class LedgerEntry:
    """One transaction.

    Attributes:
        began_ms: When its first record was sent, or the transaction began.
        partitions: Of its records, by value.
        number: It grows with each transaction of the id.
        has_offsets: It commits its number as an offset of the id's group.
        may_be_aborted: There is another instance with its id, which may end it.
    """

    transactional_id: str
    began_ms: int
    timeout_ms: int
    number: int
    partitions: dict[int, int] = field(default_factory=dict)
    fate: Fate = Fate.OPEN
    has_offsets: bool = False
    may_be_aborted: bool = False


class Ledger:
    """See the module docstring.

    Args:
        world: Has the time.
        is_lossy: Whether a power cut has taken records from the last in-sync replica: a decision may be among them, and
            nothing holds any more.

    Attributes:
        committed_count: Transactions whose programs know that they are committed.
        aborted_count: Those that certainly are not.
        on_read: Called with the name of a consumer of committed records and the value that it read.
    """

    def __init__(self, world: World, is_lossy: Callable[[], bool]) -> None:
        self._world = world
        self._is_lossy = is_lossy
        self._entries: list[LedgerEntry] = []
        self._of_value: dict[int, LedgerEntry] = {}
        self._seen: dict[tuple[str, PartitionKey], list[int]] = defaultdict(list)
        self._ends: dict[PartitionKey, tuple[int, int]] = {}
        self._instance_counts: dict[str, int] = defaultdict(int)
        self.committed_count = self.aborted_count = 0
        self.on_read: Callable[[str, int], None] = lambda *_: None

    def _fail(self, text: str) -> None:
        if not self._is_lossy():
            raise ViolationError(text)

    # -- what programs do ----------------------------------------------------------------------------------------------

    def begin(self, transactional_id: str, timeout_ms: int) -> LedgerEntry:
        """A program begins a transaction."""
        is_alone = self._instance_counts[transactional_id] == 1
        number = 1 + len(self._entries)
        entry = LedgerEntry(transactional_id, self._world.now_ms, timeout_ms, number, may_be_aborted=not is_alone)
        self._entries.append(entry)
        return entry

    def sent(self, entry: LedgerEntry, value: int, partition: int) -> None:
        """A program has sent a record in its transaction."""
        entry.partitions[value] = partition
        self._of_value[value] = entry

    def committing(self, entry: LedgerEntry) -> None:
        """A program begins to commit."""
        entry.fate = Fate.COMMITTING

    def aborting(self, entry: LedgerEntry) -> None:
        """A program begins to abort; a commit that it has tried before may have succeeded."""
        if entry.fate is Fate.OPEN:
            entry.fate = Fate.ABORTING

    def ended(self, entry: LedgerEntry, *, is_committed: bool) -> None:
        """A program is certain of what came of a transaction."""
        self._world.note(f"{entry.transactional_id}: {'committed' if is_committed else 'not committed'}")
        entry.fate = Fate.COMMITTED if is_committed else Fate.NOT_COMMITTED
        if is_committed:
            self.committed_count += 1
        else:
            self.aborted_count += 1

    def taken_over(self, transactional_id: str) -> None:
        """An instance of a program begins, and ends what another one has left open."""
        self._instance_counts[transactional_id] += 1
        for entry in self._entries:
            entry.may_be_aborted = entry.may_be_aborted or entry.transactional_id == transactional_id

    # -- what consumers see --------------------------------------------------------------------------------------------

    def read(self, reader: str, key: PartitionKey, value: int) -> None:
        """A consumer of committed records read one."""
        entry = self._of_value[value]
        if entry.fate not in (Fate.COMMITTING, Fate.COMMITTED):
            self._fail(f"atomic: {reader} read {value} of {entry.transactional_id}: {entry.fate.value}")
        seen = self._seen[reader, key]
        if seen and value // 1_000_000_000 == seen[-1] // 1_000_000_000 and value <= seen[-1]:
            self._fail(f"atomic: {reader} read {value} behind {seen[-1]}")
        seen.append(value)
        self.on_read(reader, value)

    def fetched(self, key: PartitionKey, high_watermark: int, last_stable_offset: int) -> None:
        """A leader has answered a fetch."""
        if last_stable_offset > high_watermark:
            self._fail(f"stable: {last_stable_offset} of {key[1]}, above the high watermark {high_watermark}")

    def found_end(self, key: PartitionKey, leader_epoch: int, end_offset: int) -> None:
        """A leader has answered where the committed records end."""
        known_end, known_epoch = self._ends.get(key, (0, -1))
        if leader_epoch >= known_epoch and end_offset < known_end:
            self._fail(f"stable: {end_offset} in epoch {leader_epoch}, and {known_end} in epoch {known_epoch}")
        if leader_epoch >= known_epoch:
            self._ends[key] = (end_offset, leader_epoch)

    def offset_floor(self, transactional_id: str) -> int:
        """Return the offset that what is fetched of the id's group from now on reaches at least."""
        numbers = [
            entry.number
            for entry in self._entries
            if entry.has_offsets and entry.fate is Fate.COMMITTED and entry.transactional_id == transactional_id
        ]
        return max(numbers, default=-1)

    def fetched_offset(self, transactional_id: str, offset: int, floor: int) -> None:
        """A coordinator has answered what the id's group has committed, and `floor` was committed before."""
        if offset < floor:
            self._fail(f"offsets: {transactional_id}'s group has {offset}, and {floor} was committed")
        if offset < 0:
            return
        entry = self._entries[offset - 1]
        if not entry.has_offsets or entry.fate not in (Fate.COMMITTING, Fate.COMMITTED):
            self._fail(f"offsets: {transactional_id}'s group has {offset} of {entry.fate.value}")

    def check_stable(self, logs: Iterable[BatchLog]) -> None:
        """Check that nothing undecided is stable in any log."""
        now_ms = self._world.now_ms
        undecided = {
            value
            for entry in self._entries
            if entry.fate is Fate.OPEN and not entry.may_be_aborted and now_ms - entry.began_ms < entry.timeout_ms
            for value in entry.partitions
        }
        for log in logs if undecided else ():
            for value in undecided.intersection(log.values[: log.last_stable_offset - log.log_start_offset]):
                self._fail(f"undecided: {value} is below the last stable offset {log.last_stable_offset}")

    def check_end(self, readers: Iterable[str]) -> None:
        """Check that each reader has seen each transaction as it must be."""
        for reader in readers:
            seen = {value for (name, _), values in self._seen.items() if name == reader for value in values}
            for entry in self._entries:
                self._check_whole(reader, entry, [value for value in entry.partitions if value not in seen])

    def _check_whole(self, reader: str, entry: LedgerEntry, missing: list[int]) -> None:
        if entry.fate is Fate.COMMITTED and missing:
            self._fail(f"atomic: {reader} has not read {missing[0]} of {entry.transactional_id}: committed")
        if entry.fate is Fate.NOT_COMMITTED and len(missing) < len(entry.partitions):
            self._fail(f"atomic: {reader} has read a transaction of {entry.transactional_id}: not committed")
        if missing and len(missing) < len(entry.partitions):
            self._fail(f"atomic: {reader} has read a part of a transaction, but not {missing[0]}")
