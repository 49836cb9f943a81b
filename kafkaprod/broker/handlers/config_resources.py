"""Options of all kinds of resources, as DescribeConfigs shows them and the two requests to alter them change them.

Kinds: topics, the broker (its own options, or those of all brokers under an empty name), groups, and subscriptions of
client metrics. Used on the control thread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from kafkaprod.broker.calls.limits import MAX_ID_CHARS
from kafkaprod.broker.calls.refusal import RequestRefusedError
from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.broker.cluster.topics import Topic, check_name, refuse_internal
from kafkaprod.broker.config import BrokerConfig
from kafkaprod.broker.settings import broker_options, topic_options
from kafkaprod.broker.settings.client_metrics import MAX_SUBSCRIPTIONS, check_match, check_metrics
from kafkaprod.broker.settings.option_types import TYPE_LONG, TYPE_PASSWORD, TYPE_STRING, OptionType, int32, list_of
from kafkaprod.broker.settings.settings import BROKER_OPTIONS, GROUP_OPTIONS, METRICS_OPTIONS
from kafkaprod.broker.settings.topic_options import (
    BROKER_NAMES,
    BROKER_SOURCE,
    DEFAULT_SOURCE,
    DYNAMIC_BROKER_SOURCE,
    DYNAMIC_DEFAULT_SOURCE,
    TOPIC_SOURCE,
)
from kafkaprod.errors import ConfigError
from kafkaprod.protocol.error_codes import ErrorCode

TOPIC: Final = 2
BROKER: Final = 4
BROKER_LOGGER: Final = 8
CLIENT_METRICS: Final = 16
GROUP: Final = 32

_METRICS_SOURCE = 7
_GROUP_SOURCE = 8


class _Stored(NamedTuple):
    """A kind of resource whose options are kept in the settings.

    Attributes:
        section: The section of the settings.
        source: Number of the source in DescribeConfigs.
        options: Name -> type and default.
    """

    section: str
    source: int
    options: Mapping[str, tuple[OptionType, str]]


_STORED: Final[Mapping[int, _Stored]] = {
    GROUP: _Stored(
        GROUP_OPTIONS,
        _GROUP_SOURCE,
        {
            "consumer.heartbeat.interval.ms": (int32(1), "5000"),
            "consumer.session.timeout.ms": (int32(1), "45000"),
        },
    ),
    CLIENT_METRICS: _Stored(
        METRICS_OPTIONS,
        _METRICS_SOURCE,
        {
            "interval.ms": (int32(100, 3_600_000), "300000"),
            "match": (list_of(), ""),
            "metrics": (list_of(), ""),
        },
    ),
}


_CHECKS: Final = {"match": check_match, "metrics": check_metrics}
"""What is checked beyond the type of an option of client metrics."""


class Entry(NamedTuple):
    """One option as DescribeConfigs shows it.

    Attributes:
        name: Its name; `option_texts` says what it means.
        value: What it is now; None for a password.
        source: Where the value comes from.
        kind: Number of its type.
        synonyms: (name, value, source) of all places that could set it and do, the one that counts first.
    """

    name: str
    value: str | None
    source: int
    kind: int
    is_read_only: bool
    synonyms: Sequence[tuple[str, str | None, int]]

    @property
    def is_sensitive(self) -> bool:
        """Whether the value is shown nowhere."""
        return self.kind == TYPE_PASSWORD


def set_values(broker: Broker, kind: int, name: str) -> dict[str, str]:
    """Return the options that clients have set on a resource.

    Raises:
        RequestRefusedError: UNKNOWN_TOPIC_OR_PARTITION, INVALID_REQUEST or INVALID_CONFIG: there is no such resource.
    """
    if kind == TOPIC:
        return dict(_topic(broker, name).properties)
    if kind == BROKER:
        _check_broker_name(broker, name)
        return dict(broker.settings.get(BROKER_OPTIONS).get(name, {}))
    return dict(broker.settings.get(_stored(kind, name).section).get(name, {}))


def replace_values(broker: Broker, kind: int, name: str, values: Mapping[str, str], *, validate_only: bool) -> None:
    """Replace the options that clients have set on a resource.

    Raises:
        RequestRefusedError: As `set_values`; INVALID_CONFIG or INVALID_REQUEST for bad options. Nothing was changed.
        LogError: KAFKA_STORAGE_ERROR, the disk refused; nothing was changed.
    """
    try:
        if kind == TOPIC:
            refuse_internal(name)
            broker.topics.set_properties(name, values, validate_only=validate_only)
        elif kind == BROKER:
            _replace_broker_values(broker, name, values, validate_only=validate_only)
        else:
            _replace_stored_values(broker, _stored(kind, name), name, values, validate_only=validate_only)
    except ConfigError as error:
        raise RequestRefusedError(ErrorCode.INVALID_CONFIG, str(error)) from error


def option_of(kind: int, name: str) -> OptionType | None:
    """Return the type of an option; None if the resource has no such one."""
    if kind == TOPIC:
        return topic_options.TOPIC_OPTIONS.get(name)
    if kind == BROKER:
        known = broker_options.option_of(name)
        return None if known is None else known.option
    stored = _STORED.get(kind)
    return stored.options[name][0] if stored is not None and name in stored.options else None


def describe(broker: Broker, kind: int, name: str) -> list[Entry]:
    """Return all options of a resource, by name. Raises as `set_values`."""
    values = set_values(broker, kind, name)
    if kind == TOPIC:
        return _describe_topic(broker, values)
    if kind == BROKER:
        return _describe_broker(broker, name)
    stored = _STORED[kind]
    defaults = {option_name: default for option_name, (_, default) in stored.options.items()}
    if kind == GROUP:
        of_broker = broker_options.describe(broker.config)
        defaults = {option_name: of_broker[f"group.{option_name}"] for option_name in defaults}
    return [
        _stored_entry(stored, option_name, default, values.get(option_name))
        for option_name, default in sorted(defaults.items())
    ]


def resource_names(broker: Broker, kind: int) -> list[str]:
    """Return the names of all resources of a kind; of stored kinds, those with options."""
    if kind == TOPIC:
        return [topic.name for topic in broker.topics.all()]
    if kind in (BROKER, BROKER_LOGGER):
        return [str(broker.config.node_id)]
    return sorted(broker.settings.get(_STORED[kind].section))


# -- kinds -------------------------------------------------------------------------------------------------------------


def _topic(broker: Broker, name: str) -> Topic:
    topic = broker.topics.get(name)
    if topic is None:
        check_name(name)
        raise RequestRefusedError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"This server does not host topic '{name}'.")
    return topic


def _check_broker_name(broker: Broker, name: str) -> None:
    if name not in ("", str(broker.config.node_id)):
        raise RequestRefusedError(
            ErrorCode.INVALID_REQUEST,
            f"Unexpected broker id, expected {broker.config.node_id} or an empty string, but received {name!r}.",
        )


def _stored(kind: int, name: str) -> _Stored:
    stored = _STORED.get(kind)
    if stored is None:
        raise RequestRefusedError(ErrorCode.INVALID_REQUEST, f"Unsupported resource type {kind}.")
    if not name:
        raise RequestRefusedError(ErrorCode.INVALID_REQUEST, "The name of the resource is empty.")
    if len(name) > MAX_ID_CHARS:
        problem = f"The name of the resource has {len(name)} characters, more than {MAX_ID_CHARS}."
        raise RequestRefusedError(ErrorCode.INVALID_REQUEST, problem)
    return stored


def _replace_broker_values(broker: Broker, name: str, values: Mapping[str, str], *, validate_only: bool) -> None:
    _check_broker_name(broker, name)
    saved = broker.settings.get(BROKER_OPTIONS)
    for option_name, value in values.items():
        broker_options.check_change(broker.config, option_name, value)
        is_dynamic = broker_options.known_option(option_name).is_dynamic
        if not is_dynamic and saved.get(name, {}).get(option_name) != value:
            raise RequestRefusedError(
                ErrorCode.INVALID_REQUEST, f"Cannot update these configs dynamically: {option_name}."
            )
    broker.set_options({**saved, name: values}, validate_only=validate_only)


def _replace_stored_values(
    broker: Broker, stored: _Stored, name: str, values: Mapping[str, str], *, validate_only: bool
) -> None:
    for option_name, value in values.items():
        if option_name not in stored.options:
            raise ConfigError(f"Unknown {stored.section.removesuffix(' options')} config name: {option_name}")
        stored.options[option_name][0].check(option_name, value)
        check = _CHECKS.get(option_name) if stored.section == METRICS_OPTIONS else None
        if check is not None:
            check(value)
    if stored.section == GROUP_OPTIONS:
        broker.config.consumer_groups.with_own(values).check_bounds("consumer.")
    others = {other: saved for other, saved in broker.settings.get(stored.section).items() if other != name}
    if stored.section == METRICS_OPTIONS and values and len(others) >= MAX_SUBSCRIPTIONS:
        raise ConfigError(
            f"client metrics {name!r}: there are {len(others)} subscriptions, and {MAX_SUBSCRIPTIONS} are the most: "
            "delete one first"
        )
    if validate_only:
        return
    broker.settings.put(stored.section, {**others, name: dict(values)} if values else others)


def _stored_entry(stored: _Stored, name: str, default: str, own: str | None) -> Entry:
    value, source = (default, DEFAULT_SOURCE) if own is None else (own, stored.source)
    return Entry(name, value, source, stored.options[name][0].kind, False, [(name, value, source)])


def _describe_topic(broker: Broker, values: Mapping[str, str]) -> list[Entry]:
    return [
        _topic_entry(broker, name, default, values.get(name))
        for name, default in sorted(topic_options.default_values(broker.config.log, broker.config.options).items())
    ]


def _topic_entry(broker: Broker, name: str, default: str, value: str | None) -> Entry:
    synonyms = [] if value is None else [(name, value, TOPIC_SOURCE)]
    source = DEFAULT_SOURCE
    if name in BROKER_NAMES:
        broker_name = BROKER_NAMES[name]
        source = _broker_source(broker, broker_name, default)
        synonyms.append((broker_name, default, source))
    kind = topic_options.TOPIC_OPTIONS[name].kind
    if value is None:
        return Entry(name, default, source, kind, False, synonyms)
    return Entry(name, value, TOPIC_SOURCE, kind, False, synonyms)


def _describe_broker(broker: Broker, name: str) -> list[Entry]:
    if not name:  # what clients have set for all brokers
        return [
            Entry(
                option_name,
                value,
                DYNAMIC_DEFAULT_SOURCE,
                broker_options.known_option(option_name).option.kind,
                False,
                [(option_name, value, DYNAMIC_DEFAULT_SOURCE)],
            )
            for option_name, value in sorted(broker.settings.get(BROKER_OPTIONS).get("", {}).items())
        ]
    entries = []
    for option_name, value in sorted(broker.describe_options().items()):
        known = broker_options.option_of(option_name)
        source = _broker_source(broker, option_name, value)
        synonyms = [(option_name, value, source)]
        if known is None:
            kind = TYPE_LONG if value.isdecimal() else TYPE_STRING
            entries.append(Entry(option_name, value, BROKER_SOURCE, kind, True, synonyms))
        elif known.option.kind == TYPE_PASSWORD:
            entries.append(_password_entry(broker, option_name))
        else:
            entries.append(Entry(option_name, value, source, known.option.kind, not known.is_dynamic, synonyms))
    return entries


def _password_entry(broker: Broker, name: str) -> Entry:
    source = BROKER_SOURCE if broker_options.is_given(broker.config, name) else DEFAULT_SOURCE
    return Entry(name, None, source, TYPE_PASSWORD, True, [(name, None, source)])


def _broker_source(broker: Broker, name: str, value: str) -> int:
    saved = broker.settings.get(BROKER_OPTIONS)
    if name in saved.get(str(broker.config.node_id), {}):
        return DYNAMIC_BROKER_SOURCE
    if name in saved.get("", {}):
        return DYNAMIC_DEFAULT_SOURCE
    return DEFAULT_SOURCE if _KAFKAS_VALUES.get(name) == value else BROKER_SOURCE


_KAFKAS_VALUES: Final = broker_options.describe(BrokerConfig(data_dir=""))
