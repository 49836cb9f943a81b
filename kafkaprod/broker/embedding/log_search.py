"""The newest records of a topic, the search through them, and what the topics have: for the window, and for reports.

    {"command": "overview"}                         {"topics": [["orders", 0, [[0, 3, 7, 9, 9, 512], ...]], ...]}
    {"command": "newest", "topic": "orders", "count": 50, "ends": {"0": 7}, "find": "cust-7", "is_cut": true}
                                                      {"count": 2, "partitions": {"0": {"records": [...], ...}}}
    {"command": "record", "topic": "orders", "partition": 0, "offset": 7}             {"record": [...]}

A partition of the overview is its number, log start, last stable offset, high watermark, log end and bytes; `1` in
place of `0` marks an internal topic. Only the leader answers for a partition. A log is read from its end towards its
start, in steps that become longer, so that the newest records of a large topic cost what they are. Records of open and
aborted transactions are left out, as for readers with `isolation.level=read_committed`.
"""

from __future__ import annotations

import time
from typing import Any, Final

from kafkaprod._core.records.batch_reader import Record, read_batches
from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.broker.embedding.commands import Command, CommandError, CommandHandler
from kafkaprod.broker.embedding.log_reading import can_show, encoded, is_aborted, shown_record
from kafkaprod.broker.storage.log.partition_log import PartitionLog
from kafkaprod.compression import decompress

_PAGE_BYTES: Final = 1 << 20
_SMALL_PAGE_BYTES: Final = 64 << 10
_SMALL_STEP: Final = 256
_FIRST_STEP: Final = 64
_LONGEST_STEP: Final = 16_384
_MOST_BYTES: Final = 16 << 20
_MOST_BYTES_OF_SEARCH: Final = 64 << 20
_MOST_S: Final = 2.0
_MOST_RECORDS: Final = 10_000
_TOPICS_PER_TURN: Final = 250
CUT_VALUE_BYTES: Final = 256
CUT_KEY_BYTES: Final = 120
CUT_HEADER_BYTES: Final = 80
CUT_HEADERS: Final = 8


def searching_handlers(broker: Broker) -> dict[str, CommandHandler]:
    """Return what a window and a report read of a broker's logs, by the name of the command. Any thread."""
    return {
        "overview": lambda _: {"topics": _overview(broker)},
        "newest": lambda command: _newest(broker, command),
        "record": lambda command: _record(broker, command["topic"], command["partition"], command["offset"]),
    }


def _overview(broker: Broker) -> list[list[Any]]:
    found = []
    for number, topic in enumerate(broker.topics.all()):
        if number % _TOPICS_PER_TURN == _TOPICS_PER_TURN - 1:
            time.sleep(0)  # requests of clients come between
        rows = [
            [
                index,
                log.log_start_offset,
                log.last_stable_offset,
                log.high_watermark,
                log.log_end_offset,
                log.size_bytes,
            ]
            for index, partition in enumerate(topic.partitions)
            if can_show(partition)
            for log in [partition.log]
        ]
        found.append([topic.name, int(topic.is_internal), rows])
    return found


def _newest(broker: Broker, command: Command) -> Command:
    """Read the newest records of each partition; `ends` says below which offset, for those partitions alone."""
    topic = broker.topics.get(command["topic"])
    partitions = () if topic is None else topic.partitions
    count, ends = min(int(command["count"]), _MOST_RECORDS), command.get("ends")
    text = str(command.get("find") or "").encode(errors="surrogatepass")
    search = _Search(count, text, is_cut=bool(command.get("is_cut")))
    pages = {
        str(number): search.page(partition.log, None if ends is None else ends[str(number)])
        for number, partition in enumerate(partitions)
        if (ends is None or str(number) in ends) and can_show(partition)
    }
    return {"count": len(partitions), "partitions": pages, "searched": search.searched}


class _Search:
    """Reads partitions from their ends, within a limit of bytes and time for all together.

    Attributes:
        searched: How many records were looked at.
    """

    def __init__(self, count: int, text: bytes, *, is_cut: bool) -> None:
        self._count = count
        self._text = text
        self._is_cut = is_cut
        self._left_bytes = _MOST_BYTES_OF_SEARCH if text else _MOST_BYTES
        self._ends_s = time.monotonic() + _MOST_S
        self.searched = 0

    def page(self, log: PartitionLog, end: int | None) -> dict[str, Any]:
        """Return the newest records below `end`, oldest first, and from where a next search would continue."""
        stable, start = log.last_stable_offset, log.log_start_offset
        position = stable if end is None else min(end, stable)
        found: list[Record] = []
        step = _FIRST_STEP
        while position > start and len(found) < self._count and self._may_continue():
            first = max(start, position - step)
            found = [record for record in self._records(log, first, position) if self._matches(record)] + found
            position, step = first, min(step * 4, _LONGEST_STEP)
        shown = found[-self._count :] if self._count else []
        next_end = shown[0].offset if shown and len(found) >= self._count else position
        return {
            "records": [cut_record(record) if self._is_cut else shown_record(record) for record in shown],
            "end": next_end,
            "start": start,
            "stable": stable,
            "high": log.high_watermark,
        }

    def _may_continue(self) -> bool:
        return self._left_bytes > 0 and time.monotonic() < self._ends_s

    def _records(self, log: PartitionLog, first: int, end: int) -> list[Record]:
        found: list[Record] = []
        position, stable = first, log.last_stable_offset
        page_bytes = _SMALL_PAGE_BYTES if end - first <= _SMALL_STEP else _PAGE_BYTES
        while position < end and self._may_continue():
            result = log.read(position, page_bytes, stable)
            if result.records is None:
                break
            data = result.records.read()
            self._left_bytes -= len(data)
            aborted = log.aborted_transactions(position, result.end_offset)
            read_to = position + 1
            for batch in read_batches(data, decompress):
                if batch.base_offset < end and not batch.is_control and not is_aborted(batch, aborted):
                    found += [record for record in batch if position <= record.offset < end]
                read_to = batch.last_offset + 1
            position = max(position + 1, read_to)
        self.searched += len(found)
        return found

    def _matches(self, record: Record) -> bool:
        text = self._text
        if not text or text in (record.key or b"") or text in (record.value or b""):
            return True
        return any(
            text in name.encode(errors="surrogatepass") or text in (value or b"") for name, value in record.headers
        )


def _record(broker: Broker, name: str, number: int, offset: int) -> Command:
    partition = broker.topics.partition(name, number)
    if partition is None or not can_show(partition):
        return {"record": None}
    log = partition.log
    if not log.log_start_offset <= offset < log.last_stable_offset:
        raise CommandError(
            f"{name}-{number} has offsets {log.log_start_offset} to {log.last_stable_offset}, not {offset}"
        )
    search = _Search(1, b"", is_cut=False)
    records = [record for record in search._records(log, offset, offset + 1) if record.offset == offset]
    if not records:
        raise CommandError(f"{name}-{number} has no record at offset {offset}: a marker, an abort or compaction")
    return {"record": shown_record(records[0])}


def cut_record(record: Record) -> list[Any]:
    """Return a record as `shown_record` does, with short texts, and behind them the true sizes."""
    headers = [
        [name[:CUT_HEADER_BYTES], encoded(None if value is None else value[:CUT_HEADER_BYTES]), _size(value)]
        for name, value in record.headers[:CUT_HEADERS]
    ]
    key, value = record.key, record.value
    return [
        record.offset,
        record.timestamp,
        encoded(None if key is None else key[:CUT_KEY_BYTES]),
        encoded(None if value is None else value[:CUT_VALUE_BYTES]),
        headers,
        _size(key),
        _size(value),
        len(record.headers),
    ]


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)
