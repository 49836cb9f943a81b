"""Transactions of a cluster: list and describe them, find those that hang, abort one in a partition (KIP-664)."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from kafkaprod.admin.client import ClusterClient
from kafkaprod.admin.coordinators import TRANSACTION, find_coordinator
from kafkaprod.admin.topics import find_topic, first
from kafkaprod.errors import BrokerError, CorruptDataError, KafkaError
from kafkaprod.protocol.error_codes import ErrorCode, describe, error_for
from kafkaprod.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from kafkaprod.protocol.messages.describe_transactions import DescribeTransactionsRequest
from kafkaprod.protocol.messages.list_transactions import ListTransactionsRequest
from kafkaprod.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from kafkaprod.structs import TopicPartition

MAX_TRIES = 100
RETRY_MS = 100

_OPEN_STATES = frozenset({"Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence"})


@dataclass(frozen=True, slots=True)
class TransactionListing:
    """A transactional id and the node that coordinates it."""

    transactional_id: str
    coordinator: int
    producer_id: int
    state: str


@dataclass(frozen=True, slots=True)
class TransactionInfo:
    """The state of a transactional id; `start_ms` is -1 while no transaction is open."""

    transactional_id: str
    coordinator: int
    producer_id: int
    epoch: int
    state: str
    timeout_ms: int
    start_ms: int
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class ProducerInfo:
    """What a partition remembers of a producer; -1 where there is nothing.

    Attributes:
        last_timestamp: ms since the epoch, of its last batch or marker.
        coordinator_epoch: The coordinator epoch of the last marker.
        transaction_start: Offset of the first record of its open transaction.
    """

    partition: TopicPartition
    producer_id: int
    epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    transaction_start: int

    @property
    def has_transaction(self) -> bool:
        """A transaction is open."""
        return self.transaction_start >= 0


def list_transactions(
    client: ClusterClient,
    *,
    states: Collection[str] = (),
    producer_ids: Collection[int] = (),
    longer_than_ms: int = -1,
    id_pattern: str | None = None,
) -> list[TransactionListing]:
    """Return the transactional ids of all brokers, by name.

    Args:
        client: A client of the cluster.
        states: Only those in one of these states, by Kafka's names.
        producer_ids: Only those of these producers.
        longer_than_ms: Only those open for longer; needs Kafka 3.8. -1: all.
        id_pattern: A regular expression of RE2 that must match the whole id; needs Kafka 4.1. None: all.

    Raises:
        BrokerError: As a broker answered, such as INVALID_REGULAR_EXPRESSION.
        UnsupportedVersionError: A broker is too old for one of these filters.
    """
    request = ListTransactionsRequest(
        state_filters=list(states),
        producer_id_filters=list(producer_ids),
        duration_filter=longer_than_ms,
        transactional_id_pattern=id_pattern,
    )
    found = []
    for broker in client.metadata([]).brokers:
        answer = client.ask(request, broker.node_id)
        for _ in range(MAX_TRIES):
            if not (answer.error_code and describe(answer.error_code).retriable):
                break
            client.wait(RETRY_MS)
            answer = client.ask(request, broker.node_id)
        if answer.error_code:
            raise error_for(answer.error_code, about=f"transactions of node {broker.node_id}")
        if answer.unknown_state_filters:
            unknown = ", ".join(answer.unknown_state_filters)
            raise error_for(ErrorCode.INVALID_REQUEST, about=f"unknown transaction states: {unknown}")
        found += [
            TransactionListing(state.transactional_id, broker.node_id, state.producer_id, state.transaction_state)
            for state in answer.transaction_states
        ]
    return sorted(found, key=lambda listing: listing.transactional_id)


def describe_transaction(client: ClusterClient, transactional_id: str) -> TransactionInfo:
    """Return the state of a transactional id.

    Raises:
        BrokerError: TRANSACTIONAL_ID_NOT_FOUND, or as the coordinator answered.
    """
    error: KafkaError | None = None
    for _ in range(MAX_TRIES):
        coordinator = find_coordinator(client, transactional_id, TRANSACTION)
        request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
        state = first(client.ask(request, coordinator).transaction_states, "transaction")
        if not state.error_code:
            return TransactionInfo(
                state.transactional_id,
                coordinator,
                state.producer_id,
                state.producer_epoch,
                state.transaction_state,
                state.transaction_timeout_ms,
                state.transaction_start_time_ms,
                tuple(TopicPartition(topic.topic, index) for topic in state.topics for index in topic.partitions),
            )
        error = error_for(state.error_code, about=f"transactional id {transactional_id!r}")
        if not error.retriable:
            break
        client.wait(RETRY_MS)
    assert error is not None
    raise error


def describe_producers(client: ClusterClient, topic: str, partition: int) -> list[ProducerInfo]:
    """Return the producers that a partition remembers, by id.

    Raises:
        TopicNotFoundError, BrokerError: As the broker answered.
        CorruptDataError: There is no such partition in its answer.
    """
    request = DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=[partition])])
    answer = client.ask(request, _leader_of(client, topic, partition))
    found = first(first(answer.topics, "topic").partitions, "partition")
    if found.error_code:
        raise error_for(found.error_code, found.error_message, topic=topic, partition=partition)
    producers = [
        ProducerInfo(
            TopicPartition(topic, partition),
            producer.producer_id,
            producer.producer_epoch,
            producer.last_sequence,
            producer.last_timestamp,
            producer.coordinator_epoch,
            producer.current_txn_start_offset,
        )
        for producer in found.active_producers
    ]
    return sorted(producers, key=lambda producer: producer.producer_id)


def find_hanging(client: ClusterClient, topics: Iterable[str], max_timeout_ms: int, now_ms: int) -> list[ProducerInfo]:
    """Return the transactions that are open in a partition and that no coordinator will ever end.

    Args:
        client: A client of the cluster.
        topics: Where to look.
        max_timeout_ms: The brokers' transaction.max.timeout.ms; younger transactions are left alone.
        now_ms: ms since the epoch.

    Raises:
        TopicNotFoundError, BrokerError: As the brokers answered.
    """
    old = [
        producer
        for topic in topics
        for partition in find_topic(client, topic).partitions
        for producer in describe_producers(client, topic, partition.number)
        if producer.has_transaction and producer.last_timestamp + max_timeout_ms < now_ms
    ]
    if not old:
        return []
    listings = list_transactions(client, producer_ids={producer.producer_id for producer in old})
    held: set[tuple[int, TopicPartition]] = set()
    for listing in listings:
        try:
            info = describe_transaction(client, listing.transactional_id)
        except BrokerError as error:
            if error.code != ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                raise
            continue
        if info.state in _OPEN_STATES:
            held.update((info.producer_id, partition) for partition in info.partitions)
    return [producer for producer in old if (producer.producer_id, producer.partition) not in held]


def abort_in_partition(client: ClusterClient, producer: ProducerInfo) -> None:
    """Abort the open transaction of a producer in one partition: for a hanging transaction only.

    The coordinator is not informed: a transaction that it still holds loses its atomicity.

    Raises:
        BrokerError: As the broker answered.
    """
    topic, partition = producer.partition
    marker = WritableTxnMarker(
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[partition])],
        coordinator_epoch=max(producer.coordinator_epoch, 0),
    )
    answer = client.ask(WriteTxnMarkersRequest(markers=[marker]), _leader_of(client, topic, partition))
    result = first(first(first(answer.markers, "marker").topics, "topic").partitions, "partition")
    if result.error_code:
        raise error_for(result.error_code, topic=topic, partition=partition)


def _leader_of(client: ClusterClient, topic: str, partition: int) -> int:
    for known in find_topic(client, topic).partitions:
        if known.number == partition:
            return known.leader
    raise CorruptDataError(f"topic {topic!r} has no partition {partition}", topic=topic, partition=partition)
