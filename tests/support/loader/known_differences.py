"""Why judges may have other rows than the loader, which are right nevertheless."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_VARIANT: Final = (
    "a VARIANT is its binary fields, as the file has them; duckdb puts those that were taken apart together"
)
_NAMES: Final = "the first line has the names of columns; duckdb guesses whether it has, and renames empty ones"
_NANOSECONDS: Final = "polars has nanoseconds, and so no date after 2262"
_MICROSECONDS: Final = "Spark has microseconds, and so no date after 294246"
_INT96: Final = "INT96 says nothing of zones; Spark takes it for an instant, and the others do not"
_OLD_TIMES: Final = "TIMESTAMP_MILLIS and TIMESTAMP_MICROS are instants by Parquet's specification, as Spark has them"
_ORC_TIMES: Final = "ORC's timestamp has no zone, as pyarrow has it; Spark takes it for an instant"
_HEADS: Final = "names of columns are the texts of the first line, as csv and pyarrow have them"
_DATE64: Final = "date64 is a date; polars has none of milliseconds, and takes it for a time"
_ONE_TYPE: Final = "elements are sent unchanged; duckdb gives a field one type in all of them"

# Format, judge, in which way, the loader's side first -> why the loader's rows are right.
KNOWN: Final[Mapping[tuple[str, str, str], str]] = {
    ("arrow", "polars", "text for time"): _DATE64,
    ("arrow", "polars", "another number"): "polars reads compressed numbers of Arrow 0.17 as others",
    ("avro", "polars", "row count"): "rows without a column are rows; polars has none",
    ("avro", "polars", "time for number"): "polars does not know timestamp-nanos",
    ("avro", "spark", "time for number"): "Spark does not know timestamp-nanos",
    ("csv", "duckdb", "field names"): _NAMES,
    ("csv", "polars", "field names"): f"{_HEADS}; polars leaves CR and doubled quotes in them",
    ("csv", "polars", "row count"): "CR alone ends a line, as in files of old Macs; polars needs LF",
    ("csv", "spark", "another text"): "Spark leaves CR at the end of lines that end otherwise than the first one",
    ("csv", "spark", "empty text for null"): "an empty field is empty text, as csv and pyarrow have it",
    ("csv", "spark", "field names"): f"{_HEADS}; Spark renames empty ones",
    (
        "csv",
        "spark",
        "row count",
    ): "CR alone ends a line, as in files of old Macs; Spark needs one kind of end in a file",
    ("delta", "polars", "another time"): _NANOSECONDS,
    ("json", "duckdb", "array for object"): "duckdb reads elements that are no objects as a column of their own",
    ("json", "duckdb", "bool for text"): _ONE_TYPE,
    ("json", "duckdb", "empty text for text"): _ONE_TYPE,
    ("json", "duckdb", "number for text"): _ONE_TYPE,
    ("json", "duckdb", "another text"): _ONE_TYPE,
    ("json", "duckdb", "array for text"): _ONE_TYPE,
    ("json", "duckdb", "object for text"): _ONE_TYPE,
    ("jsonl", "duckdb", "field names"): "duckdb takes objects of many names for maps of one column",
    ("jsonl", "duckdb", "text for time"): "lines are sent unchanged; duckdb takes texts for times",
    ("orc", "spark", "zone"): _ORC_TIMES,
    ("parquet", "duckdb", "another text"): _VARIANT,
    ("parquet", "duckdb", "field names"): _VARIANT,
    ("parquet", "duckdb", "object for null"): _VARIANT,
    ("parquet", "duckdb", "zone"): _OLD_TIMES,
    ("parquet", "polars", "another text"): "a UUID is its text; polars has 16 bytes",
    ("parquet", "polars", "row count"): "the rows of row groups count; polars believes a footer that has 0",
    ("parquet", "polars", "another time"): _NANOSECONDS,
    ("parquet", "pyarrow", "another text"): "an ENUM is its text, as Parquet's specification has it; pyarrow has bytes",
    ("parquet", "polars", "text for time"): _NANOSECONDS,
    ("parquet", "polars", "zone"): _OLD_TIMES,
    ("parquet", "spark", "another time"): _MICROSECONDS,
    ("parquet", "spark", "zone"): _INT96,
}
