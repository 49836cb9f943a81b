"""The transactional part of Produce: which batches the coordinator has to be asked about, and what its answers mean.

A producer's first batch in a partition is checked with the transaction coordinator before the append (KIP-890): up to
version 11 the partition must have been added to the transaction, from 12 on it is added now.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from kafkaprod.broker.calls.request import ClientRequest
from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.broker.coordinator.transaction import ProducerIdAndEpoch
from kafkaprod.broker.handlers.transaction_errors import COORDINATOR_LOST
from kafkaprod.broker.storage.producers.producer_state import TransactionGuard, VerificationToken
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.produce import ProduceRequest
from kafkaprod.storage.batch_header import HEADER_BYTES, LOW_ATTRIBUTES, TRANSACTIONAL, parse_header
from kafkaprod.structs import TopicPartition

FIRST_VERSION_OF_TV2 = 12
FIRST_VERSION_WITH_ABORTABLE = 11


@dataclass(slots=True)
class Verification:
    """The partitions of a request that need the coordinator, and later its verdict.

    Attributes:
        producers: Who writes; more than one in a request is an error.
        tokens: By partition.
        errors: The verdict by partition, as the client sees it.
    """

    producers: set[ProducerIdAndEpoch] = field(default_factory=set)
    tokens: dict[TopicPartition, VerificationToken] = field(default_factory=dict)
    errors: dict[TopicPartition, ErrorCode] = field(default_factory=dict)

    def guard(self, partition: TopicPartition, version: int) -> TransactionGuard:
        """What the log must demand of a transactional batch."""
        token = self.tokens.get(partition)
        if token is None:
            return _UNVERIFIED[version >= FIRST_VERSION_OF_TV2]
        return TransactionGuard(True, version >= FIRST_VERSION_OF_TV2, token)


NOTHING_TO_VERIFY = Verification()
_UNVERIFIED = (TransactionGuard(False, False), TransactionGuard(False, True))  # by whether the version is of TV2


def has_transactional_records(body: ProduceRequest) -> bool:
    """Return whether a batch of a request is part of a transaction."""
    return any(
        data.records is not None and len(data.records) > LOW_ATTRIBUTES and data.records[LOW_ATTRIBUTES] & TRANSACTIONAL
        for topic in body.topic_data
        for data in topic.partition_data
    )


def begin_verification(broker: Broker, request: ClientRequest[ProduceRequest]) -> Verification:
    """Find the batches that begin a transaction in their partition. In the event loop."""
    if request.body.transactional_id is None:
        return NOTHING_TO_VERIFY
    verification = Verification()
    for topic in request.body.topic_data:
        name = broker.topics.name_of(topic.name, topic.topic_id)
        for data in topic.partition_data:
            partition = None if name is None else broker.topics.partition(name, data.index)
            if name is None or partition is None or data.records is None or len(data.records) < HEADER_BYTES:
                continue
            if not partition.has_log:
                continue  # another broker leads
            header = parse_header(data.records)
            if not header.is_transactional:
                continue
            token = partition.log.verification_token(header)
            if token is not None:
                verification.tokens[TopicPartition(name, data.index)] = token
                verification.producers.add(ProducerIdAndEpoch(header.producer_id, header.producer_epoch))
    return verification


def verify(
    broker: Broker, request: ClientRequest[ProduceRequest], verification: Verification, then: Callable[[], None]
) -> None:
    """Ask the transaction coordinator, then call `then`. In the event loop."""
    partitions = verification.tokens.keys()

    def answered(errors: Mapping[TopicPartition, ErrorCode]) -> None:
        verification.errors.update((key, shown_error(error, request.version)) for key, error in errors.items())
        then()

    if len({producer_id for producer_id, _ in verification.producers}) > 1:
        answered(dict.fromkeys(partitions, ErrorCode.INVALID_PRODUCER_ID_MAPPING))
        return
    broker.standing.join_transaction_in_loop(
        request.body.transactional_id or "",
        max(verification.producers),
        partitions,
        answered,
        is_verification=request.version < FIRST_VERSION_OF_TV2,
    )


def shown_error(error: ErrorCode, version: int) -> ErrorCode:
    """What a client of this version sees of the coordinator's answer."""
    if error is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if error in COORDINATOR_LOST:
        return ErrorCode.NOT_ENOUGH_REPLICAS
    if error is ErrorCode.CONCURRENT_TRANSACTIONS and version < FIRST_VERSION_OF_TV2:
        return ErrorCode.NOT_ENOUGH_REPLICAS
    if error is ErrorCode.TRANSACTION_ABORTABLE and version < FIRST_VERSION_WITH_ABORTABLE:
        return ErrorCode.INVALID_TXN_STATE
    return error
