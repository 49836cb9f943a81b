"""Groups of the consumer protocol (KIP-848): members that their coordinator gives partitions to, and what must hold.

exclusive  a member is given a partition when the one before has given it up, or can no longer be a member
epoch      in an epoch of the group, a partition belongs to one member
committed  as in `grouping`: offsets that were acknowledged are not lost, nor replaced by those of an older epoch

A commit of a member waits in its client for a while, sometimes, so that it comes when the group has moved on.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from kafkaprod.broker.coordinator.coordinators import GROUPS
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from kafkaprod.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kafkaprod.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from tests.simulation.asking import PATIENCE_MS, Asker
from tests.simulation.coordinating import SESSION_MS
from tests.simulation.grouping import GroupLedger
from tests.simulation.nodes import BrokerNode
from tests.simulation.world import Process, World

REBALANCE_MS = 3000
PAUSE_MS = 25
LATE_MS = (20, 400)
BEAT_VERSION, COMMIT_VERSION, FETCH_VERSION = 1, 9, 9
LEAVE_EPOCH, JOIN_EPOCH = -1, 0
_EXPELLED = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND)


@dataclass(slots=True)
class _Hold:
    """A member has a partition; until `until_ms` its session cannot have ended."""

    process: Process
    until_ms: int


class ConsumerLedger(GroupLedger):
    """See the module docstring.

    Args:
        world: Has the time.
        is_lossy: As of `Ledger`.
    """

    def __init__(self, world: World, is_lossy: Callable[[], bool]) -> None:
        super().__init__(is_lossy)
        self._world = world
        self._holds: dict[int, dict[str, _Hold]] = {}

    def taken(self, member: ConsumerMember, epoch: int, partitions: Iterable[int]) -> None:
        """A member learns what is new of its partitions."""
        now_ms = self._world.now_ms
        wanted = list(partitions)
        if member.session_until_ms >= now_ms:  # else it may have been expelled meanwhile
            self.assigned(epoch, member.member_id, wanted)
        for partition in wanted:
            holds = self._holds.setdefault(partition, {})
            for other_id, hold in holds.items():
                is_there = hold.process.is_up and hold.until_ms >= now_ms
                if is_there and other_id != member.member_id and member.session_until_ms >= now_ms:
                    self._fail(f"exclusive: {member.member_id} is given {partition}, and {other_id} has it")
            holds[member.member_id] = _Hold(member.process, member.session_until_ms)

    def kept(self, member: ConsumerMember) -> None:
        """A coordinator has answered a heartbeat."""
        for holds in self._holds.values():
            if member.member_id in holds:
                holds[member.member_id].until_ms = member.session_until_ms

    def given_up(self, member: ConsumerMember, partitions: Iterable[int]) -> None:
        """A member works on partitions no more."""
        for partition in partitions:
            self._holds.get(partition, {}).pop(member.member_id, None)


class ConsumerMember:
    """One member. Its heartbeats go on while a commit is under way.

    Args:
        world: Its world.
        brokers: Whom it asks.
        process: Where it runs.
        ledger: Checks what it sees.
        group_id: Its group.
        topic: What it is subscribed to.

    Attributes:
        member_id: Its name in the group; another one when it cannot know what became of a commit.
        epoch: Its epoch, 0 before it has joined.
        positions: How far it is in the partitions that it has, as far as it knows yet.
        session_until_ms: Its session cannot end before.
        commits: Whether it commits by itself.
    """

    def __init__(
        self,
        world: World,
        brokers: dict[int, BrokerNode],
        process: Process,
        ledger: ConsumerLedger,
        group_id: str,
        topic: str,
        *,
        commits: bool = True,
    ) -> None:
        self.process = process
        self.commits = commits
        self.epoch = JOIN_EPOCH
        self.positions: dict[int, int] = {}
        self.session_until_ms = -1
        self._world = world
        self._asker = Asker(world, process, brokers)
        self._brokers = brokers
        self._ledger = ledger
        self._group_id = group_id
        self._topic = topic
        self._name_count = 0
        self._owned: set[int] = set()
        self._is_committing = self._is_leaving = False
        self._is_full_due = True
        self.member_id = ""
        self._rename()
        self._beat()

    @property
    def owned(self) -> list[int]:
        """The partitions that it works on."""
        return sorted(self._owned) if self.process.is_up else []

    def leave(self) -> None:
        """Leave the group; it does not come back."""
        self._is_leaving = True

    def find_again(self, partition: int) -> None:
        """Look again how far the group is in a partition."""
        self.positions.pop(partition, None)

    def _rename(self) -> None:
        self._drop(self._owned)
        self.member_id = f"{self.process.name} {self._name_count}"
        self._name_count += 1
        self.epoch = JOIN_EPOCH
        self._is_full_due = True

    def _drop(self, partitions: Iterable[int]) -> None:
        gone = list(partitions)
        self._ledger.given_up(self, gone)
        self._owned.difference_update(gone)
        for partition in gone:
            self.positions.pop(partition, None)

    def _later(self, then: Callable[[], None]) -> None:
        self._world.in_process(self.process, self._world.random.randint(1, PAUSE_MS), then)

    def _ask(self, body: Any, version: int, then: Any) -> None:
        coordinator = self._asker.leader_of(GROUPS.topic)
        if coordinator is None:
            then(None)
        else:
            self._asker.ask(coordinator, body, version, then, of_leader=GROUPS.topic)

    def _topic_id(self) -> uuid.UUID | None:
        images = (broker.follower.image for broker in self._brokers.values())
        return next((image.topic_ids[self._topic] for image in images if self._topic in image.topic_ids), None)

    # -- the group -----------------------------------------------------------------------------------------------------

    def _beat(self) -> None:
        is_join = self.epoch == JOIN_EPOCH
        if is_join:
            self._drop(self._owned)
        owned = [TopicPartitions(topic_id=self._topic_id(), partitions=sorted(self._owned))] if self._owned else []
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._group_id,
            member_id=self.member_id,
            member_epoch=LEAVE_EPOCH if self._is_leaving else self.epoch,
            topic_partitions=owned,
        )
        if self._is_full_due or is_join:
            request.rebalance_timeout_ms = REBALANCE_MS
            request.subscribed_topic_names = [self._topic]
        if self._is_leaving:
            self._drop(self._owned)
        sent_ms, member_id = self._world.now_ms, self.member_id
        self._ask(request, BEAT_VERSION, lambda answer: self._on_beat(answer, sent_ms, member_id))

    def _on_beat(self, answer: Any, sent_ms: int, member_id: str) -> None:
        is_out = answer is not None and answer.error_code in _EXPELLED
        if self._is_leaving and (is_out or (answer is not None and not answer.error_code)):
            self.process.is_up = False
            return
        if member_id != self.member_id:
            self._beat()  # it has another name now
            return
        if answer is None and self._world.now_ms - sent_ms >= PATIENCE_MS:
            self._rename()  # the request may arrive late, and say what the member had when it was sent
        self._is_full_due = answer is None or bool(answer.error_code)  # what it did not say is said again
        if is_out:
            self._drop(self._owned)
            self.epoch = JOIN_EPOCH
        elif answer is not None and not answer.error_code:
            self.epoch = answer.member_epoch
            self.session_until_ms = sent_ms + SESSION_MS * 9 // 10  # clocks differ
            self._ledger.kept(self)
            if answer.assignment is not None:
                self._take({index for topic in answer.assignment.topic_partitions for index in topic.partitions})
        self._later(self._work)

    def _take(self, assigned: set[int]) -> None:
        self._drop(self._owned - assigned)
        self._ledger.taken(self, self.epoch, sorted(assigned - self._owned))
        self._owned |= assigned

    # -- offsets -------------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        chance = self._world.random
        unknown = sorted(self._owned - self.positions.keys())
        if self.commits and self.positions and not self._is_committing and chance.random() < 0.5:
            self._commit()
        if unknown and self.epoch > JOIN_EPOCH and chance.random() < 0.5:
            self._fetch(unknown)
        else:
            self._beat()

    def _fetch(self, partitions: list[int]) -> None:
        """Fetch where the member before has come to."""
        floors = {partition: self._ledger.floor(partition) for partition in partitions}
        topics = [OffsetFetchRequestTopics(name=self._topic, partition_indexes=partitions)]
        epoch, member_id = self.epoch, self.member_id
        group = OffsetFetchRequestGroup(group_id=self._group_id, member_id=member_id, member_epoch=epoch, topics=topics)

        def fetched(answer: Any) -> None:
            found = [] if answer is None or answer.groups[0].error_code else answer.groups[0].topics[0].partitions
            for partition in found if (epoch, member_id) == (self.epoch, self.member_id) else ():
                index, offset = partition.partition_index, partition.committed_offset
                if not partition.error_code and index in self._owned:
                    self._ledger.fetched(index, offset, floors[index])
                    self.positions[index] = max(offset, 0)
            self._beat()

        self._ask(OffsetFetchRequest(groups=[group], require_stable=True), FETCH_VERSION, fetched)

    def _commit(self) -> None:
        """Commit in the present epoch; the request may be late."""
        chance = self._world.random
        for partition in self.positions:
            self.positions[partition] += chance.randint(0, 3)
            self._ledger.attempted(partition, self.positions[partition])
        sent, epoch, member_id = dict(self.positions), self.epoch, self.member_id
        partitions = [
            OffsetCommitRequestPartition(partition_index=index, committed_offset=offset)
            for index, offset in sent.items()
        ]
        request = OffsetCommitRequest(
            group_id=self._group_id,
            generation_id_or_member_epoch=epoch,
            member_id=member_id,
            topics=[OffsetCommitRequestTopic(name=self._topic, partitions=partitions)],
        )

        def answered(answer: Any) -> None:
            self._is_committing = False
            for outcome in [] if answer is None else answer.topics[0].partitions:
                if not outcome.error_code:
                    self._ledger.acknowledged(outcome.partition_index, sent[outcome.partition_index])
            if answer is None and (epoch, member_id) == (self.epoch, self.member_id):
                self._rename()  # it may still arrive: what is committed after that must be in another epoch

        self._is_committing = True
        late_ms = chance.randint(*LATE_MS) if chance.random() < 0.2 else 0
        assert late_ms < PATIENCE_MS
        self._world.in_process(self.process, late_ms, lambda: self._ask(request, COMMIT_VERSION, answered))
