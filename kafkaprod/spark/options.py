"""The options of the sink: which are Spark's, which the sink's, which Kafka's; each wrong one is named.

Source: Spark's "Structured Streaming + Kafka Integration Guide". Keys arrive in lower case, values as text.
"""

from __future__ import annotations

import difflib
import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kafkaprod.config import ProducerConfig
from kafkaprod.config.producer_config import OPTIONS
from kafkaprod.config.refused import OF_CONSUMERS, REFUSED
from kafkaprod.errors import ConfigError
from kafkaprod.spark.avro import AVRO_OPTIONS, REGISTRY_PREFIX, AvroOptions, parse_avro_options

KAFKA_PREFIX: Final = "kafka."
VALUE_FORMATS: Final = ("bytes", "json", "avro")

COUNT, CONTENT, NONE = "count", "content", "none"  # of verify.replay
DELIVERIES: Final = ("at_least_once", "transactional")

_TRANSACTION_OPTIONS: Final = frozenset(("txn.prefix", "txn.twin.wait.ms", "marker.topic", "verify.replay"))
SINK_OPTIONS: Final = (
    _TRANSACTION_OPTIONS
    | AVRO_OPTIONS
    | frozenset(
        (
            *("topic", "value.format", "value.columns", "dedup.headers", "write.id", "preflight", "delivery"),
            f"{REGISTRY_PREFIX}url",
        )
    )
)
_NOT_OURS: Final = frozenset(("includeheaders", "path", "checkpointlocation", "queryname", "provider"))
_SERIALIZERS: Final = {"key.serializer": "keys", "value.serializer": "values"}
_PRODUCER_OPTIONS: Final = (
    frozenset(option.dotted_name for option in OPTIONS.values())
    | frozenset(alias for option in OPTIONS.values() for alias in option.aliases)
    | REFUSED.keys() - OF_CONSUMERS
)

_ALIKE: Final = 0.85  # by difflib's ratio: 'topics' and 'topic', 'dedup.header' and 'dedup.headers'

logger = logging.getLogger("kafkaprod.spark")


@dataclass(frozen=True, slots=True)
class TransactionOptions:
    """The options of delivery=transactional.

    Attributes:
        prefix: Begins each transactional id and group.
        mark_topic: Partition 0 of it has the committed offsets that serve as write marks.
        twin_wait_ms: How long a task that another attempt has fenced waits for that attempt's rows.
        verify: What a repeated task compares with what was written: "count", "content" or "none".
    """

    prefix: str
    mark_topic: str
    twin_wait_ms: int
    verify: str


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The validated options of a write.

    Attributes:
        kafka: Options of the producer, prefix dropped; not shown, for the secrets in them.
        topic: The topic of every row; None: the column `topic` says.
        value_format: "bytes": the column `value`; "json" and "avro": an object or a record of columns.
        value_columns: Columns of it; None: all that are not the key, topic, partition, headers or timestamp.
        is_deduplicable: Whether headers tell which row of which write a record is.
        write_id: Stands for the query in those headers; None: the query's own id, or one made for this write.
        is_preflighted: Whether the driver looks for the topic before any task starts.
        transactions: None: at least once.
        avro: Where the schema of Avro values comes from; None: they are in another format.
    """

    kafka: Mapping[str, Any] = field(repr=False)
    topic: str | None = None
    value_format: str = "bytes"
    value_columns: tuple[str, ...] | None = None
    is_deduplicable: bool = False
    write_id: str | None = None
    is_preflighted: bool = True
    transactions: TransactionOptions | None = None
    avro: AvroOptions | None = None


def parse_options(options: Mapping[str, Any]) -> SinkOptions:
    """Check every option; the producer's own by making its configuration.

    Raises:
        ConfigError: One is missing, has a wrong value, is the JVM's alone, or is Kafka's but lacks the prefix `kafka.`.
    """
    given = {name.lower(): value for name, value in options.items()}
    kafka = {name.removeprefix(KAFKA_PREFIX): value for name, value in given.items() if name.startswith(KAFKA_PREFIX)}
    for name in given:
        if name not in SINK_OPTIONS | _NOT_OURS and not name.startswith((KAFKA_PREFIX, REGISTRY_PREFIX)):
            check_unprefixed(name, SINK_OPTIONS)
    check_kafka_options(kafka, "producer")
    value_format = given.get("value.format", "bytes")
    if value_format not in VALUE_FORMATS:
        raise ConfigError(f"value.format={value_format!r} must be one of {', '.join(VALUE_FORMATS)}")
    columns = given.get("value.columns")
    if columns is not None and value_format == "bytes":
        raise ConfigError("value.columns needs value.format=json or avro: as bytes, the value is the column 'value'")
    topic = given.get("topic")
    write_id = given.get("write.id")
    return SinkOptions(
        kafka=kafka,
        topic=None if topic is None else str(topic).strip(),
        value_format=value_format,
        value_columns=None if columns is None else tuple(name.strip() for name in str(columns).split(",")),
        is_deduplicable=boolean_option(given, "dedup.headers", False),
        write_id=None if write_id in (None, "") else str(write_id),
        is_preflighted=boolean_option(given, "preflight", True),
        transactions=_transactions(given, kafka),
        avro=parse_avro_options(given, value_format),
    )


def _transactions(given: Mapping[str, Any], kafka: Mapping[str, Any]) -> TransactionOptions | None:
    delivery = given.get("delivery", DELIVERIES[0])
    if delivery not in DELIVERIES:
        raise ConfigError(f"delivery={delivery!r} must be one of {', '.join(DELIVERIES)}")
    if any(name.replace("_", ".") == "transactional.id" for name in kafka):
        raise ConfigError(
            "kafka.transactional.id cannot be set: with delivery=transactional each task has an id of its own, which "
            "begins with txn.prefix"
        )
    if delivery == DELIVERIES[0]:
        for name in sorted(_TRANSACTION_OPTIONS & given.keys()):
            raise ConfigError(f"{name} needs delivery=transactional")
        return None
    check_kafka_options({**kafka, "transactional.id": "of a task"}, "producer")
    mark_topic = str(given.get("marker.topic", given.get("topic", ""))).strip()
    if not mark_topic:
        raise ConfigError(
            "delivery=transactional needs marker.topic if rows name their topics: an existing topic, of whose "
            "partition 0 offsets are committed as write marks"
        )
    verify = str(given.get("verify.replay", COUNT)).lower()
    if verify not in (COUNT, CONTENT, NONE):
        raise ConfigError(f"verify.replay={verify!r} must be {COUNT}, {CONTENT} or {NONE}")
    wait = str(given.get("txn.twin.wait.ms", "30000"))
    if not wait.isdecimal():
        raise ConfigError(f"txn.twin.wait.ms={wait!r} must be a number of milliseconds")
    prefix = str(given.get("txn.prefix", "kafkaprod"))
    if not prefix:
        raise ConfigError("txn.prefix must not be empty")
    return TransactionOptions(prefix, mark_topic, int(wait), verify)


def check_kafka_options(kafka: Mapping[str, Any], client: str) -> ProducerConfig:
    """The configuration as executors will make it.

    Args:
        kafka: Options, the prefix dropped.
        client: What it is for, "producer" or "consumer".

    Raises: ConfigError, with the name as it was given.
    """
    for name, what in _SERIALIZERS.items():
        if name in kafka:
            raise ConfigError(
                f"Kafka option '{name}' is not supported as {what} are serialized with ByteArraySerializer."
            )
    has_servers = bool(kafka.get("bootstrap.servers", kafka.get("bootstrap_servers")))
    try:  # so that a misspelt name is reported before missing servers
        config = ProducerConfig.from_options(kafka if has_servers else {**kafka, "bootstrap.servers": "none:1"})
    except ConfigError as error:
        raise ConfigError(f"of the options with the prefix '{KAFKA_PREFIX}': {error}") from error
    if config.spool_dir is not None:
        raise ConfigError(
            f"{KAFKA_PREFIX}spool.dir cannot be set: Spark runs a task that failed again, maybe elsewhere, and a spool "
            "would send its rows as well"
        )
    if not has_servers:
        raise ConfigError(f"Option 'kafka.bootstrap.servers' must be specified for configuring Kafka {client}")
    return config


def check_unprefixed(name: str, known: Collection[str]) -> None:
    """Refuse an option that is Kafka's without its prefix or nearly a known one; warn of any other."""
    if name.replace("_", ".") in _PRODUCER_OPTIONS:
        raise ConfigError(f"{name!r} is an option of the Kafka producer: write it as '{KAFKA_PREFIX}{name}'")
    if meant := difflib.get_close_matches(name, known, n=1, cutoff=_ALIKE):
        raise ConfigError(f"unknown option {name!r}; did you mean {meant[0]!r}?")
    logger.warning("the option %r is neither this data source's nor Kafka's: it has no effect", name)


def boolean_option(options: Mapping[str, Any], name: str, default: bool) -> bool:
    """Raises ConfigError if it is neither true nor false."""
    value = str(options.get(name, default)).lower()
    if value not in ("true", "false"):
        raise ConfigError(f"{name}={options[name]!r} must be true or false")
    return value == "true"
