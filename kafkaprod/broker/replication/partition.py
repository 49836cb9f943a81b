"""One replica of a partition: its role, its followers, the high watermark, and the ISR it proposes.

As leader it appends, serves fetches, and moves the high watermark once every member of the *maximal* ISR has a record:
the committed ISR and whoever a pending proposal adds. So the high watermark never passes a replica that the controller
may regard as in sync. Proposals go out through `isr_requests`, one at a time for each partition.

Not thread-safe; time is an argument. Source: Kafka, Partition and ReplicaManager; KIP-101, 279, 320, 497, 841, 903.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kafkaprod.broker.metadata.image import PartitionImage, PartitionKey, RecoveryState
from kafkaprod.broker.replication.replica_log import ReplicaBatch, ReplicaLog
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.alter_partition import BrokerState, PartitionOutcome, PartitionProposal

UNKNOWN_OFFSET: Final = -1

# The controller decided otherwise, and the metadata that says so is on its way: nothing is proposed until it comes.
_WAIT_FOR_METADATA: Final = frozenset(
    {
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.NEW_LEADER_ELECTED,
    }
)


@dataclass(slots=True)
class FollowerState:
    """What a leader knows of a follower in its epoch."""

    end_offset: int = UNKNOWN_OFFSET
    broker_epoch: int = -1
    last_caught_up_ms: int = 0
    fetched_ms: int = 0
    leader_end_at_fetch: int = 0


class FollowerFetch(NamedTuple):
    """A follower's fetch of one partition; the last two say what it knows already."""

    follower: int
    broker_epoch: int
    leader_epoch: int
    offset: int
    last_fetched_epoch: int
    high_watermark: int = UNKNOWN_OFFSET
    log_start_offset: int = UNKNOWN_OFFSET


class FetchOutcome(NamedTuple):
    """The answer: batches, or where the logs part, or an error."""

    error: ErrorCode
    batches: tuple[ReplicaBatch, ...] = ()
    high_watermark: int = UNKNOWN_OFFSET
    log_start_offset: int = UNKNOWN_OFFSET
    diverging: tuple[int, int] | None = None


@dataclass(slots=True)
class ReplicaSettings:
    """Options of replication on a broker.

    Attributes:
        lag_ms: A follower that did not catch up for this time leaves the ISR.
        max_batches: The highest number of batches of one partition in one fetch answer.
        idle_ms: How long a follower rests after an answer without records; 0 where leaders hold such answers back.
        max_wait_ms: How long leaders may hold them back at most; 0 where they do not.
    """

    lag_ms: int = 10_000
    max_batches: int = 100
    idle_ms: int = 10
    max_wait_ms: int = 0


@dataclass(slots=True)
class Eligibility:
    """What the image says of a follower; asked at each fetch."""

    is_active: Callable[[int], bool]
    broker_epoch: Callable[[int], int]


@dataclass(slots=True)
class PartitionReplica:
    """See the module docstring.

    Attributes:
        image: The partition as the metadata has it, the last one applied.
        committed_isr: The ISR that the controller has confirmed.
        proposal: The pending proposal, which is counted in the maximal ISR.
        is_waiting_for_metadata: A proposal was refused: no new one before the metadata changes.
        epoch_start_offset: Where this leader's epoch begins in its log.
        on_proposal: Called when there is a proposal to send.
        is_offline: Its log directory can be used no more; it leads no more, whatever the metadata says.
    """

    broker_id: int
    log: ReplicaLog
    settings: ReplicaSettings
    eligibility: Eligibility
    min_isr: Callable[[], int]
    image: PartitionImage
    committed_isr: tuple[int, ...] = ()
    proposal: PartitionProposal | None = None
    is_waiting_for_metadata: bool = False
    epoch_start_offset: int = UNKNOWN_OFFSET
    followers: dict[int, FollowerState] = field(default_factory=dict)
    on_proposal: Callable[[PartitionReplica], None] = lambda _: None
    is_offline: bool = False
    _partition_epoch: int = -1
    _leader_epoch: int = -1

    @property
    def key(self) -> PartitionKey:
        """The topic's id and the partition's index."""
        return self.image.key

    @property
    def is_leader(self) -> bool:
        """Whether this replica leads."""
        return self.image.leader == self.broker_id and not self.is_offline

    @property
    def leader_epoch(self) -> int:
        """The leader epoch in force here."""
        return self._leader_epoch

    @property
    def maximal_isr(self) -> frozenset[int]:
        """The committed ISR, and who would join by the pending proposal."""
        if self.proposal is None:
            return frozenset(self.committed_isr)
        return frozenset((*self.committed_isr, *(member.broker_id for member in self.proposal.new_isr_with_epochs)))

    # -- following the metadata ----------------------------------------------------------------------------------------

    def apply(self, image: PartitionImage, now_ms: int) -> bool:
        """Take over what the metadata says; return whether the leader epoch grew."""
        if image.partition_epoch < self._partition_epoch:
            return False  # an answer of the controller was faster than the log
        if image.partition_epoch == self._partition_epoch:
            self.image = image  # known from an answer: a proposal made since then is still pending
            return False
        is_new_epoch = image.leader_epoch > self._leader_epoch
        self.image = image
        self._partition_epoch = image.partition_epoch
        self._leader_epoch = image.leader_epoch
        self.committed_isr = image.isr
        self.proposal = None
        self.is_waiting_for_metadata = False
        if is_new_epoch and self.is_leader:
            self._begin_leading(now_ms)
        elif self.is_leader:
            self._follow_replicas()
        if not self.is_leader:
            self.followers.clear()
        self.advance_high_watermark()
        return is_new_epoch

    def _begin_leading(self, now_ms: int) -> None:
        self.log.begin_leader_epoch(self._leader_epoch)
        self.epoch_start_offset = self.log.end_offset
        self.followers = {
            replica: FollowerState(last_caught_up_ms=now_ms if replica in self.committed_isr else 0)
            for replica in self.image.replicas
            if replica != self.broker_id
        }

    def _follow_replicas(self) -> None:
        """A reassignment has added replicas; one that leaves raises the leader epoch."""
        for replica in self.image.replicas:
            if replica != self.broker_id:
                self.followers.setdefault(replica, FollowerState())

    # -- leading -------------------------------------------------------------------------------------------------------

    def append_error(self, acks: int) -> ErrorCode:
        """Return why a produce request is refused before its records are appended, NONE if it is not."""
        if not self.is_leader:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if acks == -1 and len(self.committed_isr) < self._required_isr():
            return ErrorCode.NOT_ENOUGH_REPLICAS
        return ErrorCode.NONE

    def produce_outcome(self, leader_epoch: int, end_offset: int) -> ErrorCode | None:
        """Return the answer to an acks=all append, None while it must wait.

        Args:
            leader_epoch: The epoch that the records were appended in.
            end_offset: One past the last of them.
        """
        if not self.is_leader or self._leader_epoch != leader_epoch:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if self.log.high_watermark < end_offset:
            return None
        if len(self.maximal_isr) < self._required_isr():
            return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        return ErrorCode.NONE

    def fetch(self, request: FollowerFetch, now_ms: int) -> FetchOutcome:
        """Serve a follower; its state changes only if the read succeeded and the logs agree."""
        error = self._fetch_error(request)
        if error != ErrorCode.NONE:
            return FetchOutcome(error)
        if request.offset < self.log.log_start_offset:
            return FetchOutcome(ErrorCode.OFFSET_OUT_OF_RANGE)  # before divergence (KAFKA-12996)
        diverging = self._diverging(request)
        if diverging is not None:
            if diverging[0] < 0:
                return FetchOutcome(ErrorCode.OFFSET_OUT_OF_RANGE)
            return FetchOutcome(ErrorCode.NONE, (), self.log.high_watermark, self.log.log_start_offset, diverging)
        if request.offset > self.log.end_offset:
            return FetchOutcome(ErrorCode.OFFSET_OUT_OF_RANGE)
        batches = self.log.read_batches(request.offset, self.settings.max_batches)
        self._note_fetch(request, now_ms)
        return FetchOutcome(ErrorCode.NONE, batches, self.log.high_watermark, self.log.log_start_offset)

    def advance_high_watermark(self) -> bool:
        """Move the high watermark as far as the maximal ISR has come; return whether it moved."""
        reached, high_watermark = self.log.end_offset, self.log.high_watermark
        if reached <= high_watermark or not self.is_leader or len(self.committed_isr) < self._required_isr():
            return False
        for member in self._watermark_members():
            reached = min(reached, self.followers[member].end_offset)
        if reached <= high_watermark:
            return False
        self.log.high_watermark = reached
        return True

    def _watermark_members(self) -> list[int]:
        return [member for member in self.maximal_isr if member != self.broker_id and member in self.followers]

    def _required_isr(self) -> int:
        return min(self.min_isr(), len(self.image.replicas))

    def _fetch_error(self, request: FollowerFetch) -> ErrorCode:
        if request.leader_epoch < self._leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if request.leader_epoch > self._leader_epoch:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        if not self.is_leader:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if request.follower not in self.followers:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        if 0 <= request.broker_epoch < self.eligibility.broker_epoch(request.follower):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.NONE

    def _diverging(self, request: FollowerFetch) -> tuple[int, int] | None:
        """Return the epoch and end offset at which the logs part, None if they agree; (-1, -1) is undefined."""
        if request.last_fetched_epoch < 0:
            return None
        epoch, end = self.log.epochs.end_offset_for(request.last_fetched_epoch, self.log.end_offset)
        if epoch < 0:
            return epoch, end
        if epoch < request.last_fetched_epoch or end < request.offset:
            return epoch, end
        return None

    # -- the ISR -------------------------------------------------------------------------------------------------------

    def _note_fetch(self, request: FollowerFetch, now_ms: int) -> None:
        state = self.followers[request.follower]
        leader_end = self.log.end_offset
        if request.offset >= leader_end:
            state.last_caught_up_ms = now_ms
        elif request.offset >= state.leader_end_at_fetch:
            state.last_caught_up_ms = max(state.last_caught_up_ms, state.fetched_ms)
        state.fetched_ms = now_ms
        state.leader_end_at_fetch = leader_end
        state.end_offset = request.offset
        state.broker_epoch = request.broker_epoch
        self._propose_expansion(request.follower)
        self.advance_high_watermark()

    def note_standing(self, follower: int, fetched_ms: int) -> None:
        """Note that a follower waits for news: its last request repeats what the one before named.

        Args:
            follower: Its broker id.
            fetched_ms: When that request came.
        """
        state = self.followers.get(follower)
        if state is None or state.end_offset == UNKNOWN_OFFSET:
            return
        if state.end_offset >= self.log.end_offset and fetched_ms >= state.fetched_ms:
            state.last_caught_up_ms = max(state.last_caught_up_ms, fetched_ms)
            state.fetched_ms = fetched_ms
            state.leader_end_at_fetch = self.log.end_offset
        self._propose_expansion(follower)

    def note_awake(self, follower: int, fetched_ms: int) -> None:
        """Note that a follower had all of a quiet partition until it moved now.

        Args:
            follower: Its broker id.
            fetched_ms: When its last request came.
        """
        state = self.followers.get(follower)
        if state is not None and state.end_offset != UNKNOWN_OFFSET:
            state.last_caught_up_ms = max(state.last_caught_up_ms, fetched_ms)

    @property
    def is_quiet(self) -> bool:
        """Whether nothing will be proposed before the log, the metadata or a follower moves."""
        if not self.is_leader:
            return True
        end_offset = self.log.end_offset
        return (
            self.proposal is None
            and self.image.recovery_state == RecoveryState.RECOVERED
            and set(self.committed_isr) == set(self.image.replicas)
            and all(state.end_offset == end_offset for state in self.followers.values())
        )

    def _propose_expansion(self, follower: int) -> None:
        if follower in self.committed_isr or not self._may_propose() or not self._may_join(follower):
            return
        self._propose((*self.committed_isr, follower))

    def propose_joins(self, now_ms: int) -> None:
        """Propose followers that had fetched all before the metadata let them join: they wait for news, silently."""
        if self.is_leader:
            for follower, state in self.followers.items():
                if now_ms - state.fetched_ms <= self.settings.lag_ms:
                    self._propose_expansion(follower)

    def _may_join(self, follower: int) -> bool:
        """Whether a follower has all that may have been acknowledged, in this epoch and by this registration."""
        state = self.followers[follower]
        return (
            state.end_offset >= self.log.high_watermark
            and state.end_offset >= self.epoch_start_offset  # KAFKA-7128
            and self.eligibility.is_active(follower)
            and state.broker_epoch == self.eligibility.broker_epoch(follower)
        )

    def propose_shrink(self, now_ms: int) -> None:
        """Propose an ISR without the followers that did not catch up in time; an idle partition never shrinks."""
        if not self.is_leader or not self._may_propose():
            return
        slow = {
            member
            for member in self.committed_isr
            if member != self.broker_id
            and self.followers[member].end_offset != self.log.end_offset
            and now_ms - self.followers[member].last_caught_up_ms > self.settings.lag_ms
        }
        if slow:
            self._propose(tuple(member for member in self.committed_isr if member not in slow))

    def propose_recovered(self) -> None:
        """Report that a leader elected uncleanly has its log in order."""
        if self.is_leader and self.image.recovery_state == RecoveryState.RECOVERING and self._may_propose():
            self._propose(self.committed_isr)

    def _may_propose(self) -> bool:
        return self.proposal is None and not self.is_waiting_for_metadata

    def _propose(self, isr: tuple[int, ...]) -> None:
        self.proposal = PartitionProposal(
            partition_index=self.key[1],
            leader_epoch=self._leader_epoch,
            new_isr_with_epochs=[
                BrokerState(
                    broker_id=member,
                    broker_epoch=-1 if member == self.broker_id else self.followers[member].broker_epoch,
                )
                for member in isr
            ],
            leader_recovery_state=RecoveryState.RECOVERED,
            partition_epoch=self._partition_epoch,
        )
        self.on_proposal(self)

    def on_isr_outcome(self, proposal: PartitionProposal, outcome: PartitionOutcome) -> bool:
        """Take the controller's answer to a proposal; return whether the proposal must be sent again."""
        if self.proposal is not proposal:
            return False  # the metadata came first
        if outcome.error_code == ErrorCode.NONE:
            self.proposal = None
            if outcome.partition_epoch > self._partition_epoch:
                self._partition_epoch = outcome.partition_epoch
                self.committed_isr = tuple(outcome.isr)
            self.advance_high_watermark()
            return False
        if outcome.error_code in _WAIT_FOR_METADATA:
            self.is_waiting_for_metadata = True
            return False
        if outcome.error_code == ErrorCode.INELIGIBLE_REPLICA:
            self.proposal = None
            return False
        return True
