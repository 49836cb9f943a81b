"""kafka-python's options and what becomes of each in kafkaprod."""

from __future__ import annotations

import itertools
import math
import selectors
import socket
import warnings
from collections.abc import Mapping
from typing import Any, Final

from kafkaprod.compat.kafka_python.errors import OptionError
from kafkaprod.compat.translation import servers_once

_NODELAY: Final = [(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)]
_FOREVER: Final = 2**31 - 1  # retries without end
_numbers = itertools.count(1)

DEFAULT_CONFIG: Final[Mapping[str, Any]] = {
    "bootstrap_servers": "localhost",
    "client_id": None,
    "key_serializer": None,
    "value_serializer": None,
    "enable_idempotence": True,
    "transactional_id": None,
    "transaction_timeout_ms": 60000,
    "delivery_timeout_ms": 120000,
    "acks": -1,
    "compression_type": None,
    "retries": math.inf,
    "batch_size": 262144,
    "linger_ms": 0,
    "partitioner": None,
    "connections_max_idle_ms": 540000,
    "max_block_ms": 60000,
    "max_request_size": 1048576,
    "allow_auto_create_topics": True,
    "metadata_max_age_ms": 300000,
    "client_dns_lookup": "use_all_dns_ips",
    "retry_backoff_ms": 100,
    "request_timeout_ms": 30000,
    "receive_message_max_bytes": 100000000,
    "receive_buffer_bytes": None,
    "send_buffer_bytes": None,
    "socket_options": _NODELAY,
    "reconnect_backoff_ms": 50,
    "reconnect_backoff_max_ms": 30000,
    "max_in_flight_requests_per_connection": 5,
    "security_protocol": "PLAINTEXT",
    "ssl_context": None,
    "ssl_check_hostname": True,
    "ssl_cafile": None,
    "ssl_certfile": None,
    "ssl_keyfile": None,
    "ssl_crlfile": None,
    "ssl_password": None,
    "ssl_ciphers": None,
    "api_version": None,
    "bootstrap_timeout_ms": 5000,
    "metric_reporters": [],
    "metrics_enabled": True,
    "metrics_num_samples": 2,
    "metrics_sample_window_ms": 30000,
    "selector": selectors.DefaultSelector,
    "sasl_mechanism": None,
    "sasl_plain_username": None,
    "sasl_plain_password": None,
    "sasl_kerberos_name": None,
    "sasl_kerberos_service_name": "kafka",
    "sasl_kerberos_domain_name": None,
    "sasl_oauth_token_provider": None,
    "proxy_url": None,
    "socks5_proxy": None,
    "kafka_client": None,
}
"""The options of kafka-python 3.0. Its defaults but for two: `batch_size` (16384 there; memory follows the data here)
and `bootstrap_timeout_ms` (30000 there)."""

OLDER: Final = frozenset(
    {"api_version_auto_timeout_ms", "buffer_memory", "sock_chunk_bytes", "sock_chunk_buffer_count"}
)
"""Options of kafka-python 2 that version 3 no longer has."""

_VOID: Final = {
    "api_version": "versions are always negotiated",
    "selector": "the platform's best one is used",
    "kafka_client": "the engine has its own",
    "receive_message_max_bytes": "answers to a producer are bounded by what it sent",
    "sock_chunk_bytes": "the engine chooses it",
    "sock_chunk_buffer_count": "the engine chooses it",
}
_WHOLE_MS: Final = (
    *("linger_ms", "request_timeout_ms", "delivery_timeout_ms", "retry_backoff_ms", "max_block_ms"),
    "bootstrap_timeout_ms",
)
_REFUSED: Final = {
    "metric_reporters": "reporters of kafka-python are not called: read metrics(), or use kafkaprod.Producer",
}
_HERE: Final = frozenset(  # evaluated by KafkaProducer itself
    {"key_serializer", "value_serializer", "partitioner", "metrics_enabled", *_VOID}
    | {"api_version_auto_timeout_ms", "client_dns_lookup", "socket_options", *_REFUSED}
)


def effective(configs: Mapping[str, Any]) -> dict[str, Any]:
    """Return kafka-python's view of the options: its defaults and what is given.

    Raises:
        ValueError: Kafka-python has no such options.
    """
    unknown = [name for name in configs if name not in DEFAULT_CONFIG and name not in OLDER]
    if (
        unknown
    ):  # without the values, which kafka-python shows: one may be a password under a name that is misremembered
        raise ValueError(f"Unrecognized configs: {unknown}")
    known = {**DEFAULT_CONFIG, **configs}
    if known["client_id"] is None:
        known["client_id"] = f"kafka-python-producer-{next(_numbers)}"
    if known["acks"] == "all":
        known["acks"] = -1
    return known


def engine_options(given: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of the engine.

    Args:
        given: What the program gives.
        known: The same with kafka-python's defaults.

    Raises:
        KafkaConfigurationError: An option is not offered; says what to do.
    """
    for name, advice in _REFUSED.items():
        if known.get(name):
            raise OptionError(f"{name}: {advice}")
    _check_socket_options(known["socket_options"])
    void = [name for name in _VOID if given.get(name) is not None]
    if void:
        reasons = "; ".join(f"{name}: {_VOID[name]}" for name in void)
        warnings.warn(f"options without effect: {reasons}", DeprecationWarning, stacklevel=4)
    options = {name: value for name, value in given.items() if name not in _HERE and value is not None}
    proxy = options.pop("socks5_proxy", None)  # the older name
    if proxy:
        options.setdefault("proxy_url", proxy)
    _set_service(options)
    options |= {name: known[name] for name in ("client_id", "linger_ms")}
    options["bootstrap_servers"] = servers_once(known["bootstrap_servers"])
    if options.get("retries") == math.inf:
        options["retries"] = _FOREVER
    _raise_limits(options)
    return options


def _raise_limits(options: dict[str, Any]) -> None:
    """Make options agree that the engine checks against each other, and kafka-python does not."""
    for name in ("retry_backoff", "reconnect_backoff"):
        first, limit = options.get(f"{name}_ms"), options.get(f"{name}_max_ms", 1000)
        if isinstance(first, int | float) and first > limit:
            options[f"{name}_max_ms"] = first
    for name in _WHOLE_MS:
        if isinstance(options.get(name), float) and math.isfinite(options[name]):
            options[name] = int(options[name])
    delivery_ms, linger_ms = options.get("delivery_timeout_ms"), options["linger_ms"]
    if isinstance(delivery_ms, int) and isinstance(linger_ms, int):
        request_ms = options.get("request_timeout_ms", DEFAULT_CONFIG["request_timeout_ms"])
        if delivery_ms < linger_ms + request_ms:
            options["request_timeout_ms"] = max(delivery_ms - linger_ms, 1)


def _set_service(options: dict[str, Any]) -> None:
    """Give the engine the brokers' service: `sasl_kerberos_name`, a text or a `gssapi.Name`, stands for both parts."""
    whole = options.pop("sasl_kerberos_name", None)
    if whole is not None:
        service, at, host = str(whole).partition("@")
        if "/" in service:  # a principal: kafka/broker.example.com@EXAMPLE.COM
            service, at, host = service.partition("/")  # the realm is that of the host
        if not (service and at and host):
            raise OptionError("sasl_kerberos_name is not of the form service@host, such as kafka@broker.example.com")
        options |= {"sasl_kerberos_service_name": service, "sasl_kerberos_domain_name": host}
    if options.get("sasl_mechanism") != "GSSAPI":  # kafka-python reads them only then
        options.pop("sasl_kerberos_service_name", None)
        options.pop("sasl_kerberos_domain_name", None)


def _check_socket_options(socket_options: Any) -> None:
    others = [option for option in socket_options or () if tuple(option) != _NODELAY[0]]
    if others:
        raise OptionError(
            f"socket_options={others!r} are not offered: use send_buffer_bytes and receive_buffer_bytes; Nagle's "
            "algorithm is always off"
        )
