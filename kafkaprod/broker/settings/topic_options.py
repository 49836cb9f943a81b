"""The options of topics: their types, bounds and the broker's options that hold their defaults.

Source: Kafka 4.x, LogConfig, TopicConfig and ServerTopicConfigSynonyms; DescribeConfigs in the protocol guide.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kafkaprod.broker.settings.option_types import OptionType, boolean, choice, decimal, int32, int64, list_of
from kafkaprod.broker.storage.format.log_config import COMPRESSION_TYPES, INT64_MAX, LogConfig
from kafkaprod.errors import ConfigError

TOPIC_SOURCE = 1  # set on the topic
DYNAMIC_BROKER_SOURCE = 2  # set on this broker by a client
DYNAMIC_DEFAULT_SOURCE = 3  # set for all brokers by a client
BROKER_SOURCE = 4  # given when the broker was started
DEFAULT_SOURCE = 5

_THROTTLED = list_of()

TOPIC_OPTIONS: Final[Mapping[str, OptionType]] = {
    "cleanup.policy": list_of("compact", "delete"),
    "compression.gzip.level": int32(-1, 9),
    "compression.lz4.level": int32(1, 17),
    "compression.type": choice(*COMPRESSION_TYPES),
    "compression.zstd.level": int32(-131_072, 22),
    "delete.retention.ms": int64(0),
    "file.delete.delay.ms": int64(0),
    "flush.messages": int64(1),
    "flush.ms": int64(0),
    "follower.replication.throttled.replicas": _THROTTLED,
    "index.interval.bytes": int32(0),
    "leader.replication.throttled.replicas": _THROTTLED,
    "local.retention.bytes": int64(-2),
    "local.retention.ms": int64(-2),
    "max.compaction.lag.ms": int64(1),
    "max.message.bytes": int32(0),
    "message.timestamp.after.max.ms": int64(0),
    "message.timestamp.before.max.ms": int64(0),
    "message.timestamp.type": choice("CreateTime", "LogAppendTime"),
    "min.cleanable.dirty.ratio": decimal(0, 1),
    "min.compaction.lag.ms": int64(0),
    "min.insync.replicas": int32(1),
    "preallocate": boolean(),
    "remote.log.copy.disable": boolean(),
    "remote.log.delete.on.disable": boolean(),
    "remote.storage.enable": boolean(),
    "retention.bytes": int64(-1),
    "retention.ms": int64(-1),
    "segment.bytes": int32(1024 * 1024),
    "segment.index.bytes": int32(4),
    "segment.jitter.ms": int64(0),
    "segment.ms": int64(1),
    "unclean.leader.election.enable": boolean(),
}
"""All that a topic may have. Those the log has no use for are checked, kept and shown, and change nothing."""

UNUSED_DEFAULTS: Final[Mapping[str, str]] = {
    "compression.gzip.level": "-1",
    "compression.lz4.level": "9",
    "compression.zstd.level": "3",
    "flush.messages": str(INT64_MAX),
    "flush.ms": str(INT64_MAX),
    "follower.replication.throttled.replicas": "",
    "leader.replication.throttled.replicas": "",
    "local.retention.bytes": "-2",
    "local.retention.ms": "-2",
    "preallocate": "false",
    "remote.log.copy.disable": "false",
    "remote.log.delete.on.disable": "false",
    "remote.storage.enable": "false",
    "segment.jitter.ms": "0",
    "unclean.leader.election.enable": "false",
}
"""Kafka's defaults of the options that the log has no use for."""

BROKER_NAMES: Final[Mapping[str, str]] = {
    "cleanup.policy": "log.cleanup.policy",
    "compression.gzip.level": "compression.gzip.level",
    "compression.lz4.level": "compression.lz4.level",
    "compression.type": "compression.type",
    "compression.zstd.level": "compression.zstd.level",
    "delete.retention.ms": "log.cleaner.delete.retention.ms",
    "file.delete.delay.ms": "log.segment.delete.delay.ms",
    "flush.messages": "log.flush.interval.messages",
    "flush.ms": "log.flush.interval.ms",
    "index.interval.bytes": "log.index.interval.bytes",
    "local.retention.bytes": "log.local.retention.bytes",
    "local.retention.ms": "log.local.retention.ms",
    "max.compaction.lag.ms": "log.cleaner.max.compaction.lag.ms",
    "max.message.bytes": "message.max.bytes",
    "message.timestamp.after.max.ms": "log.message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms": "log.message.timestamp.before.max.ms",
    "message.timestamp.type": "log.message.timestamp.type",
    "min.cleanable.dirty.ratio": "log.cleaner.min.cleanable.ratio",
    "min.compaction.lag.ms": "log.cleaner.min.compaction.lag.ms",
    "min.insync.replicas": "min.insync.replicas",
    "preallocate": "log.preallocate",
    "retention.bytes": "log.retention.bytes",
    "retention.ms": "log.retention.ms",
    "segment.bytes": "log.segment.bytes",
    "segment.index.bytes": "log.index.size.max.bytes",
    "segment.jitter.ms": "log.roll.jitter.ms",
    "segment.ms": "log.roll.ms",
    "unclean.leader.election.enable": "unclean.leader.election.enable",
}
"""The broker's option that holds the default of a topic's."""


def check_option(name: str, text: str) -> None:
    """Raise ConfigError unless a topic may have the option with this value."""
    option = TOPIC_OPTIONS.get(name)
    if option is None:
        raise ConfigError(f"Unknown topic config name: {name}")
    option.check(name, text)
    if name == "remote.storage.enable" and text.lower() == "true":
        raise ConfigError(
            "Tiered Storage functionality is disabled in the broker. "
            "Topic cannot be configured with remote log storage."
        )


def default_values(config: LogConfig, of_broker: Mapping[str, str]) -> dict[str, str]:
    """Return the options every topic has.

    Args:
        config: Those that the log uses.
        of_broker: Broker options that were set, under the broker's names, for the others.
    """
    unused = {name: of_broker.get(BROKER_NAMES.get(name, ""), value) for name, value in UNUSED_DEFAULTS.items()}
    return {**unused, **config.to_properties()}
