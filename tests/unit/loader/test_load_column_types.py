"""A column has one type in all rows of a file, wherever reading begins and whatever the pieces hold."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kafkaprod.loader import text
from kafkaprod.loader.inputs import Source, find_sources
from kafkaprod.loader.plan import RowPlan
from kafkaprod.loader.readers import ReadOptions, read_rows

PIECE_BYTES = 256
COUNT = 400  # rows, some thirty pieces


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "PIECE_BYTES", PIECE_BYTES)


def source_of(tmp_path: Path, data: str, name: str = "a.csv") -> Source:
    (tmp_path / name).write_text(data)
    (source,) = find_sources([str(tmp_path / name)])
    return source


def read(source: Source, row: int = 0, offset: int = 0, **options: Any) -> tuple[dict[int, Any], dict[int, str]]:
    """By number, the good rows as the JSON that would be sent, and why the others are bad."""
    good: dict[int, Any] = {}
    bad: dict[int, str] = {}
    block_count = 0
    for block in read_rows(source, ReadOptions(RowPlan(""), **options), row, offset):
        assert block.value is not None
        good |= {int(number): json.loads(block.value[i] or b"") for i, number in enumerate(block.numbers)}
        bad |= {each.row: each.reason for each in block.bad}
        block_count += 1
    assert block_count > 5 or row, "it was read in pieces"
    return good, bad


# What a row number becomes in the file, and what the whole file's column is then.
COLUMNS = {
    "text first, numbers later": (lambda i: "x" if i < 5 else str(i), lambda i: "x" if i < 5 else str(i)),
    "numbers, one with a point first": (lambda i: "0.5" if i == 0 else str(i), lambda i: 0.5 if i == 0 else float(i)),
    "nothing first, numbers later": (lambda i: "" if i < 100 else str(i), lambda i: "" if i < 100 else str(i)),
    "numbers first, nothing later": (lambda i: str(i) if i < 100 else "", lambda i: i if i < 100 else None),
    "numbers with zeros in front later": (lambda i: f"{i:04}" if i > 100 else str(i), lambda i: i),
}


@pytest.mark.parametrize("column", COLUMNS)
def test_csv_types_are_those_of_the_first_piece(tmp_path: Path, column: str) -> None:
    written, wanted = COLUMNS[column]
    source = source_of(tmp_path, "id,x\n" + "".join(f"{i},{written(i)}\n" for i in range(COUNT)))
    good, bad = read(source)
    assert not bad
    assert good == {i: {"id": i, "x": wanted(i)} for i in range(COUNT)}
    assert [type(good[i]["x"]) for i in range(COUNT)] == [type(wanted(i)) for i in range(COUNT)]


def test_csv_that_does_not_fit_the_first_pieces_types_is_bad_and_changes_no_other_row(tmp_path: Path) -> None:
    source = source_of(tmp_path, "id,x\n" + "".join(f"{i},{'no' if i == 200 else i}\n" for i in range(COUNT)))
    good, bad = read(source)
    assert list(bad) == [200]
    assert "'no'" in bad[200]
    assert good == {i: {"id": i, "x": i} for i in range(COUNT) if i != 200}


@pytest.mark.parametrize("broken", ["1,2,3,4\n", "no,x\n"], ids=["too many fields", "not of the type that was given"])
def test_csv_types_are_learned_once_from_a_first_piece_with_broken_rows(tmp_path: Path, broken: str) -> None:
    """Such a piece does not parse with the types that were given; those of other columns must be learned all the same.

    If they were not, each piece would have its own: text where the first piece has letters, numbers further on.
    """
    rows = [f"{i},{'x' if i < 5 else i}\n" for i in range(COUNT)]
    source = source_of(tmp_path, "id,x\n" + broken + "".join(rows))
    good, bad = read(source, column_types={"id": "int"})
    assert list(bad) == [0]
    assert good == {i + 1: {"id": i, "x": "x" if i < 5 else str(i)} for i in range(COUNT)}


def test_csv_types_do_not_depend_on_where_reading_begins(tmp_path: Path) -> None:
    """A load that is resumed must not make other records of the rows that are left."""
    source = source_of(tmp_path, "id,x\n" + "".join(f"{i},{'x' if i < 5 else i}\n" for i in range(COUNT)))
    whole, _ = read(source)
    places = [(block.end_row, block.end_offset) for block in read_rows(source, ReadOptions(RowPlan("")))]
    for row, offset in places[:-1]:
        rest, _ = read(source, row, offset)
        assert rest == {i: value for i, value in whole.items() if i >= row}


@pytest.mark.parametrize("name", ["a.jsonl", "a.json"])
def test_json_rows_keep_the_text_of_their_values(tmp_path: Path, name: str) -> None:
    """JSON is not typed by column: numbers that a type would change stay as they are written."""
    texts = ["1.50", "1e2", "123456789012345678901234567890", '"1"', "null", "-0"]
    rows = [f'{{"id":{i},"x":{texts[i % len(texts)]}}}' for i in range(COUNT)]
    data = "\n".join(rows) + "\n" if name == "a.jsonl" else "[" + ",\n".join(rows) + "]"
    blocks = read_rows(source_of(tmp_path, data, name), ReadOptions(RowPlan("")))
    assert [block.value[i] for block in blocks for i in range(block.row_count) if block.value is not None] == [
        row.encode() for row in rows
    ]
