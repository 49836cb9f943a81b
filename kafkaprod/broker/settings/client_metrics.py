"""Metrics that clients push (KIP-714): which client has to push what, and what has come.

Subscriptions are resources of the type CLIENT_METRICS with the options `interval.ms`, `metrics` and `match`. What is
pushed is kept for tests, decompressed; the oldest is dropped. Control thread only.
Source: org.apache.kafka.server.ClientMetricsManager, org.apache.kafka.server.metrics.ClientMetricsConfigs.
"""

from __future__ import annotations

import uuid
import zlib
from collections import OrderedDict, deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from kafkaprod.broker.calls.refusal import RequestRefusedError
from kafkaprod.broker.coordinator.topic_regex import TopicRegex
from kafkaprod.broker.settings.settings import METRICS_OPTIONS, Settings
from kafkaprod.clock import NEVER_MS
from kafkaprod.compression import CODEC_IDS, OFFERED_CODECS, decompress
from kafkaprod.errors import ConfigError, CorruptDataError
from kafkaprod.protocol.error_codes import ErrorCode

ACCEPTED_CODECS: Final = tuple(CODEC_IDS[name] for name in OFFERED_CODECS)
MAX_BYTES: Final = 1 << 20  # telemetry.max.bytes
DEFAULT_INTERVAL_MS: Final = 300_000
MATCH_KEYS: Final = ("client_id", "client_instance_id", "client_source_address")

MAX_SUBSCRIPTIONS: Final = 200
"""Most of them. All are tried on each client that asks: with the dearest patterns 0.4 s."""

_MAX_PREFIXES: Final = 200  # of one subscription
_MAX_VALUE_CHARS: Final = 255  # of what a pattern is tried on
_MAX_PATTERN_BYTES: Final = 16 << 10  # of one that is compiled
_MAX_CLIENTS: Final = 10_000  # known at once, as in Kafka
_MAX_PUSHES: Final = 1_000
_MAX_KEPT_BYTES: Final = 64 << 20
_MAX_PLAIN_BYTES: Final = 16 << 20  # of one push


class Push(NamedTuple):
    """What a client has pushed.

    Attributes:
        client_id: Its own name.
        instance_id: The id that a broker gave it.
        is_last: Whether it closes.
        metrics: A MetricsData message of OpenTelemetry's protocol, not compressed.
    """

    client_id: str
    instance_id: uuid.UUID
    is_last: bool
    metrics: bytes


class ClientSubscription(NamedTuple):
    """What a client has to push.

    Attributes:
        number: The id of these metrics at this interval.
        interval_ms: Between pushes.
        prefixes: The prefixes of the names; empty: nothing, "*" alone: all.
    """

    number: int
    interval_ms: int
    prefixes: list[str]


@dataclass(slots=True)
class _Client:
    """A client that has a subscription: when it last requested it and pushed, and whether it has ended."""

    subscription: ClientSubscription
    asked_ms: int = -NEVER_MS
    pushed_ms: int = -NEVER_MS
    must_ask: bool = False  # its subscription has changed
    has_ended: bool = False


def check_match(text: str) -> None:
    """Raise ConfigError unless the value of `match` is a list of a known key, "=" and a regular expression."""
    for key, pattern in _patterns(text):
        if key not in MATCH_KEYS:
            raise ConfigError(f"match={text!r}: {key!r} is not one of {', '.join(MATCH_KEYS)}")
        try:
            TopicRegex(pattern, _MAX_PATTERN_BYTES)
        except ValueError as error:
            raise ConfigError(f"match={text!r}: {error}") from error


def check_metrics(text: str) -> None:
    """Raise ConfigError if the value of `metrics` has too many prefixes: all clients that match get them."""
    count = text.count(",") + 1
    if count > _MAX_PREFIXES:
        raise ConfigError(f"metrics of {count} prefixes: {_MAX_PREFIXES} are the most, give shorter ones")


class ClientMetrics:
    """Subscriptions, the clients that have them, and what they have pushed."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._clients: OrderedDict[uuid.UUID, _Client] = OrderedDict()
        self._pushes: deque[Push] = deque(maxlen=_MAX_PUSHES)
        self._kept_bytes = 0
        self._seen: Mapping[str, Mapping[str, str]] = {}
        self._subscriptions: list[_Subscription] = []

    def subscribe(
        self, instance_id: uuid.UUID | None, client_id: str, host: str, now_ms: int
    ) -> tuple[uuid.UUID, ClientSubscription]:
        """Return a client's id, a new one if it has none, and what it has to push.

        Raises:
            RequestRefusedError: THROTTLING_QUOTA_EXCEEDED, it asks too often.
        """
        if instance_id is None:
            instance_id = uuid.uuid4()
        subscription = self._subscription(instance_id, client_id, host)
        client = self._client(instance_id, subscription)
        is_early = now_ms < max(client.asked_ms, client.pushed_ms) + client.subscription.interval_ms
        if is_early and not client.must_ask:
            raise RequestRefusedError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "The client asks before its interval.")
        client.subscription, client.asked_ms, client.must_ask, client.has_ended = subscription, now_ms, False, False
        client.pushed_ms = -NEVER_MS
        return instance_id, subscription

    def take_push(self, push: Push, subscription_number: int, codec_id: int, host: str, now_ms: int) -> None:
        """Keep what a client pushes; its metrics are still compressed.

        Raises:
            RequestRefusedError: INVALID_REQUEST, UNSUPPORTED_COMPRESSION_TYPE, INVALID_RECORD,
                THROTTLING_QUOTA_EXCEEDED, UNKNOWN_SUBSCRIPTION_ID or TELEMETRY_TOO_LARGE.
        """
        subscription = self._subscription(push.instance_id, push.client_id, host)
        client = self._client(push.instance_id, subscription)
        if client.has_ended:
            raise RequestRefusedError(ErrorCode.INVALID_REQUEST, "The client has pushed for the last time before.")
        if now_ms < client.pushed_ms + client.subscription.interval_ms and not push.is_last:
            raise RequestRefusedError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "The client pushes before its interval.")
        if subscription_number != subscription.number:
            client.must_ask = True
            raise RequestRefusedError(ErrorCode.UNKNOWN_SUBSCRIPTION_ID, "The subscription has changed.")
        if codec_id not in (0, *ACCEPTED_CODECS):
            client.must_ask = True
            raise RequestRefusedError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"Unknown compression {codec_id}.")
        if len(push.metrics) > MAX_BYTES:
            raise RequestRefusedError(ErrorCode.TELEMETRY_TOO_LARGE, f"More than {MAX_BYTES} bytes.")
        client.pushed_ms, client.has_ended = now_ms, push.is_last
        try:
            plain = bytes(decompress(codec_id, push.metrics, _MAX_PLAIN_BYTES)) if codec_id else bytes(push.metrics)
        except (CorruptDataError, ConfigError) as error:
            raise RequestRefusedError(ErrorCode.INVALID_RECORD, str(error)) from error
        self._keep(push._replace(metrics=plain))

    def take_all(self) -> list[Push]:
        """Return what has been pushed since the last call, oldest first."""
        pushes = list(self._pushes)
        self._pushes.clear()
        self._kept_bytes = 0
        return pushes

    def _keep(self, push: Push) -> None:
        while self._pushes and (
            len(self._pushes) == _MAX_PUSHES or self._kept_bytes + len(push.metrics) > _MAX_KEPT_BYTES
        ):
            self._kept_bytes -= len(self._pushes.popleft().metrics)
        self._pushes.append(push)
        self._kept_bytes += len(push.metrics)

    def _client(self, instance_id: uuid.UUID, subscription: ClientSubscription) -> _Client:
        client = self._clients.get(instance_id)
        if client is None:
            client = self._clients[instance_id] = _Client(subscription)
            if len(self._clients) > _MAX_CLIENTS:
                self._clients.popitem(last=False)
        self._clients.move_to_end(instance_id)
        return client

    def _compiled(self) -> list[_Subscription]:
        """Return the subscriptions; they are made again when the section was replaced."""
        options: Mapping[str, Mapping[str, str]] = self._settings.get(METRICS_OPTIONS)
        if options is not self._seen:
            self._seen, self._subscriptions = options, [_Subscription(each) for each in options.values()]
        return self._subscriptions

    def _subscription(self, instance_id: uuid.UUID, client_id: str, host: str) -> ClientSubscription:
        """Return the union of all subscriptions that match a client, at the shortest of their intervals."""
        values = dict(zip(MATCH_KEYS, (client_id, str(instance_id), host), strict=True))
        matching = [each for each in self._compiled() if each.matches(values)]
        prefixes = sorted(set().union(*(each.prefixes for each in matching)))
        if "*" in prefixes:
            prefixes = ["*"]
        interval_ms = min((each.interval_ms for each in matching), default=DEFAULT_INTERVAL_MS)
        number = zlib.crc32(f"{interval_ms},{','.join(prefixes)}".encode()) - 2**31
        return ClientSubscription(number, interval_ms, prefixes)


class _Subscription:
    """One subscription, whose patterns are compiled once.

    Attributes:
        interval_ms: Between pushes.
        prefixes: The prefixes of names of metrics.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        self.interval_ms = int(options.get("interval.ms", DEFAULT_INTERVAL_MS))
        self.prefixes = frozenset(filter(None, options.get("metrics", "").split(",")))
        self._regexes: dict[str, TopicRegex] | None = {}
        try:
            for key, pattern in _patterns(options.get("match", "")):
                self._regexes[key] = TopicRegex(pattern, _MAX_PATTERN_BYTES)
        except ValueError:  # of an older version, and refused today
            self._regexes = None

    def matches(self, values: Mapping[str, str]) -> bool:
        """Whether all patterns match the values of a client as a whole; none matches a long one."""
        if self._regexes is None:
            return False
        return all(
            key in values and len(values[key]) <= _MAX_VALUE_CHARS and regex.matches(values[key])
            for key, regex in self._regexes.items()
        )


def _patterns(text: str) -> list[tuple[str, str]]:
    parts = (part.strip().partition("=") for part in text.split(",") if part.strip())
    return [(key.strip(), pattern.strip()) for key, _, pattern in parts]
