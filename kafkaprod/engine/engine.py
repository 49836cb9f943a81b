"""The parts of one producer, made from its configuration and wired together.

Kept apart from `Producer` so that the sender thread, which holds the engine, does not keep a forgotten producer alive.
"""

from __future__ import annotations

import logging
import random
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType, ModuleType
from typing import TYPE_CHECKING, Any, Protocol, cast

import kafkaprod
from kafkaprod._core.machine.waking import Waiter
from kafkaprod._core.queues.accumulator import Accumulator
from kafkaprod._core.queues.buffer_pool import BufferPool
from kafkaprod._core.queues.completion import ResultMaker
from kafkaprod._core.queues.placement import Placement
from kafkaprod._core.requests.drain import Drain
from kafkaprod._core.requests.settlement import incomplete_batches, oldest_created_ms
from kafkaprod.clock import Clock
from kafkaprod.config import ProducerConfig
from kafkaprod.config.producer_config import without_hooks
from kafkaprod.config.secret import Secret
from kafkaprod.engine.batchings import Batchings
from kafkaprod.engine.loop import Sender
from kafkaprod.engine.telemetry import ClientTelemetry
from kafkaprod.engine.topic_watch import TopicWatch
from kafkaprod.engine.wiring import connection_settings, password_mechanism, request_bytes
from kafkaprod.errors import ConfigError
from kafkaprod.hooks.chain import Hooks
from kafkaprod.metadata import Metadata
from kafkaprod.metrics import LatencyHistogram, ProducerMetrics, Snapshot, Stage
from kafkaprod.net.network import SOCKETS, Network
from kafkaprod.net.pool import NodePool
from kafkaprod.results.batch import BatchCompletion, FailureLedger, WaitGuard
from kafkaprod.structs import NodeHealth
from kafkaprod.text import counted
from kafkaprod.threads import importing

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

    from kafkaprod.engine.transactions.identity import TransactionalIdentity
    from kafkaprod.spool.journal import Journal
    from kafkaprod.spool.spooling import Spool

logger = logging.getLogger("kafkaprod.engine.engine")


@importing
def _thread_pool() -> type[ThreadPoolExecutor]:
    from concurrent.futures import ThreadPoolExecutor  # most producers do not compress

    return ThreadPoolExecutor


@importing
def _slots() -> ModuleType:
    from kafkaprod.spool import slots

    return slots


@importing
def _spooling() -> ModuleType:
    from kafkaprod.spool import spooling

    return spooling


@importing
def _transactional_identity() -> type[TransactionalIdentity]:
    from kafkaprod.engine.transactions.identity import TransactionalIdentity

    return TransactionalIdentity


class Companion(Protocol):
    """A thread that works for the same producer."""

    def end(self) -> None:
        """Let it end. Thread-safe."""
        ...

    def join(self, timeout_s: float) -> None:
        """Wait for its end, for so many seconds."""
        ...


class Engine:
    """The parts that a `Producer` works with.

    Args:
        config: Checked options.
        clock: Measures all timeouts.
        identity: Producer id and epoch to use for ever; None: request them, and raise the epoch where needed.
        network: Makes the connections.
        random: Source of jitter.
        unseen_failures_level: Level of the log line about failed records whose results were never read.
        completion: The kind of batch outcomes.
        cluster_id: The cluster that gave `identity`, and the only one that gets records; None: the first that answers.
        journal: The slot of a spool to send from; None: a free one, if there is the option spool_dir.

    Raises:
        ConfigError: A codec, TLS file or spool is missing or unusable, or two-phase commit is requested.

    Attributes:
        adopts_slots: Whether its producer sends what is left in slots beside its own.
        companion: What ends with it; None: nothing.
    """

    adopts_slots = False
    companion: Companion | None = None

    def __init__(
        self,
        config: ProducerConfig,
        clock: Clock,
        identity: tuple[int, int] | None = None,
        *,
        network: Network = SOCKETS,
        random: Callable[[], float] = random.random,
        unseen_failures_level: int = logging.ERROR,
        completion: type[BatchCompletion] = BatchCompletion,
        cluster_id: str | None = None,
        journal: Journal | None = None,
    ) -> None:
        _check_support(config, keeps_identity=identity is not None)
        self._hooks, self._given_config = Hooks.from_config(config), config
        config = self.config = without_hooks(config)
        self._unseen_failures_level = unseen_failures_level
        self.clock = clock
        self._random = random
        self.ledger = FailureLedger()
        self.guard = WaitGuard()
        self.metrics = ProducerMetrics(
            config.client_id,
            kafkaprod.__version__,
            clock.wall_ms(),
            sample_count=config.metrics_num_samples,
            window_ms=config.metrics_sample_window_ms,
        )
        self._batchings = Batchings(config, may_split=identity is None)
        self._workers: ThreadPoolExecutor | None = None
        if any(self._batchings.codecs) and config.compression_workers > 1:
            self._workers = _thread_pool()(config.compression_workers, f"kafkaprod-{config.client_id}-compress")
        settings = connection_settings(config, network)
        # From here on there are descriptors to close: nothing below refuses an option.
        if journal is None and config.spool_dir is not None:
            journal, self.adopts_slots = self._take_slot(config.spool_dir), config.spool_adopt
        self.node_pool = NodePool(settings, clock, random=random)
        self.results = ResultMaker(completion, self.ledger, self.guard)
        self.accumulator = self._make_accumulator(may_split=identity is None)
        self.drain = self._make_drain()
        if identity is not None:
            self.drain.set_producer(*identity)
        self.spool = None if journal is None else self._make_spool(journal)
        keeps_cluster = identity is not None or self.spool is not None
        if self.spool is not None:
            cluster_id = self.spool.cluster_id
        self.metadata = Metadata(
            config, clock.now_ms(), random=random, keeps_cluster=keeps_cluster, cluster_id=cluster_id
        )
        for topic in () if self.spool is None else self.spool.topics:
            self.metadata.add_topic(topic, clock.now_ms())
        self.topic_watch = self._make_topic_watch()
        self.transactions = self._make_transactions()
        self.sender = self._make_sender(keeps_producer_id=identity is not None)
        self._add_gauges()
        self.is_ended = False  # the sender thread is done
        self.lost: tuple[int, Exception | None] = (0, None)  # records that failed unseen, once it is; the first's error
        self._end_waiters: list[Callable[[], None]] = []
        self.node_pool.set_bootstrap(config.bootstrap_servers)

    def take_hooks(self) -> tuple[Hooks, ProducerConfig]:
        """Return the user's code, and the options with it; once, for who calls it.

        The sender thread holds the engine. A serializer may be a method of the object that has the producer: if the
        engine held it, a producer that is forgotten together with its owner would never end.
        """
        hooks, config = self._hooks, self._given_config
        del self._hooks, self._given_config
        return hooks, config

    def _make_accumulator(self, *, may_split: bool) -> Accumulator:
        accumulator = Accumulator(
            BufferPool(self.config.buffer_memory),
            self.config.batch_size,
            self.config.max_request_size,
            self.results,
            self.node_pool.wakeup,
            self.config.max_batch_size if may_split else self.config.batch_size,
        )
        if self.config.topic_options:
            accumulator.topic_batching = self._batchings.find
        accumulator.ignore_keys = self.config.partitioner_ignore_keys
        return accumulator

    def _make_drain(self) -> Drain:
        codec, *topic_codecs = self._batchings.codecs
        return Drain(
            self.accumulator,
            self.config.linger_ms,
            request_bytes(self.config),
            self.config.enable_idempotence,
            self.config.max_in_flight_requests_per_connection == 1,
            codec,
            self._workers,
            first_limit=self.config.batch_size if self.config.acks else 0,  # without answers no path is measured
            topic_codecs=topic_codecs,
        )

    def _make_topic_watch(self) -> TopicWatch:
        pool = self.node_pool
        return TopicWatch(
            self.accumulator,
            self.clock,
            pool.wakeup,
            self.config.max_block_ms,
            self.config.bootstrap_timeout_ms,
            lambda: pool.ready_count > 0,
            pool.members.why_not_connected,
        )

    def _make_sender(self, *, keeps_producer_id: bool) -> Sender:
        return Sender(
            self.config,
            self.accumulator,
            self.drain,
            Placement(self.accumulator, self.config.partitioner_adaptive_partitioning_enable),
            self.node_pool,
            self.metadata,
            self.topic_watch,
            self.clock,
            self.metrics,
            self.transactions,
            self._make_telemetry(),
            keeps_producer_id=keeps_producer_id,
            random=self._random,
            spool=self.spool,
        )

    def _take_slot(self, directory: str) -> Journal:
        return cast("Journal", _slots().open_slot(directory, self.config.spool_max_bytes))

    def _make_spool(self, journal: Journal) -> Spool:
        spooling, config = _spooling(), self.config
        spool: Spool = spooling.Spool(
            journal,
            spooling.SyncPolicy.parse(config.spool_sync),
            self.accumulator,
            self.drain,
            self.clock.now_ms(),
            self.clock.wall_ms,
            config.buffer_memory,
        )
        return spool

    def _make_telemetry(self) -> ClientTelemetry | None:
        if not self.config.enable_metrics_push:
            return None
        return ClientTelemetry(self.config, self.metrics, self.node_pool, self.clock, self._random)

    def _make_transactions(self) -> TransactionalIdentity | None:
        """Make the transactions of a producer with a transactional id; other producers do not load their modules."""
        config = self.config
        if config.transactional_id is None:
            return None
        return _transactional_identity()(config, self.accumulator, self.drain, self.node_pool, self._random)

    def _add_gauges(self) -> None:
        """Add the metrics that are computed when they are read, and cost nothing until then."""
        buffers, nodes, metadata = self.accumulator.pool, self.node_pool, self.metadata
        add = self.metrics.add_gauge
        add("requests-in-flight", lambda _: sum(nodes.in_flight_count(node_id) for node_id in nodes.node_ids()))
        add("metadata-age", lambda now_ms: (metadata.age_ms(now_ms) or 0) / 1000)
        add("waiting-threads", lambda _: buffers.waiter_count)
        add("buffer-total-bytes", lambda _: buffers.capacity)
        add("buffer-available-bytes", lambda _: buffers.available)
        add("connection-count", lambda _: nodes.connection_count)
        add("records-waiting", self._waiting_count)
        add("oldest-record-age", self._oldest_record_age_s)
        add("last-acknowledged-time", self._last_acknowledged_s)
        for name, read in () if self.spool is None else self.spool.gauges().items():
            add(name, read)
        self.metrics.read_node = self._node_values

    def node_states(self) -> dict[int, NodeHealth]:
        """Return how each node is. Thread-safe."""
        now_ms, states = self.clock.now_ms(), self.sender.states
        found = {}
        for node_id, held, limit in self.accumulator.pool.shares():
            if node_id < 0:
                continue
            silent_ms, usual_ms = states.silence_ms(node_id, now_ms)
            path = states.paths.get(node_id)
            rate, in_flight = (0, 0) if path is None else (int(path.rate * 1000), path.in_flight_count)
            state = states.state_of(node_id).name.lower()
            found[node_id] = NodeHealth(state, silent_ms, usual_ms, held, limit, rate, in_flight)
        return found

    def _node_values(self, node_id: int) -> dict[str, float]:
        """Return the metrics of a node that are computed when they are read."""
        path = self.sender.states.paths.get(node_id)
        values: dict[str, float] = {"node-state": self.sender.states.state_of(node_id)}
        if path is not None:
            values["node-window-bytes"] = path.window_bytes
            values["node-rate"] = path.rate * 1000
            values["node-base-ms"] = max(path.base_ms, 0)
        return values

    def must_park(self, topic: str) -> bool:
        """Whether a record of a caller that must not wait has to be parked. Not after the end, or in a forked child."""
        return not (self.guard.is_forked or self.is_ended) and self.sender.parking.must_wait(topic)

    def _waiting_count(self, now_ms: int) -> int:
        return len(self.sender.parking) + sum(ref.record_count for ref in incomplete_batches(self.accumulator))

    def _oldest_record_age_s(self, now_ms: int) -> float:
        created_ms = oldest_created_ms(self.accumulator)
        return 0.0 if created_ms is None else max(now_ms - created_ms, 0) / 1000

    def _last_acknowledged_s(self, now_ms: int) -> float:
        acknowledged_ms = self.metrics.acknowledged_ms
        return 0.0 if acknowledged_ms is None else (self.clock.wall_ms() - now_ms + acknowledged_ms) / 1000

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

    def set_credentials(self, username: str, password: str) -> None:
        """Take a user name and a password for the next logins. Thread-safe.

        Raises:
            ConfigError: The logins have no password, or the mechanism does not take this one.
        """
        credentials, name = self.node_pool.settings.credentials, self.config.sasl_mechanism
        if credentials is None:
            raise ConfigError(
                f"set_sasl_credentials() is for PLAIN and SCRAM: security_protocol={self.config.security_protocol}, "
                f"sasl_mechanism={name} take no password"
            )
        password_mechanism(str(name))(username, password)  # refuses unusable ones now, not at the next login
        secret = Secret(password)
        credentials.replace(username, secret)
        self.config = ProducerConfig.from_options(self.config, sasl_plain_username=username, sasl_plain_password=secret)

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
        """Start a reporter. One that fails, because its port is taken for example, must not stop the sender."""
        try:
            reporter.start(self)
        except Exception:
            logger.exception("the metrics reporter %s does not start", type(reporter).__qualname__)

    def _report_failures(self) -> None:
        """Log how many records failed unseen; this runs however the producer ends."""
        count, error = self.lost = self.ledger.take()
        if count:
            logger.log(
                self._unseen_failures_level, "%s not delivered, the first because: %s", counted(count, "record"), error
            )

    def wait_end(self, timeout: float | None = None) -> bool:
        """Wait until the sender thread is done; False after `timeout` seconds. Thread-safe.

        Not Thread.join(): up to CPython 3.12 an interrupted join marks the thread as ended (bpo-45274).
        """
        waiter = Waiter()
        with self.end_waiter(waiter.wake):
            return self.is_ended or waiter.wait(timeout)

    @contextmanager
    def end_waiter(self, wake: Callable[[], None]) -> Iterator[None]:
        """Call `wake` when the sender thread ends while the block runs; check `is_ended` first."""
        self._end_waiters.append(wake)
        try:
            yield
        finally:
            self._end_waiters.remove(wake)

    def describe_work(self) -> str:
        """Describe what the sender thread runs now: a delivery callback, or code of this package. Thread-safe."""
        place = self._working_frame()
        return "nothing: the thread has ended" if place is None else _name_of(place)

    def describe_callback(self) -> str | None:
        """Describe the delivery callback that the sender thread runs now; None: it runs none. Thread-safe."""
        place = self._working_frame()
        return None if place is None or _is_ours(place) else _name_of(place)

    def _working_frame(self) -> FrameType | None:
        """Return the outermost function that we called on the sender thread, else its innermost one."""
        frame = sys._current_frames().get(self.guard.thread_id or 0)
        place = frame
        while frame is not None and not _is_ours(frame):
            place, frame = frame, frame.f_back
        return place

    def after_fork_in_child(self) -> None:
        """Mark the engine as unusable in a child process, which has no sender thread; touch nothing of the parent's."""
        self.guard.is_forked = True
        if self.spool is not None:
            self.spool.abandon()
        self.accumulator.abandon()


def _is_ours(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0] == "kafkaprod"


def _name_of(frame: FrameType) -> str:
    return f"{frame.f_code.co_qualname}() in {frame.f_code.co_filename}:{frame.f_lineno}"


def _check_support(config: ProducerConfig, *, keeps_identity: bool) -> None:
    """Refuse what no broker completes, and warn of a password sent unencrypted."""
    if config.spool_dir is not None and keeps_identity:
        raise ConfigError(
            f"spool_dir={config.spool_dir!r} has no use here: a load continues from its file and its manifest, which "
            "hold what a spool would"
        )
    if config.transaction_two_phase_commit_enable:
        raise ConfigError(
            "transaction_two_phase_commit_enable: no released broker completes such a transaction, up to Kafka 4.4 "
            "InitProducerId 6 is unstable and answered with UNSUPPORTED_VERSION (KIP-939)"
        )
    if config.sasl_mechanism == "PLAIN" and config.security_protocol == "SASL_PLAINTEXT":
        logger.warning(
            "sasl_mechanism=PLAIN with security_protocol=SASL_PLAINTEXT sends the password unencrypted: "
            "use SASL_SSL, or SCRAM"
        )
    if config.sasl_mechanism == "OAUTHBEARER" and config.security_protocol == "SASL_PLAINTEXT":
        logger.warning(
            "sasl_mechanism=OAUTHBEARER with security_protocol=SASL_PLAINTEXT sends the token unencrypted: use SASL_SSL"
        )
    if (config.sasl_oauthbearer_token_endpoint_url or "").startswith("http:"):
        logger.warning(
            "sasl_oauthbearer_token_endpoint_url is an http: address: the client's secret or assertion, and the token, "
            "travel unencrypted: use https:"
        )


def _close_reporter(reporter: Any) -> None:
    """Close a reporter. One that fails must not keep the others, and the producer, from ending."""
    try:
        reporter.close()
    except Exception:
        logger.exception("closing the metrics reporter %s", type(reporter).__qualname__)
