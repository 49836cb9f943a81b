"""The topic options that the log obeys, under Kafka's names and with Kafka's defaults.

Source: Kafka storage, LogConfig and ServerLogConfigs (4.x). Immutable.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

from kafkaprod.compression import CODEC_IDS
from kafkaprod.errors import ConfigError
from kafkaprod.structs import INT32_MAX

INT64_MAX = 2**63 - 1
UNLIMITED = -1
COMPRESSION_TYPES: Final = ("producer", "uncompressed", *(name for name in CODEC_IDS if name != "none"))
"""Values of compression.type: as the producer sent it, as the records are, or a codec."""


@dataclass(frozen=True, slots=True)
class LogConfig:
    """One topic's options; `segment_bytes` is Kafka's `segment.bytes`, and so on."""

    segment_bytes: int = 1024 * 1024 * 1024
    segment_ms: int = 7 * 24 * 3_600_000
    segment_index_bytes: int = 10 * 1024 * 1024
    index_interval_bytes: int = 4096
    retention_ms: int = 7 * 24 * 3_600_000
    retention_bytes: int = UNLIMITED
    max_message_bytes: int = 1024 * 1024 + 12
    message_timestamp_type: str = "CreateTime"
    message_timestamp_before_max_ms: int = INT64_MAX
    message_timestamp_after_max_ms: int = 3_600_000
    compression_type: str = "producer"
    cleanup_policy: str = "delete"
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = INT64_MAX
    delete_retention_ms: int = 24 * 3_600_000
    min_insync_replicas: int = 1
    file_delete_delay_ms: int = 60_000

    @property
    def is_compacted(self) -> bool:
        """Records need a key, and compaction keeps the last one of each key; see `log.compaction`."""
        return self.cleanup_policy != "delete" and "compact" in self.cleanup_policy.split(",")

    @property
    def is_deleted(self) -> bool:
        """Old segments go by time and size."""
        return "delete" in self.cleanup_policy.split(",")

    @property
    def max_segment_ms(self) -> int:
        """When a segment is closed: a compacted log is cleaned up to its active segment only."""
        return min(self.segment_ms, self.max_compaction_lag_ms) if self.is_compacted else self.segment_ms

    @property
    def uses_log_append_time(self) -> bool:
        """Records get the broker's time."""
        return self.message_timestamp_type == "LogAppendTime"

    def to_properties(self) -> dict[str, str]:
        """The options as Kafka writes them: dots in names, values as text."""
        return {field.name.replace("_", "."): str(getattr(self, field.name)) for field in fields(self)}


def parse_properties(properties: Mapping[str, str | None], defaults: LogConfig | None = None) -> LogConfig:
    """Return `defaults` changed by a topic's properties; a null value means the default.

    Args:
        properties: Kafka's dotted names; names this log has no use for (flush.ms, preallocate ...) are accepted.
        defaults: The broker's own settings; None for Kafka's.

    Raises:
        ConfigError: A value is not a number, or out of range.
    """
    base = defaults or LogConfig()
    values: dict[str, Any] = {field.name: getattr(base, field.name) for field in fields(base)}
    for name, text in properties.items():
        key = name.replace(".", "_")
        if text is None or key not in values:
            continue
        values[key] = text if isinstance(values[key], str) else _parse(name, text, type(values[key]))
    config = LogConfig(**values)
    _check(config)
    return config


def _parse(name: str, text: str, kind: type[int] | type[float]) -> int | float:
    try:
        return kind(text)
    except ValueError as error:
        raise ConfigError(f"{name}={text!r} is not a {'whole ' if kind is int else ''}number") from error


def _check(config: LogConfig) -> None:
    for name in ("segment_bytes", "segment_ms", "segment_index_bytes", "min_insync_replicas"):
        if getattr(config, name) < 1:
            raise ConfigError(f"{name.replace('_', '.')}={getattr(config, name)} must be at least 1")
    if not 0 <= config.min_cleanable_dirty_ratio <= 1:
        raise ConfigError(f"min.cleanable.dirty.ratio={config.min_cleanable_dirty_ratio} must be in 0..1")
    if config.segment_bytes > INT32_MAX:  # positions in the offset index are int32
        raise ConfigError(f"segment.bytes={config.segment_bytes} must be at most {INT32_MAX}")
    if not set(config.cleanup_policy.split(",")) <= {"delete", "compact", ""}:
        raise ConfigError(f"cleanup.policy={config.cleanup_policy!r} is not a list of delete, compact")
    if config.message_timestamp_type not in ("CreateTime", "LogAppendTime"):
        raise ConfigError(
            f"message.timestamp.type={config.message_timestamp_type!r} is not CreateTime or LogAppendTime"
        )
    if config.compression_type not in COMPRESSION_TYPES:
        raise ConfigError(f"compression.type={config.compression_type!r} is unknown")
