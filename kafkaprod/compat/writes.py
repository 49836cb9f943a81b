"""`with producer.write(write_id)`: writes that happen once, with the send of each original, which has no such call."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, Self, TypeVar

if TYPE_CHECKING:
    from kafkaprod.marks.async_block import AsyncWriteBlock
    from kafkaprod.marks.calls import WriteBlock
    from kafkaprod.results.write import WriteResult

OUTCOME_OF_ALL: Final = "records of a write have one outcome together, at the end of its block: no callbacks here"


class Row(NamedTuple):
    """A record of a write, as `WriteBlock.send_to` takes it.

    Attributes:
        partition: Where it goes; None: the engine chooses.
        named: The partition that the program has named; None: none.
    """

    topic: str
    value: Any
    key: Any
    headers: Any
    partition: int | None
    timestamp_ms: int | None
    named: int | None


B = TypeVar("B", "WriteBlock", "AsyncWriteBlock")


class _Wrapped(Generic[B]):
    """What the blocks for threads and for asyncio have alike.

    Args:
        block: The block of kafkaprod's own producer.
        theirs: Turns errors into those of the original.
        prepared: Makes a row of the arguments of the original's call.
    """

    def __init__(
        self, block: B, theirs: Callable[[], AbstractContextManager[None]], prepared: Callable[..., Row]
    ) -> None:
        self._block: B = block
        self._theirs = theirs
        self._prepared = prepared

    @property
    def already_written(self) -> bool:
        """Whether another try has committed the write."""
        return self._block.already_written

    @property
    def result(self) -> WriteResult | None:
        """The kafkaprod.WriteResult; None until the block has ended."""
        return self._block.result


class OnceWrite(_Wrapped["WriteBlock"]):
    """The block of a write: rows and mark are committed at its end, once, however often the block is run."""

    def send(self, *arguments: Any, **options: Any) -> None:
        """Send a record; arguments as the producer's own call has them, without callbacks."""
        row = self._prepared(*arguments, **options)
        with self._theirs():
            self._block.send_to(*row)

    produce = send

    def __enter__(self) -> Self:
        with self._theirs():
            self._block.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._theirs():
            self._block.__exit__(kind, error, trace)


class AsyncOnceWrite(_Wrapped["AsyncWriteBlock"]):
    """The block of `async with producer.write(write_id)`; see OnceWrite."""

    async def send(self, *arguments: Any, **options: Any) -> None:
        """Send a record; arguments as the producer's own call has them."""
        row = self._prepared(*arguments, **options)
        with self._theirs():
            await self._block.send(row.topic, row.value, row.key, row.headers, row.partition, row.timestamp_ms)

    async def __aenter__(self) -> Self:
        with self._theirs():
            await self._block.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._theirs():
            await self._block.__aexit__(kind, error, trace)
