"""A column has one type in all rows of a file, wherever reading begins and whatever the pieces hold."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kafkaprod.loader.finding.inputs import find_sources
from kafkaprod.loader.formats import text
from kafkaprod.loader.formats.readers import ReadOptions, read_rows
from kafkaprod.loader.opening.errors import LoadRefusedError
from kafkaprod.loader.opening.source import Source
from kafkaprod.tables.row_plan import RowPlan
from tests.support.loader.reading import values_of

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


def test_csv_columns_are_text_unless_a_type_is_given(tmp_path: Path) -> None:
    texts = ["01234", "12345678901234567890", "1.50", "1", "-0", "TRUE", "NA", "2024-01-01", "1e2", " 1"]
    source = source_of(tmp_path, "id,x\n" + "".join(f"{i},{texts[i % len(texts)]}\n" for i in range(COUNT)))
    good, bad = read(source, column_types={"id": "int"})
    assert not bad
    assert good == {i: {"id": i, "x": texts[i % len(texts)]} for i in range(COUNT)}


# What a row number becomes in the file, and what the column is then with inferred types.
COLUMNS = {
    "text first, numbers later": (lambda i: "x" if i < 5 else str(i), lambda i: "x" if i < 5 else str(i)),
    "numbers, one with a point first": (lambda i: "0.5" if i == 0 else str(i), lambda i: 0.5 if i == 0 else float(i)),
    "nothing first, numbers later": (lambda i: "" if i < 100 else str(i), lambda i: "" if i < 100 else str(i)),
    "numbers first, nothing later": (lambda i: str(i) if i < 100 else "", lambda i: i if i < 100 else None),
    "zeros in front": (lambda i: f"{i:04}", lambda i: f"{i:04}"),
    "more digits than a double has": (lambda i: f"12345678901234567{i:03}", lambda i: f"12345678901234567{i:03}"),
    "exact doubles": (lambda i: f"{i}.25", lambda i: i + 0.25),
    "bools": (lambda i: "true" if i % 2 else "false", lambda i: bool(i % 2)),
    "bools otherwise written": (lambda i: "TRUE" if i % 2 else "FALSE", lambda i: "TRUE" if i % 2 else "FALSE"),
    "dates": (lambda i: f"2024-01-{i % 28 + 1:02}", lambda i: f"2024-01-{i % 28 + 1:02}"),
    "not available": (lambda i: str(i) if i else "NA", lambda i: str(i) if i else "NA"),
}


@pytest.mark.parametrize("column", COLUMNS)
def test_inferred_types_are_those_of_the_first_piece_and_change_no_value(tmp_path: Path, column: str) -> None:
    written, wanted = COLUMNS[column]
    source = source_of(tmp_path, "id,x\n" + "".join(f"{i},{written(i)}\n" for i in range(COUNT)))
    good, bad = read(source, infer_types=True)
    assert not bad
    assert good == {i: {"id": i, "x": wanted(i)} for i in range(COUNT)}
    assert [type(good[i]["x"]) for i in range(COUNT)] == [type(wanted(i)) for i in range(COUNT)]


@pytest.mark.parametrize(
    ("early", "late"),
    [
        ("1", "no"),
        ("1", "0200"),
        ("1", "+200"),
        ("1", "200.0"),
        ("1", "9223372036854775808"),
        ("0.5", "0.12345678901234567890"),
        ("0.5", "1e999"),
        ("0.5", "1e-999"),
        ("0.5", "-0"),
        ("true", "True"),
    ],
)
def test_a_value_that_an_inferred_type_would_change_is_bad_and_changes_no_other_row(
    tmp_path: Path, early: str, late: str
) -> None:
    source = source_of(tmp_path, "id,x\n" + "".join(f"{i},{late if i == 200 else early}\n" for i in range(COUNT)))
    good, bad = read(source, infer_types=True)
    assert list(bad) == [200]
    assert f"x={late!r} is not the same as" in bad[200]
    assert good == {i: {"id": i, "x": json.loads(early)} for i in range(COUNT) if i != 200}


def test_nulls_can_be_named(tmp_path: Path) -> None:
    source = source_of(tmp_path, "id,x\n" + "".join(f"{i},{'NA' if i % 3 else i}\n" for i in range(COUNT)))
    expected = {i: {"id": i, "x": None if i % 3 else i} for i in range(COUNT)}
    assert read(source, infer_types=True, nulls=("NA",)) == (expected, {})
    assert read(source, column_types={"id": "int", "x": "int"}, nulls=("NA",)) == (expected, {})
    _, bad = read(source, column_types={"x": "int"})
    assert list(bad) == [i for i in range(COUNT) if i % 3]


@pytest.mark.parametrize("broken", ["1,2,3,4\n", "no,x\n"], ids=["too many fields", "not of the type that was given"])
def test_types_are_inferred_from_a_first_piece_with_broken_rows(tmp_path: Path, broken: str) -> None:
    rows = [f"{i},{'x' if i < 5 else i}\n" for i in range(COUNT)]
    source = source_of(tmp_path, "id,x\n" + broken + "".join(rows))
    good, bad = read(source, column_types={"id": "int"}, infer_types=True)
    assert list(bad) == [0]
    assert good == {i + 1: {"id": i, "x": "x" if i < 5 else str(i)} for i in range(COUNT)}


@pytest.mark.parametrize("infer_types", [False, True])
def test_a_byte_that_is_not_utf8_makes_a_bad_row_and_no_other_type(tmp_path: Path, infer_types: bool) -> None:
    (tmp_path / "a.csv").write_bytes(
        b"id,x\n" + b"".join(b"%d,%s\n" % (i, b"M\xfcller" if i == 3 else b"Smith") for i in range(COUNT))
    )
    (source,) = find_sources([str(tmp_path / "a.csv")])
    good, bad = read(source, infer_types=infer_types)
    assert list(bad) == [3]
    assert "UTF8" in bad[3]
    assert good == {i: {"id": i if infer_types else str(i), "x": "Smith"} for i in range(COUNT) if i != 3}


def test_csv_types_do_not_depend_on_where_reading_begins(tmp_path: Path) -> None:
    """A load that is resumed must make the same records of the rows that are left."""
    source = source_of(tmp_path, "id,x\n" + "".join(f"{i},{'x' if i < 5 else i}\n" for i in range(COUNT)))
    reading = ReadOptions(RowPlan(""), infer_types=True)
    whole, _ = read(source, infer_types=True)
    places = [(block.end_row, block.end_offset) for block in read_rows(source, reading)]
    for row, offset in places[:-1]:
        rest, _ = read(source, row, offset, infer_types=True)
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


def test_a_number_of_thousands_of_digits_stays_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "PIECE_BYTES", 1 << 20)
    (tmp_path / "a.csv").write_text(f"a,b\n{'1' * 5000},1\n")
    values = values_of(tmp_path / "a.csv", ReadOptions(RowPlan(""), infer_types=True))
    assert values == [b'{"a":"%s","b":1}' % (b"1" * 5000)]


def test_a_header_of_too_many_names_is_refused_before_it_is_parsed(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("," * 65_537 + "\n")
    with pytest.raises(LoadRefusedError, match=r"its schema has more than 65,536 types"):
        values_of(tmp_path / "a.csv")


@pytest.mark.parametrize(
    ("kind", "text", "value", "empty"),
    [
        ("float16", "1.5", 1.5, None),
        ("decimal32(5,1)", "1.5", 1.5, None),
        ("decimal256(30,2)", "1.25", 1.25, None),
        ("string_view", "1.50", "1.50", ""),
        ("binary_view", "a", "YQ==", ""),
    ],
)
def test_types_that_pyarrow_does_not_parse_are_cast_from_text(
    tmp_path: Path, kind: str, text: str, value: object, empty: object
) -> None:
    source = source_of(tmp_path, "id,x\n" + "".join(f"{i},{(text, '', 'no')[i % 3]}\n" for i in range(COUNT)))
    good, bad = read(source, column_types={"x": kind})
    if isinstance(value, str):
        assert not bad
    else:
        assert set(bad) == set(range(2, COUNT, 3))
        assert "x cannot be cast to" in bad[2]
    assert {i: row["x"] for i, row in good.items() if i % 3 < 2} == {
        i: (value, empty)[i % 3] for i in range(COUNT) if i % 3 < 2
    }


@pytest.mark.parametrize("kind", ["month_day_nano_interval", "duration[s]", "decimal256(60,2)"])
def test_types_without_a_form_in_json_are_refused_by_the_first_line(tmp_path: Path, kind: str) -> None:
    source = source_of(tmp_path, "id,x\n1,5\n")
    with pytest.raises(LoadRefusedError, match=r"column 'x' has type .* cast it"):
        next(read_rows(source, ReadOptions(RowPlan(""), column_types={"x": kind}), 0, 0))
    (block,) = read_rows(source, ReadOptions(RowPlan(""), column_types={"x": kind}, columns=["id"]), 0, 0)
    assert block.value is not None
    assert block.value[0] == b'{"id":"1"}'
