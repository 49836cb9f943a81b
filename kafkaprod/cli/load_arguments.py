"""Define the arguments of `kafkaprod load` and translate them for the loader."""

from __future__ import annotations

import argparse
import csv
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from kafkaprod.cli.producer_arguments import above_zero, count, whole
from kafkaprod.compression import CODEC_LIST
from kafkaprod.config.secret_sources import VARIABLE, is_allowed_in_process
from kafkaprod.errors import ConfigError
from kafkaprod.loader.finding.expected import Expected
from kafkaprod.loader.finding.inputs import COMPRESSIONS, FORMATS
from kafkaprod.loader.formats.readers import ReadOptions
from kafkaprod.loader.opening.encodings import encoding_name
from kafkaprod.loader.opening.remote.access import HeaderSource
from kafkaprod.loader.opening.source import BINARY_FORMATS, Source
from kafkaprod.tables.plan import AvroRows
from kafkaprod.tables.row_plan import AVRO, JSON, MAX_ROW_BYTES, MS_PER_UNIT, RowPlan, Template

_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_OWN_HEADERS = ("accept-encoding", "host", "if-match", "if-unmodified-since", "range")


def add_load_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments about inputs, records and the load itself."""
    _add_input_arguments(parser)
    _add_record_arguments(parser)
    _add_run_arguments(parser)


def _add_input_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("input")
    add = group.add_argument
    add("--format", choices=FORMATS, help="format of the input files (default: from their names)")
    add("--compression", choices=COMPRESSIONS, help="of the input files (default: from their first bytes)")
    add("--encoding", type=_encoding, metavar="NAME", help="of texts: latin-1, utf-16 ... (default: utf-8)")
    add("--max-row-bytes", type=count, default=MAX_ROW_BYTES, metavar="N", help="of the longest row (%(default)s)")
    add("-D", "--delimiter", default="\\n", metavar="CHAR", help="ends a line (default: %(default)s)")
    add("--separator", metavar="CHAR", help="between the fields of CSV (default: a comma)")
    add("--quote", metavar="CHAR", help='around fields of CSV (default: ")')
    add("--escape", default="", metavar="CHAR", help="stands before a quote, or itself, in a quoted field of CSV: "
        "Spark writes a backslash (default: a quote is written twice)")  # fmt: skip
    add("--skip-lines", type=whole, default=0, metavar="N", help="leave out N lines above the column names of CSV, or "
        "above its first row with --column-names")  # fmt: skip
    add("--comment", default="", metavar="PREFIX", help="leave out lines of CSV that begin with it")
    add("--elements", default="", metavar="FIELD", help="rows are the elements of the array that this field of a JSON "
        "object has: features")  # fmt: skip
    add("--no-quote", action="store_true", help="quotes in CSV mean nothing")
    add("--columns", metavar="A,B,...", help="the columns of a table to write, those of folders too (default: all)")
    add("--column-names", metavar="A,B,...", help="the names of all columns of CSV files whose first line is a row "
        "(default: the first line has them)")  # fmt: skip
    add(
        "--column-type",
        action="append",
        default=[],
        metavar="COLUMN=TYPE",
        help="text, int, float, bool, timestamp ...",
    )
    add(
        "--table-version",
        type=whole,
        metavar="N",
        help="of Delta tables, or the id of a snapshot of Iceberg tables (default: the newest)",
    )
    add("--http-header", action="append", type=_http_header, default=[], metavar="NAME=env:VARIABLE",
        help="sent to the host of an https:// address, and to no other; repeatable")  # fmt: skip
    typing = group.add_mutually_exclusive_group()
    typing.add_argument("--text-columns", action="store_true", help="other CSV columns are text (the default)")
    typing.add_argument(
        "--infer-types", action="store_true", help="other CSV columns are numbers or bools if no value changes by it"
    )
    add("--expect-rows", type=whole, metavar="N", help="stop with an error unless the input has that many rows")
    add("--expect-bytes", type=whole, metavar="N", help="the same for its bytes, as `wc -c` counts them")
    add("--expect-sha256", type=_sha256, metavar="HEX", help="the same for its SHA-256, as of `sha256sum`")
    add("--null", action="append", default=[], metavar="TEXT", help="means null in CSV columns that are not text, as "
        "the empty text does; repeatable")  # fmt: skip


def _add_record_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("records").add_argument
    add("--value", default="", metavar="json|raw|avro|COLUMN", help="json: the row as an object; raw: the row "
        "unchanged; avro: by --schema; or one column (default: json for tables, raw for text)")  # fmt: skip
    add("--schema", metavar="FILE", help="the Avro schema of --value avro")
    add("--schema-registry", metavar="URL", help="where the schema of --value avro is registered, or, without "
        "--schema, where its latest version comes from")  # fmt: skip
    add("--subject", metavar="NAME", help="the schema's subject in the registry (default: TOPIC-value)")
    add("--schema-id", type=int, metavar="N", help="its number in the schema registry, written in front of each value")
    add("--key", metavar="COLUMN|TEMPLATE", help="a column, or a text with columns: '{carrier}-{flight}'")
    add("-k", dest="fixed_key", metavar="KEY", help="the same key for all")
    add(
        "-H", "--header", action="append", default=[], metavar="NAME=VALUE", help="a text, or with {column}; repeatable"
    )
    add("--timestamp", metavar="COLUMN", help="column of the records' time (default: the time of sending)")
    add("--timestamp-unit", choices=list(MS_PER_UNIT), help="unit of a numeric timestamp column (default: ms)")
    add("-p", "--partition", type=whole, metavar="N", help="one partition for all")
    add("--partition-column", metavar="COLUMN", help="column of the record's partition")
    add(
        *("-z", "--compression-codec", "--compression-type"),
        dest="codec",
        metavar="CODEC",
        help=f"of batches: {CODEC_LIST}",
    )


def _add_run_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("the load").add_argument
    add("--engine", choices=("local", "spark"), default="local", help="spark: an input a task on Spark's executors")
    add("--master", metavar="URL", help="Spark's: local[4], spark://host:7077 (default: its own configuration)")
    add("--resume", action="store_true", help="continue a load that stopped or was killed")
    add("--must-resume", action="store_true", help="--resume that is refused where there is no load to continue")
    add(
        "--restart",
        action="store_true",
        help="start over, also after a load that stopped or is complete: records may come twice",
    )
    add(
        "--transactional-id",
        metavar="ID",
        help="load in transactions: rows and the position after them are committed together, and no manifest is kept",
    )
    add(
        "--write-id",
        metavar="ID",
        help="load once, however often it is run: in transactions, by a name that is the same in every run",
    )
    add("--state", metavar="DIR", help="directory of the manifest (default: beside the first file)")
    add(
        "--checkpoint-interval",
        type=above_zero,
        default=1.0,
        metavar="S",
        help="seconds between manifests (%(default)s)",
    )
    add("--no-manifest", action="store_true", help="keep no manifest: the load cannot be resumed")
    add(
        "--on-error",
        default="stop",
        metavar="stop|skip|dead-letter=FILE|dead-letter=topic:NAME",
        help="what to do with rows that cannot be sent (default: %(default)s)",
    )
    add(
        "--create-topic",
        metavar="PARTITIONS",
        nargs="?",
        const=-1,
        type=count,
        help="create the topic if it does not exist",
    )
    add("--rate", type=above_zero, metavar="N", help="records a second at most")
    add("--dry-run", metavar="N", nargs="?", const=5, type=count, help="show the first N records (5) and send nothing")
    add("-q", "--quiet", action="store_true", help="do not show progress")
    add("--json", action="store_true", help="print the summary as JSON")
    add("--report", metavar="FILE", help="write the summary as an HTML page, with records by size and partition")


def _avro_schema(options: argparse.Namespace) -> tuple[str, int | None]:
    """Return schema and id for --value avro, of a file or a registry. Raises ConfigError, SerializationError."""
    has_id, has_registry = options.schema_id is not None, options.schema_registry is not None
    is_whole = (options.schema is not None and has_id) != has_registry
    if (options.value == AVRO) != is_whole or (options.value != AVRO and (options.schema or has_id or options.subject)):
        raise ConfigError(
            "--value avro, --schema FILE and --schema-id N belong together; or --value avro and --schema-registry URL, "
            "with --schema FILE to register one"
        )
    if options.value != AVRO:
        return "", None
    text = None if options.schema is None else Path(options.schema).read_text(encoding="utf-8")
    rows = AvroRows(text, options.schema_id, registry=options.schema_registry, subject=options.subject)
    schema, schema_id = rows.resolve(options.topic)
    return str(schema), schema_id


def reading_of(options: argparse.Namespace) -> ReadOptions:
    """Return how to read. Raises ConfigError if arguments contradict each other."""
    options.resume = options.resume or options.must_resume
    _check_arguments(options)
    key = None if options.fixed_key is None else Template((options.fixed_key,))
    if options.key is not None:
        key = Template.parse(options.key) if "{" in options.key else Template.of_column(options.key)
    schema, schema_id = _avro_schema(options)
    plan = RowPlan(
        value=options.value,
        key=key,
        headers=tuple(map(_header, options.header)),
        timestamp=options.timestamp,
        timestamp_unit=options.timestamp_unit,
        partition=options.partition_column,
        delimiter=_byte(options.delimiter, "-D"),
        avro_schema=schema,
        avro_schema_id=schema_id,
        max_row_bytes=options.max_row_bytes,
    )
    separator = None if options.separator is None else chr(_byte(options.separator, "--separator"))
    quote = None if options.no_quote else chr(_byte(options.quote or '"', "--quote"))
    escape = "" if not options.escape else chr(_byte(options.escape.replace("\\", "\\\\"), "--escape"))
    if escape and (quote is None or escape in (quote, separator or ",", "\r", "\n")):
        raise ConfigError(
            f"--escape {escape!r} cannot be the quote, the separator or a line end, nor be without quotes"
        )
    if quote is not None and quote in (separator or ",", "\r", "\n"):
        raise ConfigError(f"--quote {quote!r} cannot be the separator or a line end")
    return ReadOptions(
        plan,
        separator,
        quote,
        dict(_pair(text, "--column-type") for text in options.column_type),
        options.infer_types,
        _names(options.columns, "--columns"),
        _names(options.column_names, "--column-names"),
        tuple(options.null),
        options.skip_lines,
        options.comment,
        escape,
        options.elements,
    )


def _check_arguments(options: argparse.Namespace) -> None:
    if (options.comment[:1] in ('"', options.quote or '"', " ") and options.comment) or {*"\r\n"} & {*options.comment}:
        raise ConfigError(f"--comment {options.comment!r} cannot begin with a quote or a blank, or have a line end")
    exclusive = [
        ("--key", options.key is not None, "-k", options.fixed_key is not None),
        ("--quote", options.quote is not None, "--no-quote", options.no_quote),
        ("--resume", options.resume, "--restart", options.restart),
        ("--resume", options.resume, "--no-manifest", options.no_manifest),
        ("--partition", options.partition is not None, "--partition-column", options.partition_column is not None),
    ]
    for first, has_first, second, has_second in exclusive:
        if has_first and has_second:
            raise ConfigError(f"{first} and {second} exclude each other")


def check_formats(options: argparse.Namespace, sources: Sequence[Source]) -> None:
    """Refuse options that no input uses. Raises ConfigError."""
    formats = {source.format for source in sources}
    csv_options = {
        "--separator": options.separator is not None,
        "--quote": options.quote is not None,
        "--no-quote": options.no_quote,
        "--infer-types": options.infer_types,
        "--null": bool(options.null),
        "--skip-lines": options.skip_lines > 0,
        "--comment": bool(options.comment),
        "--escape": bool(options.escape),
        "--column-names": options.column_names is not None,
    }
    if options.table_version is not None and all(source.table_version is None for source in sources):
        raise ConfigError("--table-version is for Delta and Iceberg tables, and the input has none")
    folders = {name for source in sources for name, _ in source.folder_columns}
    for name, is_given in csv_options.items():
        if is_given and not formats & {"csv", "tsv"}:
            raise ConfigError(f"{name} is for CSV, and the input is {', '.join(sorted(formats))}")
    if options.elements and "json" not in formats:
        raise ConfigError(f"--elements is for --format json, and the input is {', '.join(sorted(formats))}")
    is_table = bool(formats & {"csv", "tsv", *BINARY_FORMATS})
    is_of_folders = {text.partition("=")[0] for text in options.column_type} <= folders
    for name, is_given in (
        ("--columns", options.columns is not None),
        ("--column-type", bool(options.column_type) and not is_of_folders),
    ):
        if is_given and not is_table:
            raise ConfigError(f"{name} is for tables, and the input is {', '.join(sorted(formats))}")
    if options.columns is not None and options.value not in ("", JSON, AVRO):
        raise ConfigError(f"--columns are those of a row as JSON or Avro, and --value is {options.value}")
    if options.encoding is not None and formats <= set(BINARY_FORMATS):
        raise ConfigError(f"--encoding is for text, and the input is {', '.join(sorted(formats))}")
    if options.timestamp_unit is not None and options.timestamp is None:
        raise ConfigError("--timestamp-unit is the unit of a column: name it with --timestamp")


def _names(text: str | None, flag: str) -> list[str] | None:
    """Return the names of a list, as a line of CSV has them. Raises ConfigError: one comes twice."""
    if text is None:
        return None
    names = next(csv.reader([text]), [""])
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ConfigError(f"{flag} has {twice!r} twice")
    return names


def _header(text: str) -> tuple[str, Template]:
    name, value = _pair(text, "-H")
    return name, Template.parse(value)


def _pair(text: str, flag: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ConfigError(f"{flag} {text!r} is not NAME=VALUE")
    return name, value


def _encoding(text: str) -> str:
    try:
        return encoding_name(text)
    except LookupError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _http_header(text: str) -> HeaderSource:
    name, _, place = text.partition("=")
    variable = place.removeprefix("env:")
    if not _HEADER.fullmatch(name) or variable in ("", place) or name.lower() in _OWN_HEADERS:
        raise argparse.ArgumentTypeError("use NAME=env:VARIABLE: a secret is never an argument, which all users see")
    if not is_allowed_in_process(place):
        raise argparse.ArgumentTypeError(f"{place} is not allowed: the variable {VARIABLE} does not name that place")
    return HeaderSource(name, variable)


def _sha256(text: str) -> str:
    if not re.fullmatch("[0-9a-fA-F]{64}", text):
        raise argparse.ArgumentTypeError(f"{text!r} does not have the 64 hexadecimal digits of a SHA-256")
    return text


def expected_of(options: argparse.Namespace) -> Expected:
    """Return what the user knows of the input."""
    return Expected(options.expect_rows, options.expect_bytes, options.expect_sha256)


def _byte(text: str, flag: str) -> int:
    data = text.encode().decode("unicode_escape").encode("latin-1")
    if len(data) != 1:
        raise ConfigError(f"{flag} {text!r} is not one byte")
    return data[0]


def fingerprint_of(
    options: argparse.Namespace, reading: ReadOptions, sources: list[Source], forms: Iterable[str] = ()
) -> dict[str, Any]:
    """Return what decides which records a row becomes, and where they go; `forms` is what check_columns() returned."""
    wanted: dict[str, Any] = json.loads(json.dumps(asdict(reading)))
    del wanted["plan"]["columns"], wanted["plan"]["types"]  # are columns and column_types
    if not any(source.format in ("csv", "tsv") for source in sources):
        del wanted["plan"]["max_row_bytes"]  # only in CSV does it decide where a row ends
        wanted["column_names"] = wanted.pop("columns")  # where earlier versions have it
    for name in ("columns", "skip_lines", "comment", "escape", "elements"):  # which no load of an earlier version had
        if not wanted.get(name):
            wanted.pop(name, None)
    if forms:  # not where there are none: loads of earlier versions can be resumed
        wanted["forms"] = sorted(forms)
    folders = sorted({name for source in sources for name, _ in source.folder_columns})
    if folders:
        wanted["folder_columns"] = folders
    versions = sorted({source.table_version for source in sources if source.table_version is not None})
    if versions:
        wanted["table_versions"] = versions
    columns = {str(each) for source in sources for each in source.table_columns or ()}
    if columns:  # Iceberg renames columns without another snapshot
        wanted["table_columns"] = sorted(columns)
    return wanted | {"partition": options.partition, "engine": options.engine}
