"""The requests of a transaction: their messages, the versions they may travel in, and the codes in their answers. Pure.

| request                 | v1     | v2   | to                     |
|-------------------------|--------|------|------------------------|
| FindCoordinator         | 1-6    | 1-6  | any broker             |
| InitProducerId          | 0-5    | 0-5  | transaction coordinator |
| InitProducerId (bump)   | 3-5    | 3-5  | transaction coordinator |
| AddPartitionsToTxn      | 0-3    | -    | transaction coordinator |
| AddOffsetsToTxn         | 0-4    | -    | transaction coordinator |
| TxnOffsetCommit         | 0-4    | 5    | group coordinator      |
| EndTxn                  | 0-4    | 5    | transaction coordinator |

The limits of v1 hold also where a broker offers more: with a later version it would apply the rules of v2 (KIP-890).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from kafkaprod.engine.transactions.calls import OffsetsCall
from kafkaprod.engine.transactions.verdicts import Step
from kafkaprod.errors import CorruptDataError
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from kafkaprod.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from kafkaprod.protocol.messages.end_txn import EndTxnRequest
from kafkaprod.protocol.messages.find_coordinator import FindCoordinatorRequest
from kafkaprod.protocol.messages.init_producer_id import InitProducerIdRequest
from kafkaprod.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from kafkaprod.protocol.schema import Request
from kafkaprod.structs import Node, TopicPartition

GROUP, TRANSACTION = 0, 1
"""Key types of FindCoordinator."""
FIRST_WITH_MANY_KEYS: Final = 4  # FindCoordinator; only one key is ever sent


@dataclass(frozen=True, slots=True)
class TransactionalProducer:
    """Who sends: the transactional id with the producer id and epoch it has now."""

    transactional_id: str
    producer_id: int
    epoch: int


@dataclass(slots=True)  # frozen, it would take a call for each field
class TransactionRequest:
    """A request to send.

    Attributes:
        step: Which one.
        node: Where to; None: any broker.
        message: What.
        versions: Lowest and highest version it may travel in.
        group_id: The group id of FIND_COORDINATOR for a group, ADD_OFFSETS and COMMIT_OFFSETS.
        partitions: The partitions of ADD_PARTITIONS.
        call: The call of COMMIT_OFFSETS.
        is_commit, is_v2: The arguments of END.
    """

    step: Step
    node: Node | None
    message: Request
    versions: tuple[int, int]
    group_id: str | None = None
    partitions: tuple[TopicPartition, ...] = ()
    call: OffsetsCall | None = None
    is_commit: bool = False
    is_v2: bool = False

    def message_in(self, version: int) -> Request:
        """The message for a version: FindCoordinator has its key in another field up to version 3."""
        if isinstance(self.message, FindCoordinatorRequest) and version < FIRST_WITH_MANY_KEYS:
            return FindCoordinatorRequest(key=self.message.coordinator_keys[0], key_type=self.message.key_type)
        return self.message


def find_coordinator(key: str, group_id: str | None) -> TransactionRequest:
    """Ask any broker for the coordinator of the transactional id `key`, or of the group."""
    key_type = TRANSACTION if group_id is None else GROUP
    key = key if group_id is None else group_id
    message = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
    return TransactionRequest(Step.FIND_COORDINATOR, None, message, (1, 6), group_id=group_id)


def init_producer_id(
    producer: TransactionalProducer, node: Node, timeout_ms: int, *, is_bump: bool
) -> TransactionRequest:
    """Request a producer id; a bump requests the next epoch of the current one."""
    has_id = is_bump and producer.producer_id >= 0
    message = InitProducerIdRequest(
        transactional_id=producer.transactional_id,
        transaction_timeout_ms=timeout_ms,
        producer_id=producer.producer_id if has_id else -1,
        producer_epoch=producer.epoch if has_id else -1,
    )
    return TransactionRequest(Step.BUMP if is_bump else Step.INIT, node, message, (3 if has_id else 0, 5))


def add_partitions(
    producer: TransactionalProducer, node: Node, partitions: Iterable[TopicPartition]
) -> TransactionRequest:
    """Add partitions, under v1."""
    partitions = tuple(partitions)
    message = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=producer.transactional_id,
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.epoch,
        v3_and_below_topics=[
            AddPartitionsToTxnTopic(name=topic, partitions=numbers) for topic, numbers in _by_topic(partitions).items()
        ],
    )
    return TransactionRequest(Step.ADD_PARTITIONS, node, message, (0, 3), partitions=partitions)


def add_offsets(producer: TransactionalProducer, node: Node, group_id: str) -> TransactionRequest:
    """Add a group, under v1."""
    message = AddOffsetsToTxnRequest(
        transactional_id=producer.transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        group_id=group_id,
    )
    return TransactionRequest(Step.ADD_OFFSETS, node, message, (0, 4), group_id=group_id)


def commit_offsets(
    producer: TransactionalProducer, node: Node, call: OffsetsCall, *, is_v2: bool
) -> TransactionRequest:
    """Send the offsets of a call that have not been accepted yet."""
    topics: list[TxnOffsetCommitRequestTopic] = []
    for topic, numbers in _by_topic(call.missing).items():
        partitions = []
        for number in numbers:
            offset = call.missing[TopicPartition(topic, number)]
            partitions.append(
                TxnOffsetCommitRequestPartition(
                    partition_index=number,
                    committed_offset=offset.offset,
                    committed_leader_epoch=offset.leader_epoch,
                    committed_metadata=offset.metadata,
                )
            )
        topics.append(TxnOffsetCommitRequestTopic(name=topic, partitions=partitions))
    group = call.group
    message = TxnOffsetCommitRequest(
        transactional_id=producer.transactional_id,
        group_id=group.group_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        generation_id_or_member_epoch=group.generation_id,
        member_id=group.member_id,
        group_instance_id=group.group_instance_id,
        topics=topics,
    )
    versions = (5, 5) if is_v2 else (0, 4)
    return TransactionRequest(Step.COMMIT_OFFSETS, node, message, versions, group_id=group.group_id, call=call)


def end(producer: TransactionalProducer, node: Node, *, is_commit: bool, is_v2: bool) -> TransactionRequest:
    """Commit or abort."""
    message = EndTxnRequest(
        transactional_id=producer.transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        committed=is_commit,
    )
    versions = (5, 5) if is_v2 else (0, 4)
    return TransactionRequest(Step.END, node, message, versions, is_commit=is_commit, is_v2=is_v2)


def read_coordinator(request: TransactionRequest, response: Any, version: int) -> tuple[int, str | None, Node | None]:
    """Read a FindCoordinator answer: (code, the broker's text, the coordinator).

    Raises:
        CorruptDataError: It answers another key.
    """
    answer = response
    if version >= FIRST_WITH_MANY_KEYS:
        asked = request.message.coordinator_keys[0]  # type: ignore[attr-defined]
        if len(response.coordinators) != 1 or response.coordinators[0].key != asked:
            keys = [coordinator.key for coordinator in response.coordinators]
            raise CorruptDataError(f"FindCoordinator for {asked!r} was answered for {keys}")
        answer = response.coordinators[0]
    if answer.error_code:
        return answer.error_code, answer.error_message, None
    if answer.node_id < 0:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE, None, None
    return 0, None, Node(answer.node_id, answer.host, answer.port)


def read_partitions(request: TransactionRequest, response: Any) -> dict[TopicPartition, int]:
    """Read an AddPartitionsToTxn answer, a code for each partition.

    Raises:
        CorruptDataError: A partition is missing.
    """
    codes = {
        TopicPartition(topic.name, result.partition_index): result.partition_error_code
        for topic in response.results_by_topic_v3_and_below
        for result in topic.results_by_partition
    }
    return _exactly(request, codes, request.partitions)


def read_offsets_answer(request: TransactionRequest, response: Any) -> dict[TopicPartition, int]:
    """Read a TxnOffsetCommit answer, a code for each partition that was sent.

    Raises:
        CorruptDataError: A partition is missing.
    """
    codes = {
        TopicPartition(topic.name, result.partition_index): result.error_code
        for topic in response.topics
        for result in topic.partitions
    }
    sent = [
        TopicPartition(topic.name, partition.partition_index)
        for topic in request.message.topics  # type: ignore[attr-defined]
        for partition in topic.partitions
    ]
    return _exactly(request, codes, sent)


def _exactly(
    request: TransactionRequest, codes: dict[TopicPartition, int], sent: Iterable[TopicPartition]
) -> dict[TopicPartition, int]:
    missing = [partition for partition in sent if partition not in codes]
    if missing:
        raise CorruptDataError(f"the answer to {request.step.value} lacks {missing[0].topic}[{missing[0].partition}]")
    return {partition: codes[partition] for partition in sent}


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        topics.setdefault(topic, []).append(number)
    return topics
