"""The loader has the rows of other libraries, and a lost row is seen: `python -m tests.campaigns.loader_judges`."""

from __future__ import annotations

import datetime
import sys
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.csv
import pyarrow.orc
import pyarrow.parquet
import pytest
from deltalake import write_deltalake

from tests.architecture.core_sources import ROOT
from tests.campaigns import loader_judges
from tests.campaigns.loader_judges import judge
from tests.support.loader import judges, loaded_rows
from tests.support.loader.loaded_rows import rows_of
from tests.support.loader.reading_program import ReadingProgram

ROWS: list[dict[str, Any]] = [
    {"i": -1, "f": 0.1, "s": 'é",\n', "t": datetime.datetime(2024, 2, 29, 1, 2, 3, 456_000), "l": [1, None]},
    {"i": None, "f": 1e20, "s": "", "t": None, "l": []},
]
TABLE = pa.Table.from_pylist(ROWS)
TEXTS = pa.table({"a": ["1", "", 'x"'], "b": ["", "é", "2\n3"]})
AVRO = {
    "type": "record",
    "name": "row",
    "fields": [{"name": "i", "type": ["null", "long"]}, {"name": "s", "type": "string"}],
}


def _days(path: Path) -> None:
    for day in (1, 2):
        (path / f"day={day}").mkdir(parents=True)
        pyarrow.parquet.write_table(TABLE, path / f"day={day}" / "a.parquet")


def _avro(path: Path) -> None:
    with open(path, "wb") as file:
        fastavro.writer(file, AVRO, [{"i": row["i"], "s": row["s"]} for row in ROWS])


def _arrow(path: Path) -> None:
    with pa.ipc.new_file(path, TABLE.schema) as writer:
        writer.write_table(TABLE)


FILES: dict[str, tuple[str, Callable[[Path], object]]] = {
    "delta": ("delta", lambda path: write_deltalake(str(path), TABLE, partition_by=["i"])),
    "a.parquet": ("parquet", lambda path: pyarrow.parquet.write_table(TABLE, path)),
    "days": ("parquet", _days),
    "a.arrow": ("arrow", _arrow),
    "a.orc": ("orc", lambda path: pyarrow.orc.write_table(TABLE, path)),
    "a.avro": ("avro", _avro),
    "a.csv": ("csv", lambda path: pyarrow.csv.write_csv(TEXTS, path)),
    "a.jsonl": ("jsonl", lambda path: path.write_text('{"a":1.5,"b":[null]}\n\n{"a":1e3,"b":[]}\n')),
    "a.json": ("json", lambda path: path.write_text('[{"a":1},\n{"a":2}]')),
}


@pytest.mark.parametrize("name", FILES)
def test_rows_are_those_of_all_judges(name: str, tmp_path: Path) -> None:
    kind, write = FILES[name]
    write(tmp_path / name)
    verdict = judge(tmp_path / name, kind)
    assert (verdict.outcome, verdict.other) == ("equal", {}), verdict
    assert verdict.agreeing
    assert verdict.rows > 1


def test_a_lost_row_is_a_difference_and_a_bad_one_is_not(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("a,b\n1,2\n3,4\n")
    verdict = judge(path, "csv", lambda request: (rows_of(request)[0][:1], "", ""))
    assert verdict.outcome == "different"
    assert verdict.other["csv"] == "row count (1 rows, not 2)"
    path.write_text("a,b\n1,2\n3\n")
    assert judge(path, "csv").outcome == "refused"


def test_a_judge_that_differs_needs_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.csv"
    path.write_text("a,b\n1,2\n")
    other = {**judges.JUDGES["csv"], "odd": lambda _: [{"a": Decimal(1), "b": "2"}]}
    monkeypatch.setitem(loader_judges.JUDGES, "csv", other)  # type: ignore[arg-type]
    verdict = judge(path, "csv")
    assert (verdict.outcome, verdict.other) == ("different", {"odd": "text for number ([0].a: '1', not Decimal('1'))"})
    monkeypatch.setattr(loader_judges, "KNOWN", {("csv", "odd", "text for number"): "it guesses"})
    assert judge(path, "csv").outcome == "equal"


def test_a_loader_that_dies_or_has_a_traceback_has_crashed(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("a\n1\n")
    dies = ReadingProgram([sys.executable, "-c", "import os; input(); os.kill(os.getpid(), 9)"])
    assert judge(path, "csv", dies.ask).outcome == "crashed"
    assert judge(path, "csv", lambda _: ([], "", "Traceback: KeyError")).outcome == "crashed"
    own = ReadingProgram([sys.executable, loaded_rows.__file__], {"PYTHONPATH": str(ROOT)})
    assert judge(path, "csv", own.ask).outcome == "equal"
    own.close()
