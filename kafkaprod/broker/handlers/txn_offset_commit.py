"""TxnOffsetCommit (28): offsets of a group that count when the transaction is committed.

3    the group's member and generation are checked (KIP-447)     5  makes the group part of the transaction (KIP-890)
4    may answer TRANSACTION_ABORTABLE                            6  topic ids instead of names
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from kafkaprod.broker.calls.request import ClientRequest, Deferred, Lane
from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.broker.coordinator.coordinators import GROUPS
from kafkaprod.broker.coordinator.member import is_no_group_id
from kafkaprod.broker.coordinator.offset_log import OFFSETS_PARTITION, OffsetChange
from kafkaprod.broker.coordinator.transaction import ProducerIdAndEpoch
from kafkaprod.broker.handlers.committed_offsets import are_too_large, check_offsets, give_error
from kafkaprod.broker.handlers.refusals import refuse
from kafkaprod.broker.handlers.transaction_errors import COORDINATOR_LOST
from kafkaprod.broker.storage.errors import RecordsRefusedError
from kafkaprod.broker.storage.producers.producer_state import VerificationToken
from kafkaprod.errors import BrokerError
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from kafkaprod.storage.internal_records import TransactionOwner
from kafkaprod.structs import TopicPartition

API = ApiKey.TXN_OFFSET_COMMIT
LANE = Lane.CONTROL
MAX_VERSION = 6
COORDINATED_BY = GROUPS

_FIRST_VERSION_WITH_ABORTABLE = 4
_FIRST_VERSION_OF_TV2 = 5

_Request = ClientRequest[TxnOffsetCommitRequest]


def handle(broker: Broker, request: _Request) -> TxnOffsetCommitResponse | Deferred:
    """Check each partition, the group and the transaction.

    The valid offsets stay pending until the transaction's marker arrives.
    """
    now_ms = broker.clock.wall_ms()
    response = cast(TxnOffsetCommitResponse, refuse(request, ErrorCode.NONE))
    changes = check_offsets(broker, request.body, response, now_ms)
    if not changes:
        return response
    if is_no_group_id(request.body.group_id):
        return _with_error(response, ErrorCode.INVALID_GROUP_ID)
    if _has_joined(broker, request):
        return _with_error(response, _write(broker, request, changes, now_ms, None))
    deferred = Deferred()
    token = _token(broker, request)

    def joined(errors: Mapping[TopicPartition, ErrorCode]) -> None:
        moved = broker.standing.refusal(COORDINATED_BY)  # while the transactions' coordinator was asked
        error = _error_for_version(errors[OFFSETS_PARTITION], request.version) if moved is ErrorCode.NONE else moved
        if error is ErrorCode.NONE:
            error = _write(broker, request, changes, now_ms, token)
        deferred.complete(_with_error(response, error))

    broker.standing.join_transaction(
        request.body.transactional_id,
        _producer_of(request),
        [OFFSETS_PARTITION],
        joined,
        is_verification=request.version < _FIRST_VERSION_OF_TV2,
    )
    return deferred


def _with_error(response: TxnOffsetCommitResponse, error_code: ErrorCode) -> TxnOffsetCommitResponse:
    give_error(response, error_code)
    return response


def _write(
    broker: Broker, request: _Request, changes: list[OffsetChange], now_ms: int, token: VerificationToken | None
) -> ErrorCode:
    """Write the offsets, if the group allows it, and the transaction is the one that was verified."""
    body = request.body
    error = broker.groups.check_transactional_commit(
        body.group_id,
        body.member_id,
        body.group_instance_id,
        body.generation_id_or_member_epoch,
        broker.clock.now_ms(),
    )
    if error is not ErrorCode.NONE:
        return error
    if are_too_large(changes):
        return ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    try:
        broker.offsets.write(changes, now_ms, TransactionOwner(body.producer_id, body.producer_epoch), token)
    except RecordsRefusedError as refusal:
        has_ended = refusal.code == ErrorCode.INVALID_TXN_STATE
        return ErrorCode.INVALID_TXN_STATE if has_ended else ErrorCode.INVALID_PRODUCER_EPOCH
    except BrokerError:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return ErrorCode.NONE


def _producer_of(request: _Request) -> ProducerIdAndEpoch:
    return ProducerIdAndEpoch(request.body.producer_id, request.body.producer_epoch)


def _has_joined(broker: Broker, request: _Request) -> bool:
    """Whether the transaction has written offsets before, so that its coordinator knows of it."""
    partition = broker.topics.partition(*OFFSETS_PARTITION)
    return partition is not None and partition.log.has_open_transaction(*_producer_of(request))


def _token(broker: Broker, request: _Request) -> VerificationToken | None:
    """Return what becomes worthless when a marker overtakes the verification; None if there is no log yet.

    Without it offsets that were verified, and then overtaken by the marker that ends their transaction, would begin
    one that nothing ends: the group's offsets would never be stable again.
    """
    partition = broker.topics.partition(*OFFSETS_PARTITION)
    return None if partition is None else partition.log.internal_token(*_producer_of(request))


def _error_for_version(error: ErrorCode, version: int) -> ErrorCode:
    """What a client of this version sees of the transaction coordinator's answer."""
    if error is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if error in COORDINATOR_LOST or (error is ErrorCode.CONCURRENT_TRANSACTIONS and version < _FIRST_VERSION_OF_TV2):
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if error is ErrorCode.TRANSACTION_ABORTABLE and version < _FIRST_VERSION_WITH_ABORTABLE:
        return ErrorCode.INVALID_TXN_STATE
    return error
