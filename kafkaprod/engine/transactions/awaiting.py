"""The transaction calls of an `AsyncProducer`: as `blocking`, awaited on the event loop.

Cancelling a task does not cancel the operation in the cluster: the next call of its kind resumes it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Generic, Protocol, TypeVar

from kafkaprod.engine.engine import Engine
from kafkaprod.engine.transactions.blocking import Starter, TransactionCalls, is_open, note_failed_abort

P = TypeVar("P")


class TaskWaiter(Protocol):
    """A task's wait for something that another thread does."""

    def wake(self) -> None:
        """End the wait."""
        ...

    def wait(self, timeout: float | None = None) -> Awaitable[bool]:
        """Wait for `wake`, at most `timeout` seconds; return whether it came."""
        ...


class AwaitingTransactions(TransactionCalls):
    """The calls for tasks.

    Args:
        engine, check_usable: As for TransactionCalls.
        make_waiter: Makes a wait of the running task.
    """

    def __init__(self, engine: Engine, check_usable: Callable[[], None], make_waiter: Callable[[], TaskWaiter]) -> None:
        super().__init__(engine, check_usable)
        self._make_waiter = make_waiter

    async def init(self, timeout: float | None) -> None:
        """See AsyncProducer.init_transactions."""
        await self._run(self.check().start_init, timeout)

    async def send_offsets(self, offsets: Any, group_metadata: Any, timeout: float | None) -> None:
        """See AsyncProducer.send_offsets_to_transaction."""
        identity = self.check()
        await self._run(lambda wake: identity.start_offsets(offsets, group_metadata, wake), timeout)

    async def commit(self, timeout: float | None) -> None:
        """See AsyncProducer.commit_transaction."""
        await self._run(self.check().start_commit, timeout)

    async def abort(self, timeout: float | None) -> None:
        """See AsyncProducer.abort_transaction."""
        await self._run(self.check().start_abort, timeout)
        self.on_aborted()

    async def _run(self, start: Starter, timeout: float | None) -> None:
        identity, limit_s, waiter = self.identity, self.limit_s(timeout), self._make_waiter()
        call = start(waiter.wake)
        if call is None:
            return
        try:
            has_ended = await waiter.wait(limit_s)
        except BaseException:  # cancelled
            identity.let_go(call)
            raise
        error = None if has_ended else identity.time_out(call, limit_s)
        if error is not None:
            raise error
        identity.finish(call)


class AsyncTransaction(Generic[P]):
    """The block of `async with producer.transaction()`; see `blocking.Transaction`."""

    def __init__(self, producer: P, calls: AwaitingTransactions) -> None:
        self._producer = producer
        self._calls = calls
        self._number = 0

    async def __aenter__(self) -> P:
        self._calls.begin()
        self._number = self._calls.identity.number
        return self._producer

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not is_open(self._calls, self._number):
            return
        if error is not None:
            await self._abort_after(error)
            return
        try:
            await self._calls.commit(None)
        except BaseException as failure:
            if is_open(self._calls, self._number):
                await self._abort_after(failure)
            raise

    async def _abort_after(self, error: BaseException) -> None:
        """Abort even if the task is cancelled once more; bounded by max_block_ms."""
        try:
            await asyncio.shield(self._calls.abort(None))
        except Exception as failure:
            note_failed_abort(error, failure)
