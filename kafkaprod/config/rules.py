"""What options mean together. A conflict raises; no option that the user set is ever turned off.

Source: Kafka's ProducerConfig.postProcessParsedConfig and KafkaProducer.configureDeliveryTimeout, which for several of
these turn idempotence off or change a value with a line in the log.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from kafkaprod.config.kerberos_options import SERVICE_NAME
from kafkaprod.config.kinds import SecretText
from kafkaprod.config.oauth_options import JWT_BEARER
from kafkaprod.config.option import options_of
from kafkaprod.config.producer_options import ProducerOptions
from kafkaprod.config.secret import without_query
from kafkaprod.config.secret_sources import refusal
from kafkaprod.config.topic_batching import batching_of
from kafkaprod.errors import ConfigError
from kafkaprod.structs import INT32_MAX

MAX_IN_FLIGHT_WITH_IDEMPOTENCE: Final = 5  # brokers remember the last five batches of a producer and partition
_ENDPOINT: Final = "sasl_oauthbearer_token_endpoint_url"
_CLIENT: Final = "sasl_oauthbearer_client_credentials_client"
_ASSERTION: Final = "sasl_oauthbearer_assertion"
_PASSWORD_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


class Rule(NamedTuple):
    """A condition between options.

    Attributes:
        doc: The condition, for the documentation.
        is_broken: Whether a configuration violates it.
        explain: What to say then: the options, their values and the ways out.
    """

    doc: str
    is_broken: Callable[[ProducerOptions], bool]
    explain: Callable[[ProducerOptions], str]


def least_delivery_timeout_ms(linger_ms: int, request_timeout_ms: int) -> int:
    """A batch must be able to linger and be sent once."""
    return min(linger_ms + request_timeout_ms, INT32_MAX)


def why_not_idempotent(given: Mapping[str, Any]) -> str | None:
    """Return the option that excludes idempotence, with its value; None if there is none among those given."""
    if given.get("acks", -1) != -1:
        return f"acks={given['acks']}"
    if given.get("retries") == 0:
        return "retries=0"
    in_flight = given.get("max_in_flight_requests_per_connection", 0)
    if in_flight > MAX_IN_FLIGHT_WITH_IDEMPOTENCE:
        return f"max_in_flight_requests_per_connection={in_flight}"
    return None


def _not_above(name: str) -> Rule:
    stem = name.removesuffix("_ms")
    limit = f"{stem}_max_ms"
    return Rule(
        f"`{name}` <= `{limit}`",
        lambda c: getattr(c, name) > getattr(c, limit),
        lambda c: f"{name}={getattr(c, name)} exceeds {limit}={getattr(c, limit)}: raise {limit} too",
    )


def _login(c: ProducerOptions) -> bool:
    return c.security_protocol.startswith("SASL_")


def _missing_credentials(c: ProducerOptions) -> bool:
    return c.sasl_plain_username is None or c.sasl_plain_password is None


def _other_schemes(c: ProducerOptions) -> list[str]:
    return sorted(getattr(c.bootstrap_servers, "schemes", set()) - {c.security_protocol})


RULES: Final[tuple[Rule, ...]] = (
    Rule(
        "`allowed_secret_sources` and `allowed_urls`, if given, name all places, identities and addresses in use",
        lambda c: refusal(c, _SECRETS) is not None,
        lambda c: refusal(c, _SECRETS) or "",
    ),
    Rule(
        "a protocol before an address in `bootstrap_servers` (`SSL://host:9093`) is `security_protocol`",
        lambda c: bool(_other_schemes(c)),
        lambda c: (
            f"bootstrap_servers=[{_other_schemes(c)[0]}://...] does not agree with "
            f"security_protocol={c.security_protocol}: give security_protocol={_other_schemes(c)[0]} if that is meant, "
            "and leave the scheme out otherwise"
        ),
    ),
    Rule(
        "`enable_idempotence` needs `acks=all`",
        lambda c: c.enable_idempotence and c.acks != -1,
        lambda c: (
            f"acks={c.acks} conflicts with enable_idempotence=true: use acks=all, or give enable_idempotence=false "
            "and accept duplicates and gaps"
        ),
    ),
    Rule(
        "`enable_idempotence` needs `retries` > 0",
        lambda c: c.enable_idempotence and c.retries == 0,
        lambda c: (
            "retries=0 conflicts with enable_idempotence=true: leave retries out and bound the time with "
            "delivery_timeout_ms, or give enable_idempotence=false"
        ),
    ),
    Rule(
        f"`enable_idempotence` needs `max_in_flight_requests_per_connection` <= {MAX_IN_FLIGHT_WITH_IDEMPOTENCE}",
        lambda c: c.enable_idempotence and c.max_in_flight_requests_per_connection > MAX_IN_FLIGHT_WITH_IDEMPOTENCE,
        lambda c: (
            f"max_in_flight_requests_per_connection={c.max_in_flight_requests_per_connection} exceeds "
            f"{MAX_IN_FLIGHT_WITH_IDEMPOTENCE}, the most that enable_idempotence=true can keep in order"
        ),
    ),
    Rule(
        "`transactional_id` needs `enable_idempotence`",
        lambda c: c.transactional_id is not None and not c.enable_idempotence,
        lambda c: f"transactional_id={c.transactional_id!r} needs enable_idempotence=true",
    ),
    Rule(
        "`spool_dir` excludes `transactional_id`",
        lambda c: c.spool_dir is not None and c.transactional_id is not None,
        lambda c: (
            f"spool_dir={c.spool_dir!r} conflicts with transactional_id={c.transactional_id!r}: a transaction is "
            "decided within transaction_timeout_ms, and cannot wait on a disk until the cluster is back; load files "
            "with kafkaprod load, or send from a table of your database that is emptied as records are delivered"
        ),
    ),
    Rule(
        "`spool_dir` needs `acks=all` and `enable_idempotence`",
        lambda c: c.spool_dir is not None and not (c.enable_idempotence and c.acks == -1),
        lambda c: (
            f"spool_dir={c.spool_dir!r} needs acks=all and enable_idempotence=true, not acks={c.acks} and "
            f"enable_idempotence={str(c.enable_idempotence).lower()}: a record that is sent again by a later process "
            "would be written twice"
        ),
    ),
    Rule(
        "`transactional_id` excludes `buffer_full_policy` drop",
        lambda c: c.transactional_id is not None and c.buffer_full_policy == "drop",
        lambda c: (
            f"buffer_full_policy=drop conflicts with transactional_id={c.transactional_id!r}: a transaction would be "
            "committed without the records that were dropped; use block or raise"
        ),
    ),
    Rule(
        "`transaction_two_phase_commit_enable` needs `transactional_id`",
        lambda c: c.transaction_two_phase_commit_enable and c.transactional_id is None,
        lambda c: "transaction_two_phase_commit_enable=true needs a transactional_id",
    ),
    Rule(
        "`delivery_timeout_ms` >= `linger_ms` + `request_timeout_ms`",
        lambda c: c.delivery_timeout_ms < least_delivery_timeout_ms(c.linger_ms, c.request_timeout_ms),
        lambda c: (
            f"delivery_timeout_ms={c.delivery_timeout_ms} is below linger_ms + request_timeout_ms = "
            f"{c.linger_ms} + {c.request_timeout_ms}: lower request_timeout_ms, too"
        ),
    ),
    _not_above("reconnect_backoff_ms"),
    _not_above("retry_backoff_ms"),
    _not_above("socket_connection_setup_timeout_ms"),
    Rule(
        "`batch_size` <= `buffer_memory`",
        lambda c: c.batch_size > c.buffer_memory,
        lambda c: f"batch_size={c.batch_size} exceeds buffer_memory={c.buffer_memory}: no batch could become full",
    ),
    Rule(
        "`max_batch_size` >= `batch_size`",
        lambda c: c.max_batch_size < c.batch_size,
        lambda c: (
            f"max_batch_size={c.max_batch_size} is below batch_size={c.batch_size}: lower batch_size, too, or leave "
            "max_batch_size out"
        ),
    ),
    Rule(
        "the rules of `batch_size`, `max_batch_size` and `linger_ms` hold for each entry of `topic_options`, too",
        lambda c: _wrong_topic(c) is not None,
        lambda c: _wrong_topic(c) or "",
    ),
    Rule(
        "`partitioner_rack_aware` needs `client_rack`",
        lambda c: c.partitioner_rack_aware and not c.client_rack.strip(),
        lambda c: "partitioner_rack_aware=true needs client_rack, which is empty",
    ),
    Rule(
        "`security_protocol` SASL_PLAINTEXT and SASL_SSL need `sasl_mechanism`",
        lambda c: _login(c) and c.sasl_mechanism is None,
        lambda c: f"security_protocol={c.security_protocol} needs a sasl_mechanism",
    ),
    Rule(
        "`sasl_mechanism` needs `security_protocol` SASL_PLAINTEXT or SASL_SSL",
        lambda c: c.sasl_mechanism is not None and not _login(c),
        lambda c: (
            f"sasl_mechanism={c.sasl_mechanism} has no effect with security_protocol={c.security_protocol}: use "
            "SASL_SSL or SASL_PLAINTEXT"
        ),
    ),
    Rule(
        "`sasl_mechanism` PLAIN and SCRAM need `sasl_plain_username` and `sasl_plain_password`",
        lambda c: c.sasl_mechanism in _PASSWORD_MECHANISMS and _missing_credentials(c),
        lambda c: f"sasl_mechanism={c.sasl_mechanism} needs sasl_plain_username and sasl_plain_password",
    ),
    Rule(
        "`sasl_mechanism` OAUTHBEARER needs one of `sasl_oauthbearer_token_endpoint_url`, `sasl_oauth_token_provider` "
        "and `oauth_cb`",
        lambda c: c.sasl_mechanism == "OAUTHBEARER" and len(_token_sources(c)) != 1,
        lambda c: (
            f"sasl_mechanism=OAUTHBEARER needs one of {_ENDPOINT}, sasl_oauth_token_provider and "
            f"oauth_cb; given: {', '.join(_token_sources(c)) or 'none'}"
        ),
    ),
    Rule(
        "`sasl_oauthbearer_token_endpoint_url` needs `sasl_mechanism` OAUTHBEARER",
        lambda c: c.sasl_oauthbearer_token_endpoint_url is not None and c.sasl_mechanism != "OAUTHBEARER",
        lambda c: f"{_ENDPOINT} has no effect with sasl_mechanism={c.sasl_mechanism}: use OAUTHBEARER",
    ),
    Rule(
        "`sasl_oauthbearer_token_endpoint_url` needs a client's id and secret, or an assertion",
        lambda c: _asks_an_endpoint(c) and not _has_secret(c) and len(_assertion_sources(c)) == 0,
        lambda c: (
            f"{_ENDPOINT}={without_query(c.sasl_oauthbearer_token_endpoint_url or '')} needs {_CLIENT}_id and "
            f"{_CLIENT}_secret, or an assertion: {_ASSERTION}_file, {_ASSERTION}_private_key_file or "
            f"{_ASSERTION}_private_key_pem"
        ),
    ),
    Rule(
        "an assertion has one source: a file, a private key in a file, or a private key as text",
        lambda c: len(_assertion_sources(c)) > 1,
        lambda c: f"{' and '.join(_assertion_sources(c))} are given together: an assertion has one source",
    ),
    Rule(
        "`sasl_oauthbearer_grant_type` jwt-bearer needs an assertion",
        lambda c: c.sasl_oauthbearer_grant_type == JWT_BEARER and not _assertion_sources(c),
        lambda c: (
            f"sasl_oauthbearer_grant_type={JWT_BEARER} needs {_ASSERTION}_file, {_ASSERTION}_private_key_file or "
            f"{_ASSERTION}_private_key_pem"
        ),
    ),
    Rule(
        "`ssl_context` replaces the other `ssl_` options",
        lambda c: c.ssl_context is not None and bool(_tls_files(c)),
        lambda c: f"ssl_context is given together with {', '.join(_tls_files(c))}: set them on the context",
    ),
    Rule(
        "`ssl_keyfile` needs `ssl_certfile`",
        lambda c: c.ssl_keyfile is not None and c.ssl_certfile is None,
        lambda c: "ssl_keyfile is given without ssl_certfile",
    ),
    Rule(
        "`ssl_key_pem` needs `ssl_certificate_pem`",
        lambda c: c.ssl_key_pem is not None and c.ssl_certificate_pem is None,
        lambda c: "ssl_key_pem is given without ssl_certificate_pem",
    ),
    Rule(
        "authorities, and a certificate with its key, come from files or as PEM text, not both",
        lambda c: any(len(pair) > 1 for pair in _twice_given(c)),
        lambda c: (
            f"{' and '.join(next(pair for pair in _twice_given(c) if len(pair) > 1))} are given together: keep one"
        ),
    ),
    Rule(
        "`sasl_aws_` options need `sasl_mechanism` AWS_MSK_IAM",
        lambda c: c.sasl_mechanism != "AWS_MSK_IAM" and bool(_aws_options(c)),
        lambda c: f"{', '.join(_aws_options(c))} has no effect with sasl_mechanism={c.sasl_mechanism}: use AWS_MSK_IAM",
    ),
    Rule(
        "`sasl_aws_profile` and `sasl_aws_role_arn` exclude each other",
        lambda c: c.sasl_aws_profile is not None and c.sasl_aws_role_arn is not None,
        lambda c: "sasl_aws_profile and sasl_aws_role_arn are given together: credentials have one source",
    ),
    Rule(
        "`sasl_kerberos_` options need `sasl_mechanism` GSSAPI",
        lambda c: c.sasl_mechanism != "GSSAPI" and bool(_kerberos_options(c)),
        lambda c: f"{', '.join(_kerberos_options(c))} has no effect with sasl_mechanism={c.sasl_mechanism}: use GSSAPI",
    ),
    Rule(
        "`ssl_` options need `security_protocol` SSL or SASL_SSL",
        lambda c: not c.security_protocol.endswith("SSL") and bool(_tls_files(c) or c.ssl_context),
        lambda c: (
            f"{', '.join(_tls_files(c)) or 'ssl_context'} has no effect with "
            f"security_protocol={c.security_protocol}: use SSL or SASL_SSL"
        ),
    ),
)


_SECRETS: Final[tuple[str, ...]] = tuple(
    option.name for option in options_of(ProducerOptions).values() if isinstance(option.kind, SecretText)
)


def check_use(options: ProducerOptions) -> None:
    """Check again, before what options name is used: a link may lead elsewhere since they were given.

    Raises:
        ConfigError: `allowed_secret_sources` or `allowed_urls` does not allow it.
    """
    text = refusal(options, _SECRETS)
    if text is not None:
        raise ConfigError(text)


def _token_sources(c: ProducerOptions) -> list[str]:
    names = (_ENDPOINT, "sasl_oauth_token_provider", "oauth_cb")
    return [name for name in names if getattr(c, name) is not None] or (["azure_imds"] if _is_azure(c) else [])


def _is_azure(c: ProducerOptions) -> bool:
    return c.sasl_oauthbearer_metadata_authentication_type == "azure_imds"


def _asks_an_endpoint(c: ProducerOptions) -> bool:
    url = c.sasl_oauthbearer_token_endpoint_url
    return url is not None and not url.startswith("file:") and not _is_azure(c)


def _has_secret(c: ProducerOptions) -> bool:
    has_id = c.sasl_oauthbearer_client_credentials_client_id is not None
    return has_id and c.sasl_oauthbearer_client_credentials_client_secret is not None


def _assertion_sources(c: ProducerOptions) -> list[str]:
    names = (f"{_ASSERTION}_file", f"{_ASSERTION}_private_key_file", f"{_ASSERTION}_private_key_pem")
    return [name for name in names if getattr(c, name) is not None]


def _tls_files(c: ProducerOptions) -> list[str]:
    """The options that a context is made of and that are given."""
    names = (
        *("ssl_cafile", "ssl_certfile", "ssl_keyfile", "ssl_password", "ssl_crlfile", "ssl_ciphers"),
        *("ssl_ca_pem", "ssl_certificate_pem", "ssl_key_pem"),
    )
    given = [name for name in names if getattr(c, name) is not None]
    return given if c.ssl_check_hostname else [*given, "ssl_check_hostname"]


def _twice_given(c: ProducerOptions) -> list[list[str]]:
    pairs = (("ssl_cafile", "ssl_ca_pem"), ("ssl_certfile", "ssl_certificate_pem"), ("ssl_keyfile", "ssl_key_pem"))
    return [[name for name in pair if getattr(c, name) is not None] for pair in pairs]


def _aws_options(c: ProducerOptions) -> list[str]:
    names = ("sasl_aws_region", "sasl_aws_profile", "sasl_aws_role_arn", "sasl_aws_role_session_name")
    return [name for name in names if getattr(c, name) is not None]


def _kerberos_options(c: ProducerOptions) -> list[str]:
    names = ("sasl_kerberos_domain_name", "sasl_kerberos_principal", "sasl_kerberos_keytab")
    given = [name for name in names if getattr(c, name) is not None]
    return given if c.sasl_kerberos_service_name == SERVICE_NAME else ["sasl_kerberos_service_name", *given]


def _wrong_topic(c: ProducerOptions) -> str | None:
    """Return what is wrong with an entry of `topic_options`, beside the producer's options; None: nothing."""
    for pattern, own in c.topic_options:
        batching = batching_of(c, dict(own))
        place = f"topic_options of {pattern!r}: "
        if batching.batch_size > c.buffer_memory:
            return (
                f"{place}batch_size={batching.batch_size} exceeds buffer_memory={c.buffer_memory}: no batch could "
                "become full"
            )
        if batching.max_batch_size < batching.batch_size:
            return (
                f"{place}max_batch_size={batching.max_batch_size} is below batch_size={batching.batch_size}: lower "
                "batch_size, too, or leave max_batch_size out"
            )
        if c.delivery_timeout_ms < least_delivery_timeout_ms(batching.linger_ms, c.request_timeout_ms):
            return (
                f"{place}delivery_timeout_ms={c.delivery_timeout_ms} is below linger_ms + request_timeout_ms = "
                f"{batching.linger_ms} + {c.request_timeout_ms}: lower linger_ms"
            )
    return None


def check_rules(options: ProducerOptions) -> None:
    """Raises ConfigError for the first rule that `options` breaks."""
    for rule in RULES:
        if rule.is_broken(options):
            raise ConfigError(rule.explain(options))
