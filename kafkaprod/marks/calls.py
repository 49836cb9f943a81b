"""Writes as a producer's calls: a list, columns or a table in one, or the rows of a block one by one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Final

from kafkaprod.engine.steps import run
from kafkaprod.errors import IllegalStateError
from kafkaprod.intake.blocks import BlockIntake
from kafkaprod.marks import verdict
from kafkaprod.marks.digest import RowTap
from kafkaprod.marks.write import WriteTry
from kafkaprod.marks.writers import Writers
from kafkaprod.results.rows import RowsResult
from kafkaprod.results.write import WriteResult

_ROWS_OF_PIECE: Final = 1_000


class WriteCalls:
    """Makes the writes of one producer.

    Args:
        blocks: Its intake: serializes the rows of a repetition, which are not sent.
        writers: What sends the rows of a write, and looks for its mark.
    """

    def __init__(self, blocks: BlockIntake, writers: Writers) -> None:
        self._blocks = blocks
        self.writers = writers

    def call(self, name: str, arguments: Sequence[Any], options: Mapping[str, Any]) -> Any:
        """Make a call of `BlockIntake` once, however often it is run.

        Args:
            name: `send_many`, `send_columns` or `send_table`.
            arguments, options: What the call is given; `write_id` and `verify` are among the options.

        Returns: The call's result, committed, with `write`; of no rows if the write was committed before.
        """
        rest = dict(options)
        write = WriteTry(self.writers, rest.pop("write_id"), rest.pop("verify", verdict.CONTENT))
        topic = arguments[0] if arguments else rest.get("topic")
        try:
            write.open(*(() if topic is None else (topic,)))
            result: RowsResult
            try:
                result = self.pass_on(write, name, arguments, rest) if write.needs_rows else self._nothing(name, topic)
            except BaseException as error:
                outcome = write.give_up(error)
                if outcome is None:
                    raise
                result = self._nothing(name, topic)
            else:
                write.end_piece()
                outcome = write.commit()
                if outcome.already_written and not write.is_repetition:  # of another try at the same time
                    result = self._nothing(name, topic)
            result.write = outcome
        finally:
            write.close()
        return result

    def block(self, write_id: str, verify: str, parts: int | bool) -> WriteBlock:
        """Return the block of a write."""
        return WriteBlock(WriteTry(self.writers, write_id, verify, parts=parts), self)

    def pass_on(self, write: WriteTry, name: str, arguments: Sequence[Any], options: Mapping[str, Any]) -> Any:
        """Give rows to the try's producer, or, of a repetition, show them alone."""
        blocks = self._blocks if write.sending is None else write.sending.blocks
        return run(getattr(blocks.tapped(write.tap), name)(*arguments, **options))

    def _nothing(self, name: str, topic: Any) -> Any:
        """Return a result of the call without rows."""
        blocks = self._blocks.tapped(RowTap(is_rehearsal=True))
        return run(blocks.send_table(topic, {}) if name == "send_table" else blocks.send_many(topic, []))


class WriteBlock:
    """The block of `with producer.transaction(write_id=...)`: its rows and its mark are committed at its end.

    If the write is committed already, the block runs as a rehearsal: its rows are compared with those that are there,
    and not sent. A block that has sent none may end early then. Not thread-safe.

    Attributes:
        result: The WriteResult; None until the block has ended.
    """

    result: WriteResult | None = None

    def __init__(self, write: WriteTry, calls: WriteCalls) -> None:
        self._write = write
        self._calls = calls
        self._is_open = False
        self._topic = ""
        self._rows: list[tuple[Any, ...]] = []

    @property
    def already_written(self) -> bool:
        """Whether another try has committed the write."""
        return self._write.is_repetition or (self.result is not None and self.result.already_written)

    def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> None:
        """Send a record. Its outcome is that of the write."""
        self.send_to(topic, value, key, headers, partition, timestamp_ms, partition)

    def send_to(
        self,
        topic: str,
        value: Any,
        key: Any,
        headers: Any,
        partition: int | None,
        timestamp_ms: int | None,
        named: int | None,
    ) -> None:
        """Send a record whose partition a client's own partitioner has chosen.

        A repetition is compared by `named` alone: the partition that the program has named, or None.
        """
        self._check_open()
        if self.is_full_for(topic):
            self.send_rows()
        self._topic = topic
        self._rows.append((value, key, headers, partition, timestamp_ms, named))

    def is_full_for(self, topic: str) -> bool:
        """Whether the rows so far are sent before one for a topic is taken, which may wait."""
        return bool(self._rows) and (topic != self._topic or len(self._rows) >= _ROWS_OF_PIECE)

    def send_many(self, topic: str, values: Iterable[Any], *arguments: Any, **options: Any) -> None:
        """Send a list of records; arguments as Producer.send_many."""
        self._pass_on("send_many", (topic, values, *arguments), options)

    def send_columns(self, topic: str, value: Any, *arguments: Any, **options: Any) -> None:
        """Send columns; arguments as Producer.send_columns."""
        self._pass_on("send_columns", (topic, value, *arguments), options)

    def send_table(self, topic: str | None, data: Any, **options: Any) -> None:
        """Send a table; arguments as Producer.send_table."""
        self._pass_on("send_table", (topic, data), options)

    def send_offsets(self, offsets: Any, group_metadata: Any) -> None:
        """Commit offsets of the input together with the write; arguments as Producer.send_offsets_to_transaction.

        Of a repetition they are committed already.
        """
        self._check_open()
        if self._write.sending is not None:
            self._write.sending.producer.send_offsets_to_transaction(offsets, group_metadata)

    def __enter__(self) -> WriteBlock:
        try:
            self._write.open()
        except BaseException:
            self._write.close()
            raise
        self._is_open = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_open = False
        try:
            if error is not None:
                self._write.give_up(error)
                return
            try:
                self.send_rows()
            except BaseException as failure:
                self._write.give_up(failure)
                raise
            if self._write.is_repetition and self._write.tap.rows == 0:
                self.result = self._write.known()
                return
            self.result = self._write.commit()
        finally:
            self._write.close()

    def _pass_on(self, name: str, arguments: Sequence[Any], options: Mapping[str, Any]) -> None:
        self._check_open()
        self.send_rows()
        self._calls.pass_on(self._write, name, arguments, options)
        self._write.end_piece()

    def send_rows(self) -> None:
        """Send the rows that `send` has collected."""
        rows, self._rows = self._rows, []
        while rows:
            most = self._write.room() or len(rows)
            self._send_piece(rows[:most])
            self._write.end_piece()
            rows = rows[most:]

    def _send_piece(self, rows: Sequence[tuple[Any, ...]]) -> None:
        values, keys, headers, partitions, timestamps, named = (list(column) for column in zip(*rows, strict=True))
        options: dict[str, Any] = {}
        if any(key is not None for key in keys):
            options["keys"] = keys
        if any(headers):
            options["headers"] = [each or [] for each in headers]
        if any(partition is not None for partition in partitions):
            options["partitions"] = [-1 if each is None else each for each in partitions]
        for given in _runs(timestamps):
            part = {name: column[given] for name, column in options.items()}
            if timestamps[given.start] is not None:
                part["timestamps_ms"] = timestamps[given]
            if named != partitions:
                self._write.tap.named_partitions = [-1 if each is None else each for each in named[given]]
            self._calls.pass_on(self._write, "send_many", (self._topic, values[given]), part)
            self._write.tap.named_partitions = None

    def _check_open(self) -> None:
        if not self._is_open:
            raise IllegalStateError("the block of this write is not open: send inside `with` alone")


def _runs(timestamps: Sequence[int | None]) -> list[slice]:
    """Cut rows where those with a time of their own begin or end: a call has one for all of its rows, or for none."""
    edges = [row for row in range(1, len(timestamps)) if (timestamps[row] is None) != (timestamps[row - 1] is None)]
    return [slice(first, end) for first, end in zip([0, *edges], [*edges, len(timestamps)], strict=True)]
