"""Read one range of offsets to its end: every record of it that may be seen, or an error that says what is missing."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from typing import Final

from kafkaprod._core.records.batch_reader import RecordBatchReader
from kafkaprod.admin.client import ClusterClient
from kafkaprod.admin.reading import PartitionReader
from kafkaprod.admin.topics import EARLIEST, READ_COMMITTED, log_offsets
from kafkaprod.errors import BrokerError, KafkaError
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.spark.ranges import TopicRange
from kafkaprod.spark.reader_options import ReaderOptions
from kafkaprod.text import printable

PATIENCE_S: Final = 60.0  # for the next records, which are in the log: a new leader learns of its end by followers

logger = logging.getLogger("kafkaprod.spark")


class RangeReader:
    """Reads a range.

    Args:
        client: A client of the cluster.
        place: The range.
        options: The options of the read.
        patience_s: How long answers may be empty before the range's end.
    """

    def __init__(
        self, client: ClusterClient, place: TopicRange, options: ReaderOptions, patience_s: float = PATIENCE_S
    ) -> None:
        self._client = client
        self._place = place
        self._options = options
        self._patience_s = patience_s
        self._reader = PartitionReader(client, place.topic, place.partition, options.isolation)

    def batches(self) -> Iterator[RecordBatchReader]:
        """Yield the batches that have records to show; their first and last may reach beyond the range.

        Raises:
            KafkaError: Records are no longer in the log, and failOnDataLoss is true; or its end is not reached.
        """
        offset, end = self._place.start, self._place.end
        deadline_s = time.monotonic() + self._patience_s
        while offset < end:
            fetched = self._fetch(offset)
            if fetched is None:
                offset = self._after_loss(offset)
                continue
            for batch in fetched:
                if batch.base_offset < end and self._is_shown(batch):
                    yield batch
                offset = max(offset, batch.last_offset + 1)
            if fetched:
                deadline_s = time.monotonic() + self._patience_s
            elif time.monotonic() > deadline_s:  # an answer without records is not the end
                raise KafkaError(
                    f"{self._name()} should be read up to offset {end}, but there was no record from {offset} on for "
                    f"{self._patience_s:g} s; its log ends at {self._reader.end_offset}: was it truncated?",
                    topic=self._place.topic,
                    partition=self._place.partition,
                )

    def _is_shown(self, batch: RecordBatchReader) -> bool:
        if self._options.isolation == READ_COMMITTED:
            return self._reader.is_visible(batch)
        return not batch.is_control

    def _fetch(self, offset: int) -> list[RecordBatchReader] | None:
        """Return the next batches; None: the log does not have the offset."""
        try:
            return self._reader.fetch(offset)
        except BrokerError as error:
            if error.code != ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            return None

    def _after_loss(self, offset: int) -> int:
        """Return where to continue after records that are gone. Raises KafkaError if that is not wanted, or not so."""
        place = self._place
        first = log_offsets(self._client, place.topic, EARLIEST)[place.partition]
        if first <= offset:
            raise KafkaError(
                f"{self._name()} should be read from offset {offset} up to {place.end}, but its log ends before that: "
                "it was truncated, or the topic was deleted and made again",
                topic=place.topic,
                partition=place.partition,
            )
        last = min(first, place.end) - 1
        what = (
            f"offsets {offset}..{last} of {self._name()} were there when the read was planned, but the log begins at "
            f"{first} now: retention or deletion has removed them"
        )
        if self._options.fails_on_loss:
            raise KafkaError(
                f"{what}. Read again; with failOnDataLoss=false what is left is read",
                topic=place.topic,
                partition=place.partition,
            )
        logger.warning("%s. What is left is read, because failOnDataLoss=false", printable(what))
        return last + 1

    def _name(self) -> str:
        return f"{self._place.topic}[{self._place.partition}]"
