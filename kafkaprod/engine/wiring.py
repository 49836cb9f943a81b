"""Makes what the parts of a producer need from its options. Pure, except that it reads certificate files."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import kafkaprod
from kafkaprod.config import ProducerConfig
from kafkaprod.errors import ConfigError
from kafkaprod.net.network import SOCKETS, Network
from kafkaprod.net.settings import ConnectionSettings
from kafkaprod.security.sasl import MechanismFactory, PlainMechanism

# What TLS and logins need is imported with the first connection that needs it: OpenSSL is slow to load.
if TYPE_CHECKING:
    import ssl


def connection_settings(config: ProducerConfig, network: Network = SOCKETS) -> ConnectionSettings:
    """Return what connections need. Raises ConfigError for a certificate that cannot be used or missing credentials."""
    return ConnectionSettings(config, kafkaprod.__version__, tls_context(config), mechanism_factory(config), network)


def tls_context(config: ProducerConfig) -> ssl.SSLContext | None:
    """Return the given context, or one made from the ssl_ options; None for a protocol without TLS."""
    if config.security_protocol not in ("SSL", "SASL_SSL"):
        return None
    if config.ssl_context is not None:
        return config.ssl_context
    from kafkaprod.security.tls import client_context

    return client_context(config)


def mechanism_factory(config: ProducerConfig) -> MechanismFactory | None:
    """Return the factory of SASL mechanisms, one for each login; None for a protocol without login."""
    if not config.security_protocol.startswith("SASL_"):
        return None
    name = config.sasl_mechanism
    if name == "OAUTHBEARER":
        from kafkaprod.security.oauthbearer import CallbackTokenProvider, OAuthBearerMechanism

        provider = config.sasl_oauth_token_provider
        if provider is None:
            provider = CallbackTokenProvider(config.oauth_cb, config.sasl_oauthbearer_config.reveal())
        return partial(OAuthBearerMechanism, provider)
    if config.sasl_plain_username is None or config.sasl_plain_password is None:
        raise ConfigError(f"sasl_mechanism={name} needs sasl_plain_username and sasl_plain_password")
    credentials = (config.sasl_plain_username, config.sasl_plain_password.reveal())
    make: MechanismFactory
    if name == "PLAIN":
        make = partial(PlainMechanism, *credentials)
    else:
        from kafkaprod.security.scram import ScramMechanism

        make = partial(ScramMechanism, str(name), *credentials)
    make()  # refuses unusable credentials now, not at the first connection
    return make


def compression_level(config: ProducerConfig) -> int | None:
    """Return the level of the chosen codec; None for one without levels."""
    levels = {
        "gzip": config.compression_gzip_level,
        "lz4": config.compression_lz4_level,
        "zstd": config.compression_zstd_level,
    }
    return levels.get(config.compression_type)
