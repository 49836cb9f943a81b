"""Map columns of a row to key, value, headers, timestamp and partition of its record, a block of rows at a time.

Where TablePlan refuses a whole table for one wrong value, a RowPlan names the rows that have no record.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from kafkaprod._core.columns.columns import Column
from kafkaprod._core.columns.text_columns import (
    TEXT_NULL,
    TEXT_NUMBER,
    TEXT_OTHER,
    TEXT_TIME,
    fill_template,
    parse_numbers,
)

JSON: Final = "json"
RAW: Final = "raw"
AVRO: Final = "avro"
BELIEVED_MS: Final = (10**11, 10**13)  # numbers outside are likely seconds, or microseconds
MAX_ROW_BYTES: Final = 16 << 20
MS_PER_UNIT: Final = {"s": 1000.0, "ms": 1.0, "us": 1e-3, "ns": 1e-6}

Reasons = dict[int, str]  # by place in the block: why a row has no record
_PLACEHOLDER: Final = re.compile(r"\{([^{}]+)\}")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


class NamedColumns(Protocol):
    """Has the columns of a block of rows by name."""

    row_count: int

    def text(self, name: str) -> Column:
        """Return a column as texts or bytes."""

    def times(self, name: str) -> tuple[NDArray[np.int64], NDArray[np.uint8]] | None:
        """Return a column of numbers or times, and TEXT_NUMBER, TEXT_TIME (then in ms) or TEXT_NULL for each row.

        None: the column has texts.
        """


class ByteRows:
    """Has columns of texts."""

    def __init__(self, columns: Mapping[str, Column], row_count: int) -> None:
        self._columns = columns
        self.row_count = row_count

    def text(self, name: str) -> Column:
        return self._columns[name]

    def times(self, name: str) -> None:
        return


@dataclass(frozen=True, slots=True)
class Template:
    """Text with columns in it: `{carrier}-{flight}`. Null if one of the columns is.

    Attributes:
        parts: Texts and column names by turns, beginning and ending with a text.
    """

    parts: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> Template:
        """Parse a template."""
        return cls(tuple(_PLACEHOLDER.split(text)))

    @classmethod
    def of_column(cls, name: str) -> Template:
        """Return a template of one column."""
        return cls(("", name, ""))

    @property
    def names(self) -> tuple[str, ...]:
        """Return the columns it needs."""
        return self.parts[1::2]

    def fill(self, rows: NamedColumns) -> Column:
        """Return the texts of all rows."""
        if not self.names:
            return Column.constant(self.parts[0].encode())
        if self.parts[::2] == ("", ""):
            return rows.text(self.parts[1])
        texts = [part.encode() for part in self.parts[::2]]
        return fill_template(texts, [rows.text(name) for name in self.names], rows.row_count)


@dataclass(frozen=True, slots=True)
class Mapped:
    """Holds what the rows of a block become.

    Attributes:
        value, key: None: all null.
        headers: Name and values of each.
        timestamps: In ms; None: the time of sending.
        partitions: -1 where a row names none; None: no row does.
    """

    value: Column | None
    key: Column | None
    headers: tuple[tuple[str, Column], ...]
    timestamps: NDArray[np.int64] | None
    partitions: NDArray[np.int32] | None


@dataclass(frozen=True, slots=True)
class RowPlan:
    """Describes what becomes of a row.

    Attributes:
        value: JSON, RAW, AVRO, or the name of a column.
        key: None: no keys.
        headers: Name and value of each.
        timestamp: Column of the records' time; None: the time of sending.
        timestamp_unit: The unit of numbers in it: s, ms, us or ns; None: ms, and only those of 1973 to 2286 are
            believed.
        partition: Column of the records' partition; None: by key, or in turn.
        skips_blank_rows: Rows without a byte are no records.
        delimiter: Ends a line.
        avro_schema: The schema of the rows where the value is AVRO, as JSON text.
        avro_schema_id: Stands before each, as Confluent's registry numbers it.
        max_row_bytes: The size of the longest row of a text.
        columns: Those that JSON or AVRO values have; None: all.
        types: Column -> name of the type that it is cast to.
    """

    value: str = RAW
    key: Template | None = None
    headers: tuple[tuple[str, Template], ...] = ()
    timestamp: str | None = None
    timestamp_unit: str | None = None
    partition: str | None = None
    skips_blank_rows: bool = False
    delimiter: int = 10
    avro_schema: str = ""
    avro_schema_id: int | None = None
    max_row_bytes: int = MAX_ROW_BYTES
    columns: tuple[str, ...] | None = None
    types: Mapping[str, str] = field(default_factory=dict)
    fields: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        names: dict[str, None] = {}
        for template in [self.key, *(template for _, template in self.headers)]:
            names.update(dict.fromkeys(() if template is None else template.names))
        if self.value not in (JSON, RAW, AVRO):
            names[self.value] = None
        names.update(dict.fromkeys(name for name in (self.timestamp, self.partition) if name is not None))
        object.__setattr__(self, "fields", tuple(names))

    @property
    def needs_fields(self) -> bool:
        """Return whether a part of the row must be found in it."""
        return bool(self.fields) or bool(self.headers) or self.key is not None

    def map(
        self, rows: NamedColumns, whole: Column | None, reasons: Reasons, keep: NDArray[np.bool_] | None = None
    ) -> Mapped:
        """Return what the rows become; those that have no record go into `reasons`.

        Args:
            rows: Their columns.
            whole: The rows as JSON, Avro or as they are.
            reasons: By place in the block.
            keep: False for rows that are left out anyhow; None: all are kept.
        """
        timestamps = None if self.timestamp is None else self._timestamps(rows, self.timestamp, reasons, keep)
        partitions = None if self.partition is None else self._partitions(rows, self.partition, reasons, keep)
        return Mapped(
            value=whole if self.value in (JSON, RAW, AVRO) else rows.text(self.value),
            key=None if self.key is None else self.key.fill(rows),
            headers=tuple((name, template.fill(rows)) for name, template in self.headers),
            timestamps=timestamps,
            partitions=partitions,
        )

    def _partitions(
        self, rows: NamedColumns, name: str, reasons: Reasons, keep: NDArray[np.bool_] | None
    ) -> NDArray[np.int32]:
        column = rows.text(name)
        numbers, status = _parsed(column, rows.row_count, has_times=False)
        numbers[status == TEXT_NULL] = -1
        for place in _among(status == TEXT_OTHER, keep):
            text = column[place] or b""
            try:
                numbers[place] = _whole_number(text)
            except (ValueError, OverflowError):
                numbers[place] = 1 << 40
        for place in _among((numbers < -(1 << 31)) | (numbers >= 1 << 31), keep):
            reasons[place] = f"{name}={(column[place] or b'')[:40]!r} is not a partition number"
        return numbers.clip(-(1 << 31), (1 << 31) - 1).astype(np.int32)

    def _timestamps(
        self, rows: NamedColumns, name: str, reasons: Reasons, keep: NDArray[np.bool_] | None
    ) -> NDArray[np.int64]:
        """Return times in ms from times, numbers, or ISO 8601 texts (UTC without an offset)."""
        scale = MS_PER_UNIT[self.timestamp_unit or "ms"]
        typed = rows.times(name)
        times, status = _parsed(rows.text(name), rows.row_count, has_times=True) if typed is None else typed
        if scale != 1.0:
            is_number = status == TEXT_NUMBER
            times[is_number] = np.floor(times[is_number] * scale).astype(np.int64)
        for place in _among(status == TEXT_OTHER, keep):
            text = rows.text(name)[place] or b""
            try:
                times[place], status[place] = _parse_timestamp(text, scale)
            except (ValueError, OverflowError):
                reasons[place] = f"{name}={text!r} is not a timestamp"
        for place in _among(status == TEXT_NULL, keep):
            times[place] = 0
            reasons[place] = f"{name}={None!r} is not a timestamp" if typed is None else _before_1970(name)
        for place in _among(times < 0, keep):
            reasons[place] = _before_1970(name if typed else f"{name}={rows.text(name)[place]!r}")
        if self.timestamp_unit is None:
            _check_unit(name, times, _among((status == TEXT_NUMBER) & _is_unlikely(times), keep), reasons)
        floored: NDArray[np.int64] = np.maximum(times, 0)
        return floored


def _parsed(column: Column, row_count: int, *, has_times: bool) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    numbers, status = np.zeros(row_count, dtype=np.int64), np.zeros(row_count, dtype=np.uint8)
    parse_numbers(column, numbers.data, status.data, has_times)
    return numbers, status


def _among(mask: NDArray[np.bool_], keep: NDArray[np.bool_] | None) -> list[int]:
    """Return the places where the mask is true, among the rows that are kept."""
    places: list[int] = np.flatnonzero(mask if keep is None else mask & keep).tolist()
    return places


def _before_1970(what: str) -> str:
    return f"{what} is before 1970" if "=" in what else f"{what} is null or before 1970"


def _is_unlikely(times: NDArray[np.int64]) -> NDArray[np.bool_]:
    return (times < BELIEVED_MS[0]) | (times >= BELIEVED_MS[1])


def _check_unit(name: str, times: NDArray[np.int64], places: list[int], reasons: Reasons) -> None:
    """Refuse numbers that are not plausible as ms where no unit is given."""
    for place in places:
        what = "before 1973" if times[place] < BELIEVED_MS[0] else "after 2286"
        reasons.setdefault(place, f"{name}={times[place]} is {what} in ms: use --timestamp-unit s, ms, us or ns")


def _whole_number(text: bytes) -> int:
    """Return the number of `12`, `12.0` and `1.2E1`, as columns of doubles have it. Raises ValueError."""
    try:
        return int(text)
    except ValueError:
        number = float(text)
        if not number.is_integer():
            raise
        return int(number)


def _parse_timestamp(text: bytes, scale: float) -> tuple[int, int]:
    """Return ms, and TEXT_NUMBER or TEXT_TIME, of a text that parse_numbers() does not know."""
    try:
        return _whole_number(text) if scale == 1.0 else int(float(text) * scale), TEXT_NUMBER
    except ValueError:
        when = datetime.fromisoformat(text.decode())
    return ((when if when.tzinfo else when.replace(tzinfo=UTC)) - _EPOCH) // _MILLISECOND, TEXT_TIME
