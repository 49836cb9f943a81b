"""Produce (0): append one batch to each of some partitions.

    0-2  refused, though the range is announced from 0: older librdkafka would stop compressing otherwise (KAFKA-18659)
    8    errors of single records          12  adds the partition to the transaction (KIP-890)
    11   may answer TRANSACTION_ABORTABLE  13  topic ids instead of names (KIP-516)
With acks=0 there is no response, and an error closes the connection. All wait for what the flush policy demands; in a
cluster acks=-1 waits for all in-sync replicas, too.
"""

from __future__ import annotations

import logging
import struct
from functools import partial
from typing import Any, Final, NamedTuple

from kafkaprod.broker.calls.request import (
    NO_RESPONSE,
    ClientRequest,
    CloseConnectionError,
    Deferred,
    Lane,
    Outcome,
    Ready,
)
from kafkaprod.broker.calls.steps import Pause, PausingSteps, run_in_loop_steps, run_in_steps
from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.broker.cluster.leadership import name_leaders
from kafkaprod.broker.cluster.produce_replication import ACKS_ALL, Replicated, await_replicas, note_append
from kafkaprod.broker.handlers.authorization import Authorizer, Handle, ItemRight, RefuseRequest
from kafkaprod.broker.handlers.produce_transactions import (
    Verification,
    begin_verification,
    has_transactional_records,
    verify,
)
from kafkaprod.broker.handlers.refusals import refuse
from kafkaprod.broker.settings import acls
from kafkaprod.broker.settings.acls import TOPIC, TRANSACTIONAL_ID
from kafkaprod.broker.storage.errors import RecordsRefusedError
from kafkaprod.broker.storage.log.append_validation import LargeBatchError
from kafkaprod.broker.storage.log.partition_log import PartitionLog
from kafkaprod.compression import CODEC_IDS
from kafkaprod.errors import BrokerError
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from kafkaprod.protocol.schema import Response
from kafkaprod.storage.batch_header import TRANSACTIONAL
from kafkaprod.structs import TopicPartition

logger = logging.getLogger(__name__)

API = ApiKey.PRODUCE
LANE = Lane.DATA
MAX_VERSION = 13

_RIGHT: Final = ItemRight(acls.WRITE, TOPIC, "topic_data", "responses", "name")
_FIRST_VERSION_WITH_ZSTD = 7
_ATTRIBUTES = struct.Struct(">h")
_ATTRIBUTES_POSITION = 21
_MAX_BYTES_IN_LOOP = 1024 * 1024
"""Most bytes of a batch's records, plain, that the event loop checks itself: some milliseconds."""
_STEP_BYTES = 128 * 1024
"""Bytes of batches after which other clients get their turn; a pause after each small batch would cost more than it."""
_LEAST_BATCH_BYTES = 8 * 1024
"""What a batch counts for at least: most of its cost is not in its bytes."""
NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER


class _Appended(NamedTuple):
    """A batch that is in the log and waits for its commit."""

    log: PartitionLog
    end_offset: int
    response: PartitionProduceResponse
    replicated: Replicated | None


def authorize(authorizer: Authorizer, call: Handle, deny: RefuseRequest) -> Any:
    """Check the topics, and the transactional id if there are transactional records."""
    body = authorizer.request.body
    name = body.transactional_id
    if name is not None and has_transactional_records(body) and not authorizer.may(acls.WRITE, TRANSACTIONAL_ID, name):
        return _refused(authorizer.request, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    return authorizer.split(call, deny, _RIGHT)


def _refused(request: ClientRequest[ProduceRequest], error_code: ErrorCode) -> Response:
    if request.body.acks == 0:
        raise CloseConnectionError(f"an acks=0 request of {request.principal} is refused: {error_code.name}")
    return refuse(request, error_code)


def handle(broker: Broker, request: ClientRequest[ProduceRequest]) -> Outcome:
    """Append; answer when the flush policy allows."""
    if request.body.acks not in (-1, 0, 1):
        return refuse(request, ErrorCode.INVALID_REQUIRED_ACKS)
    if request.body.transactional_id is None and has_transactional_records(request.body):
        return _refused(request, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    verification = begin_verification(broker, request)
    if not verification.tokens:
        return _append_all(broker, request, verification)
    deferred = Deferred()

    def append() -> None:
        _append_verified(broker, request, verification, deferred)

    verify(broker, request, verification, append)
    return deferred


def _append_verified(
    broker: Broker, request: ClientRequest[ProduceRequest], verification: Verification, deferred: Deferred
) -> None:
    """Append what the transaction coordinator has been asked about."""
    try:
        outcome = _append_all(broker, request, verification)
    except CloseConnectionError as error:
        deferred.complete(error)
    except Exception:
        logger.exception("produce of transactional id %r failed", request.body.transactional_id)
        deferred.complete(refuse(request, ErrorCode.UNKNOWN_SERVER_ERROR))
    else:
        if isinstance(outcome, Deferred):
            deferred.on_abandon = outcome.abandon
            outcome.then(deferred.complete)
        else:
            deferred.complete(outcome)


def _append_all(broker: Broker, request: ClientRequest[ProduceRequest], verification: Verification) -> Outcome:
    appended: list[_Appended] = []
    steps = _append_steps(broker, request, verification, appended)

    def finish(response: ProduceResponse) -> Outcome:
        return _acknowledge(broker, request, response, appended)

    if broker.standing.appends_in_loop:
        return run_in_loop_steps(broker, steps, finish, lambda error_code: refuse(request, error_code))
    return run_in_steps(steps, broker.clock, broker.run_long, finish, lambda error_code: refuse(request, error_code))


def _append_steps(
    broker: Broker, request: ClientRequest[ProduceRequest], verification: Verification, appended: list[_Appended]
) -> PausingSteps[ProduceResponse]:
    """Append batch after batch; a batch of many bytes, plain, is a long step."""
    responses = []
    step_bytes = 0
    max_bytes_now = None if broker.standing.appends_in_loop else _MAX_BYTES_IN_LOOP
    for topic in request.body.topic_data:
        name = broker.topics.name_of(topic.name, topic.topic_id)
        outcomes: list[PartitionProduceResponse] = []
        for data in topic.partition_data:
            if name is None:
                outcomes.append(_failed(data.index, ErrorCode.UNKNOWN_TOPIC_ID))
                continue
            if step_bytes >= _STEP_BYTES:
                yield Pause.SHORT
                step_bytes = 0
            try:
                outcomes.append(_append(broker, request, name, data, verification, appended, max_bytes_now))
            except LargeBatchError:
                yield Pause.LONG
                outcomes.append(_append(broker, request, name, data, verification, appended, None))
            step_bytes += max(len(data.records or b""), _LEAST_BATCH_BYTES)
        responses.append(TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=outcomes))
    return ProduceResponse(responses=responses)


def _acknowledge(
    broker: Broker, request: ClientRequest[ProduceRequest], response: ProduceResponse, appended: list[_Appended]
) -> Outcome:
    """Answer when the flush policy and, with acks=all, the in-sync replicas allow it."""
    syncs_before_ack = broker.config.flush_policy.syncs_before_ack
    replicated = [batch.replicated for batch in appended if batch.replicated is not None]
    by_log: dict[PartitionLog, list[_Appended]] = {}
    if syncs_before_ack:
        for batch in appended:
            by_log.setdefault(batch.log, []).append(batch)
    if not by_log and not replicated:
        return _outcome(broker, request, response)
    deferred = Deferred()
    left_count = len(by_log) + 1

    def on_committed() -> None:
        nonlocal left_count
        left_count -= 1
        if left_count == 0:
            deferred.complete(_ready(broker, request, response))

    await_replicas(broker, replicated, request.body.timeout_ms, on_committed)
    for log, batches in by_log.items():  # side by side: they are different files
        broker.run_blocking(partial(_commit, log, batches), on_committed)
    return deferred


def _append(
    broker: Broker,
    request: ClientRequest[ProduceRequest],
    topic: str,
    data: PartitionProduceData,
    verification: Verification,
    appended: list[_Appended],
    max_bytes_now: int | None,
) -> PartitionProduceResponse:
    partition = broker.topics.partition(topic, data.index)
    if partition is None:
        return _failed(data.index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    topic_partition = TopicPartition(topic, data.index)
    refusal = _why_refuse(broker, request, topic, data)
    if refusal is ErrorCode.NONE and verification.errors:
        refusal = verification.errors.get(topic_partition, ErrorCode.NONE)
    replica = partition.replica
    if refusal is ErrorCode.NONE:
        if not partition.is_leader:
            refusal = NOT_LEADER
        elif replica is not None:
            refusal = replica.append_error(request.body.acks)
    if refusal is not ErrorCode.NONE:
        return _failed(data.index, refusal)
    assert isinstance(data.records, memoryview)
    try:
        guard = verification.guard(topic_partition, request.version)
        leader_epoch = partition.leader_epoch if replica is None else replica.leader_epoch
        result = partition.log.append(data.records, leader_epoch, guard, max_bytes_now)
    except RecordsRefusedError as error:
        response = _failed(data.index, error.code, str(error))
        response.record_errors = [
            BatchIndexAndErrorMessage(batch_index=record.batch_index, batch_index_error_message=record.message)
            for record in error.record_errors
        ]
        return response
    except BrokerError as error:
        return _failed(data.index, error.code, str(error))
    response = PartitionProduceResponse(
        index=data.index,
        base_offset=result.base_offset,
        log_append_time_ms=result.log_append_time_ms,
        log_start_offset=result.log_start_offset,
    )
    replicated = None
    if replica is not None:
        note_append(broker, topic_partition, replica)
        if request.body.acks == ACKS_ALL:
            replicated = Replicated(topic_partition, replica, leader_epoch, result.last_offset + 1, response)
    appended.append(_Appended(partition.log, result.last_offset + 1, response, replicated))
    return response


def _why_refuse(
    broker: Broker, request: ClientRequest[ProduceRequest], topic: str, data: PartitionProduceData
) -> ErrorCode:
    known = broker.topics.get(topic)
    if known is None or known.is_internal:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    records = data.records
    if records is None or len(records) < _ATTRIBUTES_POSITION + _ATTRIBUTES.size:
        return ErrorCode.INVALID_RECORD
    (attributes,) = _ATTRIBUTES.unpack_from(records, _ATTRIBUTES_POSITION)
    if attributes & 7 == CODEC_IDS["zstd"] and request.version < _FIRST_VERSION_WITH_ZSTD:
        return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    if attributes & TRANSACTIONAL and request.body.transactional_id is None:
        # A client may not claim a transaction the request does not name (CVE-2018-17196).
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    return ErrorCode.NONE


def _commit(log: PartitionLog, batches: list[_Appended]) -> None:
    """Sync what was appended to a log; if that fails the batches are answered with the error."""
    try:
        log.commit(max(batch.end_offset for batch in batches))
    except BrokerError as error:
        for batch in batches:
            failed = _failed(batch.response.index, error.code, str(error))
            for name in ("error_code", "base_offset", "log_append_time_ms", "log_start_offset", "error_message"):
                setattr(batch.response, name, getattr(failed, name))


def _outcome(broker: Broker, request: ClientRequest[ProduceRequest], response: ProduceResponse) -> Outcome:
    ready = _ready(broker, request, response)
    if isinstance(ready, CloseConnectionError):
        raise ready
    return ready


def _ready(broker: Broker, request: ClientRequest[ProduceRequest], response: ProduceResponse) -> Ready:
    if request.body.acks != 0:
        if broker.standing.leaders_move:
            name_leaders(broker, response, request.version, request.endpoint)
        return response
    for topic in response.responses:
        for partition in topic.partition_responses:
            if partition.error_code:
                where = f"{topic.name or topic.topic_id}-{partition.index}"
                return CloseConnectionError(f"produce with acks=0 to {where} failed: {partition.error_message}")
    return NO_RESPONSE


def _failed(index: int, error_code: int, message: str | None = None) -> PartitionProduceResponse:
    return PartitionProduceResponse(index=index, error_code=error_code, base_offset=-1, error_message=message)
