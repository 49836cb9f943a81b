"""Which lists of listeners are understood."""

from __future__ import annotations

import pytest

from kafkaprod.broker.config import BrokerConfig
from kafkaprod.broker.listeners import (
    Endpoint,
    Listener,
    following,
    listeners_text,
    parse_advertised,
    parse_listeners,
)
from kafkaprod.errors import ConfigError


def test_a_list_is_read() -> None:
    assert parse_listeners("PLAINTEXT://:9092, SASL_SSL://[::1]:0,SSL://host.example:1", "127.0.0.1") == (
        Listener("PLAINTEXT", "127.0.0.1", 9092),
        Listener("SASL_SSL", "::1", 0),
        Listener("SSL", "host.example", 1),
    )


def test_several_listeners_of_a_protocol_have_names() -> None:
    listeners = parse_listeners("PLAINTEXT://:0,PROXIED:PLAINTEXT://:0,OUTER_2:SSL://:9", "127.0.0.1")
    assert [(listener.name, listener.protocol) for listener in listeners] == [
        *(("PLAINTEXT", "PLAINTEXT"), ("PROXIED", "PLAINTEXT"), ("OUTER_2", "SSL")),
    ]
    config = BrokerConfig(data_dir="", listeners=listeners[:2], advertised="PROXIED://proxy.example:39091")
    assert config.protocols == {"PLAINTEXT": "PLAINTEXT", "PROXIED": "PLAINTEXT"}
    assert [config.advertised_as(listener, 5) for listener in listeners[:2]] == [
        *(Endpoint("127.0.0.1", 5), Endpoint("proxy.example", 39091)),
    ]


def test_the_ports_of_a_clusters_brokers_follow_those_of_the_first() -> None:
    first = parse_listeners("PLAINTEXT://:9092,OUTER:SSL://[::1]:19092,SASL_SSL://:0", "127.0.0.1")
    assert listeners_text(following(first, 0)) == (
        "PLAINTEXT://127.0.0.1:9092,OUTER:SSL://[::1]:19092,SASL_SSL://127.0.0.1:0"
    )
    assert [each.port for each in following(first, 2)] == [9094, 19094, 0]


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
        "A:PLAINTEXT://:1,A:SSL://:2",
        "A:PLAINTEXT://:1,B:PLAINTEXT://:1",
        "SSL:PLAINTEXT://:1,SSL://:2",
        "a:PLAINTEXT://:1",
        "A:EXTERNAL://:1",
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


BOTH = ("PLAINTEXT", "SSL")


@pytest.mark.parametrize(
    ("text", "protocols", "expected"),
    [
        ("", BOTH, {}),
        ("proxy.example:39091", ("SSL",), {"SSL": Endpoint("proxy.example", 39091)}),
        ("[::1]:7", ("PLAINTEXT",), {"PLAINTEXT": Endpoint("::1", 7)}),
        ("SSL://h:1", BOTH, {"SSL": Endpoint("h", 1)}),
        ("PLAINTEXT://h:1, SSL://h:2", BOTH, {"PLAINTEXT": Endpoint("h", 1), "SSL": Endpoint("h", 2)}),
    ],
)
def test_what_clients_get_is_read(text: str, protocols: tuple[str, ...], expected: dict[str, Endpoint]) -> None:
    assert parse_advertised(text, protocols) == expected


@pytest.mark.parametrize(
    "text", ["h", "h:", ":1", "h:0", "h:65536", "h:1", "SASL_SSL://h:1", "SSL://h:1,SSL://h:2", "SSL://h:1,"]
)
def test_what_clients_cannot_be_given_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="advertised"):
        parse_advertised(text, BOTH)


def test_a_broker_checks_it_with_its_other_options() -> None:
    with pytest.raises(ConfigError, match="advertised: 'SSL://h:1' is for none of PLAINTEXT"):
        BrokerConfig(data_dir="", advertised="SSL://h:1")
