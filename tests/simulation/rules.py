"""Rules of controller, replication and producer, each with a way to switch it off: the simulation must notice.

`python -m tests.simulation --without RULE --seeds N` says after how many seeds it did.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from kafkaprod.broker.cluster.replicated_topics import ReplicatedTopics
from kafkaprod.broker.cluster.topics import Partition
from kafkaprod.broker.controller import partitions, registrations
from kafkaprod.broker.controller.context import ControllerContext
from kafkaprod.broker.handlers import fetch, list_offsets
from kafkaprod.broker.metadata import image_records
from kafkaprod.broker.metadata.follower import MetadataFollower
from kafkaprod.broker.metadata.image import PartitionImage, PartitionKey
from kafkaprod.broker.metadata.records import PartitionChangeRecord, PartitionRecord
from kafkaprod.broker.replication.fetcher import Fetcher
from kafkaprod.broker.replication.partition import FollowerFetch, PartitionReplica
from kafkaprod.broker.replication.replica_manager import ReplicaManager
from kafkaprod.engine.answers import Answers, BatchFailure
from kafkaprod.engine.identity import IdempotentIdentity
from kafkaprod.engine.paths import Paths
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.alter_partition import PartitionOutcome, PartitionProposal
from kafkaprod.structs import TopicPartition
from tests.simulation.logs import SimulatedLog
from tests.simulation.nodes import BrokerNode


@contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Replace an attribute for a while."""
    with patch.object(owner, name, value):
        yield


def _no_truncation(log: Any, epoch: int, end_offset: int) -> None:
    """Forget to cut where the logs part: keep the tail, and claim the leader's place for it."""
    log.begin_leader_epoch(epoch + 1)


def _follow_from_watermark(follow: Callable[..., None]) -> Callable[..., None]:
    def wrong(self: ReplicaManager, partition: PartitionImage, now_ms: int) -> None:
        replica = self.replicas.get(partition.key)
        if replica is not None and partition.leader_epoch > replica.leader_epoch:
            replica.log.truncate_to(replica.log.high_watermark)
        follow(self, partition, now_ms)

    return wrong


def _any_epoch(self: PartitionReplica, request: FollowerFetch) -> ErrorCode:
    is_known = self.is_leader and request.follower in self.followers
    return ErrorCode.NONE if is_known else ErrorCode.NOT_LEADER_OR_FOLLOWER


def _joins_at_watermark(self: PartitionReplica, follower: int) -> bool:
    state = self.followers[follower]
    is_ours = state.broker_epoch == self.eligibility.broker_epoch(follower)
    return is_ours and state.end_offset >= self.log.high_watermark and self.eligibility.is_active(follower)


def _joins_at_once(self: PartitionReplica, follower: int) -> bool:
    return self.eligibility.is_active(follower)


def _applies_equal_epochs(apply: Callable[..., bool]) -> Callable[..., bool]:
    def wrong(self: PartitionReplica, image: PartitionImage, now_ms: int) -> bool:
        if image.partition_epoch == self._partition_epoch:
            self.proposal = None
        return apply(self, image, now_ms)

    return wrong


def _keeps_isr(context: ControllerContext, broker_id: int) -> list[Any]:
    return []


def _forgets_refused(on_outcome: Callable[..., bool]) -> Callable[..., bool]:
    def wrong(self: PartitionReplica, proposal: PartitionProposal, outcome: PartitionOutcome) -> bool:
        if outcome.error_code != ErrorCode.NONE:
            self.committed_isr = tuple(member.broker_id for member in proposal.new_isr_with_epochs)
        return on_outcome(self, proposal, outcome)

    return wrong


def _proposed_only(self: PartitionReplica) -> frozenset[int]:
    if self.proposal is None:
        return frozenset(self.committed_isr)
    return frozenset(member.broker_id for member in self.proposal.new_isr_with_epochs)


def _same_epoch(self: IdempotentIdentity) -> None:
    self._drain.set_producer(self._drain.producer_id, self._drain.producer_epoch)


def _forgets_sequence(retry: Callable[..., None]) -> Callable[..., None]:
    def wrong(self: Answers, ref: Any, failure: BatchFailure, now_ms: int) -> None:
        ref.forget_sequence()
        retry(self, ref, replace(failure, maybe_persisted=False), now_ms)

    return wrong


def _certain_without_answer(apply: Callable[..., None]) -> Callable[..., None]:
    def wrong(self: Answers, ref: Any, failure: BatchFailure, now_ms: int) -> None:
        apply(self, ref, replace(failure, error=None, maybe_persisted=False), now_ms)  # the error says it, too

    return wrong


def _keeps_old_log(node: BrokerNode, topic_partition: TopicPartition, key: PartitionKey) -> SimulatedLog:
    before = node._places.get(topic_partition, key)
    node._places[topic_partition] = key
    if before in node.logs:
        node.logs[key] = node.logs.pop(before)
    return node.logs.setdefault(key, SimulatedLog(node))


def _reads_to_the_end(read: Callable[..., Any]) -> Callable[..., Any]:
    def wrong(self: SimulatedLog, offset: int, max_bytes: int, bound: int, **options: Any) -> Any:
        return read(self, offset, max_bytes, self.end_offset, **options)

    return wrong


def _waits_for_its_time(wait: Callable[..., Any]) -> Callable[..., Any]:
    def wrong(broker: Any, request: Any, keys: list[TopicPartition], deadline_ms: int) -> Any:
        return wait(broker, request, [], deadline_ms)

    return wrong


def _keeps_waiting(publish: Callable[..., None]) -> Callable[..., None]:
    def wrong(self: ReplicatedTopics, *arguments: Any) -> None:
        with replaced(self, "_on_advance", lambda _: None):
            publish(self, *arguments)

    return wrong


def _without_epochs(partition: Callable[..., Any]) -> Callable[..., Any]:
    def wrong(image: PartitionImage) -> Any:
        record = partition(image)
        record.partition_epoch = 0
        return record

    return wrong


def _follows_no_snapshot(apply: Callable[..., frozenset[PartitionKey]]) -> Callable[..., frozenset[PartitionKey]]:
    def wrong(self: MetadataFollower, commit_offset: int) -> Any:
        before = self.image.end_offset if self._base is None else self._base.end_offset
        apply(self, commit_offset)
        records = [record for batch in self.log.read(before) for record in batch.records]
        changes = [record for record in records if isinstance(record, PartitionChangeRecord | PartitionRecord)]
        return frozenset((record.topic_id, record.partition_id) for record in changes)

    return wrong


SNAPSHOT_RULES: dict[str, Callable[[], Any]] = {
    "a snapshot has the next producer id": lambda: replaced(image_records, "_producer_ids", lambda _: iter(())),
    "a snapshot has the epochs of partitions": lambda: replaced(
        image_records, "_partition", _without_epochs(image_records._partition)
    ),
    "a broker follows what a snapshot changes": lambda: replaced(
        MetadataFollower, "_apply", _follows_no_snapshot(MetadataFollower._apply)
    ),
}
"""Rules of the metadata's snapshots."""

PRODUCER_RULES: dict[str, Callable[[], Any]] = {
    "a gap begins a new epoch": lambda: replaced(IdempotentIdentity, "_start_epoch", _same_epoch),
    "a retried batch keeps its sequence": lambda: replaced(Answers, "_retry", _forgets_sequence(Answers._retry)),
    "without an answer a batch may be written": lambda: replaced(
        Answers, "_apply", _certain_without_answer(Answers._apply)
    ),
    "the log of a deleted topic is not used again": lambda: replaced(BrokerNode, "take_log", _keeps_old_log),
}


BAD_DAY_RULES: dict[str, Callable[[], Any]] = {
    "an ended request is under way no more": lambda: replaced(Paths, "on_ended", lambda *_, **__: None),
}
"""Rules that the seeds of `--bad-day` notice."""

READING_RULES: dict[str, Callable[[], Any]] = {
    "clients read up to the high watermark": lambda: replaced(
        SimulatedLog, "read", _reads_to_the_end(SimulatedLog.read)
    ),
    "an end waits for the start of the leader's epoch": lambda: replaced(
        Partition, "epoch_start_offset", property(lambda _: 0)
    ),
    "only a leader says where a partition ends": lambda: replaced(
        list_offsets, "check_leader_epoch", lambda *_: ErrorCode.NONE
    ),
    "a waiting fetch is answered as soon as there is enough": lambda: replaced(
        fetch, "_wait_for_few", _waits_for_its_time(fetch._wait_for_few)
    ),
    "a fetch does not wait where another broker leads by now": lambda: replaced(
        ReplicatedTopics, "publish", _keeps_waiting(ReplicatedTopics.publish)
    ),
}
"""Rules of what clients read, which the handlers of Fetch and ListOffsets keep."""

RULES: dict[str, Callable[[], Any]] = {
    "a pending member holds the watermark": lambda: replaced(
        PartitionReplica, "maximal_isr", property(lambda self: frozenset(self.committed_isr))
    ),
    "a member that is to leave holds the watermark": lambda: replaced(
        PartitionReplica, "maximal_isr", property(_proposed_only)
    ),
    "a follower joins from the epoch's start on": lambda: replaced(PartitionReplica, "_may_join", _joins_at_watermark),
    "a follower joins when it has caught up": lambda: replaced(PartitionReplica, "_may_join", _joins_at_once),
    "fetches carry the leader epoch": lambda: replaced(PartitionReplica, "_fetch_error", _any_epoch),
    "logs are cut where they part": lambda: replaced(Fetcher, "_truncate", staticmethod(_no_truncation)),
    "logs are not cut at the watermark": lambda: replaced(
        ReplicaManager, "_follow", _follow_from_watermark(ReplicaManager._follow)
    ),
    "a leader notes where its epoch begins": lambda: replaced(SimulatedLog, "begin_leader_epoch", lambda *_: None),
    "an answer of the controller keeps later proposals": lambda: replaced(
        PartitionReplica, "apply", _applies_equal_epochs(PartitionReplica.apply)
    ),
    "a fenced broker leaves the ISR": lambda: replaced(registrations, "_leave", _keeps_isr),
    "a refused proposal is not in force": lambda: replaced(
        PartitionReplica, "on_isr_outcome", _forgets_refused(PartitionReplica.on_isr_outcome)
    ),
    "an old leader's proposals are refused": lambda: replaced(partitions, "proposal_error", lambda *_: ErrorCode.NONE),
    **PRODUCER_RULES,
    **BAD_DAY_RULES,
    **READING_RULES,
    **SNAPSHOT_RULES,
    "late answers are ignored": lambda: replaced(Fetcher, "_is_current", staticmethod(lambda *_: True)),
}

BY_CASE = {
    "a follower joins from the epoch's start on": "KAFKA-7128",
    "a leader notes where its epoch begins": "KAFKA-7415",
    "an answer of the controller keeps later proposals": "KIP-497",
    "fetches carry the leader epoch": "KAFKA-7395",
    "late answers are ignored": "KAFKA-7786",
    "a pending member holds the watermark": "pending member",
    "without an answer a batch may be written": "unanswered",
}
"""Rules whose work other rules do in nearly all runs: the bug whose case (tests/unit/broker/kafka_bugs) notices."""
