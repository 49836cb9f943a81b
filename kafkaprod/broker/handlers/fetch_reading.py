"""Read what a fetch wants: whole batches from each partition, up to its limits. They stay in their files."""

from __future__ import annotations

import logging
from typing import NamedTuple

from kafkaprod.broker.calls.file_records import FileResponse, records_field
from kafkaprod.broker.calls.request import ClientRequest
from kafkaprod.broker.calls.steps import Pause, PausingSteps
from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.broker.cluster.leadership import check_leader_epoch, name_leaders
from kafkaprod.broker.cluster.topics import Partition
from kafkaprod.broker.storage.log.partition_log import PartitionLog
from kafkaprod.broker.storage.log.segment import FileSlice
from kafkaprod.errors import BrokerError
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

logger = logging.getLogger(__name__)

_READ_COMMITTED = 1
_UNKNOWN_EPOCH = -1


class Read(NamedTuple):
    """One try at a fetch.

    Attributes:
        bytes_read: Size of all records in the response.
        is_final: Waiting would not make it better: an error, or a diverging log.
    """

    response: FileResponse
    bytes_read: int
    is_final: bool


class Look(NamedTuple):
    """What one partition has for a fetch.

    Attributes:
        data: Its part of the response.
        is_final: As of `Read`.
    """

    data: PartitionData
    is_final: bool

    @property
    def bytes_read(self) -> int:
        """Size of the records."""
        return 0 if self.data.records is None else len(self.data.records)


class _Limit(NamedTuple):
    """How much may still be read; the first batch of a response may be larger."""

    max_bytes: int
    is_first: bool


def least_bytes(broker: Broker, request: ClientRequest[FetchRequest]) -> int:
    """Return how many bytes of records end the wait."""
    return min(request.body.min_bytes, _most_bytes(broker, request))


def _most_bytes(broker: Broker, request: ClientRequest[FetchRequest]) -> int:
    return min(request.body.max_bytes, broker.config.limits.max_fetch_bytes)


def look_at(broker: Broker, request: ClientRequest[FetchRequest], topic: str, wanted: FetchPartition) -> Look:
    """Read one partition as if nothing else was wanted."""
    limit = _Limit(min(wanted.partition_max_bytes, _most_bytes(broker, request)), is_first=True)
    return _look(broker, request, topic, wanted, limit, [])


def read_steps(broker: Broker, request: ClientRequest[FetchRequest]) -> PausingSteps[Read]:
    """Read partition after partition, up to the limits."""
    body = request.body
    left_bytes = _most_bytes(broker, request)
    bytes_read, is_final = 0, False
    responses = []
    ranges: list[FileSlice] = []
    for topic in body.topics:
        name = broker.topics.name_of(topic.topic, topic.topic_id)
        partitions = []
        for wanted in topic.partitions:
            limit = _Limit(min(wanted.partition_max_bytes, left_bytes - bytes_read), is_first=bytes_read == 0)
            look = _look(broker, request, name, wanted, limit, ranges)
            partitions.append(look.data)
            bytes_read += look.bytes_read
            is_final = is_final or look.is_final
            yield Pause.SHORT
        responses.append(FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=partitions))
    response = FetchResponse(responses=responses)
    if is_final:
        name_leaders(broker, response, request.version, request.endpoint)
    return Read(FileResponse(response, ranges), bytes_read, is_final)


def _look(
    broker: Broker,
    request: ClientRequest[FetchRequest],
    topic: str | None,
    wanted: FetchPartition,
    limit: _Limit,
    ranges: list[FileSlice],
) -> Look:
    data = _read_partition(broker, topic, wanted, request.body.isolation_level, limit, ranges)
    return Look(data, data.error_code != ErrorCode.NONE or data.diverging_epoch.epoch != _UNKNOWN_EPOCH)


def _read_partition(
    broker: Broker,
    topic: str | None,
    wanted: FetchPartition,
    isolation_level: int,
    limit: _Limit,
    ranges: list[FileSlice],
) -> PartitionData:
    if topic is None:
        return failed(wanted.partition, ErrorCode.UNKNOWN_TOPIC_ID)
    partition = broker.topics.partition(topic, wanted.partition)
    if partition is None:
        return failed(wanted.partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    error_code = check_leader_epoch(partition, wanted.current_leader_epoch)
    if error_code is not ErrorCode.NONE:
        return failed(wanted.partition, error_code)
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
    except OSError as error:  # the disk failed under a read; a waiting fetch has no caller who would notice
        logger.error("%s-%d cannot be read: %s", topic, wanted.partition, error)
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


def failed(partition: int, error_code: int) -> PartitionData:
    """Return a partition's part of the answer for an error."""
    return PartitionData(
        partition_index=partition, error_code=error_code, high_watermark=-1, aborted_transactions=None, records=b""
    )
