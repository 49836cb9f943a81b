"""Read partitions from one offset to another, batch by batch: for checks, recovery and `tail`. Not a consumer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from kafkaprod._core.records.batch_reader import Record, RecordBatchReader, read_batches
from kafkaprod.admin.client import ClusterClient
from kafkaprod.admin.topics import READ_UNCOMMITTED, find_topic, first
from kafkaprod.compression import decompress
from kafkaprod.errors import CorruptDataError, KafkaError
from kafkaprod.protocol.error_codes import describe, error_for
from kafkaprod.protocol.messages.fetch import AbortedTransaction, FetchPartition, FetchRequest, FetchTopic

FETCH_BYTES: Final = 16 << 20
MAX_WAIT_MS: Final = 500
NEWEST_FETCH_BY_NAME: Final = 12
MAX_REFUSALS: Final = 100
RETRY_MS: Final = 100


class PartitionReader:
    """Reads one partition from its leader, and finds the new one if that changes. Not thread-safe.

    Args:
        client: A client of the cluster.
        topic: Its name.
        partition: Its number.
        isolation: READ_COMMITTED leaves out records of transactions that are open or were aborted.
    """

    def __init__(self, client: ClusterClient, topic: str, partition: int, isolation: int = READ_UNCOMMITTED) -> None:
        self._client = client
        self._topic = topic
        self._partition = partition
        self._isolation = isolation
        self._hidden: set[int] = set()  # base offsets of batches of the last answer without records to show
        self._leader: int | None = None
        self.end_offset = -1  # high watermark of the last answer

    def fetch(self, offset: int, max_wait_ms: int = MAX_WAIT_MS) -> list[RecordBatchReader]:
        """Return the next batches, from the one that contains `offset` on; empty if none came within `max_wait_ms`.

        Raises:
            BrokerError: The broker refuses, OFFSET_OUT_OF_RANGE for one.
            CorruptDataError: A damaged batch, or an answer without the partition.
        """
        error: KafkaError | None = None
        for _ in range(MAX_REFUSALS):
            if self._leader is None:
                partitions = find_topic(self._client, self._topic).partitions
                self._leader = first([p for p in partitions if p.number == self._partition], "partition").leader
            answer = self._client.ask(self._request(offset, max_wait_ms), self._leader, NEWEST_FETCH_BY_NAME)
            data = first(first(answer.responses, "topic").partitions, "partition")
            if data.error_code == 0:
                self.end_offset = data.high_watermark
                batches = read_batches(data.records or b"", decompress)
                self._hidden = _hidden(batches, data.aborted_transactions or ())
                return batches
            error = error_for(data.error_code, topic=self._topic, partition=self._partition)
            if not describe(data.error_code).retriable:
                raise error
            self._leader = None
            self._client.wait(RETRY_MS)
        assert error is not None
        raise error

    def is_visible(self, batch: RecordBatchReader) -> bool:
        """Return whether a batch of the last answer has records to show: no markers, no aborted transaction."""
        return batch.base_offset not in self._hidden

    def batches(self, start: int, end: int) -> Iterator[RecordBatchReader]:
        """Yield the batches with offsets from `start` up to, not including, `end`, control batches too.

        Raises:
            BrokerError: As `fetch`.
            CorruptDataError: As `fetch`; or many answers in a row do not advance, as if the log had lost its end.
        """
        idle = 0
        while start < end:
            before = start
            for batch in self.fetch(start):
                if batch.base_offset < end and batch.last_offset >= before:
                    yield batch
                start = max(start, batch.last_offset + 1)
            idle = 0 if start > before else idle + 1
            if idle == MAX_REFUSALS:
                raise CorruptDataError(
                    f"{self._topic}-{self._partition}: {idle} answers had no record at offset {start} or later, and "
                    f"offsets up to {end} are expected; the broker's high watermark is {self.end_offset}"
                )
            if idle:
                self._client.wait(RETRY_MS)

    def records(self, start: int, end: int) -> Iterator[Record]:
        """Yield the records with offsets from `start` up to, not including, `end`."""
        for batch in self.batches(start, end):
            if self.is_visible(batch):
                yield from (record for record in batch if start <= record.offset < end)

    def _request(self, offset: int, max_wait_ms: int) -> FetchRequest:
        place = FetchPartition(partition=self._partition, fetch_offset=offset, partition_max_bytes=FETCH_BYTES)
        return FetchRequest(
            max_wait_ms=max_wait_ms,
            isolation_level=self._isolation,
            min_bytes=1,
            max_bytes=FETCH_BYTES,
            topics=[FetchTopic(topic=self._topic, partitions=[place])],
        )


def _hidden(batches: Iterable[RecordBatchReader], aborted: Iterable[AbortedTransaction]) -> set[int]:
    """Find the batches that hold markers, or records of aborted transactions: from its first offset to its marker."""
    hidden: set[int] = set()
    starts = sorted((transaction.first_offset, transaction.producer_id) for transaction in aborted)
    open_producers: set[int] = set()
    for batch in batches:
        while starts and starts[0][0] <= batch.last_offset:
            open_producers.add(starts.pop(0)[1])
        if batch.is_control:
            open_producers.discard(batch.producer_id)
            hidden.add(batch.base_offset)
        elif batch.is_transactional and batch.producer_id in open_producers:
            hidden.add(batch.base_offset)
    return hidden
