"""The transaction calls of a producer as steps (`engine.steps`), which threads and event loops share.

A call that is interrupted, cancelled or timed out continues in the cluster; the next one of its kind resumes it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from kafkaprod._core.machine.waking import Waiter
from kafkaprod.clock import monotonic_ns, seconds_of
from kafkaprod.engine.host import EngineHost
from kafkaprod.engine.steps import MakeWaiter, Steps, run
from kafkaprod.errors import BootstrapError, IllegalStateError, KafkaError
from kafkaprod.metrics.producer_metrics import Timer

# A producer without transactions does not load their messages.
if TYPE_CHECKING:
    from kafkaprod.engine.transactions.calls import Call
    from kafkaprod.engine.transactions.identity import TransactionalIdentity

MAX_WAIT_S: Final = threading.TIMEOUT_MAX
P = TypeVar("P")


class TransactionCalls:
    """What `Producer` and `AsyncProducer` call. Thread-safe.

    Args:
        host: The host of the engine. If that has no transactional id, every call raises IllegalStateError.
    """

    def __init__(self, host: EngineHost) -> None:
        self._host = host
        self._engine = host.engine

    @property
    def identity(self) -> TransactionalIdentity:
        """The transactions of the engine.

        Raises:
            IllegalStateError: The producer has no transactional id.
        """
        if self._engine.transactions is None:
            raise IllegalStateError("the producer has no transactional_id: set one to use transactions")
        return self._engine.transactions

    def begin(self) -> None:
        """Producer.begin_transaction; never waits."""
        identity = self.identity
        started_ns = monotonic_ns()
        try:
            self._check()
            identity.begin()
        except KafkaError as error:
            identity.tell_outcome(error)
            raise
        self._engine.metrics.add_time("txn-begin", monotonic_ns() - started_ns)

    def init(self, timeout: float | None, make_waiter: MakeWaiter) -> Steps[None]:
        """Steps of Producer.init_transactions."""
        return self._wait("txn-init", self.identity.start_init, timeout, make_waiter)

    def send_offsets(
        self, offsets: Any, group_metadata: Any, timeout: float | None, make_waiter: MakeWaiter
    ) -> Steps[None]:
        """Steps of Producer.send_offsets_to_transaction."""
        return self._wait(
            "txn-send-offsets",
            lambda wake: self.identity.start_offsets(offsets, group_metadata, wake),
            timeout,
            make_waiter,
        )

    def commit(self, timeout: float | None, make_waiter: MakeWaiter) -> Steps[None]:
        """Steps of Producer.commit_transaction."""
        return self._wait("txn-commit", self.identity.start_commit, timeout, make_waiter)

    def abort(self, timeout: float | None, make_waiter: MakeWaiter) -> Steps[None]:
        """Steps of Producer.abort_transaction."""
        yield from self._wait("txn-abort", self.identity.start_abort, timeout, make_waiter)
        self._engine.ledger.take()  # whoever aborts knows that these records are not written

    def _wait(
        self,
        timer: Timer,
        start: Callable[[Callable[[], None]], Call | None],
        timeout: float | None,
        make_waiter: MakeWaiter,
    ) -> Steps[None]:
        watch, wakeup = self._engine.topic_watch, self._engine.node_pool.wakeup
        try:
            self._check()
            limit_s, waiter = self._limit_s(timeout), make_waiter()
        except KafkaError as refusal:
            self.identity.tell_outcome(refusal)
            raise
        patience_s = limit_s if timeout is not None else watch.first_patience_s(limit_s)
        started_ns = monotonic_ns()
        try:
            call = start(waiter)
            if call is None:
                return
            waiter.start_with(wakeup)
            has_ended = yield waiter, patience_s
            if not has_ended and patience_s < limit_s and watch.has_contact():
                has_ended = yield waiter, limit_s - patience_s
            error = None if has_ended else self.identity.time_out(call, limit_s, self._why_records_wait())
            if error is None:
                self.identity.finish(call)
                return
        except BaseException as raised:  # Ctrl-C, too, at any of these lines
            self.identity.let_go(waiter)
            wakeup()  # the wait may not have begun, and nothing else wakes the sender for the call
            if isinstance(raised, KafkaError):
                self.identity.tell_outcome(raised)
            raise
        finally:
            self._engine.metrics.add_time(timer, monotonic_ns() - started_ns)
        if timeout is None and not watch.has_contact():
            error = watch.why_no_contact()
            error.category = "retriable" if isinstance(error, BootstrapError) else "invalid"
            self.identity.tell_outcome(error)
        raise error

    def _why_records_wait(self) -> KafkaError | None:
        has_records = self._engine.accumulator.incomplete_batch_count > 0
        return self._engine.sender.why_records_wait() if has_records else None

    def _check(self) -> None:
        self._host.check_usable()
        if threading.get_ident() == self._engine.guard.thread_id:
            raise IllegalStateError("a transaction call inside a delivery callback would wait for itself")

    def _limit_s(self, timeout: float | None) -> float:
        seconds = seconds_of(timeout)
        if seconds is None:
            return min(self._engine.config.max_block_ms / 1000, MAX_WAIT_S)
        return min(seconds, MAX_WAIT_S)

    def is_open(self, number: int) -> bool:
        """Whether transaction `number` is still open, so that it can be committed or aborted."""
        return self.identity.number == number and self.identity.is_open


class TransactionBlock(Generic[P]):
    """The block of `with producer.transaction()`: commits at its end, aborts if it raises.

    The value of `as` is the producer. A block that has ended the transaction by itself is left as it is.
    """

    def __init__(self, producer: P, calls: TransactionCalls) -> None:
        self._producer = producer
        self._calls = calls
        self._identity = calls.identity
        self._number = 0

    def __enter__(self) -> P:
        self._calls.begin()
        self._number = self._identity.number
        return self._producer

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._calls.is_open(self._number):
            return
        if error is not None:
            self._abort_after(error)
            return
        try:
            run(self._calls.commit(None, Waiter))
        except BaseException as failure:
            self._abort_after(failure)
            raise

    def _abort_after(self, error: BaseException) -> None:
        if not self._calls.is_open(self._number):  # such as a commit whose outcome is unknown
            return
        try:
            run(self._calls.abort(None, Waiter))
        except Exception as failure:
            note_failed_abort(error, failure)
        else:
            note_abort(error)


def note_failed_abort(error: BaseException, failure: Exception) -> None:
    """Say in the error that ended a block that its transaction could not be aborted, and why."""
    error.add_note(f"the transaction could not be aborted: {failure!r}")


def note_abort(error: BaseException) -> None:
    """Note that the transaction is aborted: whatever its commit left in doubt, it did not happen."""
    if isinstance(error, KafkaError) and error.outcome == "unknown":
        error.outcome = "not committed"
        error.add_note("the transaction is not committed: the abort that followed succeeded")
