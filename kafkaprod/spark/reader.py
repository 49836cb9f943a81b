"""Reading topics back as a batch, with the schema and the options of Spark's own source: to check what was written.

    spark.read.format("kafkaprod").option("kafka.bootstrap.servers", ...).option("subscribe", "orders").load()

One task per topic partition; rows come as Arrow batches, one per record batch. Source of the options: Spark's
"Structured Streaming + Kafka Integration Guide".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from kafkaprod._core.records.batch_reader import Record
from kafkaprod.admin.client import ClusterClient
from kafkaprod.config import ProducerConfig
from kafkaprod.spark.pushdown import Bounds
from kafkaprod.spark.range_reader import RangeReader
from kafkaprod.spark.ranges import TopicRange, settle_ranges
from kafkaprod.spark.reader_options import ReaderOptions, parse_reader_options
from kafkaprod.spark.worker import freeze_imports

SCHEMA: Final = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int"
)
HEADERS: Final = "headers array<struct<key:string,value:binary>>"
_ROWS: Final = 10_000
_HEADER_TYPE: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def make_reader(options: Mapping[str, str]) -> TopicReader:
    """Return the reader for these options. Raises ConfigError as parse_reader_options does."""
    parsed = parse_reader_options(options)
    return PushedReader(parsed) if parsed.pushes_filters else TopicReader(parsed)


class TopicReader(DataSourceReader):
    """Reads ranges of topics."""

    def __init__(self, options: ReaderOptions) -> None:
        self._options = options
        self._bounds = Bounds()

    def partitions(self) -> Sequence[InputPartition]:
        """Settle the ranges.

        Raises:
            ConfigError, KafkaError: As settle_ranges.
        """
        with ClusterClient(ProducerConfig.from_options(dict(self._options.kafka))) as client:
            return settle_ranges(client, self._options, self._bounds)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of a range.

        Raises:
            KafkaError: Records of it are no longer in the log, or its end is not reached.
        """
        freeze_imports()
        if not isinstance(partition, TopicRange):  # Spark's own: there were no ranges
            return
        with ClusterClient(ProducerConfig.from_options(dict(self._options.kafka))) as client:
            for batch in RangeReader(client, partition, self._options).batches():
                records = (record for record in batch if partition.start <= record.offset < partition.end)
                while rows := list(islice(records, _ROWS)):  # a hostile batch may hold millions
                    yield self._to_arrow(partition, rows, 1 if batch.has_log_append_time else 0)

    def _to_arrow(self, place: TopicRange, records: list[Record], kind: int) -> pa.RecordBatch:
        count = len(records)
        columns = [
            pa.array([record.key for record in records], pa.binary()),
            pa.array([record.value for record in records], pa.binary()),
            pa.repeat(place.topic, count),
            pa.repeat(pa.scalar(place.partition, pa.int32()), count),
            pa.array([record.offset for record in records], pa.int64()),
            pa.array([record.timestamp * 1000 for record in records], pa.timestamp("us", "UTC")),
            pa.repeat(pa.scalar(kind, pa.int32()), count),
        ]
        names = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
        if self._options.has_headers:
            pairs: list[Any] = [
                [{"key": key, "value": value} for key, value in record.headers] or None for record in records
            ]
            columns.append(pa.array(pairs, _HEADER_TYPE))
            names.append("headers")
        return pa.RecordBatch.from_arrays(columns, names=names)


class PushedReader(TopicReader):
    """A reader that takes filters from Spark. Fails where spark.sql.python.filterPushdown.enabled is not true."""

    def pushFilters(self, filters: Iterable[Any]) -> Iterator[Any]:
        """Yield those that Spark must evaluate."""
        yield from (condition for condition in filters if not self._bounds.take(condition))
