"""The log of a transactional id and whoever coordinates it: what may become of one transaction.

The transaction is open, with an epoch. A coordinator appends its end and waits for the replicas; what they do not have
yet (`tail`) survives a move to another coordinator or not. A coordinator knows only what was acknowledged (`memory`).
Markers follow at once, so that a prepared end is a complete one. Source: Kafka, TransactionCoordinator,
TransactionStateManager; KIP-98, KIP-890.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum
from typing import NamedTuple

from kafkaprod.protocol.error_codes import ErrorCode

EPOCH = 5
"""Of the producer in its transaction."""


class Phase(Enum):
    ONGOING = "ongoing"
    COMMITTED = "committed"
    ABORTED = "aborted"
    EMPTY = "empty"


class Record(NamedTuple):
    phase: Phase
    epoch: int


OPEN = Record(Phase.ONGOING, EPOCH)


class End(NamedTuple):
    is_commit: bool
    epoch: int


@dataclass(frozen=True)
class World:
    """See the module.

    Attributes:
        is_v2: The rules of the transaction.
        memory: What the coordinator knows; None: the id has expired.
        tail: What it has appended without the replicas.
        is_committed: Whether consumers of committed records see the transaction; None: not decided.
        late: Requests that are on their way, for whoever coordinates when they arrive.
        has_right: The producer may use the id.
    """

    is_v2: bool
    memory: Record | None = OPEN
    tail: tuple[Record, ...] = ()
    is_committed: bool | None = None
    late: tuple[End, ...] = ()
    has_right: bool = True

    def judge(self, end: End) -> tuple[int, Record | None]:
        """What EndTxn is answered, and what is to be written before."""
        if not self.has_right:
            return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, None
        if self.memory is None:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING, None
        wanted = Phase.COMMITTED if end.is_commit else Phase.ABORTED
        is_ended = self.memory.phase in (Phase.COMMITTED, Phase.ABORTED)
        is_repeated = self.memory.epoch == end.epoch + 1 if self.is_v2 else self.memory.epoch == end.epoch
        if is_ended and is_repeated:
            return (0 if self.memory.phase is wanted else ErrorCode.INVALID_TXN_STATE), None
        if self.memory.epoch != end.epoch:
            return ErrorCode.PRODUCER_FENCED, None
        if self.memory.phase is Phase.ONGOING:
            return 0, Record(wanted, end.epoch + 1 if self.is_v2 else end.epoch)
        return ErrorCode.INVALID_TXN_STATE, None

    def write(self, record: Record) -> World:
        """Append with all replicas, which have the tail before it, too; the last record counts."""
        is_committed = self.is_committed
        if is_committed is None and record.phase is not Phase.ONGOING:
            is_committed = record.phase is Phase.COMMITTED
        return replace(self, memory=record, tail=(), is_committed=is_committed)

    def handle(self, end: End) -> tuple[int, World]:
        """EndTxn at the coordinator, with all replicas."""
        code, record = self.judge(end)
        return code, self if record is None else self.write(record)

    # -- what happens elsewhere ----------------------------------------------------------------------------------------

    def move(self, *, keeps_tail: bool) -> World:
        """Another broker coordinates; it has what the log has."""
        return self.write(self.tail[-1]) if keeps_tail and self.tail else replace(self, tail=())

    def time_out(self) -> World:
        """The coordinator aborts what takes too long."""
        if self.memory is None or self.memory.phase is not Phase.ONGOING:
            return self
        return self.write(Record(Phase.ABORTED, self.memory.epoch + 1))

    def take_over(self) -> World:
        """Another instance initializes: it ends what is open, and has a newer epoch."""
        after = self.time_out()
        return after.write(Record(Phase.EMPTY, (after.memory or Record(Phase.EMPTY, EPOCH)).epoch + 1))

    def expire(self) -> World:
        """The id is forgotten, as it was not used for long."""
        return self if self.memory is None or self.memory.phase is Phase.ONGOING else replace(self, memory=None)

    def deliver(self) -> World:
        """A request arrives late."""
        return replace(self, late=self.late[1:]).handle(self.late[0])[1] if self.late else self

    def revoke(self) -> World:
        """The producer loses its right."""
        return replace(self, has_right=False)

    def next_worlds(self) -> Iterator[World]:
        """What may happen next without the producer."""
        yield self.move(keeps_tail=True)
        yield self.move(keeps_tail=False)
        yield self.time_out()
        yield self.take_over()
        yield self.deliver()
        yield replace(self, late=self.late[1:])

    def possible_ends(self) -> set[bool]:
        """Whether the transaction may be committed in the end, and whether it may be not."""
        seen, to_do = {self}, [self]
        while to_do:
            for world in to_do.pop().next_worlds():
                if world not in seen:
                    if world.memory is not None and world.memory.epoch > EPOCH + 4:
                        continue  # instances follow each other for ever
                    seen.add(world)
                    to_do.append(world)
        return {world.is_committed for world in seen if world.is_committed is not None}
