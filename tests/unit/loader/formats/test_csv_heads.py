"""What is no row in a CSV file is left out where the user, or Excel, says so, and never taken for rows."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from kafkaprod.loader.finding.inputs import find_sources
from kafkaprod.loader.formats.readers import ReadOptions, check_columns
from kafkaprod.loader.opening.errors import LoadError, LoadRefusedError
from kafkaprod.tables.row_plan import RowPlan, Template
from tests.support.loader.reading import values_of


def read(path: Path, text: str, **options: object) -> list[bytes | None]:
    path.write_bytes(text.encode())
    return values_of(path, ReadOptions(RowPlan(""), **options))  # type: ignore[arg-type]


ROW = [b'{"a":"1","b":"2"}']


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_lines_above_the_column_names_are_left_out(tmp_path: Path, end: str) -> None:
    lines = ['Sales, "of', "2024", "a,b", "1,2", ""]
    assert read(tmp_path / "a.csv", end.join(lines), skip_lines=2) == ROW
    assert read(tmp_path / "b.csv", end.join(lines), skip_lines=3, column_names=["a", "b"]) == ROW
    with pytest.raises(LoadRefusedError, match="has 4 lines: --skip-lines 9 leaves nothing"):
        read(tmp_path / "c.csv", end.join(lines), skip_lines=9)


def test_blank_lines_above_the_column_names_are_none(tmp_path: Path) -> None:
    assert read(tmp_path / "a.csv", "\n\r\na,b\n1,2\n") == ROW


def test_a_title_is_not_taken_for_the_column_names(tmp_path: Path) -> None:
    for text in ("Sales\na,b\n1,2\n3,4\n", "Sales\n2024\na,b\n1,2\n3,4\n"):
        with pytest.raises(LoadRefusedError, match=r"has one column, 'Sales', and its rows have 2: .* --skip-lines N"):
            read(tmp_path / "a.csv", text)
    rows = read(tmp_path / "b.csv", "text\nhello\nhi, there\nyes\n")  # one bad row is no title
    assert rows[0] == b'{"text":"hello"}'


def test_column_names_that_are_empty_or_double_are_refused_with_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(LoadRefusedError, match=r"two columns '': .* --columns A,B,.*--skip-lines 1"):
        read(tmp_path / "a.csv", ",,x\n1,2,3\n")
    assert read(tmp_path / "b.csv", ",\n1,2\n", column_names=["a", "b"], skip_lines=1) == ROW


def test_names_of_the_first_line_choose_among_its_columns(tmp_path: Path) -> None:
    text = '\n\nid,"na""me",z\n1,2,3\n'
    path = tmp_path / "a.csv"
    assert read(path, text, column_names=["z", "id"]) == [b'{"z":"3","id":"1"}']
    assert read(path, text, column_names=['na"me'], infer_types=True) == [b'{"na\\"me":2}']
    assert read(path, text, column_names=["id", 'na"me', "z"]) == [b'{"id":"1","na\\"me":"2","z":"3"}']
    assert read(path, "sep=;\nid;z\n1;2\n", column_names=["z"]) == [b'{"z":"2"}']
    key = ReadOptions(RowPlan("", key=Template.of_column("id")), column_names=["z"])
    path.write_text("id,z\n1,3\n")
    assert values_of(path, key) == [b'{"z":"3"}']


def test_a_first_row_without_the_names_is_a_row(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    assert read(path, "a,2\n1,2\n", column_names=["a", "b"]) == [b'{"a":"a","b":"2"}', *ROW]
    assert read(path, "a,a\n1,2\n", column_names=["a", "b"]) == [b'{"a":"a","b":"a"}', *ROW]
    assert read(path, "b,a\n1,2\n", column_names=["a", "b"]) == [b'{"a":"2","b":"1"}']
    for text, is_chosen in (("a,b\n1,2\n", True), ("1,2\n", False)):
        path.write_text(text)
        (source,) = find_sources([str(path)])
        found = check_columns(source, ReadOptions(RowPlan(""), column_names=["a", "b"]))
        assert ("columns by the names in the first line" in found) == is_chosen


@pytest.mark.parametrize("line", ["sep=;", '"sep=;"', "\ufeffsep=;"])
def test_the_line_that_names_the_separator_for_excel_is_followed(tmp_path: Path, line: str) -> None:
    assert read(tmp_path / "a.csv", f"{line}\r\na;b\r\n1;2\r\n") == ROW
    assert read(tmp_path / "b.csv", "sep,b\n1,2\n") == [b'{"sep":"1","b":"2"}']


def test_version_0_1_took_that_line_for_the_column_names(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("sep=;\na;b\n1;2\n")
    (source,) = find_sources([str(tmp_path / "a.csv")])
    assert check_columns(source, ReadOptions(RowPlan(""), separator=";")) == {"sep= line"}


def test_lines_that_begin_with_a_prefix_are_no_rows_whatever_quotes_they_have(tmp_path: Path) -> None:
    text = '# made, "by hand\na,b\n#,"\n1,2\n# the end, "'
    assert read(tmp_path / "a.csv", text, comment="#") == ROW
    assert read(tmp_path / "b.csv", text.replace("#", "--//--"), comment="--//--") == ROW
    assert read(tmp_path / "c.csv", 'a,b\n1,"#\n#"\n', comment="#") == [b'{"a":"1","b":"#\\n#"}']


def test_comments_at_random_places_change_no_row(tmp_path: Path) -> None:
    rng = random.Random(3)
    rows = [rng.choice(['1,"x\n%y"', "2,3", '4,"5,6"', "7,'8"]) for _ in range(500)]
    with_comments = [part for row in rows for part in (row, *(['%, "z'] * (rng.random() < 0.3)))]
    plain = read(tmp_path / "a.csv", "\n".join(["a,b", *rows]))
    assert read(tmp_path / "b.csv", "\n".join(["a,b", *with_comments]), comment="%") == plain
    assert len(plain) == 500


@pytest.mark.parametrize("named", [b"\0", b"\xff", b'"', "é".encode(), b"\x1b"])
def test_a_line_that_names_no_possible_separator_is_a_line_as_others(tmp_path: Path, named: bytes) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"sep=" + named + b"\na,b\n1,2\n")
    with pytest.raises(LoadError, match=r"has one column, 'sep=|no column names"):
        values_of(path)
