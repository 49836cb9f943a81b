"""Read files of tables with other libraries, and write values so that those of all readers can be compared.

Nothing of the loader is used here: a judge must not share its mistakes.
"""

from __future__ import annotations

import base64
import csv
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

import duckdb
import fastavro
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv
import pyarrow.dataset
import pyarrow.orc
from deltalake import DeltaTable

Row = Any
Judge = Callable[[Path], list[Row]]

INSTANT: Final = re.compile(r"([+-]?\d{4,})-(\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d+))?(Z|[+-]\d\d:\d\d)?")
_TIME: Final = re.compile(r"\d\d:\d\d:\d\d(?:\.\d+)?")


# -- values ------------------------------------------------------------------------------------------------------------


def plain(value: Any) -> Any:
    """A value of JSON in the form in which values are compared."""
    if isinstance(value, dict):
        return {str(name): plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int | Decimal):
        return Decimal(value).normalize()
    if isinstance(value, float):
        return _float(repr(value))
    return _text(str(value))


def _text(text: str) -> str:
    found = INSTANT.fullmatch(text)
    if found:
        year, rest, fraction, zone = found.groups()
        moment = np.datetime64(
            f"{int(year):05d}-{rest}".removeprefix("0") if int(year) >= 0 else f"{year}-{rest}", "ms"
        )
        moment += np.timedelta64(int(((fraction or "") + "000")[:3]), "ms")
        if zone and zone != "Z":
            minutes = int(zone[1:3]) * 60 + int(zone[4:])
            moment -= np.timedelta64(minutes if zone[0] == "+" else -minutes, "m")
        return f"{moment}{'Z' if zone else ''}"
    if _TIME.fullmatch(text) and "." in text:
        return text.rstrip("0").rstrip(".")
    return text.removeprefix("+") if re.fullmatch(r"\+\d{5,}-\d\d-\d\d", text) else text


def _float(text: str) -> Any:
    names = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
    least = {"5e-324": "4.9e-324", "1e-45": "1.4e-45"}  # which Java and the engine write with two digits
    sign, digits = ("-" if text.startswith("-") else ""), text.removeprefix("-")
    return names[text] if text in names else Decimal(sign + least.get(digits, digits)).normalize()


def rows_of_table(table: pa.Table) -> list[Row]:
    """The rows of an Arrow table, as they are compared."""
    columns = [[value for chunk in column.chunks for value in _values(chunk)] for column in table.columns]
    return [dict(zip(table.column_names, values, strict=True)) for values in zip(*columns, strict=True)]


def _values(array: pa.Array) -> list[Any]:
    kind = array.type
    if getattr(kind, "extension_name", "") == "arrow.uuid":
        return [None if value is None else str(value) for value in array.to_pylist()]
    if getattr(kind, "extension_name", "") == "arrow.bool8":
        return [None if value is None else bool(value) for value in array.storage.to_pylist()]
    if hasattr(kind, "storage_type"):
        return _values(array.storage)
    types = pa.types
    if types.is_dictionary(kind):
        inner = _values(array.dictionary)
        return [None if place is None else inner[place] for place in array.indices.to_pylist()]
    if types.is_run_end_encoded(kind):
        return _values(pa.compute.run_end_decode(array))
    if types.is_struct(kind):
        parts = [_values(array.field(i)) for i in range(kind.num_fields)]
        names = [field.name for field in kind]
        valid = array.is_valid().to_pylist()
        return [
            {name: part[i] for name, part in zip(names, parts, strict=True)} if valid[i] else None
            for i in range(len(array))
        ]
    if types.is_map(kind) or types.is_nested(kind):
        return [_nested(array[i], kind) for i in range(len(array))]
    return _scalars(array)


def _nested(value: Any, kind: Any) -> Any:
    if not value.is_valid:
        return None
    if pa.types.is_map(kind):
        entries = value.values
        keys, values = entries.field(0), entries.field(1)
        names = [json.dumps(key) if isinstance(key, bool) else str(key) for key in keys.to_pylist()]
        return dict(zip(names, _values(values), strict=True))
    return _values(value.values)


def _moment(number: int, unit: str, ends: str) -> str:
    """A time cut to ms; numpy takes the least int64 for no time."""
    second = {"s": 1, "ms": 1000, "us": 10**6, "ns": 10**9}[unit]
    return f"{np.datetime64(number * 1000 // second, 'ms')}{ends}"


def _scalars(array: pa.Array) -> list[Any]:
    types, kind = pa.types, array.type
    if types.is_timestamp(kind):
        ends = "Z" if kind.tz else ""
        numbers = array.cast(pa.int64()).to_pylist()
        return [None if n is None else _moment(n, kind.unit, ends) for n in numbers]
    if types.is_date(kind):
        days = array.cast(pa.date32(), safe=False).cast(pa.int32()).to_pylist()
        return [None if n is None else str(np.datetime64(n, "D")) for n in days]
    if types.is_time(kind):
        whole = 64 if types.is_time64(kind) else 32
        numbers = array.cast(pa.int64() if whole == 64 else pa.int32()).to_pylist()
        return [None if n is None else _text(str(np.datetime64(n, kind.unit)).partition("T")[2]) for n in numbers]
    if types.is_floating(kind):
        to_text = repr if types.is_float64(kind) else lambda value: str(np.float32(value))
        return [None if value is None else _float(to_text(value)) for value in array.to_pylist()]
    if types.is_decimal(kind) or (types.is_integer(kind)):
        return [None if value is None else Decimal(value).normalize() for value in array.to_pylist()]
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        raw = array.cast(pa.large_binary()).to_pylist()
        return [None if value is None else _text(value.decode(errors="replace")) for value in raw]
    if types.is_boolean(kind) or types.is_null(kind):
        return list(array.to_pylist())
    return [None if value is None else base64.b64encode(value).decode() for value in array.to_pylist()]


# -- judges ------------------------------------------------------------------------------------------------------------


def _parquet(path: Path) -> list[Row]:
    # In ns, pyarrow's default, INT96 has other dates beyond 2262; without extensions a UUID is 16 bytes.
    kind = pa.dataset.ParquetFileFormat(coerce_int96_timestamp_unit="ms", arrow_extensions_enabled=True)
    dataset = pa.dataset.dataset(path, format=kind, partitioning="hive" if path.is_dir() else None)
    return rows_of_table(dataset.to_table())


def _ipc(path: Path) -> list[Row]:
    with pa.OSFile(str(path)) as file:
        is_file = file.read(6) == b"ARROW1"
        file.seek(0)
        return rows_of_table((pa.ipc.open_file(file) if is_file else pa.ipc.open_stream(file)).read_all())


def _duckdb(call: str, below: str = "*.parquet") -> Judge:
    def read(path: Path) -> list[Row]:
        with duckdb.connect() as connection:
            connection.execute("set timezone='UTC'")
            name = str(path / "**" / below) if path.is_dir() else str(path)
            relation = connection.sql(f"select * from {call.format(json.dumps(name).replace(chr(34), chr(39)))}")
            table = relation.to_arrow_table()
            return rows_of_table(table)

    return read


def _polars(read_frame: Callable[[Path], pl.DataFrame]) -> Judge:
    return lambda path: rows_of_table(read_frame(path).to_arrow())


def _csv(separator: str) -> dict[str, Judge]:
    def by_module(path: Path) -> list[Row]:
        with open(path, newline="", encoding="utf-8-sig") as file:
            rows = [row for row in csv.reader(file, delimiter=separator) if row]
        names = rows[0]
        if any(len(row) != len(names) for row in rows):
            raise ValueError("rows of other lengths")
        return [{name: _text(text) for name, text in zip(names, row, strict=True)} for row in rows[1:]]

    def by_pyarrow(path: Path) -> list[Row]:
        parse = pa.csv.ParseOptions(delimiter=separator, newlines_in_values=True)
        names = pa.csv.open_csv(path, parse_options=parse).schema.names
        convert = pa.csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=False)
        return rows_of_table(pa.csv.read_csv(path, parse_options=parse, convert_options=convert))

    call = f"read_csv({{}}, delim='{separator}', quote='\"', header=true, all_varchar=true, nullstr='\x01')"
    return {
        "csv": by_module,
        "pyarrow": by_pyarrow,
        "duckdb": _duckdb(call, "*.csv"),
        "polars": _polars(
            lambda path: pl.read_csv(path, separator=separator, infer_schema=False, empty_string_is_null=False)
        ),
    }


def _json_lines(path: Path) -> list[Row]:
    with open(path, encoding="utf-8-sig") as file:
        return [plain(json.loads(line, parse_float=Decimal)) for line in file if line.strip()]


def _json_array(path: Path) -> list[Row]:
    rows = json.loads(path.read_text(encoding="utf-8-sig"), parse_float=Decimal)
    if not isinstance(rows, list):
        raise TypeError("is no array")
    return [plain(row) for row in rows]


for _name, _ends in (("timestamp", "Z"), ("local-timestamp", "")):  # which fastavro does not know yet
    fastavro.read.LOGICAL_READERS[f"long-{_name}-nanos"] = lambda data, *_, ends=_ends: _moment(data, "ns", ends)


def _avro(path: Path) -> list[Row]:
    with open(path, "rb") as file:
        return list(map(_of_python, fastavro.reader(file)))


def _of_python(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _of_python(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_of_python(inner) for inner in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, float) and float(np.float32(value)) == value:  # an Avro float, most likely
        return _float(str(np.float32(value)))
    if hasattr(value, "isoformat"):
        text = value.isoformat().replace("+00:00", "Z")
        return _text(text if "T" not in text or "." in text else text.replace("Z", ".000Z"))
    return plain(value)


def _orc(path: Path) -> list[Row]:
    return rows_of_table(pa.orc.read_table(path))


def _iceberg(path: Path) -> list[Row]:
    """Rows of an Iceberg table that may have been moved, by its newest metadata."""
    from pyiceberg.table import StaticTable

    hint = path / "metadata" / "version-hint.text"
    names = sorted(each.name for each in (path / "metadata").glob("*.metadata.json"))
    version = hint.read_text().strip() if hint.exists() else ""
    named = [name for name in names if (version and name.lstrip("v").partition(".")[0] == version) or name == version]
    newest = named[0] if named else max(names, key=lambda name: int(re.split("[-.]", name.lstrip("v"))[0]))
    table: Any = StaticTable.from_metadata(str(path / "metadata" / newest))
    open_as_named = table.io.new_input

    def open_here(name: str) -> Any:
        parts = Path(name.partition(":")[2] or name).parts
        places = [path.joinpath(*parts[start:]) for start in range(len(parts)) if parts[start] in ("metadata", "data")]
        return open_as_named(str(next(place for place in reversed(places) if place.exists())))  # nowhere else

    table.io.new_input = open_here
    return rows_of_table(table.scan().to_arrow())


def _delta(path: Path) -> list[Row]:
    return rows_of_table(pa.table(DeltaTable(str(path)).to_pyarrow_table()))


JUDGES: Final[Mapping[str, Mapping[str, Judge]]] = {
    "parquet": {
        "pyarrow": _parquet,
        "duckdb": _duckdb("read_parquet({})"),
        "polars": _polars(lambda path: pl.read_parquet(path, hive_partitioning=path.is_dir())),
    },
    "arrow": {"pyarrow": _ipc, "polars": _polars(lambda path: pl.read_ipc(path))},
    "orc": {"pyarrow": _orc},
    "iceberg": {"pyiceberg": _iceberg},
    "delta": {"deltalake": _delta, "polars": _polars(lambda path: pl.scan_delta(str(path)).collect())},
    "avro": {"fastavro": _avro, "polars": _polars(pl.read_avro)},
    "csv": _csv(","),
    "tsv": _csv("\t"),
    "jsonl": {
        "json": _json_lines,
        "polars": _polars(pl.read_ndjson),
        "duckdb": _duckdb("read_json({}, format='newline_delimited')"),
    },
    "json": {"json": _json_array, "duckdb": _duckdb("read_json({}, format='array')")},
}


def units(directory: Path, formats: Mapping[str, str]) -> Iterator[tuple[Path, str]]:
    """Files of a directory, by their suffixes, and folders: tables with a log, and such with columns in their names.

    Files of a table with a log are left out, since only the log tells what they are.

    Args:
        directory: The root.
        formats: Suffix -> format.
    """
    for root, folders, names in os.walk(directory):
        path = Path(root)
        folders.sort()
        log = "delta" if "_delta_log" in folders else "iceberg" if any(path.glob("metadata/*.metadata.json")) else ""
        if log:
            yield path, log
            folders.clear()
            continue
        if "=" not in path.name and any("=" in each for each in folders):
            kinds = Counter(kind_of(each, formats) for each in path.rglob("*=*/*"))
            kind, _ = max(((kind, count) for kind, count in kinds.items() if kind), key=itemgetter(1), default=("", 0))
            if kind:
                yield path, kind
        for name in sorted(names):
            kind = kind_of(path / name, formats)
            if kind:
                yield path / name, kind


def kind_of(path: Path, formats: Mapping[str, str]) -> str:
    """The format of a file, by its suffixes."""
    suffixes = [suffix.lower() for suffix in path.suffixes if suffix.lower() not in (".gz", ".zst", ".bz2")]
    return formats.get(suffixes[-1], "") if suffixes else ""
