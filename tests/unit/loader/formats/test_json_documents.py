"""JSON that is neither lines nor an array has its documents as rows, or the elements of one of its arrays."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pytest

from kafkaprod.loader.finding.inputs import find_sources
from kafkaprod.loader.formats import json_texts, text
from kafkaprod.loader.formats.readers import ReadOptions, read_rows
from kafkaprod.loader.opening.errors import LoadError, LoadRefusedError
from kafkaprod.tables.row_plan import RowPlan, Template


def read(path: Path, data: bytes, kind: str | None, options: ReadOptions | None = None) -> list[bytes | None]:
    path.write_bytes(data)
    (source,) = find_sources([str(path)], kind)
    found = []
    for block in read_rows(source, options or ReadOptions(RowPlan(""))):
        assert block.value is not None
        found += [block.value[i] for i in range(block.row_count)]
    return found


def elements(field: str) -> ReadOptions:
    return ReadOptions(RowPlan(""), elements=field)


def test_documents_one_after_another_are_sent_as_they_are_written(tmp_path: Path) -> None:
    documents = [
        b'{\n  "a": "}\\" {",\n  "b": [1, {}]\n}',
        b"[1,\n2]",
        b"{}",
        '{"é":1}'.encode(),
        b'{"z":0.123456789E+5}',
    ]
    for between in (b"\n", b"", b" \r\n\t"):
        data = b"\xef\xbb\xbf" + between.join(documents) + between
        assert read(tmp_path / "a.json", data, "documents") == documents


def test_documents_longer_than_a_piece_are_read_and_have_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "PIECE_BYTES", 64)
    monkeypatch.setattr(text, "LEAST_BYTES", 64)
    documents = [json.dumps({"id": i, "x": "y" * (7 * i)}, indent=2).encode() for i in range(40)]
    path = tmp_path / "a.json"
    path.write_bytes(b"\n".join(documents))
    (source,) = find_sources([str(path)], "documents")
    keys: list[bytes | None] = []
    for block in read_rows(source, ReadOptions(RowPlan("", key=Template.of_column("id")))):
        assert block.key is not None
        keys += [block.key[i] for i in range(block.row_count)]
    assert keys == [b"%d" % i for i in range(40)]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b'{"a":1}\n{"a":', "its last document does not end"),
        (b'{"a":1}\n{"a":"}', "its last document does not end"),
        (b'{"a":1} 2', "at byte 8, '2', it is no JSON"),
        (b'{"a":1} "x" {}', "at byte 8, '\"x\" {}', it is no JSON"),
        (b"soon", "not objects and arrays one after another: at byte 0, 'soon', it is no JSON"),
        (b'{"a":[1}', "at byte 7, '}', it is no JSON"),
        (b'{"a":NaN}', "at byte 5, 'NaN}', it is no JSON"),
    ],
)
def test_what_is_no_whole_document_is_an_error(tmp_path: Path, data: bytes, message: str) -> None:
    with pytest.raises(LoadError, match=message):
        read(tmp_path / "a.json", data, "documents")


def test_the_elements_of_an_array_of_an_object_are_rows(tmp_path: Path) -> None:
    data = (
        b'{"type":"x","features2":[0],"n":{"features":[0]},"s":"\\"features\\":[","features" :\n[{"a":1},\n2],"z":1}\n'
    )
    assert read(tmp_path / "a.geojson", data, None, elements("features")) == [b'{"a":1}', b"2"]
    assert read(tmp_path / "b.json", b'{"\\u00e9":[]}', None, elements("é")) == []


@pytest.mark.parametrize(
    ("data", "message", "kind"),
    [
        (b'{"a":1,"features":{},"z":[]}', "its fields are: a, features, z", LoadRefusedError),
        (b"[1]", "has no array of this name", LoadRefusedError),
        (b'{"a":oh,"features":[1]}', "is not a JSON document", LoadRefusedError),
        (b'{"a":1', "ends before the array 'features' begins", LoadError),
        (b'{"features":[1', "the JSON array does not end", LoadError),
        (b'{"features":[1]', "does not end its document", LoadError),
        (b'{"features":[1]} {}', "does not end its document", LoadError),
    ],
)
def test_an_object_that_is_damaged_or_has_no_such_array_is_an_error(
    tmp_path: Path, data: bytes, message: str, kind: type[Exception]
) -> None:
    with pytest.raises(kind, match=message):
        read(tmp_path / "a.json", data, None, elements("features"))


@pytest.mark.parametrize(
    ("kind", "data", "place"),
    [("json", b"[" + b"123456,\n" * 20 + b",1]", 161), ("documents", b'{"a":1}\n' * 20 + b"1", 160)],
)
def test_rows_before_what_is_no_json_are_sent_and_the_place_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, data: bytes, place: int
) -> None:
    monkeypatch.setattr(text, "PIECE_BYTES", 64)
    monkeypatch.setattr(text, "LEAST_BYTES", 64)
    (tmp_path / "a.json").write_bytes(data)
    (source,) = find_sources([str(tmp_path / "a.json")], kind)
    blocks = read_rows(source, ReadOptions(RowPlan("")))
    counts: list[int] = []
    with pytest.raises(LoadError, match=rf"at byte {place}, '.*', it is no JSON"):
        counts.extend(block.row_count for block in blocks)
    assert sum(counts) == 20


@pytest.mark.parametrize("kind", ["json", "documents"])
def test_a_long_row_costs_time_and_memory_by_its_length_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    data = b'["%s"]' % os.urandom(2 << 20).hex().encode()
    (tmp_path / "a.json.gz").write_bytes(gzip.compress(data, 1))
    (source,) = find_sources([str(tmp_path / "a.json.gz")], kind)
    looked_at = []
    split = getattr(json_texts, "split_elements" if kind == "json" else "split_documents")

    def counted(text: memoryview, *more: bool) -> object:
        looked_at.append(len(text))
        return split(text, *more)

    monkeypatch.setattr(json_texts, "split_elements" if kind == "json" else "split_documents", counted)
    assert sum(block.row_count for block in read_rows(source, ReadOptions(RowPlan("")))) == 1
    assert sum(looked_at) < 8 * len(data)


@pytest.mark.parametrize("kind", ["json", "jsonl"])
def test_the_message_about_one_object_names_what_reads_it(tmp_path: Path, kind: str) -> None:
    with pytest.raises(LoadError, match=r"--format documents .* --elements NAME"):
        read(tmp_path / "a.json", b'{\n "a": 1\n}\n', kind)
