"""Which hosts a client may connect to."""

from __future__ import annotations

import pytest

from kafkaprod.config import ProducerConfig
from kafkaprod.config.host_patterns import HostPatterns, Hosts
from kafkaprod.errors import ConfigError


def parsed(value: object) -> HostPatterns:
    return Hosts().parse(value)


@pytest.mark.parametrize(
    ("patterns", "host", "is_allowed"),
    [
        ("", "anything", True),
        ("kafka1", "kafka1", True),
        ("kafka1", "KAFKA1.", True),
        ("kafka1", "kafka1.evil.com", False),
        ("*.example.com", "b1.example.com", True),
        ("*.example.com", "example.com", False),
        ("*.example.com", "notexample.com", False),
        ("10.0.0.0/8", "kafka1", False),
    ],
)
def test_names_and_domains(patterns: str, host: str, is_allowed: bool) -> None:
    assert parsed(patterns).allows_name(host) is is_allowed


@pytest.mark.parametrize(
    ("patterns", "address", "is_allowed"),
    [
        ("10.0.0.0/8", "10.255.0.1", True),
        ("10.0.0.0/8", "11.0.0.1", False),
        ("10.0.0.0/8", "::ffff:10.1.1.1", True),
        ("10.1.2.3", "10.1.2.3", True),
        ("10.1.2.3", "10.1.2.4", False),
        ("fe80::/10", "fe80::1%eth0", True),
        ("[::1]", "::1", True),
        ("kafka1", "127.0.0.1", False),
    ],
)
def test_addresses_and_networks(patterns: str, address: str, is_allowed: bool) -> None:
    assert parsed(patterns).allows_address(address) is is_allowed


@pytest.mark.parametrize("value", [5, [5], "kafka:9092", "*", "*.", "a*b", "a b", "10.0.0.0/99", "http://a", "..a"])
def test_what_is_no_host_is_refused(value: object) -> None:
    with pytest.raises(ConfigError, match="allowed_brokers"):
        ProducerConfig.from_options({"bootstrap_servers": "h", "allowed_brokers": value})


def test_what_is_shown_can_be_given_again() -> None:
    patterns = parsed("kafka1, *.example.com ,10.1.2.3/8")
    assert parsed(Hosts().show(patterns).strip("'")) == parsed(["kafka1", "*.example.com", "10.0.0.0/8"]) == patterns
