"""Kafka's producer metrics, by name, in kafka-python's shape: {group: {name: value}}.

The sender records per batch and per request, callers only where they waited: there is no work per record. Time is an
argument. The groups:

    producer-metrics                   of the whole producer
    producer-topic-metrics.<topic>     of a topic, from its first request on
    producer-node-metrics.node-<id>    of a broker; bootstrap servers have negative ids
    producer-latency-metrics           percentiles per stage of a batch, in us; not one of Kafka's
    producer-node-latency-metrics.node-<id>   the same for a broker, without `seal`
    app-info, kafka-metrics-count

Threads: any may call `snapshot` and the `add_...` methods, only the sender's the `on_...` and `observe_...` methods.
There is no lock, so that signal handlers may call them too: if two threads end a wait within the same few instructions,
one may not be counted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, TypeAlias, get_args

from kafkaprod.metrics.histogram import LatencyHistogram
from kafkaprod.metrics.recording import RequestRecorder
from kafkaprod.metrics.samples import caller_values, connection_values, node_values, producer_values, topic_values
from kafkaprod.metrics.sums import CallerSample, NodeCounters
from kafkaprod.metrics.windows import SampleRing

Snapshot: TypeAlias = dict[str, dict[str, Any]]

Stage: TypeAlias = Literal["append", "seal", "send", "ack"]
"""The stages of a batch: open for records; its request drained, compressed and sealed; until the socket took its last
byte; answered (from before `send` on). `seal` is as fine as the clock, the others as a millisecond."""

Timer: TypeAlias = Literal[
    "flush",
    "metadata-wait",
    "txn-init",
    "txn-begin",
    "txn-send-offsets",
    "txn-commit",
    "txn-abort",
]
"""Calls in which threads wait; each is a metric `<name>-time-ns-total`."""

STAGES: Final[tuple[Stage, ...]] = get_args(Stage)
NODE_STAGES: Final[tuple[Stage, ...]] = ("append", "send", "ack")  # those that `RequestRecorder.node_histograms` has
PERCENTILES: Final = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999}


COUNTER_NAMES: Final = NodeCounters.NAMES
LOGINS_AT: Final = COUNTER_NAMES.index("reauthentications_succeeded")
LOGIN_MS_AT: Final = COUNTER_NAMES.index("reauthentication_ms")


class ProducerMetrics(RequestRecorder):
    """The metrics of one producer. See also `RequestRecorder`.

    Args:
        client_id: Tag of all metrics.
        version: The version of this package.
        start_ms: Epoch time at which the producer was made.
        sample_count: Windows that rates, averages and maxima cover.
        window_ms: Length of one.
    """

    def __init__(
        self,
        client_id: str = "",
        version: str = "",
        start_ms: int = 0,
        *,
        sample_count: int = 2,
        window_ms: int = 30_000,
    ) -> None:
        super().__init__(STAGES, sample_count, window_ms)
        self.client_id = client_id
        self.start_ms = start_ms
        self._app_info = {"version": version, "commit-id": "", "start-time-ms": start_ms}
        self._observed: dict[int, tuple[int, ...]] = {}  # node id -> the counters of the last call
        self._loop_observed: tuple[int, int, int] | None = None  # polls, ns waited, time
        self.acknowledged_ms: int | None = None  # when a batch was, monotonic; written by the sender
        self._gauges: dict[str, Callable[[int], float]] = {}
        self.read_node: Callable[[int], Mapping[str, float]] = lambda node_id: {}  # more metrics of a node, any thread
        self._callers = SampleRing(CallerSample, *self._ring_size)  # written by any thread
        self._timers_ns: dict[Timer, int] = dict.fromkeys(get_args(Timer), 0)  # written by any thread

    def add_gauge(self, name: str, read: Callable[[int], float]) -> None:
        """Add a metric of `producer-metrics` that is computed when it is read; `read` takes the time, on any thread."""
        self._gauges[name] = read

    def note_instance_id(self, instance_id: str) -> None:
        """Add the id that a broker gave this producer for its pushes (KIP-714) to `app-info`. Thread-safe."""
        self._app_info = {**self._app_info, "client-instance-id": instance_id}

    # -- recorded by the sender ----------------------------------------------------------------------------------------

    def on_throttle(self, throttle_ms: int, now_ms: int) -> None:
        """Count a response that throttles."""
        sample = self._producer.current(now_ms)
        sample.throttle_ms += throttle_ms
        sample.throttle_ms_max = max(sample.throttle_ms_max, throttle_ms)

    def on_retry(self, topic: str, record_count: int, now_ms: int) -> None:
        """Count a batch that is sent again."""
        self._producer.current(now_ms).retried_records += record_count
        self._topic(topic, now_ms).retried_records += record_count

    def on_error(self, topic: str, record_count: int, now_ms: int) -> None:
        """Count a batch that failed."""
        self._producer.current(now_ms).failed_records += record_count
        self._topic(topic, now_ms).failed_records += record_count

    def on_split(self, now_ms: int) -> None:
        """Count a batch that was too large for the broker and was split."""
        self._producer.current(now_ms).splits += 1

    def observe_nodes(self, counters: Mapping[int, NodeCounters], now_ms: int) -> None:
        """Copy the counters of connections. Call it several times a second: metrics lag by the interval."""
        for node_id, node in counters.items():
            counts = tuple([getattr(node, name) for name in COUNTER_NAMES])
            before = self._observed.get(node_id, (0,) * len(counts))
            if counts == before:
                continue
            self._observed[node_id] = counts
            for sample in (self._node(node_id, now_ms), self._all_nodes.current(now_ms)):
                for name, count, count_before in zip(COUNTER_NAMES, counts, before, strict=True):
                    setattr(sample, name, getattr(sample, name) + count - count_before)
                logins = counts[LOGINS_AT] - before[LOGINS_AT]
                if logins:  # mostly one since the last call
                    latency_ms = round((counts[LOGIN_MS_AT] - before[LOGIN_MS_AT]) / logins)
                    sample.reauthentication_ms_max = max(sample.reauthentication_ms_max, latency_ms)

    def observe_loop(self, poll_count: int, wait_ns: int, now_ms: int) -> None:
        """Copy how often and how long the loop waited for its sockets; the rest of the time it worked.

        Call it as `observe_nodes`. `poll_count` and `wait_ns` never go back.
        """
        polls_before, wait_before_ns, before_ms = self._loop_observed or (poll_count, wait_ns, now_ms)
        self._loop_observed = (poll_count, wait_ns, now_ms)
        waited_ns = wait_ns - wait_before_ns
        sample = self._producer.current(now_ms)
        sample.polls += poll_count - polls_before
        sample.wait_ns += waited_ns
        sample.work_ns += max((now_ms - before_ms) * 1_000_000 - waited_ns, 0)

    # -- recorded by callers -------------------------------------------------------------------------------------------

    def add_memory_wait(self, wait_ns: int, now_ms: int) -> None:
        """Count a caller's wait for memory. Thread-safe."""
        self._callers.current(now_ms).memory_wait_ns += wait_ns

    def add_refused_records(self, count: int, now_ms: int) -> None:
        """Count records that were refused because memory stayed full. Thread-safe."""
        self._callers.current(now_ms).refused_records += count

    def add_time(self, timer: Timer, time_ns: int) -> None:
        """Add the time that a caller spent in a call. Thread-safe."""
        self._timers_ns[timer] += time_ns

    # -- read ----------------------------------------------------------------------------------------------------------

    def snapshot(self, now_ms: int) -> Snapshot:
        """Return all metrics now. Thread-safe; takes about 10 us per topic and broker."""
        timers = {f"{name}-time-ns-total": float(time_ns) for name, time_ns in self._timers_ns.items()}
        groups: Snapshot = {
            "producer-metrics": {
                **producer_values(self._producer, now_ms),
                **connection_values(self._all_nodes, now_ms),
                **caller_values(self._callers, now_ms),
                **timers,
                **{name: read(now_ms) for name, read in self._gauges.copy().items()},
            },
            "producer-latency-metrics": _latencies(self.histograms),
            "app-info": dict(self._app_info),
        }
        # Copies, not lists of items: making tuples may collect garbage, which lets other threads run.
        for name, topic in self._topics.copy().items():
            groups[f"producer-topic-metrics.{name}"] = dict(topic_values(topic, now_ms))
        for node_id, node in self._nodes.copy().items():
            groups[f"producer-node-metrics.node-{node_id}"] = {**node_values(node, now_ms), **self.read_node(node_id)}
        for node_id, histograms in self.node_histograms.copy().items():
            of_stages = dict(zip(NODE_STAGES, histograms, strict=True))
            groups[f"producer-node-latency-metrics.node-{node_id}"] = dict(_latencies(of_stages))
        groups["kafka-metrics-count"] = {"count": 1 + sum(len(group) for group in groups.values())}
        return groups


def _latencies(histograms: Mapping[Stage, LatencyHistogram]) -> dict[str, float]:
    values: dict[str, float] = {}
    for stage, histogram in histograms.items():
        percentiles = histogram.percentiles(list(PERCENTILES.values()))
        values |= {f"{stage}-time-us-{name}": each for name, each in zip(PERCENTILES, percentiles, strict=True)}
        values[f"{stage}-time-us-avg"] = histogram.mean
        values[f"{stage}-time-us-max"] = histogram.highest
    return values
