"""Which options a topic may have."""

from __future__ import annotations

import pytest

from kafkaprod.broker.settings.topic_options import (
    BROKER_NAMES,
    TOPIC_OPTIONS,
    UNUSED_DEFAULTS,
    check_option,
    default_values,
)
from kafkaprod.broker.storage.format.log_config import LogConfig
from kafkaprod.errors import ConfigError


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max.message.bytes", "-1"),
        ("max.message.bytes", "2147483648"),
        ("retention.ms", "-2"),
        ("retention.ms", "9223372036854775808"),
        ("segment.bytes", "14"),
        ("segment.bytes", " 1000000000 "),
        ("segment.bytes", "1_000_000_000"),
        ("retention.ms", "\u0661\u0662"),
        ("retention.ms", ""),
        ("retention.ms", "1e9"),
        ("min.cleanable.dirty.ratio", "1.1"),
        ("min.cleanable.dirty.ratio", "nan"),
        ("preallocate", "maybe"),
        ("cleanup.policy", "delete,burn"),
        ("flush.messages", "\x1b]0;x\x07"),
        ("leader.replication.throttled.replicas", "0:1\n"),
        ("leader.replication.throttled.replicas", "x" * 40_000),
        ("no.such.option", "1"),
    ],
)
def test_values_that_kafka_refuses_are_refused(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=name):
        check_option(name, value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("retention.ms", "-1"),
        ("segment.bytes", "1048576"),
        ("cleanup.policy", "compact,delete"),
        ("min.cleanable.dirty.ratio", "0.01"),
        ("preallocate", "TRUE"),
        ("leader.replication.throttled.replicas", "0:1,1:1"),
    ],
)
def test_values_that_kafka_takes_are_taken(name: str, value: str) -> None:
    check_option(name, value)


def test_every_option_has_a_default_that_it_may_have() -> None:
    defaults = default_values(LogConfig(), {})
    assert defaults.keys() == TOPIC_OPTIONS.keys()
    assert not UNUSED_DEFAULTS.keys() & LogConfig().to_properties().keys()
    assert BROKER_NAMES.keys() <= TOPIC_OPTIONS.keys()
    for name, value in defaults.items():
        check_option(name, value)
