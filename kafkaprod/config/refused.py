"""Names other clients know and this one refuses, each with what to do instead. Nothing is accepted and ignored."""

from __future__ import annotations

from typing import Final

_JVM: Final = "only a Java virtual machine has it; leave it out"
_PEM: Final = (
    "stores are PEM files here: convert with `keytool` and `openssl pkcs12`, then name them in ssl_cafile, "
    "ssl_certfile and ssl_keyfile"
)
_INLINE_PEM: Final = "give PEM text as ssl_ca_pem, ssl_certificate_pem and ssl_key_pem, or an ssl_context"
_PARAMETERS_OF_TLS: Final = "give an ssl_context with the settings you want"
_TICKETS: Final = "tickets are fetched with sasl_kerberos_keytab, and again before they end; leave it out"
_OAUTH: Final = (
    "give sasl_oauthbearer_token_endpoint_url and the client's id and secret, or fetch the token in your own code and "
    "give it as sasl_oauth_token_provider"
)
_LOGIN_AGAIN: Final = "a failed login is repeated with its connection: use reconnect_backoff_ms"
_TOKEN_REFRESH: Final = "a token is used for 80 % of its life, then the next login fetches another; leave it out"
_QUEUE: Final = "memory is bounded in bytes: use buffer_memory"
_LOGGING: Final = "the standard logging module is used, with loggers under `kafkaprod`"
_NO_POLL: Final = "results come by themselves: use the future of send(), its callback, or flush()"
_TIMEOUT: Final = "use request_timeout_ms"
_VALIDATION: Final = "brokers validate tokens, a client does not; leave it out"
_LIBRARY: Final = "only librdkafka has it; leave it out"
_EVENTS: Final = "results come by themselves, and errors through futures and logging; leave it out"
_SOCKETS: Final = "sockets are the engine's own; leave it out"
_REFRESH: Final = "metadata is refreshed when it is needed and every metadata_max_age_ms; leave it out"
_CONSUMER: Final = "it is an option of consumers, and this is a producer; leave it out"

REFUSED: Final[dict[str, str]] = {
    # Kafka's own
    "buffer.memory.allocation.strategy": "memory always grows with the data, in slabs; leave it out",
    "bootstrap.resolve.timeout.ms": "names are resolved on each connect; leave it out",
    "config.providers": "give a password as env:NAME or file:PATH; no other value is looked up",
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
    "sasl.login.class": _OAUTH,
    "sasl.login.retry.backoff.ms": _LOGIN_AGAIN,
    "sasl.login.retry.backoff.max.ms": _LOGIN_AGAIN,
    "sasl.login.refresh.window.factor": _TOKEN_REFRESH,
    "sasl.login.refresh.window.jitter": _TOKEN_REFRESH,
    "sasl.login.refresh.min.period.seconds": _TOKEN_REFRESH,
    "sasl.login.refresh.buffer.seconds": _TOKEN_REFRESH,
    "sasl.kerberos.kinit.cmd": _TICKETS,
    "sasl.kerberos.name": "use sasl_kerberos_service_name and sasl_kerberos_domain_name",
    "sasl.kerberos.ticket.renew.window.factor": _TICKETS,
    "sasl.kerberos.ticket.renew.jitter": _TICKETS,
    "sasl.kerberos.min.time.before.relogin": _TICKETS,
    "sasl.oauthbearer.jwt.validator.class": _VALIDATION,
    "sasl.oauthbearer.scope.claim.name": _VALIDATION,
    "sasl.oauthbearer.sub.claim.name": _VALIDATION,
    "sasl.oauthbearer.jwks.endpoint.url": _VALIDATION,
    "sasl.oauthbearer.jwks.endpoint.refresh.ms": _VALIDATION,
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms": _VALIDATION,
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms": _VALIDATION,
    "sasl.oauthbearer.clock.skew.seconds": _VALIDATION,
    "sasl.oauthbearer.allow.unverified.audience": _VALIDATION,
    "sasl.oauthbearer.expected.audience": _VALIDATION,
    "sasl.oauthbearer.allow.unverified.issuer": _VALIDATION,
    "sasl.oauthbearer.expected.issuer": _VALIDATION,
    # librdkafka and confluent-kafka
    "builtin.features": _LIBRARY,
    "receive.message.max.bytes": "answers are bounded by what was requested; leave it out",
    "topic.metadata.refresh.fast.interval.ms": "use retry_backoff_ms",
    "topic.metadata.refresh.fast.cnt": _REFRESH,
    "topic.metadata.refresh.sparse": "only topics in use are refreshed; leave it out",
    "topic.metadata.propagation.max.ms": "use max_block_ms",
    "topic.blacklist": _LIBRARY,
    "socket.blocking.max.ms": _LIBRARY,
    "socket.max.fails": "a connection with a request that timed out is always closed; leave it out",
    "broker.address.ttl": "names are resolved on each connect; leave it out",
    "reconnect.backoff.jitter.ms": "the wait varies by 20 %; use reconnect_backoff_ms",
    "enabled.events": _EVENTS,
    "throttle.cb": "read produce-throttle-time-avg in Producer.metrics()",
    "log.queue": _LOGGING,
    "log.thread.name": _LOGGING,
    "log.connection.close": _LOGGING,
    "enable.random.seed": _LIBRARY,
    "background.event.cb": _EVENTS,
    "socket.cb": _SOCKETS,
    "connect.cb": _SOCKETS,
    "closesocket.cb": _SOCKETS,
    "open.cb": _LIBRARY,
    "resolve.cb": "names are resolved by the operating system; leave it out",
    "opaque": "bind what a callback needs with functools.partial",
    "default.topic.config": "give its options beside the others",
    "default.topic.conf": "give its options beside the others",
    "internal.termination.signal": _LIBRARY,
    "api.version.request.timeout.ms": _TIMEOUT,
    "api.version.fallback.ms": "versions are always negotiated; leave it out",
    "ssl.key": _INLINE_PEM,
    "ssl.certificate": _INLINE_PEM,
    "ssl.ca": _INLINE_PEM,
    "ssl.ca.certificate.stores": "only Windows has them; use ssl_cafile",
    "ssl.providers": _PARAMETERS_OF_TLS,
    "ssl.engine.location": _PARAMETERS_OF_TLS,
    "ssl.engine.id": _PARAMETERS_OF_TLS,
    "ssl.engine.callback.data": _PARAMETERS_OF_TLS,
    "ssl.certificate.verify.cb": _PARAMETERS_OF_TLS,
    "enable.sasl.oauthbearer.unsecure.jwt": "a token provider may return any token; leave it out",
    "oauthbearer.token.refresh.cb": "use oauth_cb or sasl_oauth_token_provider",
    "plugin.library.paths": "use interceptors",
    "sticky.partitioning.linger.ms": "a record stays with a partition until its batch is full, sent or late",
    "queuing.strategy": "records of a partition are always sent in order; leave it out",
    "produce.offset.report": "offsets are always reported; leave it out",
    "partitioner.cb": "use partitioner",
    "msg.order.cmp": "records of a partition are always sent in order; leave it out",
    "batch.num.messages": "a batch is bounded in bytes: use batch_size",
    "queue.buffering.max.messages": _QUEUE,
    "queue.buffering.backpressure.threshold": "use linger_ms and batch_size",
    "compression.level": "use the codec's: compression_gzip_level, compression_lz4_level or compression_zstd_level",
    "socket.timeout.ms": _TIMEOUT,
    "broker.version.fallback": "versions are always negotiated; leave it out",
    "message.copy.max.bytes": "records are copied once, into their batch; leave it out",
    "enable.gapless.guarantee": "order is kept; a failed record is reported and later ones continue",
    "enable.ssl.certificate.verification": "certificates are always verified; for anything else give an ssl_context",
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
    "selector": "the platform's best one is used; leave it out",
    "socket.options": "use send_buffer_bytes and receive_buffer_bytes; Nagle's algorithm is always off",
    "metrics.enabled": "metrics are always recorded and cost nothing per record; leave it out",
    "loop": "the running loop is used; leave it out",
    "socks5.proxy": "use proxy_url, which takes socks5://host:port",
    "kafka.client": "the engine has its own; leave it out",
    # options of consumers, which programs share with producers
    **dict.fromkeys(
        (
            "auto.commit.enable",
            "auto.commit.interval.ms",
            "auto.offset.reset",
            "check.crcs",
            "consume.callback.max.messages",
            "consume.cb",
            "coordinator.query.interval.ms",
            "enable.auto.commit",
            "enable.auto.offset.store",
            "enable.partition.eof",
            "fetch.error.backoff.ms",
            "fetch.max.bytes",
            "fetch.message.max.bytes",
            "fetch.min.bytes",
            "fetch.queue.backoff.ms",
            "fetch.wait.max.ms",
            "group.id",
            "group.instance.id",
            "group.protocol",
            "group.protocol.type",
            "group.remote.assignor",
            "heartbeat.interval.ms",
            "isolation.level",
            "max.partition.fetch.bytes",
            "max.poll.interval.ms",
            "max.poll.records",
            "offset.commit.cb",
            "offset.store.method",
            "offset.store.path",
            "offset.store.sync.interval.ms",
            "partition.assignment.strategy",
            "queued.max.messages.kbytes",
            "queued.min.messages",
            "rebalance.cb",
            "session.timeout.ms",
            "share.acknowledgement.mode",
        ),
        _CONSUMER,
    ),
}
"""Dotted name -> what to do instead. The spelling with underscores is refused with it."""
OF_CONSUMERS: Final = frozenset(name for name, advice in REFUSED.items() if advice == _CONSUMER)

REFUSED_VALUES: Final[dict[str, tuple[tuple[str, ...], str]]] = {
    "client.dns.lookup": (("use_all_dns_ips",), "names are resolved on each connect and all their addresses are tried"),
    "metrics.recording.level": (("INFO", "DEBUG", "TRACE"), "every metric is always recorded"),
    "ssl.keystore.type": (("PEM",), _PEM),
    "ssl.truststore.type": (("PEM",), _PEM),
    "sasl.oauthbearer.method": (
        ("default", "oidc"),
        "a token endpoint is used if sasl_oauthbearer_token_endpoint_url is",
    ),
    "sasl.login.callback.handler.class": (
        (
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler",
            "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerLoginCallbackHandler",
        ),
        _OAUTH,
    ),
    "sasl.client.callback.handler.class": (("software.amazon.msk.auth.iam.IAMClientCallbackHandler",), _OAUTH),
    "socket.keepalive.enable": (("true",), "it always is: connections have keep-alive"),
    "api.version.request": (("true",), "versions are always negotiated"),
    "socket.nagle.disable": (("true",), "it always is"),
}
"""Dotted name -> the values that say nothing new and are accepted, and what to do instead of others."""
