"""Programs that read, process and write: each row of the input once, whoever of the group processes it.

once     a consumer of committed records sees one record of each row
whole    in the end, it sees one of each row below the offset of its partition, and of no other

The rows need no log: row 5 of a partition is what a member with the position 5 processes next. A program writes a
record for each row, and commits the offset behind them in the same transaction, in the name of its member (KIP-447).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from kafkaprod._core.queues.completion import DeliveryFuture
from kafkaprod.engine.transactions.offsets import GroupMetadata
from kafkaprod.errors import KafkaError
from kafkaprod.structs import TopicPartition
from tests.simulation.checker import ViolationError
from tests.simulation.consuming import ConsumerLedger, ConsumerMember
from tests.simulation.ledger import Ledger
from tests.simulation.nodes import BrokerNode
from tests.simulation.outcomes import Outcomes
from tests.simulation.transacting import TransactionalNode
from tests.simulation.world import World

GROUP = "processors"
TIMEOUT_MS = 1500  # longer than a program pauses


class Row(NamedTuple):
    """A row of the input."""

    partition: int
    offset: int


class Rows:
    """See the module docstring.

    Args:
        is_lossy: As of `Ledger`.
    """

    def __init__(self, is_lossy: Callable[[], bool]) -> None:
        self._is_lossy = is_lossy
        self._of_value: dict[int, Row] = {}
        self._seen: dict[str, dict[Row, int]] = defaultdict(dict)

    def _fail(self, text: str) -> None:
        if not self._is_lossy():
            raise ViolationError(text)

    def sent(self, value: int, row: Row) -> None:
        """A program sends the record of a row."""
        self._of_value[value] = row

    def read(self, reader: str, value: int) -> None:
        """A consumer of committed records read a value."""
        row = self._of_value.get(value)
        if row is not None:
            other = self._seen[reader].setdefault(row, value)
            if other != value:
                self._fail(f"once: {reader} has read {other} and {value} of {row}")

    def count(self, reader: str, partition: int) -> int:
        """Return how many rows of a partition a reader has seen."""
        return sum(row.partition == partition for row in self._seen[reader])

    def check_whole(self, reader: str, offsets: Mapping[int, int]) -> None:
        """Check at the end that a reader has seen the rows below the offsets of their partitions."""
        for partition, offset in offsets.items():
            missing = [index for index in range(offset) if Row(partition, index) not in self._seen[reader]]
            if missing or self.count(reader, partition) > max(offset, 0):
                self._fail(f"whole: {reader} has not seen the rows {missing} of {partition}, or some above {offset}")


class Input(NamedTuple):
    """Where a transaction reads, in the name of which member."""

    partition: int
    offset: int
    member_id: str
    epoch: int


class Processor(TransactionalNode):
    """See the module docstring.

    Attributes:
        member: Gives it the partitions that it reads.
        on_offsets: Called before it commits offsets, and before it ends its transaction.
        on_over: Called when its producer has failed for good.
    """

    def __init__(
        self,
        world: World,
        brokers: dict[int, BrokerNode],
        outcomes: Outcomes,
        ledger: Ledger,
        number: int,
        topic: str,
        transactional_id: str,
        rows: Rows,
        offsets: ConsumerLedger,
    ) -> None:
        super().__init__(world, brokers, outcomes, ledger, number, topic, transactional_id)
        self._pace_ms = world.random.choice((1, 4))
        self._rows = rows
        self._committed = offsets
        self.on_offsets: Callable[[TransactionalNode], None] = lambda _: None
        self.on_over: Callable[[Processor], None] = lambda _: None
        self._input: Input | None = None
        self._row_count = 0
        self.member = ConsumerMember(world, brokers, self.process, offsets, GROUP, topic, commits=False)

    def _options(self, hosts: list[str]) -> dict[str, Any]:
        options = super()._options(hosts)
        self.timeout_ms = TIMEOUT_MS
        return {**options, "transaction_timeout_ms": TIMEOUT_MS}

    def _begin(self) -> None:
        member = self.member
        if not member.positions and not self.is_stopping:
            self._rest(self._begin)
            return
        if member.positions:
            partition, offset = self.world.random.choice(sorted(member.positions.items()))
            self._input = Input(partition, offset, member.member_id, member.epoch)
            self._row_count = 0
        super()._begin()

    def _took(self, value: int, future: DeliveryFuture) -> None:
        assert self._input is not None
        self._rows.sent(value, Row(self._input.partition, self._input.offset + self._row_count))
        self._row_count += 1
        super()._took(value, future)

    @property
    def _end_offset(self) -> int:
        assert self._input is not None
        return self._input.offset + self._row_count

    def _has_offsets(self) -> bool:
        return self._row_count > 0

    def _offsets(self) -> tuple[dict[TopicPartition, int], Any]:
        assert self._input is not None
        self._committed.attempted(self._input.partition, self._end_offset)
        member = GroupMetadata(GROUP, self._input.epoch, self._input.member_id)
        return {TopicPartition(self.topic, self._input.partition): self._end_offset}, member

    def _send_offsets(self) -> None:
        self.on_offsets(self)
        self._rest(super()._send_offsets)

    def _end(self) -> None:
        self.on_offsets(self)
        self._rest(super()._end)

    def _settle(self, *, is_committed: bool) -> None:
        assert self._input is not None
        partition, positions = self._input.partition, self.member.positions
        if not is_committed:
            self.member.find_again(partition)
        elif self._row_count:
            self._committed.acknowledged(partition, self._end_offset)
            if positions.get(partition) == self._input.offset:
                positions[partition] = self._end_offset
        super()._settle(is_committed=is_committed)

    def _ends_with(self, error: KafkaError) -> bool:
        is_over = super()._ends_with(error)
        if is_over:
            self.member.leave()
            self.on_over(self)
        return is_over
