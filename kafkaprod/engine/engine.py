"""The parts of one producer, made from its configuration and wired together; and nothing else.

Kept apart from `Producer` so that the sender thread, which holds the engine, does not keep a forgotten producer alive.
"""

from __future__ import annotations

import logging
import random
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import kafkaprod
from kafkaprod._core.queues.accumulator import Accumulator
from kafkaprod._core.queues.buffer_pool import BufferPool
from kafkaprod._core.queues.completion import ResultMaker
from kafkaprod._core.requests.drain import Drain
from kafkaprod.clock import Clock
from kafkaprod.compression import make_codec
from kafkaprod.config import ProducerConfig
from kafkaprod.engine.loop import Sender
from kafkaprod.engine.topic_watch import TopicWatch
from kafkaprod.engine.wiring import compression_level, connection_settings, engine_settings
from kafkaprod.errors import ConfigError
from kafkaprod.hooks.chain import Hooks
from kafkaprod.metadata import Metadata
from kafkaprod.metrics import LatencyHistogram, ProducerMetrics, Snapshot, Stage
from kafkaprod.net.pool import NodePool
from kafkaprod.results.batch import BatchCompletion, FailureLedger, WaitGuard
from kafkaprod.results.waiting import Waiter
from kafkaprod.text import counted

if TYPE_CHECKING:
    from kafkaprod.engine.transactions.identity import TransactionalIdentity

_log = logging.getLogger("kafkaprod.engine.engine")


class Engine:
    """Everything behind a `Producer`.

    Args:
        config: Checked options.
        clock: Of all timeouts.
        identity: Producer id and epoch to use for ever; None: ask the cluster, and raise the epoch where needed.
        unseen_failures_level: Of the log line about failed records whose results nobody looked at.

    Raises:
        ConfigError: A codec or TLS file cannot be had, or two-phase commit is wanted.
    """

    def __init__(
        self,
        config: ProducerConfig,
        clock: Clock,
        identity: tuple[int, int] | None = None,
        *,
        unseen_failures_level: int = logging.ERROR,
    ) -> None:
        if config.transaction_two_phase_commit_enable:
            raise ConfigError(
                "transaction_two_phase_commit_enable: no released broker completes such a transaction, up to Kafka 4.4 "
                "InitProducerId 6 is unstable and answered with UNSUPPORTED_VERSION (KIP-939)"
            )
        if config.sasl_mechanism == "PLAIN" and config.security_protocol == "SASL_PLAINTEXT":
            _log.warning(
                "sasl_mechanism=PLAIN with security_protocol=SASL_PLAINTEXT sends the password unencrypted: "
                "use SASL_SSL, or SCRAM"
            )
        self.config = config
        self._unseen_failures_level = unseen_failures_level
        self.clock = clock
        self.ledger = FailureLedger()
        self.guard = WaitGuard()
        self.hooks = Hooks.from_config(config)
        self.metrics = ProducerMetrics(
            config.client_id,
            kafkaprod.__version__,
            clock.wall_ms(),
            sample_count=config.metrics_num_samples,
            window_ms=config.metrics_sample_window_ms,
        )
        codec = make_codec(config.compression_type, compression_level(config))
        buffers = BufferPool(config.buffer_memory)
        self._workers = None
        if codec is not None and config.compression_workers > 1:
            self._workers = ThreadPoolExecutor(config.compression_workers, f"kafkaprod-{config.client_id}-compress")
        # From here on there are descriptors to close: nothing below refuses an option.
        self.node_pool = NodePool(connection_settings(config), clock)
        self.accumulator = Accumulator(
            buffers,
            config.batch_size,
            config.max_request_size,
            ResultMaker(BatchCompletion, self.ledger, self.guard),
            self.node_pool.wakeup,
        )
        self.accumulator.ignore_keys = config.partitioner_ignore_keys
        self.drain = Drain(
            self.accumulator,
            config.linger_ms,
            config.max_request_size,
            config.enable_idempotence,
            config.max_in_flight_requests_per_connection == 1,
            codec,
            self._workers,
            config.partitioner_adaptive_partitioning_enable,
            config.partitioner_availability_timeout_ms,
        )
        self.metadata = Metadata.from_config(config, clock.now_ms())
        self.topic_watch = TopicWatch(
            self.accumulator,
            clock,
            self.node_pool.wakeup,
            config.max_block_ms,
            self.node_pool.members.why_not_connected,
        )
        if identity is not None:
            self.drain.set_producer(*identity)
        self.transactions = self._make_transactions(config)
        self.sender = Sender(
            replace(engine_settings(config), keeps_producer_id=identity is not None),
            self.accumulator,
            self.drain,
            self.node_pool,
            self.metadata,
            self.topic_watch,
            clock,
            self.metrics,
            self.transactions,
        )
        self._add_gauges()
        self.is_ended = False  # the sender thread is done
        self._end_waiters: list[Callable[[], None]] = []
        self.node_pool.set_bootstrap(config.bootstrap_servers)

    def _make_transactions(self, config: ProducerConfig) -> TransactionalIdentity | None:
        """The transactions of a producer with a transactional id; what they need is imported for such a one only."""
        if config.transactional_id is None:
            return None
        from kafkaprod.engine.transactions.identity import TransactionalIdentity
        from kafkaprod.engine.transactions.intents import TransactionSettings

        settings = TransactionSettings(
            config.transactional_id,
            config.transaction_timeout_ms,
            config.retry_backoff_ms,
            config.retry_backoff_max_ms,
        )
        return TransactionalIdentity(
            settings, self.accumulator, self.drain, self.node_pool, random.random, config.max_block_ms
        )

    def _add_gauges(self) -> None:
        """What is read when somebody looks, and costs nothing until then."""
        buffers, nodes, metadata = self.accumulator.pool, self.node_pool, self.metadata
        add = self.metrics.add_gauge
        add("requests-in-flight", lambda _: sum(nodes.in_flight_count(node_id) for node_id in nodes.node_ids()))
        add("metadata-age", lambda now_ms: (metadata.age_ms(now_ms) or 0) / 1000)
        add("waiting-threads", lambda _: buffers.waiter_count)
        add("buffer-total-bytes", lambda _: buffers.capacity)
        add("buffer-available-bytes", lambda _: buffers.available)
        add("connection-count", lambda _: nodes.connection_count)

    @property
    def client_id(self) -> str:
        """The producer's name, for metrics reporters."""
        return self.config.client_id

    @property
    def histograms(self) -> Mapping[Stage, LatencyHistogram]:
        """Latencies by stage, for metrics reporters."""
        return self.metrics.histograms

    def snapshot(self) -> Snapshot:
        """All metrics now, for metrics reporters and Producer.metrics()."""
        return self.metrics.snapshot(self.clock.now_ms())

    def run(self) -> None:
        """Body of the sender thread."""
        self.guard.thread_id = threading.get_ident()
        try:
            for reporter in self.config.metric_reporters:
                self._start_reporter(reporter)
            self.sender.run()
        finally:
            for reporter in self.config.metric_reporters:
                _close_reporter(reporter)
            if self._workers is not None:
                self._workers.shutdown(wait=False)
            self._report_failures()
            self.is_ended = True
            for wake in self._end_waiters.copy():
                wake()

    def _start_reporter(self, reporter: Any) -> None:
        """A reporter that fails to start, as its port is taken, must not keep records from being sent."""
        try:
            reporter.start(self)
        except Exception:
            _log.exception("the metrics reporter %s does not start", type(reporter).__qualname__)

    def _report_failures(self) -> None:
        """The last chance to say that records were lost, whoever ended the producer, and however."""
        count, error = self.ledger.take()
        if count:
            _log.log(
                self._unseen_failures_level, "%s not delivered, the first because: %s", counted(count, "record"), error
            )

    def wait_end(self, timeout: float | None = None) -> bool:
        """Wait until the sender thread is done; False after `timeout` seconds. Thread-safe.

        Not Thread.join(): up to CPython 3.12 a join that Ctrl-C interrupts takes the thread for ended (bpo-45274).
        """
        told = Waiter()
        with self.end_waiter(told.wake):
            return self.is_ended or told.wait(timeout)

    @contextmanager
    def end_waiter(self, wake: Callable[[], None]) -> Iterator[None]:
        """While the block runs, `wake` is called when the sender thread is done; look at `is_ended` first."""
        self._end_waiters.append(wake)
        try:
            yield
        finally:
            self._end_waiters.remove(wake)

    def describe_work(self) -> str:
        """What the sender thread runs now: a delivery callback that does not return, or code of ours. Thread-safe."""
        frame = sys._current_frames().get(self.guard.thread_id or 0)
        place = frame
        while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] != "kafkaprod":
            place, frame = frame, frame.f_back  # the outermost function that we called
        if place is None:
            return "nothing any more"
        return f"{place.f_code.co_qualname}() in {place.f_code.co_filename}:{place.f_lineno}"

    def after_fork_in_child(self) -> None:
        """The sender thread does not exist here; nothing of the parent's is touched."""
        self.guard.is_forked = True
        self.accumulator.abandon()


def _close_reporter(reporter: Any) -> None:
    """A reporter that fails to close must not keep the others, and the producer, from ending."""
    try:
        reporter.close()
    except Exception:
        _log.exception("closing the metrics reporter %s", type(reporter).__qualname__)
