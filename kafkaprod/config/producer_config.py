"""A producer's configuration: checked, typed, immutable. Made once by `ProducerConfig.from_options`."""

from __future__ import annotations

import copy
import dataclasses
import itertools
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self, Unpack

from kafkaprod.config.container import default_buffer_memory
from kafkaprod.config.option import Option, options_of
from kafkaprod.config.option_types import OptionTypes
from kafkaprod.config.producer_options import ProducerOptions
from kafkaprod.config.properties import read_properties
from kafkaprod.config.rules import check_rules, least_delivery_timeout_ms, why_not_idempotent
from kafkaprod.config.spellings import Spellings
from kafkaprod.config.topic_options import TopicOptions
from kafkaprod.errors import ConfigError

OPTIONS: Final[Mapping[str, Option]] = options_of(ProducerOptions)
_SPELLINGS: Final = Spellings(OPTIONS)

logger = logging.getLogger("kafkaprod.config")
HOOK_OPTIONS: Final = ("key_serializer", "value_serializer", "partitioner")
_DERIVED_ID_CHARACTERS: Final = 255
_BATCH_OVERHEAD_BYTES: Final = 1024  # its header, its memory's, and rounding
_producer_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class ProducerConfig(ProducerOptions):
    """All options of a producer, as typed attributes; see docs/configuration.md. Immutable, safe to share.

    Every instance is valid: values and the rules between them are checked however it is made. `from_options` is the
    way to make one; it knows all spellings. `repr` shows what differs from the defaults and no secret.
    """

    def __post_init__(self) -> None:
        for option in OPTIONS.values():
            value = getattr(self, option.name)
            object.__setattr__(self, option.name, option.parse(value))
        check_rules(self)

    # By hand: what dataclass makes of a hundred options takes milliseconds of each import.
    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in OPTIONS)

    def __hash__(self) -> int:
        return hash(tuple(getattr(self, name) for name in OPTIONS))

    @classmethod
    def from_options(cls, options: Mapping[str, object] | Self | None = None, /, **more: Unpack[OptionTypes]) -> Self:
        """Merge the user's options with the defaults.

        Args:
            options: By name: `linger.ms`, `linger_ms` or librdkafka's `queue.buffering.max.ms`. Values may be text.
                Or a whole configuration, as `from_file` returns it.
            more: More of them.

        Raises:
            ConfigError: An option is unknown, given twice, out of range, missing, or in conflict with another.
        """
        if isinstance(options, cls):
            return options._replaced(_SPELLINGS.parse(more)) if more else options
        if options is not None and not isinstance(options, Mapping):
            raise ConfigError(
                f"options come as a mapping or by name, not as {type(options).__name__}: "
                "write bootstrap_servers='host:port', for example"
            )
        given = dict(options or {})
        twice = given.keys() & more.keys()
        if twice:
            raise ConfigError(f"{min(twice)} is given twice: in the mapping and as an argument")
        values = _SPELLINGS.parse(given | more)
        if "bootstrap_servers" not in values:
            raise ConfigError("bootstrap_servers is missing: give it as 'host:port,host:port'")
        if values.get("transaction_two_phase_commit_enable") and "transaction_timeout_ms" in values:
            raise ConfigError(
                "transaction_timeout_ms is given with transaction_two_phase_commit_enable=true: such transactions "
                "never time out"
            )
        return cls(**_with_derived_defaults(values))

    @classmethod
    def from_file(cls, path: str | os.PathLike[str], /, **more: Unpack[OptionTypes]) -> Self:
        """Read a Java `.properties` file; an option in `more` replaces the file's.

        Raises:
            ConfigError: As `from_options`, or the file cannot be read.
        """
        values = _SPELLINGS.parse(read_properties(path))
        return cls.from_options(values | _SPELLINGS.parse(more))

    def _replaced(self, values: Mapping[str, Any]) -> Self:
        """Return a copy with other values."""
        changes = dict(values)
        if self.bootstrap_timeout_ms in (OPTIONS["bootstrap_timeout_ms"].default, self.max_block_ms):  # not given
            _follow_max_block(changes)
        if self.max_batch_size in (OPTIONS["max_batch_size"].default, self.batch_size):  # not given
            _follow_batch_size(changes)
        return dataclasses.replace(self, **changes)

    def __repr__(self) -> str:
        shown = (
            f"{option.name}={option.show(getattr(self, option.name))}"
            for option in OPTIONS.values()
            if getattr(self, option.name) != option.default
        )
        return f"{type(self).__name__}({', '.join(shown)})"


def without_hooks(config: ProducerConfig) -> ProducerConfig:
    """Return the options without the user's code that runs where records are sent."""
    if all(getattr(config, name) == OPTIONS[name].default for name in HOOK_OPTIONS):
        return config
    return _with_values(config, {name: OPTIONS[name].default for name in HOOK_OPTIONS})


def with_hooks(config: ProducerConfig, source: ProducerConfig) -> ProducerConfig:
    """Return the options with the user's code of another configuration."""
    return _with_values(config, {name: getattr(source, name) for name in HOOK_OPTIONS})


def _with_values(config: ProducerConfig, values: Mapping[str, Any]) -> ProducerConfig:
    """Return a copy with other values, which are not checked."""
    changed = copy.copy(config)
    for name, value in values.items():
        object.__setattr__(changed, name, value)
    return changed


def merge_options(*layers: Mapping[str, object]) -> dict[str, Any]:
    """Options by their own names, whatever they are spelled; a later layer replaces what an earlier one says.

    Raises:
        ConfigError: As `ProducerConfig.from_options`, for each layer alone.
    """
    merged: dict[str, Any] = {}
    for layer in layers:
        merged.update(_SPELLINGS.parse(layer))
    return merged


def options_for_topic(options: Mapping[str, object], topic: str) -> dict[str, Any]:
    """Options of a producer that sends to one topic only: what `topic_options` has for it is as if given for all.

    Raises:
        ConfigError: As `ProducerConfig.from_options`.
    """
    values = merge_options(options)
    own = values.pop("topic_options", TopicOptions()).find(topic)
    if "batch_size" in own:
        values.pop("max_batch_size", None)
    elif "max_batch_size" in own and "batch_size" in values:
        values["batch_size"] = min(values["batch_size"], own["max_batch_size"])
    return values | dict(own)


def _with_derived_defaults(values: Mapping[str, Any]) -> dict[str, Any]:
    """Add the defaults that depend on other options."""
    derived = dict(values)
    topics: TopicOptions = derived.get("topic_options", TopicOptions())
    if "enable_idempotence" not in derived and derived.get("transactional_id") is None:
        reason = why_not_idempotent(derived)
        # KIP-679: an option that conflicts turns the default off; with an explicit setting it would be an error.
        if reason is not None:
            logger.warning(
                "idempotence is off because of %s: retries may duplicate records or change their order; "
                "enable_idempotence=false says that this is meant, and ends this warning",
                reason,
            )
            derived["enable_idempotence"] = False
    if not derived.get("client_id"):
        suffix = derived.get("transactional_id") or next(_producer_numbers)
        derived["client_id"] = f"producer-{suffix}"[:_DERIVED_ID_CHARACTERS]
    if "delivery_timeout_ms" not in derived:
        linger_ms, timeout_ms = (
            derived.get(name, OPTIONS[name].default) for name in ("linger_ms", "request_timeout_ms")
        )
        least = least_delivery_timeout_ms(max(linger_ms, *topics.values_of("linger_ms"), 0), timeout_ms)
        derived["delivery_timeout_ms"] = max(least, OPTIONS["delivery_timeout_ms"].default)
    if "buffer_memory" not in derived:
        asked = [derived.get(name, OPTIONS[name].default) for name in ("batch_size", "max_request_size")]
        needed = max(*asked, *topics.values_of("batch_size")) + _BATCH_OVERHEAD_BYTES
        derived["buffer_memory"] = default_buffer_memory(OPTIONS["buffer_memory"].default, needed)
    _follow_max_block(derived)
    _follow_batch_size(derived)
    return derived


def _follow_max_block(values: dict[str, Any]) -> None:
    """Let a program that says how long a call may wait have that for the first contact, too."""
    if "max_block_ms" in values:
        values.setdefault("bootstrap_timeout_ms", values["max_block_ms"])


def _follow_batch_size(values: dict[str, Any]) -> None:
    """Let no batch grow above a size that the program gave."""
    usual, most = OPTIONS["batch_size"].default, OPTIONS["max_batch_size"].default
    if "batch_size" in values:
        values.setdefault("max_batch_size", values["batch_size"])
    elif "max_batch_size" in values:
        values["batch_size"] = min(usual, values["max_batch_size"])
    elif "max_request_size" in values:
        values["max_batch_size"] = max(usual, min(most, values["max_request_size"]))
