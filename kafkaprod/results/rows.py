"""What the outcomes of a block and of a table have in common: waiting for all rows, and one error for them."""

from __future__ import annotations

import abc
import contextlib
import sys
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Any, Self

from kafkaprod.clock import monotonic_s, seconds_of
from kafkaprod.text import counted

if TYPE_CHECKING:
    import asyncio

    from kafkaprod.results.write import WriteResult


class RowsResult(abc.ABC):
    """The outcome of the rows of one call. Thread-safe."""

    row_count: int
    write: WriteResult | None = None
    """What became of the write, after a call with a `write_id`."""
    _loop_calls: Sequence[_LoopCall] = ()  # that remove_done_callback() may find

    def __len__(self) -> int:
        return self.row_count

    @property
    def already_written(self) -> bool:
        """Whether an earlier try of a call with a `write_id` had committed its rows: this one has none."""
        return self.write is not None and self.write.already_written

    @property
    @abc.abstractmethod
    def errors(self) -> Mapping[int, Exception]:
        """Row -> error, for the failed rows only, in row order; looking counts as having seen them."""

    @abc.abstractmethod
    def wait(self, timeout: float | None = None) -> bool:
        """Wait until every row's outcome is known; False after `timeout` seconds."""

    @abc.abstractmethod
    def done(self) -> bool:
        """Whether every row's outcome is known."""

    @abc.abstractmethod
    async def settled(self) -> None:
        """Return once every row's outcome is known."""

    @abc.abstractmethod
    def _listens(self) -> Iterator[Callable[[Callable[..., None]], None]]:
        """Yield, of each part whose outcome is not known yet, the function that takes a listener for it."""

    def result(self, timeout: float | None = None) -> Self:
        """Wait, then return this object if every row was delivered.

        Raises:
            TimeoutError: Outcomes are missing after `timeout` seconds.
            KafkaError: A failed row's own error, if possible of one that the broker named; `errors` has all of them.
        """
        if not self.wait(timeout):
            raise TimeoutError(f"no outcome for some of {counted(self.row_count, 'record')} within {timeout} s")
        error = self.first_error()
        if error is None:
            return self
        try:
            raise error
        finally:
            del error  # its traceback holds this frame

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self  # it shows what happens to the rows, and cannot be changed

    @abc.abstractmethod
    def first_error(self) -> Exception | None:
        """Return the error of some row that failed, None if none did; all failed rows count as seen."""

    @property
    @abc.abstractmethod
    def calls_in_loop(self) -> bool:
        """Whether callbacks that are added in an event loop are called there: the rows are an AsyncProducer's."""

    def exception(self, timeout: float | None = None) -> Exception | None:
        """Wait for all rows and return the first failed one's error, None if there is none.

        Raises:
            TimeoutError: Outcomes are missing after `timeout` seconds.
        """
        try:
            self.result(timeout)
        except Exception as error:
            if not self.done():
                raise
            return error
        return None

    def cancel(self, msg: object = None) -> bool:
        """Return False: queued records are taken back by purge() alone. Here for code that cancels what is pending."""
        return False

    def cancelled(self) -> bool:
        """Return False: the outcome of a record is where it is, or an error."""
        return False

    def add_done_callback(self, callback: Callable[[Self], object], *, context: Context | None = None) -> None:
        """Call `callback(self)` once every row's outcome is known: on the sender thread, or at once.

        The result of an AsyncProducer does as asyncio's futures where an event loop runs: that loop calls it, soon.

        Args:
            callback: Called with this object.
            context: The context to call it in; None: in an event loop a copy of the current one.
        """
        loop = _running_loop() if self.calls_in_loop else None
        if loop is None:
            self.when_done(callback if context is None else lambda rows: context.run(callback, rows))
            return
        call = _LoopCall(loop, callback, copy_context() if context is None else context)
        self._loop_calls = [*self._loop_calls, call]
        self.when_done(call.schedule)

    def remove_done_callback(self, callback: Callable[[Self], object]) -> int:
        """Undo add_done_callback() in an event loop; return how many were removed."""
        removed = [call for call in self._loop_calls if call.callback == callback]
        self._loop_calls = [call for call in self._loop_calls if call not in removed]
        for call in removed:
            call.callback = None
        return len(removed)

    def when_done(self, callback: Callable[[Self], object]) -> None:
        """Call it once every row's outcome is known: on the sender thread, or at once."""
        listens = self._listens()

        def proceed(*_: object) -> None:
            # Wait for one part at a time. `listen` calls back at once if the part is already done.
            for listen in listens:
                listen(proceed)
                return
            callback(self)

        proceed()

    def __await__(self) -> Generator[Any, None, Self]:
        return self._await().__await__()

    async def _await(self) -> Self:
        await self.settled()
        return self.result(0)


class Deadline:
    """The end of a wait that has several parts."""

    def __init__(self, timeout: float | None) -> None:
        self._clock = monotonic_s
        seconds = seconds_of(timeout)
        self._end = None if seconds is None else self._clock() + seconds

    def remaining(self) -> float | None:
        """Return the seconds that are left, at least 0; None if there is no end."""
        return None if self._end is None else max(0.0, self._end - self._clock())


class _LoopCall:
    """A callback that an event loop runs once every row's outcome is known.

    Attributes:
        callback: Called with the rows; None: removed.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, callback: Callable[[Any], object], context: Context) -> None:
        self._loop = loop
        self._context = context
        self.callback: Callable[[Any], object] | None = callback

    def schedule(self, rows: RowsResult) -> None:
        """Have it run. Any thread."""
        with contextlib.suppress(RuntimeError):  # the loop was closed: nothing waits any more
            self._loop.call_soon_threadsafe(self._run, rows, context=self._context)

    def _run(self, rows: RowsResult) -> None:
        if self.callback is not None:
            self.callback(rows)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    loaded: Any = sys.modules.get("asyncio")  # without it no loop runs
    if loaded is None:
        return None
    try:
        loop: asyncio.AbstractEventLoop = loaded.get_running_loop()
    except RuntimeError:
        return None
    return loop
