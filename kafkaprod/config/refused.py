"""Names other clients know and this one refuses, each with what to do instead. Nothing is accepted and ignored."""

from __future__ import annotations

from typing import Final

_JVM: Final = "only a Java virtual machine has it; leave it out"
_PEM: Final = (
    "stores are PEM files here: convert with `keytool` and `openssl pkcs12`, then name them in ssl_cafile, "
    "ssl_certfile and ssl_keyfile"
)
_INLINE_PEM: Final = "write it to a file for ssl_cafile, ssl_certfile or ssl_keyfile, or give an ssl_context"
_PARAMETERS_OF_TLS: Final = "give an ssl_context with the settings you want"
_KERBEROS: Final = "Kerberos (GSSAPI) is not supported; use SCRAM-SHA-512 or OAUTHBEARER"
_OAUTH: Final = "fetch the token in your own code and give it as sasl_oauth_token_provider"
_QUEUE: Final = "memory is bounded in bytes: use buffer_memory"
_LOGGING: Final = "the standard logging module is used, with loggers under `kafkaprod`"
_NO_POLL: Final = "results come by themselves: use the future of send(), its callback, or flush()"
_TIMEOUT: Final = "use request_timeout_ms"

REFUSED: Final[dict[str, str]] = {
    # Kafka's own
    "buffer.memory.allocation.strategy": "memory always grows with the data, in slabs; leave it out",
    "bootstrap.resolve.timeout.ms": "names are resolved on each connect; leave it out",
    "config.providers": "values are never expanded: read the secret in your own code and pass it",
    "auto.include.jmx.reporter": _JVM,
    "security.providers": _JVM,
    "ssl.protocol": "TLS 1.2 and 1.3 are used, 1.3 preferred; for anything else give an ssl_context",
    "ssl.enabled.protocols": "TLS 1.2 and 1.3 are used, 1.3 preferred; for anything else give an ssl_context",
    "ssl.provider": _JVM,
    "ssl.engine.factory.class": _PARAMETERS_OF_TLS,
    "ssl.keymanager.algorithm": _JVM,
    "ssl.trustmanager.algorithm": _JVM,
    "ssl.secure.random.implementation": _JVM,
    "ssl.keystore.password": _PEM,
    "ssl.truststore.password": _PEM,
    "ssl.keystore.key": _INLINE_PEM,
    "ssl.keystore.certificate.chain": _INLINE_PEM,
    "ssl.truststore.certificates": _INLINE_PEM,
    "sasl.client.callback.handler.class": _OAUTH,
    "sasl.login.callback.handler.class": _OAUTH,
    "sasl.login.class": _OAUTH,
    "sasl.login.connect.timeout.ms": _OAUTH,
    "sasl.login.read.timeout.ms": _OAUTH,
    "sasl.login.retry.backoff.ms": _OAUTH,
    "sasl.login.retry.backoff.max.ms": _OAUTH,
    "sasl.login.refresh.window.factor": "a token is fetched for each login; leave it out",
    "sasl.login.refresh.window.jitter": "a token is fetched for each login; leave it out",
    "sasl.login.refresh.min.period.seconds": "a token is fetched for each login; leave it out",
    "sasl.login.refresh.buffer.seconds": "a token is fetched for each login; leave it out",
    "sasl.oauthbearer.token.endpoint.url": _OAUTH,
    "sasl.oauthbearer.scope": _OAUTH,
    "sasl.oauthbearer.client.credentials.client.id": _OAUTH,
    "sasl.oauthbearer.client.credentials.client.secret": _OAUTH,
    "sasl.kerberos.service.name": _KERBEROS,
    "sasl.kerberos.kinit.cmd": _KERBEROS,
    "sasl.kerberos.principal": _KERBEROS,
    "sasl.kerberos.keytab": _KERBEROS,
    "sasl.kerberos.name": _KERBEROS,
    "sasl.kerberos.domain.name": _KERBEROS,
    # librdkafka and confluent-kafka
    "batch.num.messages": "a batch is bounded in bytes: use batch_size",
    "queue.buffering.max.messages": _QUEUE,
    "queue.buffering.backpressure.threshold": "use linger_ms and batch_size",
    "compression.level": "use the codec's: compression_gzip_level, compression_lz4_level or compression_zstd_level",
    "socket.timeout.ms": _TIMEOUT,
    "broker.version.fallback": "versions are always negotiated; leave it out",
    "message.copy.max.bytes": "records are copied once, into their batch; leave it out",
    "enable.gapless.guarantee": "order is kept; a failed record is reported and later ones continue",
    "enable.ssl.certificate.verification": "certificates are always verified; for anything else give an ssl_context",
    "ssl.ca.pem": _INLINE_PEM,
    "ssl.certificate.pem": _INLINE_PEM,
    "ssl.key.pem": _INLINE_PEM,
    "ssl.curves.list": _PARAMETERS_OF_TLS,
    "ssl.sigalgs.list": _PARAMETERS_OF_TLS,
    "statistics.interval.ms": "read Producer.metrics(), or give metric_reporters",
    "stats.cb": "read Producer.metrics(), or give metric_reporters",
    "error.cb": _LOGGING,
    "log.cb": _LOGGING,
    "logger": _LOGGING,
    "debug": _LOGGING,
    "log.level": _LOGGING,
    "on.delivery": _NO_POLL,
    "dr.cb": _NO_POLL,
    "dr.msg.cb": _NO_POLL,
    "delivery.report.only.error": _NO_POLL,
    # kafka-python and aiokafka
    "api.version": "versions are always negotiated; leave it out",
    "api.version.auto.timeout.ms": "versions are always negotiated; leave it out",
    "bootstrap.timeout.ms": "use max_block_ms",
    "selector": "the platform's best one is used; leave it out",
    "socket.options": "use send_buffer_bytes and receive_buffer_bytes; Nagle's algorithm is always off",
    "metrics.enabled": "metrics are always recorded and cost nothing per record; leave it out",
    "loop": "the running loop is used; leave it out",
}
"""Dotted name -> what to do instead. The spelling with underscores is refused with it."""

REFUSED_VALUES: Final[dict[str, tuple[tuple[str, ...], str]]] = {
    "client.dns.lookup": (("use_all_dns_ips",), "names are resolved on each connect and all their addresses are tried"),
    "metrics.recording.level": (("INFO", "DEBUG", "TRACE"), "every metric is always recorded"),
    "ssl.keystore.type": (("PEM",), _PEM),
    "ssl.truststore.type": (("PEM",), _PEM),
    "api.version.request": (("true",), "versions are always negotiated"),
    "socket.nagle.disable": (("true",), "it always is"),
}
"""Dotted name -> the values that say nothing new and are accepted, and what to do instead of others."""
