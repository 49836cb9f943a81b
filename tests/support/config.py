"""Configurations for tests of single parts, which may have values that the rules between options refuse."""

from __future__ import annotations

import ssl
from typing import Any

from kafkaprod.config import ProducerConfig
from kafkaprod.net.settings import ConnectionSettings
from kafkaprod.security.sasl import MechanismFactory


def unchecked_config(**values: Any) -> ProducerConfig:
    """The defaults with some values replaced, by attribute name and as the attribute holds them; nothing is checked."""
    config = ProducerConfig(bootstrap_servers=(("h", 1),), client_id="kafkaprod")
    for name, value in values.items():
        getattr(config, name)  # refuses a name that is no option
        object.__setattr__(config, name, value)
    return config


def connection_settings(
    tls: ssl.SSLContext | None = None, mechanism: MechanismFactory | None = None, **values: Any
) -> ConnectionSettings:
    """The settings of a client's connections."""
    return ConnectionSettings(unchecked_config(**values), "0", tls, mechanism)
