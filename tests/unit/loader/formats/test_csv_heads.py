"""What is no row in a CSV file is left out where the user, or Excel, says so, and never taken for rows."""

from __future__ import annotations

import random
import tracemalloc
from pathlib import Path

import pytest

from kafkaprod.loader.finding.inputs import find_sources
from kafkaprod.loader.formats.csv_heads import find_head
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
    with pytest.raises(LoadRefusedError, match=r"two columns '': .* --column-names A,B,.*--skip-lines 1"):
        read(tmp_path / "a.csv", ",,x\n1,2,3\n")
    assert read(tmp_path / "b.csv", ",\n1,2\n", column_names=["a", "b"], skip_lines=1) == ROW


def test_columns_are_chosen_by_the_names_of_the_first_line(tmp_path: Path) -> None:
    text = '\n\nid,"na""me",z\n1,2,3\n'
    path = tmp_path / "a.csv"
    assert read(path, text, columns=["z", "id"]) == [b'{"z":"3","id":"1"}']
    assert read(path, text, columns=['na"me'], infer_types=True) == [b'{"na\\"me":2}']
    assert read(path, text, columns=["id", 'na"me', "z"]) == [b'{"id":"1","na\\"me":"2","z":"3"}']
    assert read(path, "sep=;\nid;z\n1;2\n", columns=["z"]) == [b'{"z":"2"}']
    key = ReadOptions(RowPlan("", key=Template.of_column("id")), columns=["z"])
    path.write_text("id,z\n1,3\n")
    assert values_of(path, key) == [b'{"z":"3"}']


@pytest.mark.parametrize(("wanted", "similar"), [("b", ""), ("ID", " (did you mean 'id'?)"), ("z", "")])
def test_a_chosen_name_that_is_not_there_is_refused_and_never_names_a_column(
    tmp_path: Path, wanted: str, similar: str
) -> None:
    with pytest.raises(LoadRefusedError) as refused:
        read(tmp_path / "a.csv", "id, z\n1,2\n", columns=["id", wanted])
    similar = " (did you mean ' z'?)" if wanted == "z" else similar
    assert f"a.csv has no column {wanted!r}{similar}; it has: id,  z. If its first line is a row" in str(refused.value)
    assert "--column-names" in str(refused.value)


def test_columns_of_folders_are_chosen_as_those_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "day=1").mkdir()
    (tmp_path / "day=1" / "a.csv").write_text("x,y\n1,2\n")
    assert values_of(tmp_path, ReadOptions(RowPlan(""), columns=["y", "day"])) == [b'{"y":"2","day":1}']
    assert values_of(tmp_path, ReadOptions(RowPlan(""), columns=["x"])) == [b'{"x":"1"}']
    named = ReadOptions(RowPlan(""), columns=["day", "a"], column_names=["a", "b"])
    assert values_of(tmp_path, named) == [b'{"day":1,"a":"x"}', b'{"day":1,"a":"1"}']


def test_all_files_of_a_load_have_the_columns_before_one_is_read(tmp_path: Path) -> None:
    (tmp_path / "1.csv").write_text("id,price\n1,10\n")
    (tmp_path / "2.csv").write_text("id,amount\n2,7\n")
    first, second = find_sources([str(tmp_path)])
    options = ReadOptions(RowPlan(""), columns=["id", "price"])
    check_columns(first, options)
    with pytest.raises(LoadRefusedError, match=r"2.csv has no column 'price'; it has: id, amount"):
        check_columns(second, options)


def test_with_names_of_their_own_each_line_is_a_row(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    assert read(path, "a,2\n1,2\n", column_names=["a", "b"]) == [b'{"a":"a","b":"2"}', *ROW]
    assert read(path, "a,b\n1,2\n", column_names=["a", "b"]) == [b'{"a":"a","b":"b"}', *ROW]
    assert read(path, "b,a\n1,2\n", column_names=["a", "b"], columns=["b"]) == [b'{"b":"a"}', b'{"b":"2"}']
    assert read(path, "sep=;\n1\n", column_names=["a"]) == [b'{"a":"sep=;"}', b'{"a":"1"}']
    with pytest.raises(LoadRefusedError, match=r"has no column 'c'; it has: a, b$"):
        read(path, "1,2\n", column_names=["a", "b"], columns=["c"])


def test_a_line_without_an_end_is_left_out_without_being_held(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"x" * (8 << 20) + b"\r\na,b\n1,2\n")
    tracemalloc.start()
    try:
        (source,) = find_sources([str(path)])
        assert find_head(source, 0, 1) == ((8 << 20) + 2, None)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


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
