"""Which offsets of which partitions a read covers: settled on the driver, so that it does not move while it is read."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pyspark.sql.datasource import InputPartition

from kafkaprod.admin.client import ClusterClient
from kafkaprod.admin.topics import READ_COMMITTED, list_topics, log_offsets
from kafkaprod.errors import ConfigError
from kafkaprod.spark.pushdown import Bounds
from kafkaprod.spark.reader_options import EARLIEST, LATEST, ReaderOptions, Times, TopicAndPartition, WantedOffsets
from kafkaprod.text import printable

Logs = Mapping[TopicAndPartition, tuple[int, int]]  # first offset and end of each log

logger = logging.getLogger("kafkaprod.spark")


@dataclass
class TopicRange(InputPartition):
    """A range of offsets of one partition, the end not included."""

    topic: str
    partition: int
    start: int
    end: int


def settle_ranges(client: ClusterClient, options: ReaderOptions, bounds: Bounds) -> list[TopicRange]:
    """Return the ranges to read, without empty ones.

    Args:
        client: A client of the cluster.
        options: The options of the read.
        bounds: What Spark's filters leave of it.

    Raises:
        ConfigError: Offsets are outside the log, or do not name the partitions that are read.
        KafkaError: A topic does not exist, or no broker can be used.
    """
    logs = _logs(client, options)
    starts = _settle(client, "starting", options.starting, logs)
    ends = _settle(client, "ending", options.ending, logs)
    ranges = []
    for (topic, partition), log in logs.items():
        start, end = _inside(topic, partition, (starts[topic, partition], ends[topic, partition]), log, options)
        start, end = max(start, bounds.first), min(end, bounds.end)
        if start < end and bounds.allow(topic, partition):
            ranges.append(TopicRange(topic, partition, start, end))
    return ranges


def _logs(client: ClusterClient, options: ReaderOptions) -> Logs:
    """Return the partitions that are read with the ends of their logs: of what a reader of this isolation may see."""
    assigned = options.assigned
    if options.pattern is not None:
        names = [topic.name for topic in list_topics(client) if not topic.is_internal]
        assigned = dict.fromkeys(name for name in names if options.pattern.fullmatch(name))
        if not assigned:
            raise ConfigError(f"subscribePattern={options.pattern.pattern!r} matches none of {len(names)} topics")
    logs: dict[TopicAndPartition, tuple[int, int]] = {}
    for topic, chosen in assigned.items():
        first, last = log_offsets(client, topic, EARLIEST), log_offsets(client, topic, LATEST, options.isolation)
        for partition in sorted(first) if chosen is None else chosen:
            if partition not in first:
                raise ConfigError(f"assign: topic {topic!r} has {len(first)} partitions, but not {partition}")
            logs[topic, partition] = first[partition], max(first[partition], last[partition])
    return logs


def _inside(
    topic: str, partition: int, wanted: tuple[int, int], log: tuple[int, int], options: ReaderOptions
) -> tuple[int, int]:
    """Return the range as far as the log has it; an error if records are lost and failOnDataLoss is true."""
    start, end = wanted
    if log[0] <= start <= end <= log[1]:
        return start, end
    what = f"offsets {start}..{end} of {topic}[{partition}] are outside {log[0]}..{log[1]}, which is in the log"
    if start > end:
        raise ConfigError(what)
    if start < log[0]:
        cause = "retention or deletion has removed those before"
    elif options.isolation == READ_COMMITTED:
        cause = "behind it are open transactions, or nothing"
    else:
        cause = "nothing was written behind it"
    if options.fails_on_loss:
        raise ConfigError(f"{what}; {cause}. With failOnDataLoss=false what is left is read")
    logger.warning("%s; %s. What is left is read, because failOnDataLoss=false", printable(what), printable(str(cause)))
    return tuple(min(max(offset, log[0]), log[1]) for offset in wanted)  # type: ignore[return-value]


def _settle(
    client: ClusterClient, end: str, wanted: WantedOffsets | Times, logs: Logs
) -> Mapping[TopicAndPartition, int]:
    """Replace EARLIEST, LATEST and times by offsets.

    Args:
        client: A client of the cluster.
        end: "starting" or "ending".
        wanted: As given.
        logs: The logs of the partitions that are read.
    """
    given = wanted.wanted if isinstance(wanted, Times) else wanted
    if isinstance(given, dict) and given.keys() != logs.keys():
        if isinstance(wanted, Times):
            name, words = f"{end}OffsetsByTimestamp", "timestamps, you must specify all TopicPartitions."
        else:
            name = f"{end}Offsets"
            words = "offsets, you must specify all TopicPartitions. Use -1 for latest, -2 for earliest."
        raise ConfigError(f"If {name} contains specific {words} Specified: {_names(given)}; assigned: {_names(logs)}")
    each = given if isinstance(given, dict) else dict.fromkeys(logs, given)
    if isinstance(wanted, Times):
        return _first_since(client, end, each, logs, is_missing_refused=wanted.is_missing_refused)
    return {place: {EARLIEST: log[0], LATEST: log[1]}.get(each[place], each[place]) for place, log in logs.items()}


def _first_since(
    client: ClusterClient, end: str, times: Mapping[TopicAndPartition, int], logs: Logs, *, is_missing_refused: bool
) -> dict[TopicAndPartition, int]:
    """Return the offsets of the first records that are not older than a time; the end of the log if there is none."""
    answers = {
        (topic, time): log_offsets(client, topic, time) for topic, time in {(p[0], ms) for p, ms in times.items()}
    }
    offsets = {}
    for place, log in logs.items():
        topic, partition = place
        offset = answers[topic, times[place]].get(partition, -1)
        if offset < 0 and is_missing_refused:
            raise ConfigError(
                f"No offset matched from request of topic-partition {topic}-{partition} and timestamp {times[place]}: "
                f"no record is so new. startingOffsetsByTimestampStrategy=latest reads from the end then ({end})"
            )
        offsets[place] = log[1] if offset < 0 else min(max(offset, log[0]), log[1])
    return offsets


def _names(places: Iterable[TopicAndPartition]) -> str:
    return ", ".join(f"{topic}-{partition}" for topic, partition in sorted(places)) or "none"
