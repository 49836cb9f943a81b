"""Compare the CSV reader with csv, pyarrow, pandas and duckdb on hostile files.

`python -m tests.campaigns.loader_comparison --files 200`.

Files are generated from seeds: separators, line ends, quotes that are right, misplaced or never closed, rows that are
too short or too long, blank lines, byte order marks, bytes that are not UTF-8, files without a last line end. The
outcomes:

    same        the good rows are those of most of the other readers
    refused     they are not, and the reader names bad rows: it does not guess
    different   they are not, and no row is named: a mistake of ours, the command fails

In every case each byte of the file must be in one row, good or bad.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import random
import re
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.csv

from kafkaprod.loader.finding.inputs import find_sources
from kafkaprod.loader.formats.readers import ReadOptions, read_rows
from kafkaprod.loader.opening.errors import LoadError
from kafkaprod.tables.row_plan import RowPlan

Rows = list[tuple[str, ...]]
Reader = Callable[[Path, "Sample"], Rows]

QUOTE: Final = '"'
PLAIN: Final = (
    "1",
    "01234",
    "1.50",
    "",
    "x",
    "a b",
    " lead",
    "trail ",
    "é日本",
    "NULL",
    "NA",
    "-0",
    "1e5",
    "0" * 40,
    "'",
    "\\",
)
MISHAPS: Final = (
    "quote within",
    "quote after blank",
    "open quote",
    "text after quote",
    "short",
    "long",
    "not utf-8",
    "mixed ends",
)


@dataclass(frozen=True, slots=True)
class Sample:
    """A generated file.

    Attributes:
        names: Of its columns.
        mishaps: What is wrong with it.
    """

    data: bytes
    separator: str
    names: tuple[str, ...]
    mishaps: tuple[str, ...]


def make_sample(seed: int) -> Sample:
    """Return the file of a seed; every third one is without mishaps."""
    rng = random.Random(seed)
    separator = rng.choice(",,,;\t|")
    names = tuple(f"c{i}" for i in range(rng.randint(2, 5)))
    mishaps = () if seed % 3 == 0 else tuple(sorted(rng.sample(MISHAPS, rng.randint(1, 2))))
    end = rng.choice(["\n", "\n", "\r\n", "\r"])
    ends = ["\n", "\r\n", "\r"] if "mixed ends" in mishaps else [end]
    lines = [separator.join(names)]
    for _ in range(rng.randint(1, 25)):
        count = len(names)
        if rng.random() < 0.2:
            count += ("long" in mishaps) - ("short" in mishaps)
        lines.append(separator.join(_field(rng, separator, mishaps) for _ in range(count)))
        if rng.random() < 0.05:
            lines.append("")
    text = "".join(line + rng.choice(ends) for line in lines)
    if rng.random() < 0.3:
        text = text.rstrip("\r\n")
    data = text.encode()
    if "not utf-8" in mishaps:
        data = data.replace("é".encode(), b"\xe9", 1)
    return Sample((b"\xef\xbb\xbf" if rng.random() < 0.1 else b"") + data, separator, names, mishaps)


def _field(rng: random.Random, separator: str, mishaps: tuple[str, ...]) -> str:
    text = rng.choice(PLAIN)
    if rng.random() < 0.25:
        inner = rng.choice(
            [text, separator, "a\nb", "a\r\nb", QUOTE * 2, f"say {QUOTE * 2}hi{QUOTE * 2}", "", f"{separator}\n"]
        )
        quoted = QUOTE + inner + QUOTE
        if rng.random() < 0.15:
            if "open quote" in mishaps:
                return quoted[:-1]
            if "text after quote" in mishaps:
                return quoted + rng.choice(["x", " "])
        return quoted
    if rng.random() < 0.1 and "quote within" in mishaps:
        return f"5{QUOTE} pipe{rng.choice(['', QUOTE])}"
    if rng.random() < 0.1 and "quote after blank" in mishaps:
        return f" {QUOTE}{text}{QUOTE}"
    return text


# Bytes that are not UTF-8, for pyarrow: its handler of invalid rows does not take them.
TO_PRIVATE: Final = {0xDC80 + i: 0xF780 + i for i in range(128)}
FROM_PRIVATE: Final = {private: escape for escape, private in TO_PRIVATE.items()}


# -- readers -----------------------------------------------------------------------------------------------------------


def read_csv_module(path: Path, sample: Sample) -> Rows:
    """Read with Python's csv; rows of another length are left out."""
    with open(path, newline="", encoding="utf-8-sig", errors="surrogateescape") as file:
        rows = [tuple(row) for row in csv.reader(file, delimiter=sample.separator)]
    return [row for row in rows[1:] if len(row) == len(sample.names)]


def read_pyarrow(path: Path, sample: Sample) -> Rows:
    """Read with pyarrow."""
    parse = pa.csv.ParseOptions(
        delimiter=sample.separator, newlines_in_values=True, invalid_row_handler=lambda _: "skip"
    )
    convert = pa.csv.ConvertOptions(column_types=dict.fromkeys(sample.names, pa.string()), strings_can_be_null=False)
    text = path.read_bytes().decode(errors="surrogateescape").translate(TO_PRIVATE).encode()
    table = pa.csv.read_csv(io.BytesIO(text), parse_options=parse, convert_options=convert)
    columns = [[text.translate(FROM_PRIVATE) for text in column.to_pylist()] for column in table.columns]
    return list(zip(*columns, strict=True))


def read_pandas(path: Path, sample: Sample) -> Rows:
    """Read with pandas; what it fills up is left out."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pd.errors.ParserWarning)
        frame = pd.read_csv(
            path,
            sep=sample.separator,
            dtype=str,
            keep_default_na=False,
            na_values=[],
            on_bad_lines="skip",
            index_col=False,
            encoding="utf-8-sig",
            encoding_errors="surrogateescape",
        )
    return [tuple(row) for row in frame.itertuples(index=False) if all(isinstance(value, str) for value in row)]


def read_duckdb(path: Path, sample: Sample) -> Rows:
    """Read with duckdb, which leaves out what it does not understand."""
    columns = ", ".join(f"'{name}': 'VARCHAR'" for name in sample.names)
    query: Any = duckdb.sql(
        f"SELECT * FROM read_csv('{path}', delim='{sample.separator}', header=true, quote='\"', escape='\"', "
        f"auto_detect=false, columns={{{columns}}}, ignore_errors=true, nullstr='\x01')"
    )
    return [tuple("" if value is None else value for value in row) for row in query.fetchall()]


OTHERS: Final[dict[str, Reader]] = {
    "csv": read_csv_module,
    "pyarrow": read_pyarrow,
    "pandas": read_pandas,
    "duckdb": read_duckdb,
}


def read_ours(path: Path, sample: Sample) -> tuple[Rows, list[str]]:
    """Return the good rows of the loader, and why others are bad. Raises LoadError."""
    (source,) = find_sources([str(path)])
    rows: Rows = []
    bad: list[str] = []
    for block in read_rows(source, ReadOptions(RowPlan(""), separator=sample.separator)):
        for place in range(block.row_count):
            assert block.value is not None
            record = json.loads(block.value[place] or b"")
            rows.append(tuple(record[name] for name in sample.names))
        bad += [row.reason for row in block.bad]
    return rows, bad


def is_every_byte_in_a_row(path: Path, sample: Sample) -> bool:
    """Return whether the rows, good and bad, are the whole file but for the line ends between them."""
    (source,) = find_sources([str(path)])
    pieces: dict[int, bytes] = {}
    for block in read_rows(source, ReadOptions(RowPlan("raw"), separator=sample.separator)):
        pieces |= {n: (block.value[i] or b"") for i, n in enumerate(block.numbers.tolist()) if block.value is not None}
        pieces |= {row.row: row.data for row in block.bad}
    found = b"".join(pieces[number] for number in sorted(pieces))
    body = re.split(rb"\r\n|\r|\n", sample.data.removeprefix(b"\xef\xbb\xbf"), maxsplit=1)
    return re.sub(rb"[\r\n]", b"", found) == re.sub(rb"[\r\n]", b"", body[1] if len(body) > 1 else b"")


# -- comparison --------------------------------------------------------------------------------------------------------


@dataclass
class Tally:
    """What came of the files.

    Attributes:
        outcomes: (kind of file, outcome) -> how many.
        agreements: Name of a reader -> files of which it reads the same good rows as the loader.
        failures: What must not be, in words.
    """

    outcomes: Counter[tuple[str, str]] = field(default_factory=Counter)
    agreements: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    def lines(self) -> list[str]:
        """The tally as a table."""
        kinds = sorted({kind for kind, _ in self.outcomes})
        outcomes = ("same", "refused", "different")
        lines = [f"{'file':36} " + " ".join(f"{outcome:>9}" for outcome in outcomes)]
        for kind in [*kinds, "all"]:
            counts = [
                sum(n for (k, o), n in self.outcomes.items() if o == outcome and kind in (k, "all"))
                for outcome in outcomes
            ]
            lines.append(f"{kind:36} " + " ".join(f"{count:9}" for count in counts))
        lines.append("the same good rows as " + ", ".join(f"{name} {self.agreements[name]}" for name in OTHERS))
        return lines + self.failures


def compare_files(count: int, first_seed: int, directory: Path) -> Tally:
    """Compare files of consecutive seeds; they are written into `directory`."""
    tally = Tally()
    for seed in range(first_seed, first_seed + count):
        sample = make_sample(seed)
        path = directory / f"{seed}.csv"
        path.write_bytes(sample.data)
        _compare(tally, seed, path, sample)
        path.unlink()
    return tally


def _compare(tally: Tally, seed: int, path: Path, sample: Sample) -> None:
    others = {name: _rows_or_none(read, path, sample) for name, read in OTHERS.items()}
    votes = Counter(tuple(rows) for rows in others.values() if rows is not None)
    most = max(votes.values(), default=0)
    favourites = [list(rows) for rows, count in votes.items() if count == most]
    try:
        rows, bad = read_ours(path, sample)
    except LoadError as error:
        rows, bad = [], [str(error)]
    tally.agreements.update(name for name, found in others.items() if found == rows)
    outcome = "same" if rows in favourites else "refused" if bad else "different"
    tally.outcomes[" + ".join(sample.mishaps) or "without mishaps", outcome] += 1
    if outcome == "different" or (not sample.mishaps and outcome != "same"):
        tally.failures.append(f"seed {seed}: {outcome}: {rows[:3]} instead of {favourites[:1]}, bad: {bad[:3]}")
    if not is_every_byte_in_a_row(path, sample):
        tally.failures.append(f"seed {seed}: bytes are in no row, or in two")


def _rows_or_none(read: Reader, path: Path, sample: Sample) -> Rows | None:
    """The rows of a reader; None if it refuses the file."""
    try:
        return read(path, sample)
    except (ValueError, csv.Error, pa.ArrowException, duckdb.Error):
        return None


def main() -> int:
    """Compare and print; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.campaigns.loader_comparison", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--files", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0, help="of the first file")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        tally = compare_files(arguments.files, arguments.seed, Path(directory))
    print("\n".join(tally.lines()))
    return 1 if tally.failures else 0


if __name__ == "__main__":
    raise SystemExit(main())
