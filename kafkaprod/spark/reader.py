"""Reading topics back as a batch, with the schema and the options of Spark's own source: to check what was written.

    spark.read.format("kafkaprod").option("kafka.bootstrap.servers", ...).option("subscribe", "orders").load()

One task per topic partition; rows come as Arrow batches, one per fetch. A range is settled on the driver, so it does
not move while it is read. Source of the options: Spark's "Structured Streaming + Kafka Integration Guide".
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from kafkaprod._core.batch_reader import RecordBatchReader
from kafkaprod.admin.client import ClusterClient
from kafkaprod.admin.reading import PartitionReader
from kafkaprod.admin.topics import log_offsets
from kafkaprod.config import ProducerConfig
from kafkaprod.errors import ConfigError
from kafkaprod.spark.options import KAFKA_PREFIX, check_kafka_options
from kafkaprod.spark.pushdown import Bounds

SCHEMA: Final = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int"
)
HEADERS: Final = "headers array<struct<key:string,value:binary>>"
_EARLIEST: Final = -2
_LATEST: Final = -1
_HEADER_TYPE: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


@dataclass
class TopicRange(InputPartition):
    """Offsets of one partition, the end not included."""

    topic: str
    partition: int
    start: int
    end: int


def has_headers(options: Mapping[str, str]) -> bool:
    """Whether the option includeHeaders is on."""
    return _is_on(options, "includeheaders")


def make_reader(options: Mapping[str, str]) -> TopicReader:
    """The reader that the options ask for; TopicReader tells what they may be."""
    return PushedReader(options) if _is_on(options, "pushfilters") else TopicReader(options)


class TopicReader(DataSourceReader):
    """Reads ranges of topics.

    Raises: ConfigError for options: exactly one of subscribe (names with commas) and assign (JSON) is needed.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        given = {name.lower(): value for name, value in options.items()}
        self._kafka = {
            name.removeprefix(KAFKA_PREFIX): value for name, value in given.items() if name.startswith(KAFKA_PREFIX)
        }
        check_kafka_options(self._kafka)
        if ("subscribe" in given) == ("assign" in given):
            raise ConfigError("One of the following options must be specified for Kafka source: subscribe, assign.")
        self._assigned: dict[str, list[int] | None] = (
            _json(given, "assign")
            if "assign" in given
            else {topic.strip(): None for topic in given["subscribe"].split(",")}
        )
        self._starting = _offsets(given, "startingoffsets", "earliest")
        self._ending = _offsets(given, "endingoffsets", "latest")
        self._has_headers = has_headers(given)
        self._bounds = Bounds()

    def partitions(self) -> Sequence[TopicRange]:
        """Settle the ranges. Raises KafkaError if a topic does not exist or no broker can be used."""
        ranges = []
        with ClusterClient(ProducerConfig.from_options(self._kafka)) as client:
            for topic, chosen in self._assigned.items():
                first, last = log_offsets(client, topic, _EARLIEST), log_offsets(client, topic, _LATEST)
                for partition in sorted(first) if chosen is None else chosen:
                    if partition not in first:
                        raise ConfigError(f"assign: topic {topic!r} has {len(first)} partitions, but not {partition}")
                    known = {_EARLIEST: first[partition], _LATEST: last[partition]}
                    start = _place(self._starting, topic, partition, _EARLIEST)
                    end = _place(self._ending, topic, partition, _LATEST)
                    start, end = known.get(start, start), known.get(end, end)
                    if not first[partition] <= start <= end <= last[partition]:
                        raise ConfigError(
                            f"offsets {start}..{end} of {topic}[{partition}] are outside {first[partition]}.."
                            f"{last[partition]}, which is in the log"
                        )
                    start, end = max(start, self._bounds.first), min(end, self._bounds.end)
                    if start < end and self._bounds.allow(topic, partition):
                        ranges.append(TopicRange(topic, partition, start, end))
        return ranges

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of a range."""
        if not isinstance(partition, TopicRange):  # Spark's own: there were no ranges
            return
        with ClusterClient(ProducerConfig.from_options(self._kafka)) as client:
            reader = PartitionReader(client, partition.topic, partition.partition)
            for batch in reader.batches(partition.start, partition.end):
                if not batch.is_control:
                    yield self._to_arrow(partition, batch)

    def _to_arrow(self, place: TopicRange, batch: RecordBatchReader) -> pa.RecordBatch:
        records = [record for record in batch.records() if place.start <= record.offset < place.end]
        count = len(records)
        kind = 1 if batch.has_log_append_time else 0
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
        if self._has_headers:
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


def _is_on(options: Mapping[str, str], name: str) -> bool:
    return str(options.get(name, "false")).lower() == "true"


def _json(options: Mapping[str, str], name: str) -> Any:
    try:
        return json.loads(options[name])
    except ValueError as error:
        raise ConfigError(f"{name} is not JSON such as '{{\"topic\": [0, 1]}}': {error}") from error


def _offsets(options: Mapping[str, str], name: str, default: str) -> Any:
    """-1 or -2 for all partitions, or topic -> partition -> offset."""
    text = options.get(name, default)
    if text.lower() in ("earliest", "latest"):
        return _EARLIEST if text.lower() == "earliest" else _LATEST
    return _json(options, name)


def _place(offsets: Any, topic: str, partition: int, default: int) -> int:
    return int(offsets.get(topic, {}).get(str(partition), default)) if isinstance(offsets, dict) else offsets
