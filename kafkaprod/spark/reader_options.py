"""The options of the reader, checked on the driver before any task starts: those of Spark's own source for a batch.

An option that cannot be followed is refused by name, never ignored: the read would return other records.
Source of the options and of the errors' words: org.apache.spark.sql.kafka010.KafkaSourceProvider and JsonUtils.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kafkaprod.admin.topics import READ_COMMITTED, READ_UNCOMMITTED
from kafkaprod.errors import ConfigError
from kafkaprod.spark.options import KAFKA_PREFIX, SINK_OPTIONS, boolean_option, check_kafka_options, check_unprefixed

EARLIEST: Final = -2
LATEST: Final = -1

TopicAndPartition = tuple[str, int]  # topic and partition
WantedOffsets = (
    int | dict[TopicAndPartition, int]
)  # EARLIEST or LATEST of every partition, or one for each, which may be that too


@dataclass(frozen=True, slots=True)
class Times:
    """Offsets by time: those of the first records that are not older.

    Attributes:
        wanted: Milliseconds since the epoch: one for every partition, or one for each.
        is_missing_refused: Whether a partition without such a record is an error; False: its end is taken.
    """

    wanted: int | dict[TopicAndPartition, int]
    is_missing_refused: bool


_READER_OPTIONS: Final = frozenset(
    (
        *("subscribe", "subscribepattern", "assign", "includeheaders", "pushfilters", "failondataloss"),
        *("startingoffsets", "endingoffsets", "startingtimestamp", "endingtimestamp", "startingoffsetsbytimestamp"),
        *("endingoffsetsbytimestamp", "startingoffsetsbytimestampstrategy", "isolation.level"),
    )
)
_WAYS: Final = ("subscribe", "subscribePattern", "assign")
_ISOLATION: Final = "isolation.level"
_LEVELS: Final = {"read_uncommitted": READ_UNCOMMITTED, "read_committed": READ_COMMITTED}
# They say how Spark's source reads or what it does in streams, not what a batch reads.
_WITHOUT_EFFECT: Final = frozenset(
    (
        *("path", "minpartitions", "maxrecordsperpartition", "groupidprefix"),
        *("kafkaconsumer.polltimeoutms", "fetchoffset.numretries", "fetchoffset.retryintervalms"),
        *("maxoffsetspertrigger", "minoffsetspertrigger", "maxtriggerdelay"),
    )
)
_CONSUMER_OPTIONS: Final = {
    "auto.offset.reset": "say startingOffsets",
    "enable.auto.commit": "nothing is committed",
    "group.id": "the reader joins no group",
    "interceptor.classes": "they are JVM classes",
    "key.deserializer": "keys are binary; use DataFrame operations to deserialize them",
    "value.deserializer": "values are binary; use DataFrame operations to deserialize them",
}


@dataclass(frozen=True, slots=True)
class ReaderOptions:
    """The validated options of a read.

    Attributes:
        kafka: Options of the client, prefix dropped; not shown, for the secrets in them.
        assigned: Topic -> partitions; None: all it has.
        pattern: Topics whose whole name matches are read; None: those assigned.
        starting, ending: Offsets.
        has_headers: Whether there is a column of headers.
        pushes_filters: Whether filters are taken from Spark.
        isolation: READ_COMMITTED leaves out records of transactions that were aborted, and ends before open ones.
        fails_on_loss: Whether offsets that are no longer in the log are an error; False: what is left is read.
    """

    kafka: Mapping[str, Any] = field(repr=False)
    assigned: Mapping[str, tuple[int, ...] | None]
    pattern: re.Pattern[str] | None
    starting: WantedOffsets | Times
    ending: WantedOffsets | Times
    has_headers: bool
    pushes_filters: bool
    isolation: int
    fails_on_loss: bool


def parse_reader_options(options: Mapping[str, str]) -> ReaderOptions:
    """Check every option.

    Raises:
        ConfigError: One is missing, has a wrong value or is not supported; in the words of Spark's source where it
            has any.
    """
    given = {name.lower(): value for name, value in options.items()}
    kafka = {name.removeprefix(KAFKA_PREFIX): value for name, value in given.items() if name.startswith(KAFKA_PREFIX)}
    known = _READER_OPTIONS | _WITHOUT_EFFECT | SINK_OPTIONS  # a view may have those of the sink, too
    for name in given:
        if name not in known and not name.startswith(KAFKA_PREFIX):
            check_unprefixed(name, _READER_OPTIONS)
    isolation = _isolation(given, kafka)
    for name in kafka.keys() & _CONSUMER_OPTIONS.keys():
        raise ConfigError(f"Kafka option '{name}' is not supported: {_CONSUMER_OPTIONS[name]}")
    check_kafka_options(kafka, "consumer")
    way = _way(given)
    return ReaderOptions(
        kafka=kafka,
        assigned=_assigned(way, given[way.lower()]),
        pattern=_pattern(given[way.lower()]) if way == "subscribePattern" else None,
        starting=_times("starting", given) or _starting(given.get("startingoffsets", "earliest")),
        ending=_times("ending", given) or _ending(given.get("endingoffsets", "latest")),
        has_headers=boolean_option(given, "includeheaders", False),
        pushes_filters=boolean_option(given, "pushfilters", False),
        isolation=isolation,
        fails_on_loss=boolean_option(given, "failondataloss", True),
    )


def _isolation(given: Mapping[str, str], kafka: dict[str, str]) -> int:
    """Take the level out of the options of the client, which is no consumer."""
    name = f"{KAFKA_PREFIX}{_ISOLATION}"
    prefixed, bare = kafka.pop(_ISOLATION, None), given.get(_ISOLATION)
    if prefixed is not None and bare is not None and prefixed.lower() != bare.lower():
        raise ConfigError(f"{name}={prefixed!r} and {_ISOLATION}={bare!r} differ: leave one out")
    level = prefixed if prefixed is not None else bare if bare is not None else "read_uncommitted"
    if level.lower() not in _LEVELS:
        raise ConfigError(f"{name}={level!r} must be one of {', '.join(_LEVELS)}")
    return _LEVELS[level.lower()]


def _way(given: Mapping[str, str]) -> str:
    """Return which option names the topics."""
    ways = [name for name in _WAYS if name.lower() in given]
    if len(ways) != 1:
        number, verb = ("Only one", "can") if ways else ("One", "must")
        raise ConfigError(
            f"{number} of the following options {verb} be specified for Kafka source: {', '.join(_WAYS)}."
        )
    return ways[0]


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise ConfigError(f"subscribePattern={text!r} is no regular expression of Python's: {error}") from error


def _assigned(way: str, text: str) -> dict[str, tuple[int, ...] | None]:
    if way == "subscribePattern":
        return {}
    if way == "subscribe":
        topics = [topic.strip() for topic in text.split(",") if topic.strip()]
        if not topics:
            raise ConfigError(f"No topics to subscribe to as specified value for option 'subscribe' is '{text}'")
        return dict.fromkeys(topics)
    found = _json(text)
    if not isinstance(found, dict) or not all(
        isinstance(numbers, list) and all(map(_is_number, numbers)) for numbers in found.values()
    ):
        raise ConfigError(f'assign: Expected e.g. {{"topicA":[0,1],"topicB":[0,1]}}, got {text}')
    return {topic: tuple(sorted(set(numbers))) for topic, numbers in found.items()}


def _times(end: str, given: Mapping[str, str]) -> Times | None:
    """Return the times of one end, "starting" or "ending", if they are given; they win over offsets."""
    strategy = given.get("startingoffsetsbytimestampstrategy", "error").lower()
    if strategy not in ("error", "latest"):
        raise ConfigError(f"startingOffsetsByTimestampStrategy={strategy!r} must be error or latest")
    is_missing_refused = end == "starting" and strategy == "error"
    if (text := given.get(f"{end}timestamp")) is not None:
        if not text.strip().isdecimal():
            raise ConfigError(f"{end}Timestamp={text!r} must be a number of milliseconds since the epoch")
        return Times(int(text), is_missing_refused)
    if (text := given.get(f"{end}offsetsbytimestamp")) is None:
        return None
    found = _by_place(_json(text), 0)
    if found is None:
        raise ConfigError(
            f"{end}OffsetsByTimestamp: Expected e.g. "
            f'{{"topicA":{{"0":123456789,"1":123456789}},"topicB":{{"0":123456789}}}}, got {text}'
        )
    return Times(found, is_missing_refused)


def _starting(text: str) -> WantedOffsets:
    offsets = _offsets("startingOffsets", text)
    if offsets == LATEST:
        raise ConfigError("starting offset can't be latest for batch queries on Kafka")
    for (topic, partition), offset in offsets.items() if isinstance(offsets, dict) else ():
        if offset == LATEST:
            raise ConfigError(f"startingOffsets for {topic}-{partition} can't be latest for batch queries on Kafka")
    return offsets


def _ending(text: str) -> WantedOffsets:
    offsets = _offsets("endingOffsets", text)
    if offsets == EARLIEST:
        raise ConfigError("ending offset can't be earliest for batch queries on Kafka")
    for (topic, partition), offset in offsets.items() if isinstance(offsets, dict) else ():
        if offset == EARLIEST:
            raise ConfigError(f"ending offset for {topic}-{partition} can't be earliest for batch queries on Kafka")
    return offsets


def _offsets(name: str, text: str) -> WantedOffsets:
    word = text.strip().lower()
    if word in ("earliest", "latest"):
        return EARLIEST if word == "earliest" else LATEST
    found = _by_place(_json(text), EARLIEST)
    if found is None:
        raise ConfigError(
            f'{name}: Expected earliest, latest or e.g. {{"topicA":{{"0":23,"1":-1}},"topicB":{{"0":-2}}}}, got {text}'
        )
    return found


def _by_place(found: Any, least: int) -> dict[TopicAndPartition, int] | None:
    """Return the numbers of partitions; None if it is something else, or one is below the least."""
    if not isinstance(found, dict) or not all(
        isinstance(numbers, dict)
        and all(partition.isdecimal() for partition in numbers)
        and all(_is_number(number) and number >= least for number in numbers.values())
        for numbers in found.values()
    ):
        return None
    return {(topic, int(key)): number for topic, numbers in found.items() for key, number in numbers.items()}


def _json(text: str) -> Any:
    """Return the parsed text; None if it is not JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
