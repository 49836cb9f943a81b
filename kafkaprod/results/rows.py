"""What the outcomes of a block and of a table have in common: waiting for all rows, and one error for them."""

from __future__ import annotations

import abc
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Any, Self

from kafkaprod.text import counted


class RowsResult(abc.ABC):
    """The outcome of the rows of one call. Thread-safe."""

    row_count: int

    def __len__(self) -> int:
        return self.row_count

    @property
    @abc.abstractmethod
    def errors(self) -> Mapping[int, Exception]:
        """Row -> error, for the failed rows only, in row order; looking counts as having seen them."""

    @abc.abstractmethod
    def wait(self, timeout: float | None = None) -> bool:
        """Wait until every row's outcome is known; False after `timeout` seconds."""

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
            KafkaError: The first failed row's own error; `errors` has all of them.
        """
        if not self.wait(timeout):
            raise TimeoutError(f"no outcome for some of {counted(self.row_count, 'record')} within {timeout} s")
        for error in self.errors.values():
            raise error
        return self

    def add_done_callback(self, callback: Callable[[Self], None]) -> None:
        """Call `callback(self)` once every row's outcome is known: on the sender thread, or at once."""
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
        self._clock = time.monotonic
        self._end = None if timeout is None else self._clock() + timeout

    def remaining(self) -> float | None:
        """Return the seconds that are left, at least 0; None if there is no end."""
        return None if self._end is None else max(0.0, self._end - self._clock())
