"""The command's arguments."""

from __future__ import annotations

import pytest

from kafkaprod.cli import broker_arguments
from kafkaprod.errors import ConfigError


def test_options_are_name_and_value() -> None:
    assert broker_arguments._parse_option("sasl.jaas=a=b") == ("sasl.jaas", "a=b")
    with pytest.raises(ConfigError, match="'x' is not NAME=VALUE"):
        broker_arguments._parse_option("x")
