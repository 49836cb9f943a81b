"""Groups of the consumer protocol in a day of transactions: one commits by itself, one is of programs that process."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from tests.simulation.consuming import ConsumerLedger, ConsumerMember
from tests.simulation.grouping import GroupReader
from tests.simulation.processing import GROUP as PROCESSORS
from tests.simulation.processing import Processor, Rows

if TYPE_CHECKING:
    from tests.simulation.transaction_day import TransactionDay

CONSUMERS = "consumers"
MOST_CONSUMERS = 8
NAMES_OF_PROCESSORS = ("carl", "dora")


class ConsumerSide:
    """See the module docstring.

    Attributes:
        consumers: The members that commit by themselves.
        committed: What must hold of their group.
        processed: What must hold of the group of the programs.
        rows: What must hold of what the programs write.
    """

    def __init__(self, day: TransactionDay, is_lossy: Callable[[], bool]) -> None:
        self._day = day
        self.consumers: list[ConsumerMember] = []
        self.committed = ConsumerLedger(day.world, is_lossy)
        self.processed = ConsumerLedger(day.world, is_lossy)
        self.rows = Rows(is_lossy)
        day.ledger.on_read = self.rows.read
        self._readers: dict[str, GroupReader] = {}
        self.processors: list[Processor] = []

    @property
    def kinds(self) -> list[Callable[[], None]]:
        """The faults of members."""
        return [self._crash_consumer, self._pause_consumer, self._replace_consumer]

    def start(self, topic: str, count: int) -> None:
        """Begin."""
        self._topic, self._count = topic, count
        world, brokers = self._day.world, self._day.brokers
        for group_id, ledger in ((CONSUMERS, self.committed), (PROCESSORS, self.processed)):
            self._readers[group_id] = GroupReader(world, brokers, ledger, topic, count, group_id)
        for _ in range(world.random.choice((2, 3))):
            self._start_consumer()

    def _start_consumer(self) -> None:
        world = self._day.world
        if len(self.consumers) < MOST_CONSUMERS:
            process = world.process(f"consumer {len(self.consumers)}")
            process.is_up = True
            self.consumers.append(
                ConsumerMember(world, self._day.brokers, process, self.committed, CONSUMERS, self._topic)
            )

    def heal(self) -> None:
        """Let no member pause."""
        for consumer in self.consumers:
            consumer.process.paused_until_ms = 0

    def what_is_left(self, readers: Iterable[str]) -> str | None:
        """Return what is not as it will be in the end."""
        members = [processor.member for processor in self.processors if not processor.is_over]
        for group_id, group in ((CONSUMERS, self.consumers), (PROCESSORS, members)):
            owned = sorted(partition for member in group for partition in member.owned)
            if owned != list(range(self._count)) and any(member.process.is_up for member in group):
                return f"members of the group {group_id} own the partitions {owned}"
        found = self._readers[PROCESSORS].found
        for reader in readers:
            for partition, offset in found.items():
                if self.rows.count(reader, partition) != max(offset, 0):
                    seen = self.rows.count(reader, partition)
                    return f"{reader} has seen {seen} rows of partition {partition}, and {offset} is committed"
        return None

    def check_end(self, readers: Iterable[str]) -> None:
        """Check that all rows below the offsets have been processed once."""
        for reader in readers:
            self.rows.check_whole(reader, self._readers[PROCESSORS].found)

    # -- faults --------------------------------------------------------------------------------------------------------

    def _crash_consumer(self) -> None:
        """End a member, and begin another one later."""
        chance, world = self._day.world.random, self._day.world
        consumer = chance.choice(self.consumers)
        if consumer.process.is_up and len(self.consumers) < MOST_CONSUMERS:
            world.note(f"kill {consumer.process.name}")
            consumer.process.is_up = False
            world.at(chance.randint(1, 500), self._start_consumer)

    def _pause_consumer(self) -> None:
        """Stop a member for a while: what it does then may be of an older epoch."""
        chance, world = self._day.world.random, self._day.world
        process = chance.choice(self.consumers).process
        length_ms = chance.randint(10, 900)
        world.note(f"pause {process.name} for {length_ms}")
        process.paused_until_ms = world.now_ms + length_ms

    def _replace_consumer(self) -> None:
        """Begin another member, and perhaps let one leave."""
        chance, world = self._day.world.random, self._day.world
        consumer = chance.choice(self.consumers)
        if len(self.consumers) < MOST_CONSUMERS:
            self._start_consumer()
            if consumer.process.is_up and chance.random() < 0.8:
                world.note(f"{consumer.process.name} leaves, and another one comes")
                consumer.leave()
