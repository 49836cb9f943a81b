"""The broker's options under Kafka's names: given at the start, or set by clients while it runs.

Options of Kafka's brokers that this one has no use for are checked, kept and shown, and change nothing.
Source: Kafka 4.x, KafkaConfig and DynamicBrokerConfig.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Final

from kafkaprod.broker.config import MAX_PARTITIONS_OF_TOPIC, BrokerConfig
from kafkaprod.broker.coordinator.consumer_group_config import MIGRATION_POLICIES
from kafkaprod.broker.settings import absent_options
from kafkaprod.broker.settings.option_types import (
    TYPE_BOOLEAN,
    TYPE_DOUBLE,
    TYPE_INT,
    TYPE_LONG,
    TYPE_PASSWORD,
    OptionType,
    boolean,
    choice,
    int32,
    int64,
    password,
    string,
)
from kafkaprod.broker.settings.topic_options import BROKER_NAMES, TOPIC_OPTIONS, UNUSED_DEFAULTS
from kafkaprod.broker.storage.format.log_config import LogConfig
from kafkaprod.errors import ConfigError
from kafkaprod.structs import INT32_MAX

_MINUTE_MS = 60_000
_HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class BrokerOption:
    """One option.

    Attributes:
        option: Type and bounds.
        place: Section of BrokerConfig, empty for its own fields, and field; None if the broker has no use for it.
        default: Shown where there is no place.
        is_dynamic: Clients may change it while the broker runs.
        unit_ms: What the value counts, where the field counts ms.
    """

    option: OptionType
    place: tuple[str, str] | None = None
    default: str = ""
    is_dynamic: bool = False
    unit_ms: int = 1


def _topic_defaults() -> dict[str, BrokerOption]:
    known = {field.name for field in fields(LogConfig)}
    found = {}
    for topic_name, name in BROKER_NAMES.items():
        field = topic_name.replace(".", "_")
        place = ("log", field) if field in known else None
        found[name] = BrokerOption(
            TOPIC_OPTIONS[topic_name], place, UNUSED_DEFAULTS.get(topic_name, ""), is_dynamic=True
        )
    return found


def _of(section: str, field: str, option: OptionType, *, is_dynamic: bool = False, unit_ms: int = 1) -> BrokerOption:
    return BrokerOption(option, (section, field), is_dynamic=is_dynamic, unit_ms=unit_ms)


_UNUSED_NUMBERS: Final = {
    "background.threads": 10,
    "follower.replication.throttled.rate": 2**63 - 1,
    "group.coordinator.threads": 4,
    "leader.replication.throttled.rate": 2**63 - 1,
    "log.cleaner.dedupe.buffer.size": 128 << 20,
    "log.cleaner.io.buffer.size": 512 << 10,
    "log.cleaner.threads": 1,
    "num.io.threads": 8,
    "num.network.threads": 3,
    "num.recovery.threads.per.data.dir": 2,
    "num.replica.fetchers": 1,
    "offsets.topic.num.partitions": 1,
    "offsets.topic.replication.factor": 1,
    "replica.lag.time.max.ms": 30_000,
    "sasl.kerberos.min.time.before.relogin": 60_000,
    "share.coordinator.state.topic.min.isr": 1,
    "share.coordinator.state.topic.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "transaction.state.log.num.partitions": 1,
    "transaction.state.log.replication.factor": 1,
}
_FIXED_NUMBERS: Final = frozenset(
    {
        "group.coordinator.threads",
        "offsets.topic.num.partitions",
        "offsets.topic.replication.factor",
        "replica.lag.time.max.ms",
        "share.coordinator.state.topic.min.isr",
        "share.coordinator.state.topic.replication.factor",
        "transaction.state.log.min.isr",
        "transaction.state.log.num.partitions",
        "transaction.state.log.replication.factor",
    }
)
_THREADS: Final = frozenset(
    {
        "background.threads",
        "log.cleaner.threads",
        "num.io.threads",
        "num.network.threads",
        "num.recovery.threads.per.data.dir",
        "num.replica.fetchers",
    }
)
"""Kafka changes them, while it runs, to no less than half and no more than double."""
_UNUSED_SWITCHES: Final = {
    "auto.leader.rebalance.enable": True,
    "controlled.shutdown.enable": True,
    "delete.topic.enable": True,
}

OPTIONS: Final[Mapping[str, BrokerOption]] = {
    **_topic_defaults(),
    **{
        name: BrokerOption(int64(0), default=str(number), is_dynamic=name not in _FIXED_NUMBERS)
        for name, number in _UNUSED_NUMBERS.items()
    },
    **{name: BrokerOption(boolean(), default=str(is_on).lower()) for name, is_on in _UNUSED_SWITCHES.items()},
    "allow.everyone.if.no.acl.found": _of("", "allow_everyone_if_no_acl_found", boolean()),
    "auto.create.topics.enable": _of("", "auto_create_topics", boolean()),
    "broker.id": _of("", "node_id", int32(0)),
    "connections.max.idle.ms": _of("limits", "max_idle_ms", int64(1)),
    "default.replication.factor": BrokerOption(int32(1, 1), default="1"),
    "delegation.token.expiry.check.interval.ms": _of("tokens", "expiry_check_interval_ms", int64(1)),
    "delegation.token.expiry.time.ms": _of("tokens", "expiry_time_ms", int64(1)),
    "delegation.token.max.lifetime.ms": _of("tokens", "max_lifetime_ms", int64(1)),
    "delegation.token.secret.key": _of("tokens", "secret_key", password()),
    "fetch.max.bytes": _of("limits", "max_fetch_bytes", int32(1024)),
    "group.consumer.heartbeat.interval.ms": _of("consumer_groups", "heartbeat_interval_ms", int32(1), is_dynamic=True),
    "group.consumer.max.heartbeat.interval.ms": _of("consumer_groups", "max_heartbeat_interval_ms", int32(1)),
    "group.consumer.max.session.timeout.ms": _of("consumer_groups", "max_session_timeout_ms", int32(1)),
    "group.consumer.max.size": _of("consumer_groups", "max_size", int32(1), is_dynamic=True),
    "group.consumer.migration.policy": _of("consumer_groups", "migration_policy", choice(*MIGRATION_POLICIES)),
    "group.consumer.min.heartbeat.interval.ms": _of("consumer_groups", "min_heartbeat_interval_ms", int32(1)),
    "group.consumer.min.session.timeout.ms": _of("consumer_groups", "min_session_timeout_ms", int32(1)),
    "group.consumer.regex.refresh.interval.ms": _of("consumer_groups", "regex_refresh_interval_ms", int32(10_000)),
    "group.consumer.session.timeout.ms": _of("consumer_groups", "session_timeout_ms", int32(1)),
    "group.initial.rebalance.delay.ms": _of("groups", "initial_rebalance_delay_ms", int32(0), is_dynamic=True),
    "group.max.session.timeout.ms": _of("groups", "max_session_timeout_ms", int32(1), is_dynamic=True),
    "group.max.size": _of("groups", "max_size", int32(1), is_dynamic=True),
    "group.min.session.timeout.ms": _of("groups", "min_session_timeout_ms", int32(1), is_dynamic=True),
    "log.cleaner.backoff.ms": _of("", "log_cleaner_backoff_ms", int64(1), is_dynamic=True),
    "log.cleaner.enable": _of("", "log_cleaner_enable", boolean()),
    "log.retention.check.interval.ms": _of("", "log_retention_check_ms", int64(1)),
    "log.retention.hours": _of("log", "retention_ms", int64(-1, 10**9), unit_ms=_HOUR_MS),
    "log.retention.minutes": _of("log", "retention_ms", int64(-1, 10**9), unit_ms=_MINUTE_MS),
    "log.roll.hours": _of("log", "segment_ms", int64(1, 10**9), unit_ms=_HOUR_MS),
    "max.connection.creation.rate": _of("limits", "max_connections_per_s", int32(1), is_dynamic=True),
    "max.connections": _of("limits", "max_connections", int32(1), is_dynamic=True),
    "max.connections.per.ip": _of("limits", "max_connections_per_ip", int32(1), is_dynamic=True),
    "metadata.log.max.record.bytes.between.snapshots": _of("", "metadata_snapshot_bytes", int64(1)),
    "node.id": _of("", "node_id", int32(0)),
    "num.partitions": _of("", "num_partitions", int32(1, MAX_PARTITIONS_OF_TOPIC)),
    "offsets.retention.check.interval.ms": _of("", "offsets_retention_check_ms", int64(1)),
    "offsets.retention.minutes": _of("", "offsets_retention_ms", int64(1, 10**9), unit_ms=_MINUTE_MS),
    "queued.max.request.bytes": _of("limits", "max_queued_bytes", int64(1)),
    "replica.alter.log.dirs.io.max.bytes.per.second": _of("", "log_dir_move_bytes_per_s", int64(1), is_dynamic=True),
    "socket.request.max.bytes": _of("limits", "max_request_bytes", int32(1)),
    "super.users": _of("", "super_users", string()),
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": _of("transactions", "timeout_check_ms", int32(1)),
    "transaction.max.timeout.ms": _of("transactions", "max_timeout_ms", int32(1)),
    "transaction.remove.expired.transaction.cleanup.interval.ms": _of("transactions", "expiration_check_ms", int32(1)),
    "transactional.id.expiration.ms": _of("transactions", "id_expiration_ms", int32(1)),
}
"""All that can be given at the start. `Broker.describe_options` adds those that are fixed."""

_OF_LISTENERS: Final = {
    name: BrokerOption(OPTIONS[name].option, is_dynamic=True)
    for name in ("max.connection.creation.rate", "max.connections")
}
_LISTENER_OPTION: Final = re.compile(rf"listener\.name\.[a-z][a-z0-9_]*\.({'|'.join(map(re.escape, _OF_LISTENERS))})")


def option_of(name: str) -> BrokerOption | None:
    """Return what an option is, None if there is no such one; some may be of one listener, `listener.name.NAME.`."""
    of_listener = _LISTENER_OPTION.fullmatch(name)
    if of_listener is None:
        return OPTIONS.get(name)
    return _OF_LISTENERS[of_listener[1]]


def listener_limit(config: BrokerConfig, listener: str, name: str) -> int:
    """Return what an option of one listener limits something to; INT32_MAX if it is not given."""
    return int(config.options.get(f"listener.name.{listener.lower()}.{name}", INT32_MAX))


def check_option(name: str, text: str) -> None:
    """Raise ConfigError unless the broker has the option and may have it with this value."""
    known_option(name).option.check(name, text)


def check_change(config: BrokerConfig, name: str, text: str) -> None:
    """Raise ConfigError unless clients may give an option this value while the broker runs with the configuration."""
    check_option(name, text)
    if name in _THREADS:
        now, wanted = int(config.options.get(name, OPTIONS[name].default)), int(text)
        if not now <= 2 * wanted or not wanted <= 2 * now:
            bound = "less than half" if wanted < now else "greater than double"
            raise ConfigError(
                f"Dynamic thread count update validation failed for {name} to {wanted}: value should not be {bound} "
                f"the current value {now}"
            )


def known_option(name: str) -> BrokerOption:
    """Return what an option is. Raises ConfigError: there is no such one."""
    known = option_of(name)
    if known is None:
        raise ConfigError(absent_options.refusal([name]))
    return known


def with_options(config: BrokerConfig, options: Mapping[str, str]) -> BrokerConfig:
    """Return the configuration changed by options under Kafka's names.

    Raises:
        ConfigError: Options are unknown, or values are of the wrong type or out of bounds; names all of them.
    """
    changed = _with_options(config, options)
    if any(name.startswith("group.consumer.") for name in options):
        changed.consumer_groups.check_bounds("group.consumer.")
    return changed


def _with_options(config: BrokerConfig, options: Mapping[str, str]) -> BrokerConfig:
    _check_all(options)
    node_id, broker_id = options.get("node.id"), options.get("broker.id")
    if node_id is not None and broker_id is not None and int(node_id) != int(broker_id):
        raise ConfigError(f"node.id={node_id} and broker.id={broker_id} must be the same: they are two names of one id")
    # log.retention.ms counts more than log.retention.hours, as in Kafka.
    for name, text in sorted(options.items(), key=lambda item: -known_option(item[0]).unit_ms):
        known = known_option(name)
        if known.place is None:
            continue
        section, field = known.place
        value = _parse(known, text)
        if section:
            value, field = _replaced(getattr(config, section), field, value), section
        config = replace(config, **{field: value})
    # What the configuration keeps elsewhere and must not be shown is not kept here.
    kept = {name: text for name, text in options.items() if known_option(name).option.kind != TYPE_PASSWORD}
    return replace(config, options={**config.options, **kept})


def _check_all(options: Mapping[str, str]) -> None:
    """Raise one ConfigError that names all that is wrong: a list of options is put right at once."""
    absent = [name for name in options if option_of(name) is None]
    wrong = [absent_options.refusal(absent)] if absent else []
    for name in (name for name in options if name not in absent):
        try:
            check_option(name, options[name])
        except ConfigError as error:
            wrong.append(str(error))
    if wrong:
        raise ConfigError("; ".join(wrong))


def describe(config: BrokerConfig) -> dict[str, str]:
    """Return the value of each option; of a password, nothing; of a listener's, those that are given."""
    of_listeners = {name: text for name, text in config.options.items() if _LISTENER_OPTION.fullmatch(name)}
    values = {name: _value(config, known, config.options.get(name, known.default)) for name, known in OPTIONS.items()}
    return {**values, **of_listeners}


def is_given(config: BrokerConfig, name: str) -> bool:
    """Return whether an option that has a place in the configuration is not empty."""
    section, field = OPTIONS[name].place or ("", "")
    return bool(field and getattr(getattr(config, section) if section else config, field))


def _value(config: BrokerConfig, known: BrokerOption, default: str) -> str:
    if known.place is None:
        return default
    if known.option.kind == TYPE_PASSWORD:
        return ""
    section, field = known.place
    value = getattr(getattr(config, section) if section else config, field)
    if isinstance(value, bool):
        return str(value).lower()
    return str(value // known.unit_ms) if known.unit_ms > 1 and value >= 0 else str(value)


def _parse(known: BrokerOption, text: str) -> Any:
    kind = known.option.kind
    if kind == TYPE_BOOLEAN:
        return text.lower() == "true"
    if kind == TYPE_DOUBLE:
        return float(text)
    if kind == TYPE_PASSWORD:
        return _secret(text)
    if kind not in (TYPE_INT, TYPE_LONG):
        return text
    number = int(text)
    return number * known.unit_ms if number > 0 else number


def _secret(text: str) -> str:
    """Return what is at the place that `env:NAME` or `file:PATH` names; any other text is the secret itself."""
    kind, _, name = text.partition(":")
    try:
        if kind == "env":
            return os.environ[name]
        if kind == "file":
            return Path(name).read_text(encoding="utf-8").removesuffix("\n")
    except (OSError, KeyError, ValueError):  # none of them is shown: it may have the secret
        raise ConfigError("a password must be a text, env:NAME of a variable that is set, or file:PATH") from None
    return text


def _replaced(section: Any, field: str, value: Any) -> Any:
    change = {field: value}
    return section._replace(**change) if hasattr(section, "_replace") else replace(section, **change)
