"""Lists, columns and tables on their way into the accumulator, which copies their rows without the GIL.

A block that finds no memory waits as a record does; rows that are in stay in, and the time to wait starts again after
each part. Arguments and errors are those of `Producer.send_many`, `send_columns` and `send_table`. Any thread.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from kafkaprod._core.columns.columns import Column, Headers
from kafkaprod._core.machine.waking import Waiter
from kafkaprod._core.queues.blocks import Block
from kafkaprod._core.records.integers import checked_integer
from kafkaprod.engine.host import EngineHost
from kafkaprod.engine.memory_shares import NO_LEADER
from kafkaprod.engine.steps import MakeWaiter, Steps
from kafkaprod.errors import (
    BufferFullError,
    IllegalStateError,
    InvalidRecordError,
    NodeBufferFullError,
    RecordTooLargeError,
    SerializationError,
)
from kafkaprod.hooks.interceptors import RecordBlock
from kafkaprod.intake.checks import MAX_PARTITION, ColumnLike, as_column, as_records, checked_topic
from kafkaprod.intake.records import Intake
from kafkaprod.threads import importing

if TYPE_CHECKING:
    from kafkaprod.results.block import BlockResult
    from kafkaprod.tables import Named, Part, TableResult, ValueSpec

# Imported when the first block or table is sent: they need NumPy, which takes longer to import than all the rest.


@importing
def _block_result() -> type[BlockResult]:
    from kafkaprod.results.block import BlockResult

    return BlockResult


@importing
def _tables() -> ModuleType:
    from kafkaprod import tables

    return tables


class GivenPlaces(NamedTuple):
    """The timestamps and partitions that rows are given.

    Attributes:
        timestamps_ms, partitions: As for Producer.send_many; -1: none for a row.
        partition: As for Producer.send_many; -1: none.
    """

    timestamps_ms: Any
    partitions: Any
    partition: int


class Tap(Protocol):
    """Sees the rows of blocks after serializers, before partitions are chosen.

    Attributes:
        is_rehearsal: They are only looked at, not sent: the result of the call has no rows.
    """

    is_rehearsal: bool

    def take(
        self, topic: str, value: Column, key: Column | None, headers: Headers, rows: int, given: GivenPlaces
    ) -> None:
        """Look at the rows of one block."""
        ...


class BlockIntake:
    """Takes blocks of records.

    Args:
        intake: The intake of single records; waits for metadata and memory.
        host: The host of the engine.
    """

    def __init__(self, intake: Intake, host: EngineHost) -> None:
        self._intake = intake
        self._host = host
        self._accumulator = intake.accumulator
        self._clock = host.engine.clock
        self._hooks = host.hooks
        self._tap: Tap | None = None

    def tapped(self, tap: Tap) -> BlockIntake:
        """Return an intake beside this one, whose rows a tap sees."""
        beside = copy.copy(self)
        beside._tap = tap
        return beside

    @property
    def _is_rehearsal(self) -> bool:
        return self._tap is not None and self._tap.is_rehearsal

    def _check_sending(self) -> int:
        return 0 if self._is_rehearsal else self._host.check_sending()

    def send_many(
        self,
        topic: str,
        values: Iterable[Any],
        keys: Iterable[Any] | None = None,
        headers: Any = None,
        timestamps_ms: Any = None,
        partitions: Any = None,
        partition: int | None = None,
        make_waiter: MakeWaiter = Waiter,
    ) -> Steps[BlockResult]:
        """Steps of Producer.send_many."""
        topic = checked_topic(topic)
        transaction = self._check_sending()
        if self._hooks.has_any:
            values = as_records(values, "values")
            keys = None if keys is None else as_records(keys, "keys")
            keys, values, headers = self._hooks.serialize_block(topic, keys, values, headers)
        return (
            yield from self._send_block(
                topic,
                Column.from_list(values, "values"),
                None if keys is None else Column.from_list(keys, "keys"),
                Headers.from_python(headers),
                None,
                timestamps_ms,
                partitions,
                partition,
                transaction,
                make_waiter,
            )
        )

    def send_columns(
        self,
        topic: str,
        value: ColumnLike | None,
        key: ColumnLike | None = None,
        headers: Headers | Any = None,
        timestamps_ms: Any = None,
        partitions: Any = None,
        partition: int | None = None,
        row_count: int | None = None,
        make_waiter: MakeWaiter = Waiter,
    ) -> Steps[BlockResult]:
        """Steps of Producer.send_columns."""
        topic = checked_topic(topic)
        transaction = self._check_sending()
        return (
            yield from self._send_block(
                topic,
                as_column(value, "value"),
                as_column(key, "key"),
                headers if isinstance(headers, Headers) else Headers.from_python(headers),
                row_count,
                timestamps_ms,
                partitions,
                partition,
                transaction,
                make_waiter,
            )
        )

    def send_table(
        self,
        topic: str | None,
        data: Any,
        *,
        value: ValueSpec = "value",
        key: ValueSpec = None,
        headers: Any = None,
        timestamp: str | Named | int | None = None,
        partition: str | Named | int | None = None,
        topic_column: str | None = None,
        columns: Sequence[str] | None = None,
        make_waiter: MakeWaiter = Waiter,
    ) -> Steps[TableResult]:
        """Steps of Producer.send_table."""
        topic = None if topic is None else checked_topic(topic)
        tables = _tables()
        transaction = self._check_sending()
        plan = tables.TablePlan(topic, value, key, headers, timestamp, partition, topic_column, columns)
        result: TableResult = tables.TableResult()
        part: Part | None = None
        sent: BlockResult | None = None  # queued, and not in `result` yet
        first = 0
        try:
            for batch in tables.read_batches(data):
                first, part = result.row_count, None
                now_ms = self._clock.wall_ms()
                shows_nulls = self._tap is not None and not isinstance(plan.timestamp, int)
                for part in plan.parts(batch, -1 if shows_nulls else now_ms):
                    sent = yield from self._send_part(part, transaction, make_waiter, now_ms if shows_nulls else None)
                    if not self._is_rehearsal:
                        result.add(part.rows_from(first), part.topic, sent)
                    sent = None
        except (
            BufferFullError,
            IllegalStateError,
            InvalidRecordError,
            MemoryError,
            RecordTooLargeError,
            SerializationError,
        ) as error:
            sent = sent or getattr(error, "result", None)
            if part is not None and isinstance(sent, _block_result()):
                result.add(part.rows_from(first), part.topic, sent)
            elif (first or part is not None) and not isinstance(error, MemoryError):
                error.args = (f"{error} ({_where(part, first)})",)
            error.result = result  # type: ignore[union-attr]
            raise
        return result

    def _send_part(
        self, part: Part, transaction: int, make_waiter: MakeWaiter, now_ms: int | None
    ) -> Steps[BlockResult]:
        return self._send_block(
            part.topic,
            part.value,
            part.key,
            part.headers,
            len(part.rows),
            part.timestamps_ms,
            part.partitions,
            None,
            transaction,
            make_waiter,
            now_ms,
        )

    def _send_block(
        self,
        topic: str,
        value: Column,
        key: Column | None,
        headers: Headers,
        row_count: int | None,
        timestamps_ms: Any,
        partitions: Any,
        partition: int | None,
        transaction: int,
        make_waiter: MakeWaiter,
        now_ms: int | None = None,
    ) -> Steps[BlockResult]:
        make_result, deadline_ms = _block_result(), self._intake.deadline_ms()  # first: nothing has begun if it fails
        rows = _row_count(value, key, headers, row_count)
        given = GivenPlaces(timestamps_ms, partitions, -1 if partition is None else partition)
        if self._is_only_shown(topic, value, key, headers, rows, given):
            return (yield from self._send_nothing(topic, deadline_ms, make_waiter))
        seen, headers = self._seen(topic, rows, headers)
        try:
            queues = yield from self._intake.queues(topic, partition, deadline_ms, make_waiter)
            if partition is None and self._hooks.partitioner is not None:
                partitions = self._hooks.choose_partitions(topic, key, value, rows, partitions, queues.leaders)
            block = Block(
                self._accumulator,
                queues,
                value,
                key,
                headers,
                row_count,
                _timed(timestamps_ms, now_ms),
                self._clock.wall_ms() if timestamps_ms is None else -1,
                partitions,
                -1 if partition is None else partition,
            )
            result = make_result(block)
        except BaseException as error:
            if seen is not None:
                self._hooks.on_block_end(seen, rows, error)
            raise
        try:
            yield from self._run_block(block, deadline_ms, topic, transaction, make_waiter)
        except (BufferFullError, IllegalStateError, MemoryError) as error:
            result.refuse_rest(error)
            refused = block.row_count - block.rows_appended
            if isinstance(error, BufferFullError) and self._intake.drops is not None:
                self._intake.drops.note(error, refused)
                return result
            error.result = result  # type: ignore[union-attr]
            if not isinstance(error, IllegalStateError):  # the transaction ended meanwhile
                self._intake.note_refused(refused)
            raise
        except BaseException as error:
            result.refuse_rest(IllegalStateError(f"the call ended early: {type(error).__name__}"))
            raise
        finally:
            if seen is not None:
                result.add_done_callback(partial(self._end_block, seen))
        return result

    def _seen(self, topic: str, rows: int, headers: Headers) -> tuple[RecordBlock | None, Headers]:
        """Show interceptors the block; return what they saw, and the headers with those that they added."""
        seen = self._hooks.on_block(topic, rows)
        if seen is not None and seen.added:
            headers = headers.with_every(Headers.from_python(seen.added))
        return seen, headers

    def _is_only_shown(
        self, topic: str, value: Column, key: Column | None, headers: Headers, rows: int, given: GivenPlaces
    ) -> bool:
        if self._tap is not None:
            self._tap.take(topic, value, key, headers, rows, given)
        return self._is_rehearsal

    def _send_nothing(self, topic: str, deadline_ms: int, make_waiter: MakeWaiter) -> Steps[BlockResult]:
        queues = yield from self._intake.queues(topic, None, deadline_ms, make_waiter)
        rows, headers = Column.from_list([]), Headers.from_python(None)
        return _block_result()(Block(self._accumulator, queues, rows, None, headers, None, None, 0, None, -1))

    def _end_block(self, seen: RecordBlock, result: BlockResult) -> None:
        error = result.peek_error()
        self._hooks.on_block_end(seen, 0 if error is None else result.failed_count, error)

    def _run_block(
        self, block: Block, deadline_ms: int, topic: str, transaction: int, make_waiter: MakeWaiter
    ) -> Steps[None]:
        """Append all rows. As for a loop of send(), the time to wait starts again when some rows got in.

        With `buffer_full_policy="isolate"` rows of a sick node that may hold no more are left out, the others appended,
        and the error raised at the end.
        """

        def attempt(ticket: int) -> bool | None:
            before = block.rows_appended
            block.run(-1, ticket)
            return True if block.rows_appended > before else None

        rows_before = block.rows_appended
        refusal: NodeBufferFullError | None = None
        self._host.check_still_sending(transaction)
        yield from self._intake.after_parked(topic, make_waiter)
        is_complete = block.run(-1, 0)
        while not is_complete:
            if block.rows_appended > rows_before:
                deadline_ms = self._intake.deadline_ms()
            rows_before = block.rows_appended
            try:
                yield from self._intake.with_memory(
                    attempt, block.memory_need, deadline_ms, topic, transaction, make_waiter
                )
            except NodeBufferFullError as error:
                if not block.refuse_node(error.context.get("node", NO_LEADER)):
                    raise
                refusal = refusal or error
            if block.is_complete:
                break
            self._host.check_still_sending(transaction)
            is_complete = block.run(-1, 0)
        if refusal is not None:
            raise refusal


def _timed(timestamps_ms: Any, now_ms: int | None) -> Any:
    """Return the timestamps of a table's rows with the time of sending for those without one; None: all have theirs."""
    if timestamps_ms is not None and now_ms is not None:
        timestamps_ms[timestamps_ms < 0] = now_ms
    return timestamps_ms


def _row_count(value: Column, key: Column | None, headers: Headers, row_count: int | None) -> int:
    """How many rows a block has; where nothing of it has a length, what the caller says."""
    rows = max(value.row_count, -1 if key is None else key.row_count, headers.row_count)
    if rows < 0 and row_count is not None:
        rows = checked_integer(row_count, "row_count", 0, MAX_PARTITION)
    return max(rows, 0)


def _where(part: Part | None, first: int) -> str:
    """From where the rows in an error of a table's part are counted."""
    if part is None:
        return f"rows counted from row {first} of the table"
    rows = part.rows_from(first)
    if isinstance(rows, range):
        return f"rows counted from row {rows.start} of the table"
    return f"rows counted among those of topic {part.topic!r}, from row {int(rows[0])} of the table on"
