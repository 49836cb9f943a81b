"""Makes what the parts of a producer need from its options. Pure, except that it reads certificate files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

import kafkaprod
from kafkaprod.config import OPTIONS, ProducerConfig
from kafkaprod.config.kinds import MECHANISMS
from kafkaprod.config.rules import check_use
from kafkaprod.errors import ConfigError
from kafkaprod.net.network import SOCKETS, Network
from kafkaprod.net.settings import ConnectionSettings
from kafkaprod.security.sasl import (
    CheckedMechanism,
    Mechanism,
    MechanismFactory,
    PasswordLogins,
    PasswordMechanism,
    PlainMechanism,
)
from kafkaprod.threads import apart, replaced_modules

# What TLS and logins need is imported only where they are configured: OpenSSL is slow to load.
if TYPE_CHECKING:
    import ssl

    from kafkaprod.net.proxy import Proxy
    from kafkaprod.security.oauthbearer import BearerToken, TokenProvider
    from kafkaprod.security.tls import CertificateFiles

PASSWORD_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_TLS_PROTOCOLS: Final = ("SSL", "SASL_SSL")

# A request costs the same whatever it holds, and has one batch of each partition at most: there is room for one full
# batch of each of eight partitions. More would need a faster network to be answered within request_timeout_ms.
REQUEST_BATCHES: Final = 8
REQUEST_BYTES: Final = 2 << 20  # eight batches of the default size; as much with smaller ones
MOST_REQUEST_BYTES: Final = 32 << 20  # brokers close a connection at a request above 100 MiB (socket.request.max.bytes)


def connection_settings(config: ProducerConfig, network: Network = SOCKETS) -> ConnectionSettings:
    """Return what connections need.

    Raises:
        ConfigError: A certificate cannot be used, credentials are missing, or threads would wait in replaced modules.
    """
    replaced = replaced_modules()
    if replaced is not None:
        raise ConfigError(
            f"{replaced[0]} has replaced {', '.join(replaced[1])} in this process, and a producer needs Python's own: "
            "make it in a process without monkey patching, such as a worker of threads or of asyncio (AsyncProducer)"
        )
    return apart(lambda: _connection_settings(config, network))  # imports what it needs


def _connection_settings(config: ProducerConfig, network: Network) -> ConnectionSettings:
    files = certificate_files(config)
    credentials = password_credentials(config)
    return ConnectionSettings(
        config,
        kafkaprod.__version__,
        tls_context(config) if files is None else files.context,
        mechanism_factory(config, credentials),
        network,
        proxy(config),
        credentials,
        files if files is not None and files.can_change else None,
    )


def proxy(config: ProducerConfig) -> Proxy | None:
    """Return the proxy to connect through, if there is one. Raises ConfigError if it cannot be used."""
    if config.proxy_url is None:
        return None
    from kafkaprod.net.proxy import Proxy

    return Proxy(config.proxy_url, partial(check_use, config))


def tls_context(config: ProducerConfig) -> ssl.SSLContext | None:
    """Return the given context, or one made from the ssl_ options; None for a protocol without TLS."""
    files = certificate_files(config)
    if files is not None:
        return files.context
    return config.ssl_context if config.security_protocol in _TLS_PROTOCOLS else None


def certificate_files(config: ProducerConfig) -> CertificateFiles | None:
    """Return what makes contexts from the ssl_ options; None for a given context and for a protocol without TLS."""
    if config.security_protocol not in _TLS_PROTOCOLS:
        return None
    import kafkaprod.net.tls_transport  # noqa: F401  # now: the sender thread must not import while a program forks

    if config.ssl_context is not None:
        return None
    from kafkaprod.security.tls import CertificateFiles

    return CertificateFiles(config, partial(check_use, config))


def password_credentials(config: ProducerConfig) -> PasswordLogins | None:
    """Return user name and password for PLAIN and SCRAM; None for another mechanism or no login.

    Raises:
        ConfigError: One of them is missing.
    """
    name = config.sasl_mechanism
    if not config.security_protocol.startswith("SASL_") or name not in PASSWORD_MECHANISMS:
        return None
    if config.sasl_plain_username is None or config.sasl_plain_password is None:
        raise ConfigError(f"sasl_mechanism={name} needs sasl_plain_username and sasl_plain_password")
    return PasswordLogins(config.sasl_plain_username, config.sasl_plain_password)


def mechanism_factory(config: ProducerConfig, credentials: PasswordLogins | None = None) -> MechanismFactory | None:
    """Return the factory of SASL mechanisms, one for each login; None for a protocol without login.

    What the options name is checked again when a login begins.

    Args:
        config: Names the mechanism.
        credentials: What `password_credentials` returned.
    """
    if not config.security_protocol.startswith("SASL_"):
        return None
    make, check = _mechanism_factory(config, credentials), partial(check_use, config)
    return lambda host: CheckedMechanism(make(host), check)


def _mechanism_factory(config: ProducerConfig, credentials: PasswordLogins | None) -> MechanismFactory:
    name = str(config.sasl_mechanism)
    if name not in MECHANISMS:
        from kafkaprod.security.plugins import installed_mechanism

        return installed_mechanism(name, config)
    if name in ("OAUTHBEARER", "AWS_MSK_IAM"):
        from kafkaprod.security.oauthbearer import OAuthBearerMechanism

        provider = token_provider(config)
        return lambda host: OAuthBearerMechanism(provider)
    if name == "GSSAPI":
        from kafkaprod.security.kerberos import kerberos_mechanisms

        return kerberos_mechanisms(config)
    logins = password_credentials(config) if credentials is None else credentials
    assert logins is not None
    make = password_mechanism(name)
    make(*logins.reveal())  # refuses unusable credentials now, not at the first connection
    return lambda host: PasswordMechanism(name, logins, make)


def password_mechanism(name: str) -> Callable[[str, str], Mechanism]:
    """Return what makes PLAIN or SCRAM of user name and password."""
    if name == "PLAIN":
        return PlainMechanism
    from kafkaprod.security.scram import ScramMechanism

    return partial(ScramMechanism, name)


def token_provider(config: ProducerConfig) -> TokenProvider:
    """Return what gives OAUTHBEARER its tokens: the user's object or callback, or a token endpoint."""
    if config.sasl_mechanism == "AWS_MSK_IAM":
        from kafkaprod.security.msk import token_fetcher
        from kafkaprod.security.token_cache import TokenCache

        return TokenCache(token_fetcher(config))
    if config.sasl_oauth_token_provider is not None:
        given: TokenProvider = config.sasl_oauth_token_provider
        return given
    if config.oauth_cb is not None:
        from kafkaprod.security.oauthbearer import CallbackTokenProvider

        return CallbackTokenProvider(config.oauth_cb, config.sasl_oauthbearer_config.reveal())
    from kafkaprod.net.http_exchange import HttpAnswer, exchange
    from kafkaprod.security.tls import endpoint_context
    from kafkaprod.security.token_cache import TokenCache
    from kafkaprod.security.token_endpoint import TokenEndpoint

    endpoint_context(config)  # refuses files that cannot be used now, not at the first login

    def send(method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> HttpAnswer:
        return exchange(
            method,
            url,
            headers,
            body,
            connect_timeout_ms=config.sasl_login_connect_timeout_ms,
            read_timeout_ms=config.sasl_login_read_timeout_ms,
            tls=endpoint_context(config),
        )

    endpoint = TokenEndpoint(config, send)

    def fetch() -> BearerToken:
        check_use(config)
        return endpoint.fetch()

    patience_s = (config.sasl_login_connect_timeout_ms + config.sasl_login_read_timeout_ms) / 1000
    return TokenCache(fetch, patience_s=patience_s)


def request_bytes(config: ProducerConfig) -> int:
    """Return how many bytes of batches one request may hold; a limit below the default is one of requests, too."""
    if config.max_request_size < OPTIONS["max_request_size"].default:
        return config.max_request_size
    largest: int = max(config.batch_size, *config.topic_options.values_of("batch_size"), 0)
    full_batches = min(REQUEST_BATCHES * largest, MOST_REQUEST_BYTES)
    return max(config.max_request_size, REQUEST_BYTES, full_batches)
