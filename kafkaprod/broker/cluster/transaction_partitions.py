"""Asks the transactions' coordinator of a cluster to add partitions to a transaction, or whether they are part of it.

The coordinator may be this broker: it is asked the same way, over the cluster's own socket, so that its answer has
waited for the replicas of its log. The event loop owns it. Source: Kafka, AddPartitionsToTxnManager; KIP-890.
"""

from __future__ import annotations

from collections.abc import Collection

from kafkaprod.broker.cluster.membership import Membership
from kafkaprod.broker.cluster.standing import OnErrors
from kafkaprod.broker.cluster.topics import TopicTable
from kafkaprod.broker.controller.wire import error_of
from kafkaprod.broker.coordinator.transaction import ProducerIdAndEpoch
from kafkaprod.broker.coordinator.transaction_log import TRANSACTIONS_TOPIC
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from kafkaprod.protocol.schema import Response
from kafkaprod.structs import TopicPartition

_TIMEOUT_MS = 2_000
_VERSION = 5


def join_transaction(
    peers: Membership,
    table: TopicTable,
    transactional_id: str,
    producer: ProducerIdAndEpoch,
    partitions: Collection[TopicPartition],
    then: OnErrors,
    *,
    is_verification: bool,
) -> None:
    """Ask the coordinator; `then` gets the error of each partition, in the event loop.

    Args:
        peers: Asks the coordinator.
        table: Names it.
        transactional_id: The transactional id of the producer.
        producer: Who writes.
        partitions: Where to.
        then: Takes the outcome; COORDINATOR_NOT_AVAILABLE for all without a coordinator or its answer.
        is_verification: Only check that they are part of the transaction.
    """
    log = table.partition(TRANSACTIONS_TOPIC, 0)
    if log is None or log.image.leader < 0:
        then(dict.fromkeys(partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE))
        return
    topics: dict[str, AddPartitionsToTxnTopic] = {}
    for name, index in sorted(partitions):
        topics.setdefault(name, AddPartitionsToTxnTopic(name=name)).partitions.append(index)
    request = AddPartitionsToTxnRequest(
        transactions=[
            AddPartitionsToTxnTransaction(
                transactional_id=transactional_id,
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                verify_only=is_verification,
                topics=list(topics.values()),
            )
        ]
    )

    def answered(response: Response | None) -> None:
        errors = dict.fromkeys(partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if isinstance(response, AddPartitionsToTxnResponse):
            errors.update(_errors(response))
            if response.error_code:
                errors = dict.fromkeys(partitions, error_of(response.error_code))
        then(errors)

    peers.ask_broker(log.image.leader, request, _VERSION, answered, _TIMEOUT_MS)


def _errors(response: AddPartitionsToTxnResponse) -> dict[TopicPartition, ErrorCode]:
    return {
        TopicPartition(topic.name, outcome.partition_index): error_of(outcome.partition_error_code)
        for transaction in response.results_by_transaction
        for topic in transaction.topic_results
        for outcome in topic.results_by_partition
    }
