"""Fetch (1): read record batches from some partitions, waiting for them if there are none yet.

    7    fetch sessions (KIP-227): none are kept. Every answer has session id 0, so clients send full requests. Epochs
         -1 and 0 are full requests, whatever the session id is
    9    current leader epoch, checked (KIP-320)     12  last fetched epoch, checked (KIP-595)
    13   topic ids instead of names (KIP-516)        16  current leader with errors 6 and 74 (KIP-951)
Records are whole batches, the first of them containing the fetch offset; the last may be cut. They are not read here:
the response names a range of the log file.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.broker.cluster.leadership import check_leader_epoch, name_leaders
from kafkaprod.broker.cluster.topics import Partition
from kafkaprod.broker.handlers.fetch_followers import read_for_follower
from kafkaprod.broker.server.file_records import FileResponse, records_field
from kafkaprod.broker.server.request import ClientRequest, Deferred, Lane, Outcome
from kafkaprod.broker.storage.log.partition_log import PartitionLog
from kafkaprod.broker.storage.log.segment import FileSlice
from kafkaprod.errors import BrokerError
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from kafkaprod.structs import TopicPartition

logger = logging.getLogger(__name__)

API = ApiKey.FETCH
LANE = Lane.DATA
MAX_VERSION = 18

_READ_COMMITTED = 1
_UNKNOWN_EPOCH = -1
_FULL_FETCH_EPOCHS = (-1, 0)


class _Read(NamedTuple):
    """One try at a fetch.

    Attributes:
        bytes_read: size of all records in the response.
        is_final: waiting would not make it better: an error, or a diverging log.
    """

    response: FileResponse
    bytes_read: int
    is_final: bool


class _Limit(NamedTuple):
    """How much may still be read; the first batch of a response may be larger."""

    max_bytes: int
    is_first: bool


def handle(broker: Broker, request: ClientRequest[FetchRequest]) -> Outcome:
    """Answer at once if there is enough, else when there is or the time is over."""
    body = request.body
    if body.session_epoch not in _FULL_FETCH_EPOCHS:
        return refuse(request, ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    keys = [
        TopicPartition(name, wanted.partition)
        for topic in body.topics
        if (name := broker.topics.name_of(topic.topic, topic.topic_id)) is not None
        for wanted in topic.partitions
    ]
    if len(set(keys)) < len(keys):
        return refuse(request, ErrorCode.INVALID_REQUEST)  # a partition is named twice
    read = _read(broker, request)
    if read.is_final or read.bytes_read >= body.min_bytes or body.max_wait_ms <= 0 or not keys:
        return read.response
    deferred = Deferred()

    def try_complete(is_expired: bool) -> bool:
        again = _read(broker, request)
        is_complete = is_expired or again.is_final or again.bytes_read >= body.min_bytes
        if is_complete:
            deferred.complete(again.response)
        return is_complete

    deadline_ms = broker.clock.now_ms() + body.max_wait_ms
    operation = broker.purgatory.watch(keys, deadline_ms, try_complete)
    deferred.on_abandon = lambda: broker.purgatory.cancel(operation)
    return deferred


def refuse(request: ClientRequest[FetchRequest], error_code: int) -> FetchResponse:
    """Answer the error at the top, and for every partition."""
    return FetchResponse(
        error_code=error_code,
        responses=[
            FetchableTopicResponse(
                topic=topic.topic,
                topic_id=topic.topic_id,
                partitions=[_failed(wanted.partition, error_code) for wanted in topic.partitions],
            )
            for topic in request.body.topics
        ],
    )


def _read(broker: Broker, request: ClientRequest[FetchRequest]) -> _Read:
    body = request.body
    left_bytes = min(body.max_bytes, broker.config.limits.max_fetch_bytes)
    bytes_read, is_final = 0, False
    responses = []
    ranges: list[FileSlice] = []
    for topic in body.topics:
        name = broker.topics.name_of(topic.topic, topic.topic_id)
        partitions = []
        for wanted in topic.partitions:
            limit = _Limit(min(wanted.partition_max_bytes, left_bytes - bytes_read), is_first=bytes_read == 0)
            if request.is_peer and name is not None:
                data, is_news = read_for_follower(broker, body, name, wanted, ranges)
                is_final = is_final or is_news
            else:
                data = _read_partition(broker, name, wanted, body.isolation_level, limit, ranges)
            partitions.append(data)
            bytes_read += 0 if data.records is None else len(data.records)
            is_final = is_final or data.error_code != ErrorCode.NONE or data.diverging_epoch.epoch != _UNKNOWN_EPOCH
        responses.append(FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=partitions))
    response = FetchResponse(responses=responses)
    if is_final:
        name_leaders(broker, response, request.version, request.endpoint)
    return _Read(FileResponse(response, ranges), bytes_read, is_final)


def _read_partition(
    broker: Broker,
    topic: str | None,
    wanted: FetchPartition,
    isolation_level: int,
    limit: _Limit,
    ranges: list[FileSlice],
) -> PartitionData:
    if topic is None:
        return _failed(wanted.partition, ErrorCode.UNKNOWN_TOPIC_ID)
    partition = broker.topics.partition(topic, wanted.partition)
    if partition is None:
        return _failed(wanted.partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    error_code = check_leader_epoch(partition, wanted.current_leader_epoch)
    if error_code is not ErrorCode.NONE:
        return _failed(wanted.partition, error_code)
    log = partition.log
    data = PartitionData(
        partition_index=wanted.partition,
        high_watermark=log.high_watermark,
        last_stable_offset=log.last_stable_offset,
        log_start_offset=log.log_start_offset,
        aborted_transactions=None,
        records=b"",
    )
    try:
        if not _diverges(partition, wanted, data) and (limit.max_bytes > 0 or limit.is_first):
            _read_log(log, wanted, data, isolation_level, limit, ranges)
    except BrokerError as error:
        data.error_code = error.code
    except OSError:  # the disk failed under a read; a waiting fetch has no caller who would notice
        logger.exception("reading %s-%d failed", topic, wanted.partition)
        data.error_code = ErrorCode.KAFKA_STORAGE_ERROR
    return data


def _read_log(
    log: PartitionLog,
    wanted: FetchPartition,
    data: PartitionData,
    isolation_level: int,
    limit: _Limit,
    ranges: list[FileSlice],
) -> None:
    is_committed = isolation_level == _READ_COMMITTED
    bound = data.last_stable_offset if is_committed else data.high_watermark
    result = log.read(wanted.fetch_offset, max(limit.max_bytes, 0), bound, min_one_batch=limit.is_first)
    if result.records is not None:
        data.records = records_field(result.records, ranges)
    if is_committed:
        data.aborted_transactions = [
            AbortedTransaction(producer_id=aborted.producer_id, first_offset=aborted.first_offset)
            for aborted in log.aborted_transactions(wanted.fetch_offset, result.end_offset)
        ]


def _diverges(partition: Partition, wanted: FetchPartition, data: PartitionData) -> bool:
    """Tell whether the reader's log differs from ours (KIP-595); the answer then says where to truncate it."""
    if wanted.last_fetched_epoch == _UNKNOWN_EPOCH:
        return False
    epoch, end_offset = partition.log.end_offset_for_epoch(wanted.last_fetched_epoch)
    if epoch == _UNKNOWN_EPOCH:
        return False
    if epoch < wanted.last_fetched_epoch or end_offset < wanted.fetch_offset:
        data.diverging_epoch = EpochEndOffset(epoch=epoch, end_offset=end_offset)
        return True
    return False


def _failed(partition: int, error_code: int) -> PartitionData:
    return PartitionData(
        partition_index=partition, error_code=error_code, high_watermark=-1, aborted_transactions=None, records=b""
    )
