"""The block of a write for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from kafkaprod.marks.calls import WriteBlock

if TYPE_CHECKING:
    from kafkaprod.results.write import WriteResult


class AsyncWriteBlock:
    """The block of `async with producer.transaction(write_id=...)`: a WriteBlock, whose waits are in threads.

    Args:
        block: The block.
        in_thread: Runs a call that may wait in a thread of its own.
    """

    def __init__(self, block: WriteBlock, in_thread: Callable[[Callable[[], Any]], Awaitable[Any]]) -> None:
        self._block = block
        self._in_thread = in_thread

    @property
    def already_written(self) -> bool:
        """Whether another try has committed the write."""
        return self._block.already_written

    @property
    def result(self) -> WriteResult | None:
        """The WriteResult; None until the block has ended."""
        return self._block.result

    async def send(self, topic: str, *arguments: Any, **options: Any) -> None:
        """Send a record; arguments as WriteBlock.send. Its outcome is that of the write."""
        if self._block.is_full_for(topic):
            await self._in_thread(self._block.send_rows)
        self._block.send(topic, *arguments, **options)

    async def send_many(self, *arguments: Any, **options: Any) -> None:
        """Send a list of records; arguments as Producer.send_many."""
        await self._in_thread(lambda: self._block.send_many(*arguments, **options))

    async def send_columns(self, *arguments: Any, **options: Any) -> None:
        """Send columns; arguments as Producer.send_columns."""
        await self._in_thread(lambda: self._block.send_columns(*arguments, **options))

    async def send_table(self, *arguments: Any, **options: Any) -> None:
        """Send a table; arguments as Producer.send_table."""
        await self._in_thread(lambda: self._block.send_table(*arguments, **options))

    async def send_offsets(self, offsets: Any, group_metadata: Any) -> None:
        """Commit offsets of the input together with the write, as WriteBlock.send_offsets."""
        await self._in_thread(lambda: self._block.send_offsets(offsets, group_metadata))

    async def __aenter__(self) -> Self:
        await self._in_thread(self._block.__enter__)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Also if the task is cancelled once more: the write must be committed or aborted.
        await asyncio.shield(self._in_thread(lambda: self._block.__exit__(kind, error, trace)))
