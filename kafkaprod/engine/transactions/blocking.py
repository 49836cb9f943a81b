"""The transaction calls of a `Producer`: start a call, wait for its outcome, raise its error. Thread-safe.

A call that is interrupted or times out goes on; the next one of its kind resumes it.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Generic, TypeVar

from kafkaprod.engine.engine import Engine
from kafkaprod.engine.transactions.calls import Call
from kafkaprod.engine.transactions.identity import TransactionalIdentity
from kafkaprod.errors import IllegalStateError, InvalidRecordError
from kafkaprod.results.waiting import Waiter

Starter = Callable[[Callable[[], None]], Call | None]
P = TypeVar("P")


class TransactionCalls:
    """What the calls of threads and of tasks share.

    Args:
        engine: Of the producer.
        check_usable: Raises if the producer is closed, or was inherited through fork().
    """

    def __init__(self, engine: Engine, check_usable: Callable[[], None]) -> None:
        self._engine = engine
        self._check_usable = check_usable

    @property
    def identity(self) -> TransactionalIdentity:
        """The transactions of the engine. Raises IllegalStateError for a producer without transactional_id."""
        identity = self._engine.transactions
        if identity is None:
            raise IllegalStateError("the producer has no transactional_id: transactions need one, its own")
        return identity

    def check(self) -> TransactionalIdentity:
        """The transactions, if they may be called here and now."""
        self._check_usable()
        if threading.get_ident() == self._engine.guard.thread_id:
            raise IllegalStateError("a transaction call inside a delivery callback would wait for itself")
        return self.identity

    def begin(self) -> None:
        """See Producer.begin_transaction."""
        self.check().begin()

    def limit_s(self, timeout: float | None) -> float:
        """How long a call may take, in seconds."""
        if timeout is None:
            return self._engine.config.max_block_ms / 1000
        if isinstance(timeout, bool) or not isinstance(timeout, int | float) or math.isnan(timeout) or timeout < 0:
            raise InvalidRecordError(f"timeout={timeout!r} must be a number of seconds, at least 0, or None")
        return min(timeout, threading.TIMEOUT_MAX)

    def on_aborted(self) -> None:
        """Forget the failed records of the transaction: whoever aborts it knows that they are not written."""
        self._engine.ledger.take()


class BlockingTransactions(TransactionCalls):
    """The calls for threads."""

    def init(self, timeout: float | None) -> None:
        """See Producer.init_transactions."""
        self._run(self.check().start_init, timeout)

    def send_offsets(self, offsets: Any, group_metadata: Any, timeout: float | None) -> None:
        """See Producer.send_offsets_to_transaction."""
        identity = self.check()
        self._run(lambda wake: identity.start_offsets(offsets, group_metadata, wake), timeout)

    def commit(self, timeout: float | None) -> None:
        """See Producer.commit_transaction."""
        self._run(self.check().start_commit, timeout)

    def abort(self, timeout: float | None) -> None:
        """See Producer.abort_transaction."""
        self._run(self.check().start_abort, timeout)
        self.on_aborted()

    def _run(self, start: Starter, timeout: float | None) -> None:
        identity, limit_s, waiter = self.identity, self.limit_s(timeout), Waiter()
        call = start(waiter.wake)
        if call is None:
            return
        try:
            has_ended = waiter.wait(limit_s)
        except BaseException:  # Ctrl-C: nobody waits any more, and the next call resumes this one
            identity.let_go(call)
            raise
        error = None if has_ended else identity.time_out(call, limit_s)
        if error is not None:
            raise error
        identity.finish(call)


class Transaction(Generic[P]):
    """The block of `with producer.transaction()`: commits at its end, aborts if it raises.

    The value of `as` is the producer. A block that has ended the transaction itself is left as it is.
    """

    def __init__(self, producer: P, calls: BlockingTransactions) -> None:
        self._producer = producer
        self._calls = calls
        self._number = 0

    def __enter__(self) -> P:
        self._calls.begin()
        self._number = self._calls.identity.number
        return self._producer

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not is_open(self._calls, self._number):
            return
        if error is not None:
            self._abort_after(error)
            return
        try:
            self._calls.commit(None)
        except BaseException as failure:
            if is_open(self._calls, self._number):
                self._abort_after(failure)
            raise

    def _abort_after(self, error: BaseException) -> None:
        try:
            self._calls.abort(None)
        except Exception as failure:
            note_failed_abort(error, failure)


def is_open(calls: TransactionCalls, number: int) -> bool:
    """Whether the transaction that a block began is still open, so that it can be committed or aborted."""
    identity = calls.identity
    return identity.number == number and identity.is_open


def note_failed_abort(error: BaseException, failure: Exception) -> None:
    """Say in the error of the block that the abort after it failed, too."""
    error.add_note(f"the transaction could not be aborted: {failure!r}")
