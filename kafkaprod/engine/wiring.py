"""From options to what the parts of a producer take. Pure, but for reading certificate files."""

from __future__ import annotations

import ssl
from functools import partial

import kafkaprod
from kafkaprod.config import ProducerConfig
from kafkaprod.engine.settings import EngineSettings
from kafkaprod.errors import ConfigError
from kafkaprod.net.settings import ConnectionSettings
from kafkaprod.security.oauthbearer import CallbackTokenProvider, OAuthBearerMechanism
from kafkaprod.security.sasl import MechanismFactory, PlainMechanism
from kafkaprod.security.scram import ScramMechanism
from kafkaprod.security.tls import TlsOptions, client_context


def connection_settings(config: ProducerConfig) -> ConnectionSettings:
    """What connections need. Raises ConfigError for a certificate that cannot be used or missing credentials."""
    return ConnectionSettings(
        client_id=config.client_id,
        software_version=kafkaprod.__version__,
        tls=tls_context(config),
        mechanism=mechanism_factory(config),
        max_in_flight=config.max_in_flight_requests_per_connection,
        request_timeout_ms=config.request_timeout_ms,
        reconnect_backoff_ms=config.reconnect_backoff_ms,
        reconnect_backoff_max_ms=config.reconnect_backoff_max_ms,
        connection_setup_timeout_ms=config.socket_connection_setup_timeout_ms,
        connection_setup_timeout_max_ms=config.socket_connection_setup_timeout_max_ms,
        connections_max_idle_ms=config.connections_max_idle_ms,
        send_buffer_bytes=config.send_buffer_bytes,
        receive_buffer_bytes=config.receive_buffer_bytes,
    )


def tls_context(config: ProducerConfig) -> ssl.SSLContext | None:
    """The given context, or one made from the ssl_ options; None for a protocol without TLS."""
    if config.security_protocol not in ("SSL", "SASL_SSL"):
        return None
    if config.ssl_context is not None:
        return config.ssl_context
    password = config.ssl_password
    return client_context(
        TlsOptions(
            ssl_cafile=config.ssl_cafile,
            ssl_certfile=config.ssl_certfile,
            ssl_keyfile=config.ssl_keyfile,
            ssl_password=None if password is None else password.reveal(),
            ssl_crlfile=config.ssl_crlfile,
            ssl_ciphers=config.ssl_ciphers,
            ssl_check_hostname=config.ssl_check_hostname,
        )
    )


def mechanism_factory(config: ProducerConfig) -> MechanismFactory | None:
    """What makes a SASL mechanism for each login; None for a protocol without login."""
    if not config.security_protocol.startswith("SASL_"):
        return None
    name = config.sasl_mechanism
    if name == "OAUTHBEARER":
        provider = config.sasl_oauth_token_provider
        if provider is None:
            provider = CallbackTokenProvider(config.oauth_cb, config.sasl_oauthbearer_config.reveal())
        return partial(OAuthBearerMechanism, provider)
    if config.sasl_plain_username is None or config.sasl_plain_password is None:
        raise ConfigError(f"sasl_mechanism={name} needs sasl_plain_username and sasl_plain_password")
    credentials = (config.sasl_plain_username, config.sasl_plain_password.reveal())
    make: MechanismFactory = (
        partial(PlainMechanism, *credentials) if name == "PLAIN" else partial(ScramMechanism, str(name), *credentials)
    )
    make()  # refuses unusable credentials now and not at the first connection
    return make


def engine_settings(config: ProducerConfig) -> EngineSettings:
    """What the sender thread needs."""
    return EngineSettings(
        acks=config.acks,
        retries=config.retries,
        request_timeout_ms=config.request_timeout_ms,
        delivery_timeout_ms=config.delivery_timeout_ms,
        retry_backoff_ms=config.retry_backoff_ms,
        retry_backoff_max_ms=config.retry_backoff_max_ms,
        enable_idempotence=config.enable_idempotence,
        preferred_rack=config.client_rack if config.partitioner_rack_aware else None,
        checks_cluster=config.metadata_cluster_check_enable,
    )


def compression_level(config: ProducerConfig) -> int | None:
    """The level of the codec chosen; None for one without levels."""
    levels = {
        "gzip": config.compression_gzip_level,
        "lz4": config.compression_lz4_level,
        "zstd": config.compression_zstd_level,
    }
    return levels.get(config.compression_type)
