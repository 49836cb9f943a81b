"""aiokafka's options and what becomes of each in kafkaprod."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from kafkaprod.compat.translation import servers_once
from kafkaprod.compression import CODEC_IDS

MISSING: Final = object()  # acks: 1 without idempotence, -1 with
BATCH_BYTES: Final = 16384
_CODECS: Final = (None, *(name for name in CODEC_IDS if name != "none"))

# Options whose values go to the engine as they are, under its names.
_PLAIN: Final = {
    "client_id": "client_id",
    "metadata_max_age_ms": "metadata_max_age_ms",
    "request_timeout_ms": "request_timeout_ms",
    "compression_type": "compression_type",
    "max_batch_size": "batch_size",
    "max_request_size": "max_request_size",
    "linger_ms": "linger_ms",
    "retry_backoff_ms": "retry_backoff_ms",
    "security_protocol": "security_protocol",
    "ssl_context": "ssl_context",
    "connections_max_idle_ms": "connections_max_idle_ms",
    "enable_idempotence": "enable_idempotence",
    "transactional_id": "transactional_id",
    "sasl_plain_username": "sasl_plain_username",
    "sasl_plain_password": "sasl_plain_password",
}


class Partitioner:
    """A callable f(key_bytes, all_partitions, available_partitions) in the form that kafkaprod takes."""

    def __init__(self, choose: Callable[..., int]) -> None:
        self._choose = choose

    def partition(self, topic: str, key: Any, value: Any, partition_count: int, available: Sequence[int]) -> int:
        """Return the user's choice."""
        return self._choose(key, list(range(partition_count)), list(available))


def engine_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of the engine for all of aiokafka's.

    Raises:
        ValueError: A value is wrong, in aiokafka's words; or two options conflict.
        KafkaConfigurationError: An option is not offered; says what to do.
    """
    acks = MISSING if type(given["acks"]) is object else given["acks"]  # aiokafka's own mark, which FastStream passes
    is_idempotent = given["enable_idempotence"] or given["transactional_id"] is not None
    if acks is not MISSING and acks not in (0, 1, -1, "all"):
        raise ValueError("Invalid ACKS parameter")
    if given["security_protocol"] not in ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"):
        raise ValueError("`security_protocol` should be SSL or PLAINTEXT")
    if given["compression_type"] not in _CODECS:
        raise ValueError("Invalid compression type!")
    if is_idempotent and acks is not MISSING and acks not in ("all", -1):
        raise ValueError(f"acks={acks} not supported if enable_idempotence=True")
    if given["security_protocol"] in ("SSL", "SASL_SSL") and given["ssl_context"] is None:
        raise ValueError("`ssl_context` is mandatory if security_protocol=='SSL'")
    options = {name: given[theirs] for theirs, name in _PLAIN.items() if given[theirs] is not None}
    if options["batch_size"] == BATCH_BYTES:  # the default there; here a batch takes memory as records come
        del options["batch_size"]
    options["bootstrap_servers"] = servers_once(given["bootstrap_servers"])
    options["enable_idempotence"] = is_idempotent
    options["acks"] = (-1 if is_idempotent else 1) if acks is MISSING else acks
    if given["transactional_id"] is not None:
        options["transaction_timeout_ms"] = given["transaction_timeout_ms"]
    if given["security_protocol"].startswith("SASL"):
        options["sasl_mechanism"] = given["sasl_mechanism"]
        if given["sasl_oauth_token_provider"] is not None:
            options["oauth_cb"] = None
            options["sasl_oauth_token_provider"] = given["sasl_oauth_token_provider"]
        if given["sasl_mechanism"] == "GSSAPI":
            options["sasl_kerberos_service_name"] = given["sasl_kerberos_service_name"]
            options["sasl_kerberos_domain_name"] = given["sasl_kerberos_domain_name"]
    else:
        options.pop("sasl_plain_username", None)
        options.pop("sasl_plain_password", None)
    _set_limits(options)
    return options


def _set_limits(options: dict[str, Any]) -> None:
    """Set the engine's limits: request_timeout_ms bounds deliveries and the waits for memory and metadata."""
    request_ms, linger_ms = options["request_timeout_ms"], int(options["linger_ms"])
    options["max_block_ms"] = request_ms
    options["delivery_timeout_ms"] = max(request_ms, linger_ms + 1)
    options["request_timeout_ms"] = options["delivery_timeout_ms"] - linger_ms
    options["retry_backoff_max_ms"] = max(options["retry_backoff_ms"], 1000)
    options["linger_ms"] = linger_ms
