"""Pushes the producer's metrics to brokers that request them (KIP-714).

    GetTelemetrySubscriptions -> which metrics, how often, in which form; an id for this producer
    PushTelemetry             -> the metrics, again and again; once more when the producer closes

Brokers announce the two APIs only where a plug-in takes the metrics: otherwise nothing is ever sent. No connection is
made for it. Metrics are read, encoded and compressed on a helper thread. Sender thread only, but for `_collect`.
Source: org.apache.kafka.common.telemetry.internals.ClientTelemetryReporter.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

import kafkaprod
from kafkaprod.clock import Clock
from kafkaprod.compression import CODEC_IDS, Codec, make_codec
from kafkaprod.config import ProducerConfig
from kafkaprod.engine.identity import MAX_WAIT_MS
from kafkaprod.errors import KafkaError, UnsupportedVersionError
from kafkaprod.metrics import ProducerMetrics
from kafkaprod.metrics.client_metrics import MetricTotals, fitting, requested_metrics, since, totals_of
from kafkaprod.metrics.otlp import metrics_data
from kafkaprod.net.background import BackgroundCalls
from kafkaprod.net.pool import NodePool
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.error_codes import ErrorCode, error_for
from kafkaprod.protocol.in_flight import InFlightRequest
from kafkaprod.protocol.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from kafkaprod.protocol.messages.push_telemetry import PushTelemetryRequest
from kafkaprod.retry import ExponentialBackoff, Random

DEFAULT_INTERVAL_MS: Final = 300_000
DEFAULT_MAX_BYTES: Final = 1 << 20
BUSY_MS: Final = 100  # between looks at a broker that takes no request now
LAST_PUSH_MS: Final = 1_000  # longest wait of close() for the last push
FIRST_RETRY_MS: Final = 1_000
GZIP_LEVEL: Final = 6  # the standard library's zlib, which is always loaded

logger = logging.getLogger("kafkaprod.engine.telemetry")


class TelemetrySubscription(NamedTuple):
    """What the broker wants.

    Attributes:
        number: Its id; each push names it.
        codec: Compresses the metrics; None: as they are.
        max_bytes: The size limit of a push.
        is_delta: Totals are what they have grown since the last push.
        prefixes: The prefixes of the metrics' names.
    """

    number: int
    codec: Codec | None
    max_bytes: int
    is_delta: bool
    prefixes: Sequence[str]


@dataclass(slots=True)
class Payload:
    """Metrics to push. What they were is the base of the next differences, once the broker has them.

    Attributes:
        data: A MetricsData message, compressed; None if it is too large.
        totals: The values of all totals.
        read_ns: When they were read, epoch time.
    """

    data: bytes | None
    totals: MetricTotals = field(default_factory=dict)
    read_ns: int = 0


class Telemetry(Protocol):
    """Pushes metrics, as the loop uses it."""

    def run(self, now_ms: int) -> int:
        """Do what is due; return how long nothing more will be."""
        ...

    def is_finished(self, now_ms: int) -> bool:
        """Return whether a producer that closes need not wait for it; the last push begins with the first call."""
        ...


class ClientTelemetry:
    """The pushes of one producer.

    Args:
        config: Options.
        metrics: What is pushed.
        pool: Connections; its `wakeup` ends the wait for the helper thread.
        clock: Times of metrics.
        random: Source of jitter.
        background: Runs a call on a helper thread; None: a thread for each.

    Attributes:
        instance_id: The id that a broker gave this producer; None before that.
    """

    def __init__(
        self,
        config: ProducerConfig,
        metrics: ProducerMetrics,
        pool: NodePool,
        clock: Clock,
        random: Random,
        background: BackgroundCalls | None = None,
    ) -> None:
        self._config = config
        self._metrics = metrics
        self._pool = pool
        self._clock = clock
        self._random = random
        self._background = background or BackgroundCalls(pool.wakeup)
        self._backoff = ExponentialBackoff(FIRST_RETRY_MS, DEFAULT_INTERVAL_MS)
        self._failure_count = 0  # in a row
        self._node_id: int | None = None  # the broker of the last request: it knows this producer
        self._subscription: TelemetrySubscription | None = None
        self._interval_ms = DEFAULT_INTERVAL_MS  # of the last subscription
        self._refused_codecs: set[int] = set()
        self._payload: Payload | None = None
        self._base = Payload(None, read_ns=clock.wall_ms() * 1_000_000)
        self._due_ms = 0
        self._is_busy = False  # a request is in flight, or metrics are being read
        self._is_off = False
        self._close_limit_ms: int | None = None  # until when close() waits
        self._is_last_push = False
        self.instance_id: uuid.UUID | None = None

    def run(self, now_ms: int) -> int:
        """Do what is due; return how long nothing more will be. Never raises but for a lack of memory."""
        if self._is_off:
            return MAX_WAIT_MS
        try:
            if self._is_busy:
                self._background.run_finished()
            if not self._is_busy and now_ms >= self._due_ms:
                self._send_next(now_ms)
        except MemoryError:
            raise
        except Exception:  # metrics must not end the sender thread
            self._turn_off("an error of its own", with_traceback=True)
        if self._is_off:
            return MAX_WAIT_MS
        limit_ms = MAX_WAIT_MS if self._close_limit_ms is None else max(self._close_limit_ms - now_ms, 0)
        return limit_ms if self._is_busy else min(max(self._due_ms - now_ms, 0) or MAX_WAIT_MS, limit_ms)

    def is_finished(self, now_ms: int) -> bool:
        """Return whether close() need not wait: the last push has ended, or there is none, or it takes too long."""
        if self._is_off or (self._subscription is None and not self._is_last_push):
            return True
        if self._close_limit_ms is None:
            self._close_limit_ms, self._due_ms = now_ms + LAST_PUSH_MS, now_ms
        return now_ms >= self._close_limit_ms

    def _send_next(self, now_ms: int) -> None:
        node_id = self._connected_node(now_ms)
        if node_id is None:
            self._is_off = self._close_limit_ms is not None  # no connection is made for a last push
            return  # a connection ends the poll
        if not self._pool.is_ready(node_id, now_ms):
            self._due_ms = now_ms + BUSY_MS
        elif self._pool.api_version(node_id, ApiKey.PUSH_TELEMETRY, 0, 0) is None:
            self._node_id, self._due_ms = None, now_ms + DEFAULT_INTERVAL_MS
        elif self._subscription is None:
            self._request_subscription(node_id, now_ms)
        elif self._payload is None:
            self._is_busy = True
            self._background.submit(self._collect, self._on_collected, self._on_not_collected)
        else:
            self._push(node_id, self._subscription, self._payload, now_ms)

    def _connected_node(self, now_ms: int) -> int | None:
        """Return the last broker, or another one that is connected."""
        chosen = [self._node_id, self._pool.least_loaded_node(now_ms), *self._pool.node_ids()]
        return next((node for node in chosen if node is not None and self._pool.versions(node) is not None), None)

    def _turn_off(self, why: str, *, with_traceback: bool = False) -> None:
        self._is_off = True
        logger.warning("no metrics are pushed to brokers any more: %s", why, exc_info=with_traceback)

    def _retry(self, error: KafkaError, now_ms: int) -> None:
        """Try again later, with another broker if this one is gone."""
        if isinstance(error, UnsupportedVersionError):
            self._due_ms = now_ms + DEFAULT_INTERVAL_MS
            return
        logger.debug("metrics are not pushed now: %s", error)
        self._due_ms = now_ms + self._backoff.delay_ms(self._failure_count, self._random)
        self._failure_count += 1

    # -- the subscription ----------------------------------------------------------------------------------------------

    def _request_subscription(self, node_id: int, now_ms: int) -> None:
        self._is_busy, self._node_id = True, node_id
        self._pool.send(
            node_id,
            GetTelemetrySubscriptionsRequest(client_instance_id=self.instance_id),
            on_done=self._on_subscription,
            now_ms=now_ms,
            timeout_ms=self._config.request_timeout_ms,
        )

    def _on_subscription(self, done: InFlightRequest, now_ms: int) -> None:
        self._is_busy = False
        if done.error is not None:
            self._retry(done.error, now_ms)
        elif done.response.error_code == ErrorCode.NONE:
            self._subscribe(done.response, now_ms)
        else:
            self._on_refused(done.response.error_code, done.response.throttle_time_ms, now_ms)

    def _subscribe(self, answer: GetTelemetrySubscriptionsResponse, now_ms: int) -> None:
        interval_ms = answer.push_interval_ms if answer.push_interval_ms > 0 else DEFAULT_INTERVAL_MS
        self._interval_ms = interval_ms
        if answer.client_instance_id is not None:
            self.instance_id = answer.client_instance_id
            self._metrics.note_instance_id(str(answer.client_instance_id))
        if not answer.requested_metrics:
            self._due_ms = now_ms + interval_ms
            return
        self._subscription = TelemetrySubscription(
            number=answer.subscription_id,
            codec=self._choose_codec(answer.accepted_compression_types),
            max_bytes=answer.telemetry_max_bytes if answer.telemetry_max_bytes > 0 else DEFAULT_MAX_BYTES,
            is_delta=answer.delta_temporality,
            prefixes=tuple(answer.requested_metrics),
        )
        self._due_ms = now_ms + round(interval_ms * (0.5 + self._random()))  # clients that start together spread

    def _choose_codec(self, accepted: Sequence[int]) -> Codec | None:
        """Return the producer's own codec if the broker accepts it, or gzip; None for no compression.

        Both are loaded already: this thread must not import anything while the program forks.
        """
        usable = [codec_id for codec_id in accepted if codec_id not in self._refused_codecs]
        own = make_codec(self._config.compression_type, None)
        if own is not None and own.codec_id in usable:
            return own
        return make_codec("gzip", GZIP_LEVEL) if CODEC_IDS["gzip"] in usable else None

    # -- pushing -------------------------------------------------------------------------------------------------------

    def _collect(self) -> Payload:
        """Read, encode and compress the metrics; on a helper thread."""
        subscription, base, config = self._subscription, self._base, self._config
        assert subscription is not None
        metrics = requested_metrics(self._metrics.snapshot(self._clock.now_ms()), subscription.prefixes)
        payload = Payload(None, totals_of(metrics), self._clock.wall_ms() * 1_000_000)
        if subscription.is_delta:
            metrics = since(metrics, base.totals)
        given = {"transactional_id": config.transactional_id, "client_rack": config.client_rack}
        codec = subscription.codec
        payload.data = fitting(
            metrics,
            subscription.max_bytes,
            lambda chosen: _compressed(
                codec,
                metrics_data(
                    chosen,
                    {name: value for name, value in given.items() if value},
                    ("kafkaprod", kafkaprod.__version__),
                    start_ns=base.read_ns if subscription.is_delta else self._metrics.start_ms * 1_000_000,
                    now_ns=payload.read_ns,
                    is_delta=subscription.is_delta,
                ),
            ),
        )
        return payload

    def _on_collected(self, payload: Payload) -> None:
        self._is_busy = False
        if payload.data is not None:
            self._payload = payload
            return
        logger.warning(
            "the metrics exceed what a push may have (%d bytes): none are pushed now",
            0 if self._subscription is None else self._subscription.max_bytes,
        )
        self._is_off = self._close_limit_ms is not None
        self._due_ms = self._clock.now_ms() + self._interval_ms

    def _on_not_collected(self, error: Exception) -> None:
        self._is_busy = False
        self._turn_off(f"reading them failed: {error!r}")

    def _push(self, node_id: int, subscription: TelemetrySubscription, payload: Payload, now_ms: int) -> None:
        self._is_busy, self._node_id = True, node_id
        self._is_last_push = self._close_limit_ms is not None
        assert payload.data is not None
        self._pool.send(
            node_id,
            PushTelemetryRequest(
                client_instance_id=self.instance_id,
                subscription_id=subscription.number,
                terminating=self._is_last_push,
                compression_type=0 if subscription.codec is None else subscription.codec.codec_id,
                metrics=payload.data,
            ),
            on_done=self._on_pushed,
            now_ms=now_ms,
            timeout_ms=self._config.request_timeout_ms,
        )

    def _on_pushed(self, done: InFlightRequest, now_ms: int) -> None:
        self._is_busy = False
        payload, self._payload = self._payload, None
        if self._is_last_push:
            self._is_off = True
        elif done.error is not None:
            self._retry(done.error, now_ms)
        elif done.response.error_code != ErrorCode.NONE:
            self._on_refused(done.response.error_code, done.response.throttle_time_ms, now_ms)
        elif payload is not None:
            payload.data = None
            self._base = payload
            self._failure_count = 0
            self._due_ms = now_ms + self._interval_ms
        if self._close_limit_ms is not None:
            self._due_ms = min(self._due_ms, now_ms)  # the last push follows an ordinary one

    def _on_refused(self, code: int, throttle_ms: int, now_ms: int) -> None:
        """Act on an error code as KIP-714 says."""
        subscription = self._subscription
        if code in (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE):
            if code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE and subscription is not None and subscription.codec:
                self._refused_codecs.add(subscription.codec.codec_id)
            self._subscription = None
            self._due_ms = now_ms  # at once, but not again and again
            if self._failure_count:
                self._due_ms += self._backoff.delay_ms(self._failure_count - 1, self._random)
            self._failure_count += 1
        elif code == ErrorCode.TELEMETRY_TOO_LARGE and subscription is not None:
            self._subscription = subscription._replace(max_bytes=max(subscription.max_bytes // 2, 1))
            self._due_ms = now_ms + self._interval_ms
        elif code == ErrorCode.THROTTLING_QUOTA_EXCEEDED:
            self._due_ms = now_ms + max(throttle_ms, self._interval_ms)
        else:
            error = error_for(code, node=self._node_id)
            if error.retriable:
                self._retry(error, now_ms)
            else:
                self._turn_off(str(error))


def _compressed(codec: Codec | None, data: bytes) -> bytes:
    return data if codec is None else codec.compress([data])
