"""Log directories of brokers: where new replicas go, where brokers say theirs are, and what a failed one changes.

Where a broker has several directories, the metadata names the one of each new replica: it is known before the first
record is. A replica in a directory that failed leaves the ISR, and leads no more; as an ISR's last member it
stays, and its partition waits for it. Handlers are pure. Source: Kafka, ReplicationControlManager; KIP-858.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import replace

from kafkaprod.broker.controller.context import ControllerContext
from kafkaprod.broker.controller.elections import elect
from kafkaprod.broker.controller.events import Decision
from kafkaprod.broker.metadata.image import BrokerImage, ClusterImage, PartitionImage
from kafkaprod.broker.metadata.records import (
    MIGRATING,
    RESERVED_DIRECTORIES,
    UNASSIGNED,
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
)
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.assign_replicas_to_dirs import (
    AssignmentResult,
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    DirectoryAssignmentResults,
    TopicAssignmentResults,
)
from kafkaprod.protocol.schema import Struct


class DirectoryChoice:
    """Chooses the log directories of new replicas: on each broker the one that has the fewest."""

    def __init__(self, image: ClusterImage) -> None:
        self._image = image
        self._added: Counter[uuid.UUID] = Counter()

    def of(self, replicas: Iterable[int], partition: PartitionImage | None = None) -> list[uuid.UUID]:
        """Return the directories of a partition's replicas; none if all brokers named none.

        Args:
            replicas: Their brokers.
            partition: As it is: replicas that are there stay where they are.
        """
        directories = []
        for broker_id in replicas:
            known = UNASSIGNED if partition is None else partition.directory_of(broker_id)
            directories.append(self._choose(broker_id) if known == UNASSIGNED else known)
        return directories if any(directory != UNASSIGNED for directory in directories) else []

    def _choose(self, broker_id: int) -> uuid.UUID:
        broker = self._image.brokers.get(broker_id)
        if broker is None or not broker.log_dirs:
            return UNASSIGNED
        chosen = min(broker.log_dirs, key=lambda each: self._image.directory_sizes[each] + self._added[each])
        self._added[chosen] += 1
        return chosen


def assign(context: ControllerContext, request: AssignReplicasToDirsRequest, now_ms: int) -> Decision:
    """Note where a broker's replicas are; one that has lost its directory leaves the ISR, one that has it again may
    lead.

    Answers: STALE_BROKER_EPOCH or BROKER_ID_NOT_REGISTERED for all; else by partition UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER (it is no replica), or NONE.
    """
    error = context.broker_error(request.broker_id, request.broker_epoch)
    if error != ErrorCode.NONE:
        return Decision([], AssignReplicasToDirsResponse(error_code=error))
    records: list[Struct] = []
    results: list[DirectoryAssignmentResults] = []
    for directory in request.directories:
        results.append(DirectoryAssignmentResults(id=directory.id))
        for topic in directory.topics:
            outcome = TopicAssignmentResults(topic_id=topic.topic_id)
            results[-1].topics.append(outcome)
            for index in (each.partition_index for each in topic.partitions):
                partition = context.image.partition(topic.topic_id, index)
                error = _error(context, request.broker_id, topic.topic_id, partition)
                outcome.partitions.append(AssignmentResult(partition_index=index, error_code=error))
                place = directory.id or MIGRATING
                if partition and not error and partition.directory_of(request.broker_id) != place:
                    records.append(_assignment(context, request.broker_id, partition, place))
    return Decision(records, AssignReplicasToDirsResponse(directories=results))


def fail(context: ControllerContext, broker: BrokerImage, offline: Collection[uuid.UUID]) -> list[Struct]:
    """Return what changes when log directories of a broker can be used no more; nothing if that is known."""
    left = [directory for directory in broker.log_dirs if directory not in offline]
    if not left or len(left) == len(broker.log_dirs):
        return []
    change = BrokerRegistrationChangeRecord(broker_id=broker.broker_id, broker_epoch=broker.epoch, log_dirs=left)
    return [change, *leave(context, broker.broker_id, left)]


def leave(context: ControllerContext, broker_id: int, online: Collection[uuid.UUID]) -> list[Struct]:
    """Return the changes of partitions whose replica on a broker is in none of its online directories."""
    usable = (*online, *RESERVED_DIRECTORIES)
    partitions = context.image.partitions_of(broker_id)
    return leave_isrs(context, broker_id, (each for each in partitions if each.directory_of(broker_id) not in usable))


def leave_isrs(context: ControllerContext, broker_id: int, partitions: Iterable[PartitionImage]) -> list[Struct]:
    """Return the changes of those partitions that have the broker in their ISR, or for leader."""
    changes = (
        elect(
            partition,
            context.image.may_lead(partition),
            leaving=broker_id,
            may_be_unclean=context.may_be_unclean(partition),
        )
        for partition in partitions
        if broker_id in partition.isr
    )
    return [change for change in changes if change is not None]


def _error(
    context: ControllerContext, broker_id: int, topic_id: uuid.UUID | None, partition: PartitionImage | None
) -> ErrorCode:
    if partition is None:
        is_known = topic_id in context.image.topics
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_known else ErrorCode.UNKNOWN_TOPIC_ID
    return ErrorCode.NONE if broker_id in partition.replicas else ErrorCode.NOT_LEADER_OR_FOLLOWER


def _assignment(
    context: ControllerContext, broker_id: int, partition: PartitionImage, directory: uuid.UUID
) -> PartitionChangeRecord:
    known = partition.directories or (UNASSIGNED,) * len(partition.replicas)
    directories = tuple(
        directory if replica == broker_id else other for replica, other in zip(partition.replicas, known, strict=True)
    )
    after = replace(partition, directories=directories)
    is_online = context.image.is_online(after, broker_id)
    record = elect(
        after,
        context.image.may_lead(after),
        leaving=None if is_online else broker_id,
        may_be_unclean=context.may_be_unclean(partition),
    )
    if record is None:
        record = PartitionChangeRecord(partition_id=partition.index, topic_id=partition.topic_id)
    record.directories = list(directories)
    return record
