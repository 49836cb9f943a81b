"""Lines of bad rows in texts where a row is not a line."""

import gzip
import io
from pathlib import Path

import pytest

from kafkaprod.loader.finding.inputs import find_sources
from kafkaprod.loader.formats.readers import ReadOptions, read_rows
from kafkaprod.loader.formats.rows import RowBlock
from kafkaprod.loader.preview import print_preview
from kafkaprod.tables.row_plan import RowPlan, Template

CSV = b'id,name\r\n\n1,"a\nb\nc"\n2,x\n\n3\n"4\n",y,z\n5,y\n'


def blocks(path: Path, **plan: object) -> list[list[int | None]]:
    (source,) = find_sources([str(path)])
    reading = ReadOptions(RowPlan(value="", **plan))  # type: ignore[arg-type]
    return [lines(block) for block in read_rows(source, reading)]


def lines(block: RowBlock) -> list[int | None]:
    return [bad.line for bad in block.located(block.bad)]


def test_lines_count_headers_blank_lines_and_lines_inside_quotes(tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    path.write_bytes(CSV)
    assert blocks(path) == [[8, 9]]


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_lines_are_right_behind_the_first_piece(tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafkaprod.loader.formats.text.PIECE_BYTES", 64)
    rows = b"".join(b'%d,"a\nb"\n' % i if i % 10 else b"%d\n" % i for i in range(100, 200))
    path = tmp_path / f"in.csv{suffix}"
    path.write_bytes((gzip.compress if suffix else bytes)(b"id,name\n" + rows))
    found = [line for block in blocks(path) for line in block]
    text = (b"id,name\n" + rows).split(b"\n")
    assert found == [place for place, line in enumerate(text, 1) if line.isdigit()]
    assert len(found) == 10


def test_elements_of_a_json_array_have_lines(tmp_path: Path) -> None:
    path = tmp_path / "in.json"
    path.write_bytes(b'[{"a":1},\n\n{"a":2}, {"a":\n3},\n5,\n 6]\n')
    assert blocks(path, key=Template.of_column("a")) == [[5, 6]]


def test_a_preview_ends_as_the_load_would(tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    path.write_bytes(CSV)
    out = io.StringIO()
    assert print_preview(find_sources([str(path)]), ReadOptions(RowPlan(value="")), None, 5, out, stops=False) == 2
    assert "row 3 (line 8): Expected 2 columns, got 1" in out.getvalue()
    assert out.getvalue().index("row 2") < out.getvalue().index("row 3") < out.getvalue().index("row 5")
    assert (
        print_preview(find_sources([str(path)]), ReadOptions(RowPlan(value="")), None, 2, io.StringIO(), stops=True)
        == 0
    )
