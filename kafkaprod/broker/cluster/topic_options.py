"""How the options of topics and of the broker look to DescribeConfigs: their types and where values come from.

Source: Kafka protocol guide, DescribeConfigs; ConfigEntry.
"""

from __future__ import annotations

from kafkaprod.broker.storage.log.log_config import LogConfig

TOPIC_SOURCE = 1  # set on the topic
BROKER_SOURCE = 4  # the broker's own settings
DEFAULT_SOURCE = 5

TYPE_STRING = 2
TYPE_LONG = 5
TYPE_LIST = 7

LIST_OPTIONS = frozenset({"cleanup.policy"})


def type_of(name: str, value: str) -> int:
    """Kafka's number for the type of an option."""
    if name in LIST_OPTIONS:
        return TYPE_LIST
    return TYPE_LONG if value.removeprefix("-").isdecimal() else TYPE_STRING


def default_values(config: LogConfig) -> dict[str, str]:
    """The options every topic has, with the broker's values."""
    return config.to_properties()
