"""Bugs of leaders: the high watermark, the ISR, what clients and coordinators are answered."""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import patch

from kafkaprod.broker.calls.purgatory import Purgatory
from kafkaprod.broker.cluster.coordinator_log import ReplicatedCoordinatorLog
from kafkaprod.broker.cluster.replicated_topics import ReplicatedTopics
from kafkaprod.broker.cluster.topics import Partition
from kafkaprod.broker.handlers import list_offsets
from kafkaprod.broker.metadata.image import PartitionImage, TopicImage
from kafkaprod.broker.replication.partition import FollowerFetch, PartitionReplica
from kafkaprod.broker.storage.format.log_config import LogConfig
from kafkaprod.broker.storage.log.log_dir import LogDir, open_log_dir
from kafkaprod.broker.storage.log.log_dirs import LogDirs
from kafkaprod.errors import CorruptDataError
from kafkaprod.protocol.error_codes import ErrorCode as E
from kafkaprod.protocol.messages.alter_partition import PartitionOutcome, PartitionProposal
from kafkaprod.protocol.messages.list_offsets import ListOffsetsPartition
from kafkaprod.structs import TopicPartition
from tests.simulation.rules import RULES, replaced
from tests.support.broker.fixtures_log import make_batch, make_environment
from tests.unit.broker.kafka_bugs.cases import LAG_MS, Cases, Node, fetch, grow, log_of

CASES = Cases()
PARTITION = TopicPartition("t", 0)
LATEST = -1


def leader(log_count: int = 0, isr: tuple[int, ...] = (1, 2, 3), min_isr: int = 1) -> Node:
    node = Node(log_of((0, log_count)), min_isr)
    node.hear(leader=1, isr=isr)
    return node


def outcome(isr: tuple[int, ...], partition_epoch: int) -> PartitionOutcome:
    return PartitionOutcome(leader_id=1, isr=list(isr), partition_epoch=partition_epoch)


def _without_watermark(take: Callable[..., bool]) -> Callable[..., bool]:
    def wrong(self: PartitionReplica, proposal: PartitionProposal, answer: PartitionOutcome) -> bool:
        with patch.object(PartitionReplica, "advance_high_watermark", lambda _: False):
            return take(self, proposal, answer)

    return wrong


@CASES.add(
    "KAFKA-13091",
    "the high watermark was not looked at again after the answer to a proposal",
    lambda: replaced(PartitionReplica, "on_isr_outcome", _without_watermark(PartitionReplica.on_isr_outcome)),
)
def _watermark_after_a_proposal() -> None:
    node = leader(3)
    for follower, offset in ((2, 3), (3, 1)):
        node.replica.fetch(fetch(offset, follower=follower, last=0), 0)
    node.replica.fetch(fetch(3, last=0), LAG_MS + 1)
    assert node.log.high_watermark == 1
    node.replica.propose_shrink(LAG_MS + 1)
    assert node.replica.proposal is not None
    node.replica.on_isr_outcome(node.replica.proposal, outcome((1, 2), 2))
    assert node.log.high_watermark == 3


def _at_once(notify: Callable[..., None]) -> Callable[..., None]:
    def wrong(self: Purgatory, key: TopicPartition) -> None:
        notify(self, key)
        self.run(0)

    return wrong


@CASES.add(
    "KAFKA-13254",
    "requests were completed under the lock of the partition that moved: a deadlock",
    lambda: replaced(Purgatory, "notify", _at_once(Purgatory.notify)),
)
def _completions_come_later() -> None:
    purgatory, tries = Purgatory(lambda: None), list[bool]()

    def try_complete(is_expired: bool) -> bool:
        tries.append(is_expired)
        return False

    purgatory.watch([PARTITION], 1000, try_complete)
    purgatory.notify(PARTITION)
    assert len(tries) == 1, "only when it was added"
    purgatory.run(0)
    assert len(tries) == 2


def _any_answer(take: Callable[..., bool]) -> Callable[..., bool]:
    def wrong(self: PartitionReplica, proposal: PartitionProposal, answer: PartitionOutcome) -> bool:
        self.proposal, self._partition_epoch = proposal, -1
        return take(self, proposal, answer)

    return wrong


@CASES.add(
    "pending member",
    "a record was acknowledged without a follower that the controller had made a member of the ISR already",
    RULES["a pending member holds the watermark"],
)
def _pending_member() -> None:
    node = leader(3, isr=(1, 2))
    for follower, offset in ((2, 3), (3, 3)):
        node.replica.fetch(fetch(offset, follower=follower), 0)
    assert node.replica.proposal is not None, "3 has caught up"
    grow(node.log, (0, 2))
    node.replica.fetch(fetch(5, follower=2), 0)
    assert node.log.high_watermark == 3, "3 may be in sync by now, and lead next"
    node.replica.fetch(fetch(5, follower=3), 0)
    assert node.log.high_watermark == 5


@CASES.add(
    "KAFKA-12686",
    "the answer to a proposal came after newer metadata, and replaced it",
    lambda: replaced(PartitionReplica, "on_isr_outcome", _any_answer(PartitionReplica.on_isr_outcome)),
)
def _answers_behind_metadata() -> None:
    node = leader(1, isr=(1, 2))
    node.replica.fetch(fetch(1, follower=3, last=0), 0)
    proposal = node.replica.proposal
    assert proposal is not None
    node.hear(leader=1, isr=(1, 2, 3))
    node.hear(leader=1, isr=(1,))
    node.replica.on_isr_outcome(proposal, outcome((1, 2, 3), 2))
    assert node.replica.committed_isr == (1,)


def _equal_epochs(apply: Callable[..., bool]) -> Callable[..., bool]:
    def wrong(self: PartitionReplica, image: Any, now_ms: int) -> bool:
        if image.partition_epoch == self._partition_epoch:
            self.proposal = None
        return apply(self, image, now_ms)

    return wrong


@CASES.add(
    "KIP-497",
    "metadata that an answer had brought before ended the proposal made since",
    lambda: replaced(PartitionReplica, "apply", _equal_epochs(PartitionReplica.apply)),
)
def _later_proposals_stay() -> None:
    node = leader(1, isr=(1, 2))
    node.replica.fetch(fetch(1, follower=3, last=0), 0)
    assert node.replica.proposal is not None
    node.replica.on_isr_outcome(node.replica.proposal, outcome((1, 2, 3), 2))
    grow(node.log, (0, 1))
    node.replica.fetch(fetch(2, last=0), 500)
    node.replica.propose_shrink(500)
    later = node.replica.proposal
    assert later is not None
    node.hear(leader=1, isr=(1, 2, 3), now_ms=500)
    assert node.replica.proposal is later


@CASES.add(
    "KAFKA-15583",
    "the high watermark moved with too few replicas in sync, and the last one lost what was acknowledged",
    lambda: replaced(PartitionReplica, "_required_isr", lambda _: 1),
)
def _watermark_below_min_isr() -> None:
    node = leader(3, isr=(1,), min_isr=2)
    node.replica.advance_high_watermark()
    assert node.log.high_watermark == 0
    assert node.replica.append_error(-1) == E.NOT_ENOUGH_REPLICAS


def _though_caught_up(propose: Callable[..., None]) -> Callable[..., None]:
    def wrong(self: PartitionReplica, now_ms: int) -> None:
        for state in self.followers.values():
            state.end_offset = -1
        propose(self, now_ms)

    return wrong


@CASES.add(
    "KAFKA-4485",
    "a follower that had everything left the ISR of an idle partition",
    lambda: replaced(PartitionReplica, "propose_shrink", _though_caught_up(PartitionReplica.propose_shrink)),
)
def _idle_partitions() -> None:
    node = leader(1, isr=(1, 2))
    node.replica.fetch(fetch(1, last=0), 0)
    node.replica.propose_shrink(100 * LAG_MS)
    assert node.replica.proposal is None


def _only_at_the_end(note: Callable[..., None]) -> Callable[..., None]:
    def wrong(self: PartitionReplica, request: FollowerFetch, now_ms: int) -> None:
        self.followers[request.follower].leader_end_at_fetch = 1 << 60
        note(self, request, now_ms)

    return wrong


@CASES.add(
    "KAFKA-7152",
    "a follower left the ISR though it had caught up with each end it saw",
    lambda: replaced(PartitionReplica, "_note_fetch", _only_at_the_end(PartitionReplica._note_fetch)),
)
def _busy_partitions() -> None:
    node = leader(1, isr=(1, 2))
    for round_number in range(4):
        node.replica.fetch(fetch(round_number, last=0 if round_number else -1), round_number * (LAG_MS - 10))
        grow(node.log, (0, 1))
    node.replica.propose_shrink(3 * (LAG_MS - 10) + 5)
    assert node.replica.proposal is None


@CASES.add(
    "KAFKA-2334",
    "the end offset that a new leader named was lower than what consumers had seen",
    lambda: replaced(Partition, "epoch_start_offset", 0),
)
def _end_offsets_do_not_go_back() -> None:
    node = Node(log_of((0, 3)))
    node.hear(leader=1, epoch=1)
    partition = Partition(cast(Any, node.log), 1, node.replica, node.replica.image)
    broker = SimpleNamespace(topics=SimpleNamespace(partition=lambda *_: partition))
    request = SimpleNamespace(version=7, is_peer=False, body=SimpleNamespace(isolation_level=0))
    wanted = ListOffsetsPartition(partition_index=0, timestamp=LATEST, current_leader_epoch=-1)
    assert list_offsets._look_up(cast(Any, broker), cast(Any, request), "t", wanted).error_code == (
        E.OFFSET_NOT_AVAILABLE
    )
    for follower in (2, 3):
        node.replica.fetch(fetch(3, follower=follower, epoch=1, last=0), 0)
    assert list_offsets._look_up(cast(Any, broker), cast(Any, request), "t", wanted).offset == 3


@CASES.add(
    "KAFKA-14616",
    "a topic was made again while a broker was down, which served the old topic's records",
    lambda: replaced(LogDir, "delete", lambda *_: None),
)
def _topics_made_again() -> None:
    old, new = uuid.UUID(int=5), uuid.UUID(int=6)
    with tempfile.TemporaryDirectory() as directory:
        environment = make_environment()
        before = open_log_dir(directory, environment)
        before.create(PARTITION, old).append(bytearray(make_batch()), 0)
        before.close()
        log_dir = open_log_dir(directory, environment)
        topics = ReplicatedTopics(LogDirs([log_dir]), LogConfig(), lambda _: None, 1)
        topics.image.topics[new] = TopicImage("t", new)
        topics.image.partitions[new, 0] = PartitionImage(new, 0, (0,), (0,), 0, 0, 0)
        try:
            assert topics.open_log((new, 0)).end_offset == 0
        except CorruptDataError as error:
            raise AssertionError("it cannot follow the new topic") from error
        finally:
            log_dir.close()


@CASES.add(
    "KAFKA-20634",
    "a commit was answered though another leader had cut it off",
    lambda: replaced(ReplicatedCoordinatorLog, "is_current", True),
)
def _commits_of_an_old_coordinator() -> None:
    node = leader(1)
    stored = SimpleNamespace(log_end_offset=1, high_watermark=0)
    log = ReplicatedCoordinatorLog(cast(Any, None), PARTITION, cast(Any, stored), node.replica)
    assert log.outcome(1) is None, "the replicas do not have it"
    node.hear(leader=2, epoch=1)
    stored.high_watermark = 1  # of other records
    assert log.outcome(1) == E.NOT_COORDINATOR
