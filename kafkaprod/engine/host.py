"""Runs an engine in its thread until its producer is closed or dropped, the process forks, or the program exits.

Kept apart from the producers so that the sender thread, which holds the engine, does not keep a forgotten one alive.
Thread-safe. The waits of `flush`, `purge` and `close` are steps (`engine.steps`).
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NoReturn

from kafkaprod.clock import Clock, monotonic_ns, monotonic_s, seconds_of
from kafkaprod.config import ProducerConfig
from kafkaprod.config.producer_config import with_hooks
from kafkaprod.engine.engine import Engine
from kafkaprod.engine.flushes import Flush
from kafkaprod.engine.purges import Purge
from kafkaprod.engine.steps import MakeWaiter, Steps
from kafkaprod.errors import (
    DeliveryDelayedError,
    DeliveryFailedError,
    ForkedProducerError,
    IllegalStateError,
    ProducerClosedError,
)
from kafkaprod.log_lines import install, own_lines
from kafkaprod.metadata.snapshot import ClusterSnapshot
from kafkaprod.results import holders
from kafkaprod.text import counted
from kafkaprod.threads import apart, importing, make_thread

if TYPE_CHECKING:
    from kafkaprod.engine.adoption import Adoption
    from kafkaprod.spool.journal import Journal

EXIT_TIMEOUT_S: Final = 10.0  # longest wait at interpreter exit for records without an outcome
MAX_CLOSE_MS: Final = 1 << 40
CLOSE_GRACE_S: Final = 1.0  # after close()'s timeout, to fail the remaining records and run callbacks

logger = logging.getLogger("kafkaprod.producer")
_running: dict[Engine, None] = {}  # includes those of dropped producers and of an interrupted close()


@importing
def _adoption() -> type[Adoption]:
    from kafkaprod.engine.adoption import Adoption

    return Adoption


class EngineHost:
    """Owns an engine and its thread, and checks whether records are accepted.

    Args:
        engine: Not started; `start` does that.

    Attributes:
        hooks: The user's code.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.hooks, self._config = engine.take_hooks()
        self._engine_config = engine.config  # as it was when `_config` was made
        self._guard = engine.guard
        self._sender = engine.sender
        self._is_closed = False
        self._finalizer: weakref.finalize[..., object] | None = None
        self._owner: Callable[[], object] = lambda: None
        self._thread = make_thread(_run, f"kafkaprod-{engine.config.client_id}", engine)

    def start(self, owner: object) -> None:
        """Start the thread. If `owner` is dropped without close(), its records are still delivered.

        Raises:
            RuntimeError: The system gives no more threads; the engine is closed.
        """
        _running[self.engine] = None
        self._owner = weakref.ref(owner)
        try:
            apart(self._thread.start)
        except RuntimeError:
            del _running[self.engine]
            self.engine.node_pool.close()
            if self.engine.spool is not None:
                self.engine.spool.close()
            raise
        if self.engine.adopts_slots:
            _adoption()(self.engine, _host_of_slot).start()
        self._finalizer = weakref.finalize(owner, _on_dropped, self.engine)
        self._finalizer.atexit = False

    @property
    def config(self) -> ProducerConfig:
        """The effective configuration, with the user's code that the engine does not have."""
        current = self.engine.config
        if current is not self._engine_config:  # other credentials were set
            self._config, self._engine_config = with_hooks(current, self._config), current
        return self._config

    @property
    def is_closed(self) -> bool:
        """Whether records are refused because of close() or fork()."""
        return self._is_closed or self.engine.guard.is_forked

    @property
    def is_in_callback(self) -> bool:
        """Whether this is the sender thread, which runs delivery callbacks and must never wait for itself."""
        return threading.get_ident() == self.engine.guard.thread_id

    def check_usable(self) -> None:
        """Raise ForkedProducerError or ProducerClosedError, or the error of a sender thread that has died."""
        if self._is_closed or self._guard.is_forked or self._sender.fatal_error is not None:
            self._refuse()

    def check_sending(self) -> int:
        """Check as check_usable, and that a transactional producer has a transaction; return its number, or 0."""
        self.check_usable()
        return 0 if self.engine.transactions is None else self.engine.transactions.check_sending()

    def check_still_sending(self, transaction: int) -> None:
        """Check as check_sending, and that the transaction is the same.

        A record that waited must not end up in a later transaction.
        """
        self.check_usable()
        if self.engine.transactions is not None:
            self.engine.transactions.check_same(transaction)

    @property
    def has_open_transaction(self) -> bool:
        """Whether close() would abort a transaction."""
        return self.engine.transactions is not None and self.engine.transactions.is_open

    def check_not_forked(self) -> None:
        """Raise ForkedProducerError in a forked child."""
        if self.engine.guard.is_forked and not self._is_closed:
            raise ForkedProducerError(
                f"the producer was made before fork() and has no sender thread in process {os.getpid()}: "
                "make a new producer there"
            )

    def _refuse(self) -> NoReturn:
        self.check_not_forked()
        cause = self._sender.fatal_error
        if self._is_closed or cause is None:
            raise ProducerClosedError("the producer is closed")
        raise ProducerClosedError(f"the sender thread has died: {cause!r}") from cause

    # -- flush ---------------------------------------------------------------------------------------------------------

    def flush(self, timeout: float | None, make_waiter: MakeWaiter) -> Steps[None]:
        """Send everything at once and wait for its outcomes and callbacks, as steps."""
        self.check_usable()
        limit_s = seconds_of(timeout)
        if self.is_in_callback:
            raise IllegalStateError("flush() inside a delivery callback would wait for itself")
        holders.hand_over_to(self._owner(), limit_s)
        engine = self.engine
        if engine.sender.parking:
            end_s = None if limit_s is None else monotonic_s() + limit_s
            if not (yield from engine.sender.parking.settled(limit_s, make_waiter)):
                raise TimeoutError(f"{counted(len(engine.sender.parking), 'record')} wait for metadata of their topics")
            limit_s = None if end_s is None else max(end_s - monotonic_s(), 0)
        if engine.accumulator.unpublished_batch_count > 0:
            if limit_s is None and engine.spool is not None:  # what is in a spool does not expire
                limit_s = engine.config.delivery_timeout_ms / 1000
            waiter = make_waiter()
            started_ns = monotonic_ns()
            flush = Flush(waiter)
            try:
                engine.sender.add_flush(flush)
                waiter.start_with(engine.node_pool.wakeup)
                is_over = yield waiter, limit_s
            finally:
                flush.is_over = True
                engine.metrics.add_time("flush", monotonic_ns() - started_ns)
            if not is_over and engine.accumulator.unpublished_batch_count > 0:
                raise self._flush_timed_out(timeout) if timeout is not None else self._flush_delayed()
        count, error = engine.ledger.take()
        if count:
            raise DeliveryFailedError(
                f"{counted(count, 'record')} not delivered, the first because: {error}", failed_count=count
            ) from error

    def sync(self, timeout: float | None, make_waiter: MakeWaiter) -> Steps[None]:
        """Write all that was sent so far to the spool and force it to the disk, as steps."""
        self.check_usable()
        limit_s = seconds_of(timeout)
        engine = self.engine
        spool = engine.spool
        if spool is None:
            raise IllegalStateError("sync() needs a spool: give spool_dir")
        if self.is_in_callback:
            raise IllegalStateError("sync() inside a delivery callback would wait for itself")
        end_s = None if limit_s is None else monotonic_s() + limit_s
        if engine.sender.parking and not (yield from engine.sender.parking.settled(limit_s, make_waiter)):
            raise TimeoutError(f"{counted(len(engine.sender.parking), 'record')} wait for metadata of their topics")
        waiter = make_waiter()
        with engine.end_waiter(waiter.wake):
            sync = spool.add_sync(waiter.wake)
            waiter.start_with(engine.node_pool.wakeup)
            while not (sync.is_over or engine.is_ended):
                if not (yield waiter, None if end_s is None else max(end_s - monotonic_s(), 0)) and not sync.is_over:
                    raise TimeoutError(f"not all records are on the disk after {timeout} s: {spool.describe()}")
        if sync.error is not None:
            raise sync.error
        if not sync.is_over:
            raise ProducerClosedError("the producer was closed before all records were on the disk")

    def _flush_timed_out(self, timeout: float | None) -> TimeoutError:
        engine = self.engine
        count = engine.accumulator.incomplete_batch_count
        work = engine.describe_callback()
        if count or work is None:  # without a callback its last batches get their outcomes just now
            count = max(count, engine.accumulator.unpublished_batch_count, 1)
            return TimeoutError(f"no outcome of {counted(count, 'batch', 'batches')} after {timeout} s of flush()")
        return TimeoutError(
            f"flush() timed out after {timeout} s: all batches are settled, but callbacks are still running: {work}"
        )

    def _flush_delayed(self) -> DeliveryDelayedError:
        engine = self.engine
        assert engine.spool is not None
        return DeliveryDelayedError(
            f"no outcome of {counted(max(engine.accumulator.incomplete_batch_count, 1), 'batch', 'batches')} within "
            f"delivery_timeout_ms={engine.config.delivery_timeout_ms}: they are in the spool and will be sent, do not "
            f"send them again; {engine.spool.describe()}"
        )

    def purge(self, make_waiter: MakeWaiter, *, in_queue: bool, in_flight: bool) -> Steps[int]:
        """Fail records that have no outcome, as steps; return how many. In a callback it does so after it: 0."""
        self.check_usable()
        waiter = make_waiter()
        purge = Purge(waiter.wake, in_queue=in_queue, in_flight=in_flight)
        self.engine.sender.add_purge(purge)
        while not (purge.is_over or self.is_in_callback):
            yield waiter, None
        return purge.record_count

    # -- close ---------------------------------------------------------------------------------------------------------

    def close(self, timeout: float | None, make_waiter: MakeWaiter) -> Steps[None]:
        """Refuse records, deliver those queued, and wait for the end of the thread, as steps."""
        seconds = seconds_of(timeout)
        if not self.is_closed and not self.is_in_callback:
            holders.hand_over_to(self._owner(), seconds)
        if not self._begin_close(seconds):
            return
        engine = self.engine
        waiter = make_waiter()
        with engine.end_waiter(waiter.wake):
            limit_s = None if seconds is None else seconds + CLOSE_GRACE_S
            is_over = engine.is_ended or (yield waiter, limit_s)
        if not is_over:
            raise TimeoutError(
                f"the sender thread has not ended {CLOSE_GRACE_S} s after close(timeout={timeout}): it runs "
                f"{engine.describe_work()}; delivery callbacks must not block"
            )

    def join(self) -> None:
        """Join a thread that has reported its end."""
        if not self.is_in_callback and not self.engine.guard.is_forked:
            self._thread.join(CLOSE_GRACE_S)
            if self.engine.companion is not None:
                self.engine.companion.join(CLOSE_GRACE_S)
            own_lines.flush()

    def _begin_close(self, timeout: float | None) -> bool:
        """Refuse records and let the thread end; return whether this thread may wait for that."""
        if self.engine.guard.is_forked:  # even if close() had begun: the thread ends in the parent
            return False
        self._is_closed = True
        if self._finalizer is not None:
            self._finalizer.detach()
        patience_ms = MAX_CLOSE_MS if self.engine.spool is None else self.engine.config.delivery_timeout_ms
        limit_ms = patience_ms if timeout is None else int(timeout * 1000)
        self.engine.sender.close(self.engine.clock.now_ms() + (0 if self.is_in_callback else limit_ms))
        return not self.is_in_callback


class Hosted:
    """Gives a producer its `repr`, and compat what it looks up. Thread-safe."""

    _host: EngineHost

    @property
    def _known_cluster(self) -> ClusterSnapshot:
        """The cluster as the producer knows it now: topics are those that it has sent to."""
        return self._host.engine.metadata.snapshot

    def _request_metadata(self) -> None:
        """Have the metadata read again, after the backoff at the latest. Never waits."""
        self._host.engine.metadata.request_update()
        self._host.engine.node_pool.wakeup()

    @property
    def _has_ended(self) -> bool:
        """Whether nothing is sent any more."""
        return self._host.is_closed or self._host.engine.is_ended

    def __repr__(self) -> str:
        host = getattr(self, "_host", None)
        if host is None:  # its constructor has failed
            return f"<{type(self).__name__}>"
        config = host.engine.config
        servers = ",".join(f"{server}:{port}" for server, port in config.bootstrap_servers)
        state = "closed" if host.is_closed else "open"
        return f"<{type(self).__name__} of {servers}, client_id={config.client_id!r}, {state}>"


def patience_after(error: BaseException | None) -> float | None:
    """Return the timeout of close() after a `with` block: none after Ctrl-C or exit, so that the program ends soon."""
    if isinstance(error, DeliveryDelayedError):
        return 0.0  # flush() has waited, and the records are on a disk
    return None if error is None or isinstance(error, Exception) else EXIT_TIMEOUT_S


def check_delivered(engine: Engine, error: BaseException | None) -> None:
    """Raise DeliveryFailedError where sys.exit() ended a `with` block, and close() could not deliver all.

    The program's exit code is then 1: a supervisor would take that of SIGTERM for a clean end.
    """
    count, first = engine.lost
    if count and isinstance(error, SystemExit):
        text = f"{counted(count, 'record')} not delivered before the program ended, the first because: {first}"
        raise DeliveryFailedError(text, failed_count=count) from first


def left_open() -> IllegalStateError:
    """Return the error for a `with` block that ends inside a transaction."""
    return IllegalStateError(
        "the block of the producer ended inside a transaction, which was aborted: call commit_transaction() first"
    )


def _host_of_slot(config: ProducerConfig, clock: Clock, journal: Journal) -> EngineHost:
    return EngineHost(Engine(config, clock, unseen_failures_level=logging.DEBUG, journal=journal))


def _on_dropped(engine: Engine) -> None:
    if not engine.guard.is_forked:
        engine.sender.close(MAX_CLOSE_MS)


def _run(engine: Engine) -> None:
    """Body of the sender thread."""
    try:
        engine.run()
    finally:
        del _running[engine]
        if engine.companion is not None:
            engine.companion.end()


def _after_fork_in_child() -> None:
    for engine in _running:
        engine.after_fork_in_child()
    _running.clear()


def _at_exit() -> None:
    """Wait EXIT_TIMEOUT_S for all records without an outcome; the engines log which were not delivered."""
    end = monotonic_s() + EXIT_TIMEOUT_S
    holders.hand_over_all(EXIT_TIMEOUT_S / 2)
    engines = list(_running)
    for engine in engines:
        engine.sender.close(engine.clock.now_ms() + int(EXIT_TIMEOUT_S * 1000))
    for engine in engines:
        if not engine.wait_end(max(end - monotonic_s(), 0) + CLOSE_GRACE_S):
            work = engine.describe_work()
            logger.error(
                "the sender thread does not end; it runs %s; the outcome of its other records is unknown", work
            )
    own_lines.flush(CLOSE_GRACE_S)
    holders.report_losses()


install()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
atexit.register(_at_exit)
