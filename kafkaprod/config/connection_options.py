"""The options of any client: which servers, how to reach them, how to prove who one is.

Part of the one table of options; `producer_options.py` adds what is a producer's own.
"""

# ruff: noqa: RUF009  (the "default" is a declaration: dataclasses.field)

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kafkaprod.config.addresses import PROTOCOLS, Addresses
from kafkaprod.config.host_patterns import HostPatterns, Hosts
from kafkaprod.config.kinds import (
    Boolean,
    Choice,
    Hook,
    Integer,
    MechanismName,
    Path,
    ProtocolText,
    SecretText,
    Text,
    TlsContext,
    Translate,
)
from kafkaprod.config.option import HIGH, LOW, MEDIUM, REQUIRED, Section
from kafkaprod.config.secret import Secret
from kafkaprod.config.secret_sources import SecretSources, UrlPrefixes

if TYPE_CHECKING:
    import ssl

_SERVERS: Final = Section("Servers and connections")
_METADATA: Final = Section("Cluster metadata")
_SECURITY: Final = Section("Security")


def _checks_names(value: object) -> object:
    """`ssl.endpoint.identification.algorithm`: https checks host names, empty (Java) or none (librdkafka) does not."""
    algorithms: dict[object, bool] = {"https": True, "": False, "none": False}
    return algorithms.get(value.strip().lower(), value) if isinstance(value, str) else value


def _openssl_ciphers(value: object) -> object:
    """Java separates cipher suites by commas, OpenSSL by colons."""
    return value.replace(",", ":").replace(" ", "") if isinstance(value, str) else value


_CIPHERS: Final[dict[str, Translate]] = {"ssl.cipher.suites": _openssl_ciphers}


@dataclass(frozen=True, slots=True, kw_only=True, init=False, repr=False, eq=False)
class ConnectionOptions:
    """The first half of the table; see `ProducerOptions`."""

    # -- servers and connections ---------------------------------------------------------------------------------------

    bootstrap_servers: tuple[tuple[str, int], ...] = _SERVERS.option(
        REQUIRED,
        Addresses(),
        HIGH,
        "Addresses of brokers to contact first; the others are discovered from there. Kept as (host, port) pairs.",
        aliases=("metadata.broker.list",),
    )
    allowed_brokers: HostPatterns = _SERVERS.option(
        HostPatterns(),
        Hosts(),
        LOW,
        "Hosts that this client may connect to, besides those of `bootstrap_servers`. Metadata names the other "
        "brokers: a cluster that is not trusted could name any host and port that this machine reaches. A name "
        "allows every address of that host; an address or a network allows the addresses in it, whatever the name. If "
        "empty: all.",
    )
    allowed_secret_sources: tuple[str, ...] | None = _SERVERS.option(
        None,
        SecretSources(),
        LOW,
        "What the other options may name and use, for programs that take options from others: `env:NAME`, "
        "`env:PREFIX*`, `file:/PATH`, `file:/DIRECTORY/`, `identity:aws`, `identity:azure`, `identity:kerberos`, or "
        "`none`. It concerns secrets given as `env:` or `file:`, files of tokens, assertions, keys, certificates and "
        "keytabs, and logins as what this machine or its environment is: servers that the same options choose see "
        "them. None: any. The variable `KAFKAPROD_ALLOWED_SECRET_SOURCES` bounds all clients of a process; both "
        "must allow.",
    )
    allowed_urls: tuple[str, ...] | None = _SERVERS.option(
        None,
        UrlPrefixes(),
        LOW,
        "Addresses of HTTP servers that the other options may name, for programs that take options from others: "
        "`https://HOST`, `https://HOST:PORT/PATH`, or `none`; what is below one is allowed. It concerns "
        "`sasl_oauthbearer_token_endpoint_url`, and the inputs of `kafkaprod load` that are addresses. None: any. The "
        "variable `KAFKAPROD_ALLOWED_URLS` bounds all clients and schema registries of a process; both must allow.",
    )
    proxy_url: Secret | None = _SERVERS.option(
        None,
        SecretText(),
        LOW,
        "Connect to brokers through this proxy: `socks5://user:password@host:port`, `socks4://` or `http://` "
        "(CONNECT). It also resolves the brokers' names. Needs the extra `proxy`.",
    )
    client_id: str = _SERVERS.option(
        "",
        ProtocolText(may_be_empty=True),
        MEDIUM,
        "Name of this producer in the brokers' logs, metrics and quotas. If empty: `producer-<transactional_id>`, or "
        "`producer-<n>`, where n counts the producers of the process.",
    )
    request_timeout_ms: int = _SERVERS.option(
        30_000,
        Integer(1),
        MEDIUM,
        "How long to wait for the answer to one request; then its connection is closed and the request retried. Also "
        "the time that a Produce request gives the broker to replicate.",
        unit="ms",
    )
    max_in_flight_requests_per_connection: int = _SERVERS.option(
        5,
        Integer(1, 1_000_000),
        LOW,
        "Requests without an answer, per broker. Order is kept up to 5 with idempotence, and at 1 without.",
        aliases=("max.in.flight",),
    )
    reconnect_backoff_ms: int = _SERVERS.option(
        50,
        Integer(),
        LOW,
        "First wait before connecting to a broker again; doubles with each failure, +-20 %.",
        unit="ms",
    )
    reconnect_backoff_max_ms: int = _SERVERS.option(
        1000, Integer(), LOW, "Upper bound of the wait before connecting to a broker again.", unit="ms"
    )
    socket_connection_setup_timeout_ms: int = _SERVERS.option(
        10_000,
        Integer(1),
        MEDIUM,
        "How long a connect may take, TLS and login included; doubles with each failure, +-20 %. Of several addresses "
        "of a name each has 1 s at first.",
        unit="ms",
    )
    socket_connection_setup_timeout_max_ms: int = _SERVERS.option(
        30_000,
        Integer(1),
        MEDIUM,
        "Upper bound of the time for a connect, after repeated failures.",
        unit="ms",
    )
    connections_max_idle_ms: int = _SERVERS.option(
        540_000,
        Integer(0),
        MEDIUM,
        "A connection that is unused for this time is closed. Keep it below the brokers' own limit (600000).",
        unit="ms",
    )
    send_buffer_bytes: int = _SERVERS.option(
        -1,
        Integer(-1, synonyms={None: -1}),
        MEDIUM,
        "SO_SNDBUF; -1 lets the operating system adapt it.",
        unit="bytes",
        aliases=("socket.send.buffer.bytes",),
    )
    receive_buffer_bytes: int = _SERVERS.option(
        -1,
        Integer(-1, synonyms={None: -1}),
        MEDIUM,
        "SO_RCVBUF; -1 lets the operating system adapt it.",
        unit="bytes",
        aliases=("socket.receive.buffer.bytes",),
    )

    broker_address_family: str = _SERVERS.option(
        "any", Choice(("any", "v4", "v6")), LOW, "Which addresses of a name are used: IPv4, IPv6, or any."
    )

    # -- cluster metadata ----------------------------------------------------------------------------------------------

    metadata_max_age_ms: int = _METADATA.option(
        300_000,
        Integer(1),
        LOW,
        "Metadata older than this is fetched again even if nothing seems to have changed.",
        unit="ms",
        aliases=("topic.metadata.refresh.interval.ms",),
    )
    metadata_recovery_strategy: str = _METADATA.option(
        "rebootstrap",
        Choice(("rebootstrap", "none")),
        LOW,
        "What to do when no known broker can be reached: start over from `bootstrap_servers`, or keep trying the known "
        "ones (KIP-899).",
    )
    metadata_recovery_rebootstrap_trigger_ms: int = _METADATA.option(
        300_000,
        Integer(),
        LOW,
        "Start over from `bootstrap_servers` after this time without metadata (KIP-1102).",
        unit="ms",
    )
    metadata_cluster_check_enable: bool | None = _METADATA.option(
        None,
        Boolean(),
        LOW,
        "Whether a broker that the metadata named must be of the cluster and have the node id expected of it, so that "
        "a misrouted connection is refused (KIP-1242). Not set: they must, and starting over from `bootstrap_servers` "
        "takes whatever cluster is there, with a warning; true: it takes no other cluster either; false: nothing is "
        "checked.",
    )

    # -- security ------------------------------------------------------------------------------------------------------

    security_protocol: str = _SECURITY.option(
        "PLAINTEXT",
        Choice(PROTOCOLS),
        MEDIUM,
        "Encryption (SSL) and login (SASL). It never falls back to a weaker protocol.",
    )
    ssl_context: ssl.SSLContext | None = _SECURITY.option(
        None, TlsContext(), MEDIUM, "A ready context; replaces all other `ssl_` options."
    )
    ssl_cafile: str | None = _SECURITY.option(
        None,
        Path(),
        HIGH,
        "PEM file of trusted authorities. None: the operating system's.",
        aliases=("ssl.ca.location", "ssl.truststore.location"),
    )
    ssl_certfile: str | None = _SECURITY.option(
        None,
        Path(),
        HIGH,
        "PEM file of this client's certificate chain.",
        aliases=("ssl.certificate.location", "ssl.keystore.location"),
    )
    ssl_keyfile: str | None = _SECURITY.option(
        None,
        Path(),
        HIGH,
        "PEM file of its private key. None: the key is in `ssl_certfile`.",
        aliases=("ssl.key.location",),
    )
    ssl_password: Secret | None = _SECURITY.option(
        None, SecretText(), HIGH, "Password of the private key.", aliases=("ssl.key.password",)
    )
    ssl_crlfile: str | None = _SECURITY.option(
        None, Path(), LOW, "PEM file of revoked certificates.", aliases=("ssl.crl.location",)
    )
    ssl_ca_pem: Secret | None = _SECURITY.option(
        None,
        SecretText(),
        MEDIUM,
        "Trusted authorities as PEM text, instead of `ssl_cafile`.",
        aliases=("ssl.truststore.certificates",),
    )
    ssl_certificate_pem: Secret | None = _SECURITY.option(
        None,
        SecretText(),
        MEDIUM,
        "This client's certificate chain as PEM text, instead of `ssl_certfile`.",
        aliases=("ssl.keystore.certificate.chain",),
    )
    ssl_key_pem: Secret | None = _SECURITY.option(
        None,
        SecretText(),
        MEDIUM,
        "Its private key as PEM text, instead of `ssl_keyfile`. None: the key is in `ssl_certificate_pem`.",
        aliases=("ssl.keystore.key",),
    )
    ssl_ciphers: str | None = _SECURITY.option(
        None, Text(), LOW, "OpenSSL's list of ciphers for TLS 1.2. None: OpenSSL's default.", translated=_CIPHERS
    )
    ssl_check_hostname: bool = _SECURITY.option(
        True,
        Boolean(),
        LOW,
        "Whether a certificate must name the host. If not, everyone with a trusted certificate can read along.",
        translated={"ssl.endpoint.identification.algorithm": _checks_names},
    )
    sasl_mechanism: str | None = _SECURITY.option(
        None,
        MechanismName(),
        MEDIUM,
        "How to log in. The broker's list of mechanisms never changes it. AWS_MSK_IAM signs tokens of OAUTHBEARER with "
        "AWS credentials (`pip install 'kafkaprod[msk]'`), GSSAPI is Kerberos (`pip install 'kafkaprod[kerberos]'`). "
        "Other names are looked up among the entry points "
        "`kafkaprod.sasl_mechanisms` of installed packages.",
        aliases=("sasl.mechanisms",),
    )
    sasl_plain_username: str | None = _SECURITY.option(
        None, Text(), MEDIUM, "User name for PLAIN and SCRAM.", aliases=("sasl.username",)
    )
    sasl_plain_password: Secret | None = _SECURITY.option(
        None, SecretText(), MEDIUM, "Password for PLAIN and SCRAM.", aliases=("sasl.password",)
    )
    sasl_oauth_token_provider: Any = _SECURITY.option(
        None,
        Hook(("token",), accepts_callable=False),
        MEDIUM,
        "Its `token()` gives a bearer token for each login (OAUTHBEARER).",
    )
    oauth_cb: Any = _SECURITY.option(
        None,
        Hook(),
        LOW,
        "As in confluent-kafka: takes `sasl_oauthbearer_config`, gives (token, expiry[, principal[, extensions]]).",
    )
    sasl_oauthbearer_config: Secret = _SECURITY.option(
        Secret(""), SecretText(may_be_empty=True), LOW, "The text given to `oauth_cb`; it often holds a client secret."
    )
