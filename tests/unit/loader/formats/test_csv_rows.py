"""CSV with backslashes before quotes is read as Spark writes it, and nothing else in it changes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kafkaprod.loader.formats import text
from kafkaprod.loader.formats.readers import ReadOptions
from kafkaprod.tables.row_plan import RowPlan
from tests.support.loader.reading import values_of

# A field, and what it is.
FIELDS = [
    (r'"say \"hi\", ok"', 'say "hi", ok'),
    (r'"a\\b, c"', r"a\b, c"),
    (r'"ends with \\"', "ends with \\"),
    (r'"\\\""', '\\"'),
    (r'"two "" of them"', 'two " of them'),
    (r"C:\dir\new", r"C:\dir\new"),
    (r'"C:\dir, too"', r"C:\dir, too"),
    (r"x\\y", r"x\\y"),
    ('5" pipe', '5" pipe'),
    ('"a\nb\\"\nc"', 'a\nb"\nc'),
    ("plain", "plain"),
    ('""', ""),
]


@pytest.mark.parametrize("piece_bytes", [64, 1 << 20])
@pytest.mark.parametrize("separator", [",", ";"])
def test_fields_are_those_that_were_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece_bytes: int, separator: str
) -> None:
    monkeypatch.setattr(text, "PIECE_BYTES", piece_bytes)
    monkeypatch.setattr(text, "LEAST_BYTES", piece_bytes)
    rows = [(one, other) for one in FIELDS for other in FIELDS]
    lines = [separator.join(field.replace(",", separator) for field, _ in row) for row in rows]
    (tmp_path / "a.csv").write_text("\n".join([f'"a \\"b\\""{separator}c', *lines]) + "\n")
    options = ReadOptions(RowPlan(""), separator=separator, escape="\\")
    found = [json.loads(row or b"") for row in values_of(tmp_path / "a.csv", options)]
    expected = [{'a "b"': one[1], "c": other[1]} for one, other in rows]
    assert found == [{name: value.replace(",", separator) for name, value in row.items()} for row in expected]


def test_a_bad_row_beside_an_escape_is_bad_alone(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('a,b\n"x\\"",1\n1,2,3\n"y" z,1\n"\\"",2\n')
    found = values_of(tmp_path / "a.csv", ReadOptions(RowPlan(""), escape="\\"))
    assert [row or b"" for row in (found[0], found[3])] == [b'{"a":"x\\"","b":"1"}', b'{"a":"\\"","b":"2"}']
    assert all((row or b"").startswith(b"bad: ") for row in found[1:3])
