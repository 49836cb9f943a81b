"""Which partitions and groups belong to the current transaction. Pure.

Under v1 a partition is *new* when a batch of it wants to go out, *unanswered* once AddPartitionsToTxn was sent, and
*added* when that was answered NONE. A request whose answer was lost, or came after a write that may have succeeded
(`AFTER_WRITE`), is repeated until it is answered: the coordinator may have opened the transaction, and ending one that
is not open is an error. Under v2 the leader adds the partition itself.
"""

from __future__ import annotations

from typing import Final

from kafkaprod.errors import KafkaError, broker_code
from kafkaprod.protocol.error_codes import ErrorCode, describe
from kafkaprod.structs import TopicPartition

AFTER_WRITE: Final = frozenset(
    {
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)
"""Answers that a coordinator may give after the change is in its log; the next one finds it there (`commit_table`)."""


class Members:
    """The members of one transaction.

    Attributes:
        is_v2: Partitions need not be added.
        is_started: The coordinator may know the transaction: it must be ended there.
        new: Partitions that wait for their first AddPartitionsToTxn.
        unanswered: Partitions that were sent in one that has no answer yet.
        unanswered_groups: As `unanswered`, for AddOffsetsToTxn.
        fresh: Partitions that became members since the last `take_added`.
    """

    def __init__(self, *, is_v2: bool) -> None:
        self.is_v2 = is_v2
        self.is_started = False
        self.new: set[TopicPartition] = set()
        self.unanswered: set[TopicPartition] = set()
        self.unanswered_groups: set[str] = set()
        self._added: set[TopicPartition] = set()
        self._groups: set[str] = set()
        self.fresh: list[TopicPartition] = []
        self._refused: set[TopicPartition] = set()
        self._maybe_added: set[TopicPartition] = set()
        self._maybe_groups: set[str] = set()

    def may_drain(self, partition: TopicPartition) -> bool:
        """Whether a batch of the partition may go out now; under v1 the partition is added first."""
        if self.is_v2:
            self.is_started = True
            return True
        if partition in self._added:
            return True
        if partition not in self.unanswered:
            self.new.add(partition)
        return False

    def has_group(self, group_id: str) -> bool:
        """Whether offsets of the group may be sent."""
        return self.is_v2 or group_id in self._groups

    @property
    def to_add(self) -> list[TopicPartition]:
        """Partitions for the next AddPartitionsToTxn, in a stable order."""
        return sorted(self.new | self.unanswered)

    def on_partitions_sent(self, partitions: list[TopicPartition]) -> None:
        """AddPartitionsToTxn went out."""
        self.new.difference_update(partitions)
        self.unanswered.update(partitions)

    def on_partitions_answered(self, codes: dict[TopicPartition, int]) -> None:
        """Take the answer: what was not added wants to be again, unless the transaction ends."""
        for partition, code in codes.items():
            if code in AFTER_WRITE:
                self._maybe_added.add(partition)
            if partition in self._maybe_added and describe(code).retriable:
                continue  # this request, or an earlier one whose answer was lost, may have added it
            self.unanswered.discard(partition)
            self._maybe_added.discard(partition)
            if code == 0:
                self.is_started = True
                self.new.discard(partition)
                self._added.add(partition)
                self.fresh.append(partition)
            else:
                self.new.add(partition)

    def on_group_sent(self, group_id: str) -> None:
        """AddOffsetsToTxn went out."""
        self.unanswered_groups.add(group_id)

    def on_group_answered(self, group_id: str, code: int) -> None:
        """Take the answer."""
        if code in AFTER_WRITE:
            self._maybe_groups.add(group_id)
        if group_id in self._maybe_groups and describe(code).retriable:
            return
        self.unanswered_groups.discard(group_id)
        self._maybe_groups.discard(group_id)
        if code == 0:
            self.is_started = True
            self._groups.add(group_id)

    def on_answer_lost(self) -> None:
        """A request that adds partitions or a group got no answer: the coordinator may have done it."""
        self._maybe_added |= self.unanswered
        self._maybe_groups |= self.unanswered_groups

    def take_added(self) -> list[TopicPartition]:
        """Partitions that became members since the last call."""
        fresh, self.fresh = self.fresh, []
        return fresh

    def leaves_sequence_free(self, topic: str, number: int, error: KafkaError) -> bool:
        """Whether the sequence of a failed batch is certainly not in the log, so that the next batch may have it.

        A broker that misses records before a batch, although none of them was refused, has lost acknowledged ones: no
        sequence would be the right one.
        """
        partition = TopicPartition(topic, number)
        is_gap = broker_code(error) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and partition not in self._refused
        if error.possibly_persisted or is_gap:
            return False
        self._refused.add(partition)
        return True
