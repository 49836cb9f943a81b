"""Consumer groups: members that share partitions and commit how far they are, and what must hold of both.

owner      in a generation, a partition belongs to one member
committed  an offset that was acknowledged is never lost, nor replaced by a lower one; what is fetched was committed

Members need no records: they move on by chance, from the offset that they fetch when they get a partition.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

from kafkaprod.broker.coordinator.coordinators import GROUPS
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.heartbeat import HeartbeatRequest
from kafkaprod.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kafkaprod.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kafkaprod.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from kafkaprod.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.simulation.asking import Asker
from tests.simulation.checker import ViolationError
from tests.simulation.nodes import BrokerNode
from tests.simulation.world import World

GROUP = "readers"
PROTOCOL = "round robin"
SESSION_MS = 250
PAUSE_MS = 25
READ_MS = 20
JOIN_VERSION, SYNC_VERSION, BEAT_VERSION, COMMIT_VERSION, FETCH_VERSION = 9, 5, 4, 8, 7


class GroupLedger:
    """See the module docstring.

    Args:
        is_lossy: As of `Ledger`.

    Attributes:
        generations: The generations that members have seen.
        commit_count: Acknowledged commits.
    """

    def __init__(self, is_lossy: Callable[[], bool]) -> None:
        self._is_lossy = is_lossy
        self._owners: dict[tuple[int, int], str] = {}
        self._attempted: dict[int, set[int]] = defaultdict(set)
        self._acknowledged: dict[int, int] = defaultdict(lambda: -1)
        self.generations: set[int] = set()
        self.commit_count = 0

    def _fail(self, text: str) -> None:
        if not self._is_lossy():
            raise ViolationError(text)

    def assigned(self, generation: int, member_id: str, partitions: list[int]) -> None:
        """A member learns what it owns in a generation."""
        self.generations.add(generation)
        for partition in partitions:
            other = self._owners.setdefault((generation, partition), member_id)
            if other != member_id:
                self._fail(f"owner: {other} and {member_id} own {partition} in generation {generation}")

    def attempted(self, partition: int, offset: int) -> None:
        """A member sends a commit."""
        self._attempted[partition].add(offset)

    def acknowledged(self, partition: int, offset: int) -> None:
        """A commit was answered with success."""
        self.commit_count += 1
        self._acknowledged[partition] = max(self._acknowledged[partition], offset)

    def floor(self, partition: int) -> int:
        """Return the offset that what is fetched from now on reaches at least."""
        return self._acknowledged[partition]

    def fetched(self, partition: int, offset: int, floor: int) -> None:
        """A member was answered what is committed, and knew of a commit before it asked."""
        if offset < floor:
            self._fail(f"committed: {offset} is fetched of partition {partition}, and {floor} was committed")
        if offset >= 0 and offset not in self._attempted[partition]:
            self._fail(f"committed: {offset} is fetched of partition {partition}, and no member sent it")


class GroupMember:
    """One member, with the classic protocol. It has one request under way at a time."""

    def __init__(
        self, world: World, brokers: dict[int, BrokerNode], ledger: GroupLedger, number: int, topic: str, count: int
    ) -> None:
        self.process = world.process(f"member {number}")
        self.process.is_up = True
        self._asker = Asker(world, self.process, brokers)
        self._world = world
        self._ledger = ledger
        self._topic = topic
        self._partition_count = count
        self._member_id = ""
        self._generation = -1
        self._positions: dict[int, int] = {}
        self._join()

    def _ask(self, body: Any, version: int, then: Any, *, of_leader: str | None = None) -> None:
        coordinator = self._asker.leader_of(GROUPS.topic)
        if coordinator is None:
            then(None)
        else:
            self._asker.ask(coordinator, body, version, then, of_leader=of_leader)

    def _later(self, then: Any) -> None:
        self._world.in_process(self.process, self._world.random.randint(1, PAUSE_MS), then)

    @property
    def owned(self) -> list[int]:
        """The partitions that it works on."""
        return list(self._positions) if self.process.is_up else []

    # -- a generation --------------------------------------------------------------------------------------------------

    def _join(self) -> None:
        self._positions = {}
        request = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=SESSION_MS,
            member_id=self._member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name=PROTOCOL, metadata=b"")],
        )
        self._ask(request, JOIN_VERSION, self._joined)

    def _joined(self, answer: Any) -> None:
        error = None if answer is None else answer.error_code
        if error in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
            self._member_id = answer.member_id
        elif error == ErrorCode.UNKNOWN_MEMBER_ID:
            self._member_id = ""
        if error != ErrorCode.NONE:
            self._later(self._join)
            return
        self._generation = answer.generation_id
        members = [member.member_id for member in answer.members]  # the leader gets them, in the order of the group
        shares: dict[str, list[int]] = {member_id: [] for member_id in members}
        for partition in range(self._partition_count if members else 0):
            shares[members[partition % len(members)]].append(partition)
        request = SyncGroupRequest(
            group_id=GROUP,
            generation_id=self._generation,
            member_id=self._member_id,
            protocol_type="consumer",
            protocol_name=PROTOCOL,
            assignments=[
                SyncGroupRequestAssignment(member_id=member_id, assignment=bytes(share))
                for member_id, share in shares.items()
            ],
        )
        self._ask(request, SYNC_VERSION, self._synced)

    def _synced(self, answer: Any) -> None:
        if answer is None or answer.error_code:
            self._forget_if_unknown(answer)
            self._later(self._join)
            return
        owned = list(bytes(answer.assignment))
        self._ledger.assigned(self._generation, self._member_id, owned)
        self._fetch(owned)

    def _fetch(self, owned: list[int]) -> None:
        """Fetch where the generation before has come to."""
        if not owned:
            self._later(self._work)
            return
        floors = {partition: self._ledger.floor(partition) for partition in owned}

        def fetched(answer: Any) -> None:
            if answer is None or answer.error_code:
                self._later(lambda: self._fetch(owned))
                return
            for partition in answer.topics[0].partitions:
                if partition.error_code:
                    self._later(lambda: self._fetch(owned))
                    return
                index, offset = partition.partition_index, partition.committed_offset
                self._ledger.fetched(index, offset, floors[index])
                self._positions[index] = max(offset, 0)
            self._later(self._work)

        topics = [OffsetFetchRequestTopic(name=self._topic, partition_indexes=owned)]
        request = OffsetFetchRequest(group_id=GROUP, topics=topics, require_stable=True)
        self._ask(request, FETCH_VERSION, fetched, of_leader=GROUPS.topic)

    def _work(self) -> None:
        if self._positions and self._world.random.random() < 0.5:
            self._commit()
            return
        request = HeartbeatRequest(group_id=GROUP, generation_id=self._generation, member_id=self._member_id)
        self._ask(request, BEAT_VERSION, self._work_on)

    def _commit(self) -> None:
        for partition in self._positions:
            self._positions[partition] += self._world.random.randint(0, 3)
            self._ledger.attempted(partition, self._positions[partition])
        sent = dict(self._positions)
        partitions = [
            OffsetCommitRequestPartition(partition_index=index, committed_offset=offset)
            for index, offset in sent.items()
        ]
        request = OffsetCommitRequest(
            group_id=GROUP,
            generation_id_or_member_epoch=self._generation,
            member_id=self._member_id,
            topics=[OffsetCommitRequestTopic(name=self._topic, partitions=partitions)],
        )

        def answered(answer: Any) -> None:
            outcomes = [] if answer is None else answer.topics[0].partitions
            for outcome in outcomes:
                if not outcome.error_code:
                    self._ledger.acknowledged(outcome.partition_index, sent[outcome.partition_index])
            self._work_on(outcomes[0] if outcomes else None)

        self._ask(request, COMMIT_VERSION, answered)

    def _work_on(self, outcome: Any) -> None:
        """Work on after success; else join again: what was sent may still arrive, and then is of an old generation."""
        if outcome is not None and not outcome.error_code:
            self._later(self._work)
        else:
            self._forget_if_unknown(outcome)
            self._later(self._join)

    def _forget_if_unknown(self, answer: Any) -> None:
        if answer is not None and answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
            self._member_id = ""


class GroupReader:
    """Asks again and again what the group has committed, so that a commit that should have been refused is seen.

    Attributes:
        found: The offset of each partition that was answered last.
    """

    def __init__(
        self,
        world: World,
        brokers: dict[int, BrokerNode],
        ledger: GroupLedger,
        topic: str,
        count: int,
        group_id: str = GROUP,
    ) -> None:
        self.process = world.process(f"reader of {group_id}")
        self.found = dict.fromkeys(range(count), -1)
        self._group_id = group_id
        self.process.is_up = True
        self._world = world
        self._asker = Asker(world, self.process, brokers)
        self._ledger = ledger
        self._topics = [OffsetFetchRequestTopic(name=topic, partition_indexes=list(range(count)))]
        self._read()

    def _read(self) -> None:
        self._world.in_process(self.process, READ_MS, self._read)
        coordinator = self._asker.leader_of(GROUPS.topic)
        if coordinator is None:
            return
        floors = [self._ledger.floor(partition) for partition in self._topics[0].partition_indexes]
        request = OffsetFetchRequest(group_id=self._group_id, topics=self._topics, require_stable=True)

        def answered(answer: Any) -> None:
            if answer is None or answer.error_code:
                return
            for partition in answer.topics[0].partitions:
                if not partition.error_code:
                    index = partition.partition_index
                    self.found[index] = partition.committed_offset
                    self._ledger.fetched(index, partition.committed_offset, floors[index])

        self._asker.ask(coordinator, request, FETCH_VERSION, answered, of_leader=GROUPS.topic)
