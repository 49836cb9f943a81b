"""The broker's side of `records()`: reads its logs for a test, page by page, without a client and its login.

    {"command": "topics"}                                                    {"topics": ["orders"]}
    {"command": "records", "topic": "orders", "from": {"0": 7}}
                                                             {"count": 2, "partitions": {"0": {...}, "1": {...}}}

`count` is how many partitions the topic has. A partition has `records`, lists of offset, timestamp, key, value and
headers with bytes in base64, and `next`, the offset to continue from. Only the partition's leader has it, once it knows
that its replicas have all that an earlier leader acknowledged. Records of open and aborted transactions are left out,
as for readers with `isolation.level=read_committed`.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable
from typing import Any, Final

from kafkaprod._core.records.batch_reader import Record, RecordBatchReader, read_batches
from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.broker.cluster.topics import Partition
from kafkaprod.broker.embedding.commands import Command, CommandHandler
from kafkaprod.broker.storage.index.transaction_index import AbortedTransaction
from kafkaprod.broker.storage.log.partition_log import PartitionLog
from kafkaprod.compression import decompress

_PAGE_BYTES: Final = 1 << 20


def reading_handlers(broker: Broker) -> dict[str, CommandHandler]:
    """Return what a test reads of a broker's logs, by the name of the command. Any thread."""
    return {
        "topics": lambda _: {"topics": [topic.name for topic in broker.topics.all() if not topic.is_internal]},
        "records": lambda command: _records(broker, command["topic"], command["from"]),
    }


def _records(broker: Broker, name: str, starts: dict[str, int]) -> Command:
    topic = broker.topics.get(name)
    partitions = () if topic is None else topic.partitions
    pages = {
        str(number): _page(partition.log, starts.get(str(number), 0))
        for number, partition in enumerate(partitions)
        if can_show(partition)
    }
    return {"count": len(partitions), "partitions": pages}


def can_show(partition: Partition) -> bool:
    """Whether this broker leads the partition and knows that its replicas have all that was acknowledged."""
    is_led_here = partition.is_leader and not partition.is_offline
    return is_led_here and partition.log.high_watermark >= partition.epoch_start_offset


def _page(log: PartitionLog, start: int) -> dict[str, Any]:
    start = max(start, log.log_start_offset)
    if start >= log.last_stable_offset:  # nothing more; or a leader that has less than the one before
        return {"records": [], "next": start}
    result = log.read(start, _PAGE_BYTES, log.last_stable_offset)
    if result.records is None:
        return {"records": [], "next": start}
    aborted = log.aborted_transactions(start, result.end_offset)
    batches = read_batches(result.records.read(), decompress)
    shown = [
        shown_record(record)
        for batch in batches
        if not batch.is_control and not is_aborted(batch, aborted)
        for record in batch
        if record.offset >= start
    ]
    return {"records": shown, "next": max([start, *(batch.last_offset + 1 for batch in batches)])}


def is_aborted(batch: RecordBatchReader, aborted: Iterable[AbortedTransaction]) -> bool:
    """Whether a batch belongs to a transaction that was aborted."""
    return batch.is_transactional and any(
        each.producer_id == batch.producer_id and each.first_offset <= batch.base_offset <= each.last_offset
        for each in aborted
    )


def shown_record(record: Record) -> list[Any]:
    """Return a record as it is written in an answer."""
    headers = [[name, encoded(value)] for name, value in record.headers]
    return [record.offset, record.timestamp, encoded(record.key), encoded(record.value), headers]


def encoded(data: bytes | None) -> str | None:
    """Return bytes as base64; None stays None."""
    return None if data is None else base64.b64encode(data).decode()
