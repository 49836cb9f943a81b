"""Reading topics back as a batch, with the schema and the options of Spark's own source: to check what was written.

    spark.read.format("kafkaprod").option("kafka.bootstrap.servers", ...).option("subscribe", "orders").load()

One task per topic partition; rows come as Arrow batches, one per fetch. A range is settled on the driver, so it does
not move while it is read. Source of the options: Spark's "Structured Streaming + Kafka Integration Guide".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from kafkaprod._core.records.batch_reader import Record
from kafkaprod.admin.client import ClusterClient
from kafkaprod.admin.reading import PartitionReader
from kafkaprod.admin.topics import log_offsets
from kafkaprod.config import ProducerConfig
from kafkaprod.errors import ConfigError
from kafkaprod.spark.pushdown import Bounds
from kafkaprod.spark.reader_options import EARLIEST, LATEST, Offsets, Place, ReaderOptions, parse_reader_options
from kafkaprod.spark.worker import freeze_imports

SCHEMA: Final = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int"
)
HEADERS: Final = "headers array<struct<key:string,value:binary>>"
_ROWS: Final = 10_000
_HEADER_TYPE: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


@dataclass
class TopicRange(InputPartition):
    """A range of offsets of one partition, the end not included."""

    topic: str
    partition: int
    start: int
    end: int


def make_reader(options: Mapping[str, str]) -> TopicReader:
    """Return the reader for these options. Raises ConfigError as parse_reader_options does."""
    parsed = parse_reader_options(options)
    return PushedReader(parsed) if parsed.pushes_filters else TopicReader(parsed)


class TopicReader(DataSourceReader):
    """Reads ranges of topics."""

    def __init__(self, options: ReaderOptions) -> None:
        self._options = options
        self._bounds = Bounds()

    def partitions(self) -> Sequence[TopicRange]:
        """Settle the ranges.

        Raises:
            ConfigError: Offsets are outside the log, or do not name the partitions that are read.
            KafkaError: A topic does not exist, or no broker can be used.
        """
        options = self._options
        with ClusterClient(ProducerConfig.from_options(dict(options.kafka))) as client:
            logs = {place: log for topic in options.assigned for place, log in self._logs(client, topic)}
        ranges = []
        starts = _settle("startingOffsets", options.starting, logs)
        ends = _settle("endingOffsets", options.ending, logs)
        for (topic, partition), (first, last) in logs.items():
            start, end = starts[topic, partition], ends[topic, partition]
            if not first <= start <= end <= last:
                raise ConfigError(
                    f"offsets {start}..{end} of {topic}[{partition}] are outside {first}..{last}, which is in the log"
                )
            start, end = max(start, self._bounds.first), min(end, self._bounds.end)
            if start < end and self._bounds.allow(topic, partition):
                ranges.append(TopicRange(topic, partition, start, end))
        return ranges

    def _logs(self, client: ClusterClient, topic: str) -> Iterator[tuple[Place, tuple[int, int]]]:
        """Yield the partitions of a topic that are read with the ends of their logs."""
        first, last = log_offsets(client, topic, EARLIEST), log_offsets(client, topic, LATEST)
        chosen = self._options.assigned[topic]
        for partition in sorted(first) if chosen is None else chosen:
            if partition not in first:
                raise ConfigError(f"assign: topic {topic!r} has {len(first)} partitions, but not {partition}")
            yield (topic, partition), (first[partition], last[partition])

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of a range."""
        freeze_imports()
        if not isinstance(partition, TopicRange):  # Spark's own: there were no ranges
            return
        with ClusterClient(ProducerConfig.from_options(dict(self._options.kafka))) as client:
            reader = PartitionReader(client, partition.topic, partition.partition)
            for batch in reader.batches(partition.start, partition.end):
                if batch.is_control:
                    continue
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


def _settle(name: str, wanted: Offsets, logs: Mapping[Place, tuple[int, int]]) -> Mapping[Place, int]:
    """Replace EARLIEST and LATEST by offsets."""
    if isinstance(wanted, dict) and wanted.keys() != logs.keys():
        raise ConfigError(
            f"If {name} contains specific offsets, you must specify all TopicPartitions. Use -1 for latest, -2 for "
            f"earliest. Specified: {_names(wanted)}; assigned: {_names(logs)}"
        )
    offsets = wanted if isinstance(wanted, dict) else dict.fromkeys(logs, wanted)
    return {
        place: {EARLIEST: log[0], LATEST: log[1]}.get(offsets[place], offsets[place]) for place, log in logs.items()
    }


def _names(places: Iterable[Place]) -> str:
    return ", ".join(f"{topic}-{partition}" for topic, partition in sorted(places)) or "none"
