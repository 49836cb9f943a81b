"""The options of the reader, checked on the driver before any task starts: those of Spark's own source for a batch.

An option that cannot be followed is refused by name, never ignored: the read would return other records.
Source of the options and of the errors' words: org.apache.spark.sql.kafka010.KafkaSourceProvider and JsonUtils.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kafkaprod.errors import ConfigError
from kafkaprod.spark.options import KAFKA_PREFIX, SINK_OPTIONS, boolean_option, check_kafka_options, check_unprefixed

EARLIEST: Final = -2
LATEST: Final = -1

Place = tuple[str, int]  # topic and partition
Offsets = int | dict[Place, int]  # EARLIEST or LATEST of every partition, or one for each, which may be that too

_READER_OPTIONS: Final = frozenset(
    ("subscribe", "assign", "startingoffsets", "endingoffsets", "includeheaders", "pushfilters")
)
_REFUSED: Final = {
    "subscribepattern": "name the topics with subscribe",
    "startingtimestamp": "say startingOffsets, or filter on the column timestamp",
    "endingtimestamp": "say endingOffsets, or filter on the column timestamp",
    "startingoffsetsbytimestamp": "say startingOffsets, or filter on the column timestamp",
    "endingoffsetsbytimestamp": "say endingOffsets, or filter on the column timestamp",
}
# They say how Spark's source reads or what it does in streams, not what a batch reads.
_WITHOUT_EFFECT: Final = frozenset(
    (
        *("path", "failondataloss", "minpartitions", "maxrecordsperpartition", "groupidprefix"),
        *("kafkaconsumer.polltimeoutms", "fetchoffset.numretries", "fetchoffset.retryintervalms"),
        *("maxoffsetspertrigger", "minoffsetspertrigger", "maxtriggerdelay", "startingoffsetsbytimestampstrategy"),
    )
)
_CONSUMER_OPTIONS: Final = {
    "auto.offset.reset": "say startingOffsets",
    "enable.auto.commit": "nothing is committed",
    "group.id": "the reader joins no group",
    "interceptor.classes": "they are JVM classes",
    "isolation.level": "records of transactions that are open or aborted are read too",
    "key.deserializer": "keys are binary; use DataFrame operations to deserialize them",
    "value.deserializer": "values are binary; use DataFrame operations to deserialize them",
}


@dataclass(frozen=True, slots=True)
class ReaderOptions:
    """The validated options of a read.

    Attributes:
        kafka: Options of the client, prefix dropped; not shown, for the secrets in them.
        assigned: Topic -> partitions; None: all it has.
        starting, ending: Offsets.
        has_headers: Whether there is a column of headers.
        pushes_filters: Whether filters are taken from Spark.
    """

    kafka: Mapping[str, Any] = field(repr=False)
    assigned: Mapping[str, tuple[int, ...] | None]
    starting: Offsets
    ending: Offsets
    has_headers: bool
    pushes_filters: bool


def parse_reader_options(options: Mapping[str, str]) -> ReaderOptions:
    """Check every option.

    Raises:
        ConfigError: One is missing, has a wrong value or is not supported; in the words of Spark's source where it
            has any.
    """
    given = {name.lower(): value for name, value in options.items()}
    kafka = {name.removeprefix(KAFKA_PREFIX): value for name, value in given.items() if name.startswith(KAFKA_PREFIX)}
    known = _READER_OPTIONS | _WITHOUT_EFFECT | SINK_OPTIONS  # a view may have those of the sink, too
    for name in (name for name in given if name not in known):
        if name in _REFUSED:
            raise ConfigError(f"the option {name!r} of Spark's own source is not supported: {_REFUSED[name]}")
        if not name.startswith(KAFKA_PREFIX):
            check_unprefixed(name, _READER_OPTIONS | _REFUSED.keys())
    for name in kafka.keys() & _CONSUMER_OPTIONS.keys():
        raise ConfigError(f"Kafka option '{name}' is not supported: {_CONSUMER_OPTIONS[name]}")
    check_kafka_options(kafka, "consumer")
    return ReaderOptions(
        kafka=kafka,
        assigned=_assigned(given),
        starting=_starting(given.get("startingoffsets", "earliest")),
        ending=_ending(given.get("endingoffsets", "latest")),
        has_headers=boolean_option(given, "includeheaders", False),
        pushes_filters=boolean_option(given, "pushfilters", False),
    )


def _assigned(given: Mapping[str, str]) -> dict[str, tuple[int, ...] | None]:
    ways = [name for name in ("subscribe", "assign") if name in given]
    if len(ways) != 1:
        number = "Only one" if ways else "One"
        verb = "can" if ways else "must"
        raise ConfigError(f"{number} of the following options {verb} be specified for Kafka source: subscribe, assign.")
    text = given[ways[0]]
    if ways[0] == "subscribe":
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


def _starting(text: str) -> Offsets:
    offsets = _offsets("startingOffsets", text)
    if offsets == LATEST:
        raise ConfigError("starting offset can't be latest for batch queries on Kafka")
    for (topic, partition), offset in offsets.items() if isinstance(offsets, dict) else ():
        if offset == LATEST:
            raise ConfigError(f"startingOffsets for {topic}-{partition} can't be latest for batch queries on Kafka")
    return offsets


def _ending(text: str) -> Offsets:
    offsets = _offsets("endingOffsets", text)
    if offsets == EARLIEST:
        raise ConfigError("ending offset can't be earliest for batch queries on Kafka")
    for (topic, partition), offset in offsets.items() if isinstance(offsets, dict) else ():
        if offset == EARLIEST:
            raise ConfigError(f"ending offset for {topic}-{partition} can't be earliest for batch queries on Kafka")
    return offsets


def _offsets(name: str, text: str) -> Offsets:
    word = text.strip().lower()
    if word in ("earliest", "latest"):
        return EARLIEST if word == "earliest" else LATEST
    found = _json(text)
    if not isinstance(found, dict) or not all(
        isinstance(offsets, dict)
        and all(number.isdecimal() for number in offsets)
        and all(_is_number(offset) and offset >= EARLIEST for offset in offsets.values())
        for offsets in found.values()
    ):
        raise ConfigError(
            f'{name}: Expected earliest, latest or e.g. {{"topicA":{{"0":23,"1":-1}},"topicB":{{"0":-2}}}}, got {text}'
        )
    return {(topic, int(number)): offset for topic, offsets in found.items() for number, offset in offsets.items()}


def _json(text: str) -> Any:
    """Return the parsed text; None if it is not JSON."""
    try:
        return json.loads(text)
    except ValueError:
        return None


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
