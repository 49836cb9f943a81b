"""Which lists of listeners are understood."""

from __future__ import annotations

import pytest

from kafkaprod.broker.config import BrokerConfig
from kafkaprod.broker.listeners import Listener, parse_listeners
from kafkaprod.errors import ConfigError


def test_a_list_is_read() -> None:
    assert parse_listeners("PLAINTEXT://:9092, SASL_SSL://[::1]:0,SSL://host.example:1", "127.0.0.1") == (
        Listener("PLAINTEXT", "127.0.0.1", 9092),
        Listener("SASL_SSL", "::1", 0),
        Listener("SSL", "host.example", 1),
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "PLAINTEXT",
        "PLAINTEXT://:x",
        "PLAINTEXT://:70000",
        "EXTERNAL://:1",
        "PLAINTEXT://:1,",
        "PLAINTEXT://:1,PLAINTEXT://:2",
        "PLAINTEXT://:1,SSL://:1",
    ],
)
def test_a_list_that_cannot_be_meant_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="listener"):
        parse_listeners(text, "127.0.0.1")


@pytest.mark.parametrize("protocol", ["SSL", "SASL_PLAINTEXT"])
def test_a_listener_needs_what_its_protocol_needs(protocol: str) -> None:
    with pytest.raises(ConfigError, match=f"listener {protocol} needs"):
        BrokerConfig(data_dir="", listeners=parse_listeners(f"{protocol}://:0", "127.0.0.1"))
