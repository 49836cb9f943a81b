"""librdkafka's options and what becomes of each: translated, passed to the engine, without effect, or refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kafkaprod.compat.confluent_kafka.error import INVALID_ARG, KafkaError, KafkaException
from kafkaprod.compat.confluent_kafka.partitioners import PARTITIONERS, Choose
from kafkaprod.config.container import default_buffer_memory

MESSAGE_TIMEOUT_MS: Final = 300_000
REQUEST_TIMEOUT_MS: Final = 30_000
_FOREVER_MS: Final = 2**31 - 1
MAX_MESSAGES: Final = 100_000
NOWHERE: Final = "127.0.0.1:1"

# Callbacks and the like, evaluated by Producer itself: the option's name -> the field of Settings.
_CALLBACKS: Final = {
    "error_cb": "error_cb",
    "stats_cb": "stats_cb",
    "on_delivery": "on_delivery",
    "dr_cb": "on_delivery",
    "dr_msg_cb": "on_delivery",
}

_NEVER_CALLED: Final = {
    "throttle_cb": "never called: waits that brokers impose are in the metrics of `kafkaprod.Producer`",
    "logger": "never called: what happens is logged by Python's loggers under 'kafkaprod'",
    "log_cb": "never called: what happens is logged by Python's loggers under 'kafkaprod'",
}

VOID: Final = frozenset(
    """
    api.version.fallback.ms api.version.request api.version.request.timeout.ms batch.num.messages
    broker.address.ttl broker.version.fallback builtin.features client.dns.lookup debug enable.random.seed
    enable.sasl.oauthbearer.unsecure.jwt internal.termination.signal log.connection.close log.queue log.thread.name
    log_level message.copy.max.bytes metadata.request.timeout.ms opaque produce.offset.report
    queue.buffering.backpressure.threshold queuing.strategy receive.message.max.bytes reconnect.backoff.jitter.ms
    sasl.kerberos.min.time.before.relogin socket.blocking.max.ms socket.keepalive.enable socket.max.fails
    socket.nagle.disable sticky.partitioning.linger.ms topic.metadata.propagation.max.ms topic.metadata.refresh.fast.cnt
    topic.metadata.refresh.fast.interval.ms topic.metadata.refresh.sparse
    """.split()  # noqa: SIM905
)
"""Options that a program may give and that change nothing here: the engine's behaviour does not depend on them."""

CONSUMERS: Final = frozenset(
    """
    auto.commit.enable auto.commit.interval.ms auto.offset.reset check.crcs consume.callback.max.messages
    consume_cb coordinator.query.interval.ms enable.auto.commit enable.auto.offset.store enable.partition.eof
    fetch.error.backoff.ms fetch.max.bytes fetch.message.max.bytes fetch.min.bytes fetch.queue.backoff.ms
    fetch.wait.max.ms group.id group.instance.id group.protocol group.protocol.type group.remote.assignor
    heartbeat.interval.ms isolation.level max.partition.fetch.bytes max.poll.interval.ms max.poll.records
    offset.store.method offset.store.path offset.store.sync.interval.ms offset_commit_cb
    partition.assignment.strategy queued.max.messages.kbytes queued.min.messages rebalance_cb session.timeout.ms
    share.acknowledgement.mode
    """.split()  # noqa: SIM905
)
"""Options of consumers: a producer of librdkafka ignores them, too, with a line in the log."""


@dataclass(slots=True)
class Settings:
    """What Producer needs of the options.

    Attributes:
        engine: The options of kafkaprod's Producer; not shown, for the secrets in them.
        on_delivery: Called for every record that has no callback of its own.
        error_cb, stats_cb: Served by poll().
        stats_interval_ms: Between two calls of stats_cb; 0: never.
        max_messages: Records without an outcome, or whose callback was not served, at most.
        choose: The partitioner; None: the engine's.
        reports_only_errors: Whether callbacks are for failed records only.
        ignored: What to log: options of consumers, callbacks that are never called, no servers.
    """

    engine: dict[str, Any] = field(default_factory=dict, repr=False)
    on_delivery: Callable[..., object] | None = None
    error_cb: Callable[..., object] | None = None
    stats_cb: Callable[..., object] | None = None
    stats_interval_ms: int = 0
    max_messages: int = MAX_MESSAGES
    choose: Choose | None = None
    reports_only_errors: bool = False
    ignored: list[str] = field(default_factory=list)

    @property
    def gives_statistics(self) -> bool:
        """Whether stats_cb is ever called."""
        return self.stats_cb is not None and self.stats_interval_ms > 0


def read(conf: Mapping[str, Any]) -> Settings:
    """Return what librdkafka's options say.

    Raises:
        KafkaException: With _INVALID_ARG: an option has a wrong value. Unknown ones are left to the engine.
    """
    settings = Settings()
    options = dict(conf)
    topic_options = options.pop("default.topic.config", None) or {}
    for name, value in {**options, **topic_options}.items():
        if name in _CALLBACKS:
            setattr(settings, _CALLBACKS[name], _callable(name, value))
        elif name in _NEVER_CALLED:
            if value is not None:
                settings.ignored.append(f"{name} is {_NEVER_CALLED[name]}")
        elif name in CONSUMERS:
            settings.ignored.append(f"{name} is an option of consumers: a producer ignores it")
        elif name not in VOID and name not in _SPECIAL:
            settings.engine[name] = value
    given = {**options, **topic_options}
    if given.get("bootstrap.servers", given.get("metadata.broker.list")) is None:
        settings.engine.pop("metadata.broker.list", None)
        settings.engine["bootstrap.servers"] = NOWHERE  # librdkafka takes this: such a producer reaches no broker
        settings.ignored.append("no bootstrap.servers: nothing can be sent")
    settings.stats_interval_ms = _whole(given, "statistics.interval.ms", 0)
    settings.max_messages = _whole(given, "queue.buffering.max.messages", MAX_MESSAGES) or 2**31
    settings.reports_only_errors = str(given.get("delivery.report.only.error", False)).lower() == "true"
    settings.choose = _partitioner(given.get("partitioner", "consistent_random"))
    _set_codec_level(settings.engine, given)
    _set_limits(settings.engine, given)
    _set_delivery(settings.engine, given)
    return settings


_SPECIAL: Final = frozenset(
    {
        "statistics.interval.ms",
        "queue.buffering.max.messages",
        "delivery.report.only.error",
        "partitioner",
        "compression.level",
        "socket.timeout.ms",
        "enable.gapless.guarantee",
        "message.timeout.ms",
        "delivery.timeout.ms",
        "request.timeout.ms",
        "enable.idempotence",
        "sasl.mechanisms",
        "sasl.mechanism",
        "oauth_cb",
        "request.required.acks",
        "acks",
        "max.in.flight",
        "max.in.flight.requests.per.connection",
    }
)


def _set_delivery(engine: dict[str, Any], given: Mapping[str, Any]) -> None:
    """Idempotence is off unless it is switched on, as in librdkafka; `acks` may be any number of replicas."""
    is_transactional = given.get("transactional.id") is not None
    is_idempotent = is_transactional or str(given.get("enable.idempotence", "false")).lower() == "true"
    engine["enable.idempotence"] = given.get("enable.idempotence", is_idempotent)
    if is_transactional:
        engine["enable.idempotence"] = True
    acks = given.get("request.required.acks", given.get("acks", -1))
    is_many = str(acks).lstrip("+").isdigit() and 1 < int(acks) <= 1000
    engine["acks"] = "all" if is_many else acks  # stricter: brokers take no numbers above 1
    in_flight = given.get("max.in.flight.requests.per.connection", given.get("max.in.flight"))
    if in_flight is not None:
        is_beyond = is_idempotent and str(in_flight).isdigit() and int(in_flight) > 5
        engine["max.in.flight.requests.per.connection"] = 5 if is_beyond else in_flight


def _set_limits(engine: dict[str, Any], given: Mapping[str, Any]) -> None:
    """Set times and memory: message.timeout.ms below the request timeout lowers that."""
    message_ms = _whole(given, "message.timeout.ms", _whole(given, "delivery.timeout.ms", MESSAGE_TIMEOUT_MS))
    message_ms = message_ms or _FOREVER_MS  # 0: without limit
    request_ms = _whole(given, "request.timeout.ms", REQUEST_TIMEOUT_MS)
    linger_ms = int(_number(given, "linger.ms", _number(given, "queue.buffering.max.ms", 5)))
    linger_ms = min(linger_ms, max(message_ms - 1, 0))
    for name in ("linger.ms", "queue.buffering.max.ms"):
        engine.pop(name, None)
    engine["linger.ms"] = linger_ms
    engine["delivery.timeout.ms"] = message_ms
    engine["request.timeout.ms"] = max(min(request_ms, message_ms - linger_ms), 1)
    engine["max.block.ms"] = message_ms  # of the thread that waits for metadata; produce() never does
    engine["buffer.full.policy"] = "raise"
    if "queue.buffering.max.kbytes" not in given:
        most = 1 << 30  # as there; memory is taken as records come
        engine["buffer.memory"] = default_buffer_memory(most, _whole(given, "message.max.bytes", 0))
    batch = given.get("batch.size")
    if batch is not None and str(batch).isdigit():
        engine["batch.size"] = min(int(batch), 1 << 30)
    engine["retry.backoff.max.ms"] = max(
        _whole(given, "retry.backoff.max.ms", 1000), _whole(given, "retry.backoff.ms", 100)
    )
    least, most = _whole(given, "reconnect.backoff.ms", 100), _whole(given, "reconnect.backoff.max.ms", 10_000)
    engine["reconnect.backoff.ms"], engine["reconnect.backoff.max.ms"] = min(least, most), most
    mechanism = given.get("sasl.mechanisms", given.get("sasl.mechanism"))
    if mechanism is not None and str(given.get("security.protocol", "")).upper().startswith("SASL"):
        engine["sasl.mechanism"] = mechanism
    if str(mechanism).upper() != "GSSAPI":  # librdkafka reads them only then
        for name in [name for name in engine if name.startswith("sasl.kerberos.")]:
            del engine[name]
    if given.get("oauth_cb") is not None:
        engine["oauth_cb"] = given["oauth_cb"]


def _set_codec_level(engine: dict[str, Any], given: Mapping[str, Any]) -> None:
    level = _whole(given, "compression.level", -1)
    codec = str(given.get("compression.type", given.get("compression.codec", "none"))).lower()
    if "compression.codec" in engine and "compression.type" in engine:
        del engine["compression.codec"]
    if level >= 0 and codec in ("gzip", "zstd"):
        engine[f"compression.{codec}.level"] = max(level, 1)
    elif level > 0 and codec == "lz4":
        engine["compression.lz4.level"] = level


def _partitioner(name: Any) -> Choose | None:
    if name not in PARTITIONERS:
        raise _invalid(f'Invalid value for configuration property "partitioner": {name}')
    return PARTITIONERS[name]


def _callable(name: str, value: Any) -> Any:
    if value is not None and not callable(value):
        raise TypeError(f"{name} must be a callable")
    return value


def _number(given: Mapping[str, Any], name: str, default: float) -> float:
    value = given.get(name, default)
    try:
        return float(value)
    except (TypeError, ValueError):
        raise _invalid(f'Invalid value "{value}" for configuration property "{name}"') from None


def _whole(given: Mapping[str, Any], name: str, default: int) -> int:
    return int(_number(given, name, default))


def _invalid(text: str) -> KafkaException:
    return KafkaException(KafkaError(INVALID_ARG, text))
