"""Map columns of a row to key, value, headers, timestamp and partition of its record."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kafkaprod._core.columns.columns import Column
from kafkaprod.loader.errors import LoadError

JSON: Final = "json"
RAW: Final = "raw"
AVRO: Final = "avro"
BELIEVED_MS: Final = (10**11, 10**13)  # numbers outside are likely seconds, or microseconds
MAX_ROW_BYTES: Final = 16 << 20
MS_PER_UNIT: Final = {"s": 1000.0, "ms": 1.0, "us": 1e-3, "ns": 1e-6}

Columns = Mapping[str, Column]
_PLACEHOLDER = re.compile(r"\{([^{}]+)\}")


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

    def fill(self, columns: Columns, row_count: int) -> Column:
        """Return the texts of all rows."""
        if not self.names:
            return Column.constant(self.parts[0].encode())
        if self.parts[::2] == ("", ""):
            return columns[self.parts[1]]
        texts = [part.encode() for part in self.parts[::2]]
        sources = [columns[name] for name in self.names]
        return Column.from_list([_fill_row(texts, [source[i] for source in sources]) for i in range(row_count)])


def _fill_row(texts: list[bytes], values: list[bytes | None]) -> bytes | None:
    filled = texts[0]
    for text, value in zip(texts[1:], values, strict=True):
        if value is None:
            return None
        filled += value + text
    return filled


@dataclass(frozen=True, slots=True)
class RowPlan:
    """Describes what becomes of a row.

    Attributes:
        value: JSON, RAW, AVRO, or the name of a column.
        key: None: no keys.
        headers: Name and value of each.
        timestamp: Column of the records' time; None: the time of sending.
        timestamp_unit: Of numbers in it: s, ms, us or ns; None: ms, and only those of 1973 to 2286 are believed.
        partition: Column of the records' partition; None: by key, or in turn.
        skips_blank_rows: Rows without a byte are no records.
        delimiter: Ends a line.
        avro_schema: Of the rows where the value is AVRO, as JSON text.
        avro_schema_id: Stands before each, as Confluent's registry numbers it.
        max_row_bytes: Of the longest row of a text.
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

    def value_from(self, columns: Columns, whole: Column | None) -> Column | None:
        """Return the values; `whole` has the rows as JSON, Avro or as they are."""
        return whole if self.value in (JSON, RAW, AVRO) else columns[self.value]

    def key_from(self, columns: Columns, row_count: int) -> Column | None:
        """Return the keys; None: all null."""
        return None if self.key is None else self.key.fill(columns, row_count)

    def headers_from(self, columns: Columns, row_count: int) -> tuple[tuple[str, Column], ...]:
        """Return the headers' columns."""
        return tuple((name, template.fill(columns, row_count)) for name, template in self.headers)

    def partition_column(
        self, columns: Columns, row_count: int, reasons: dict[int, str], keep: NDArray[np.bool_]
    ) -> NDArray[np.int32] | None:
        """Return the partitions that the rows name, -1 for null; rows with anything else go into `reasons`."""
        if self.partition is None:
            return None
        column = columns[self.partition]
        partitions = np.full(row_count, -1, dtype=np.int32)
        for i in np.flatnonzero(keep):
            text = column[int(i)]
            if text is None:
                continue
            try:
                partitions[i] = int(text)
            except (ValueError, OverflowError):
                reasons[int(i)] = f"{self.partition}={text[:40]!r} is not a partition number"
        return partitions

    def check_fields(self, names: Sequence[str], source: str) -> None:
        """Check that the input has the columns of the plan. Raises LoadError."""
        missing = [name for name in self.fields if name not in names]
        if missing:
            raise LoadError(f"{source} has no column {missing[0]!r}; it has: {', '.join(names)}")


def parse_timestamps(
    texts: Sequence[bytes | None], plan: RowPlan, reasons: dict[int, str], keep: NDArray[np.bool_]
) -> NDArray[np.int64]:
    """Return times in ms from numbers or ISO 8601 texts (UTC without an offset); bad ones go into `reasons`."""
    times = np.zeros(len(texts), dtype=np.int64)
    is_number = np.zeros(len(texts), dtype=np.bool_)
    scale = MS_PER_UNIT[plan.timestamp_unit or "ms"]
    for i in np.flatnonzero(keep):
        text = texts[int(i)]
        try:
            times[i], is_number[i] = _parse_timestamp(text, scale)
        except (ValueError, OverflowError):
            reasons[int(i)] = f"{plan.timestamp}={text!r} is not a timestamp"
        if times[i] < 0:
            reasons[int(i)] = f"{plan.timestamp}={text!r} is before 1970"
    check_unit(times, is_number, plan, reasons)
    return times


def check_unit(times: NDArray[np.int64], is_number: NDArray[np.bool_], plan: RowPlan, reasons: dict[int, str]) -> None:
    """Refuse numbers that are not plausible as ms where no unit is given: they go into `reasons`."""
    if plan.timestamp_unit is not None:
        return
    for i in np.flatnonzero(is_number & ((times < BELIEVED_MS[0]) | (times >= BELIEVED_MS[1]))).tolist():
        what = "before 1973" if times[i] < BELIEVED_MS[0] else "after 2286"
        reasons.setdefault(i, f"{plan.timestamp}={times[i]} is {what} in ms: use --timestamp-unit s, ms, us or ns")


def _parse_timestamp(text: bytes | None, scale: float) -> tuple[int, bool]:
    """Return ms, and whether the text is a number."""
    if text is None:
        raise ValueError("null")
    try:
        return int(text) if scale == 1.0 else int(float(text) * scale), True
    except ValueError:
        when = datetime.fromisoformat(text.decode())
    return int((when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp() * 1000), False
