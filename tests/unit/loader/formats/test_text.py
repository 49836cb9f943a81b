"""Encodings, byte order marks, malformed quotes and long rows of text inputs."""

from __future__ import annotations

import gzip
import lzma
import os
import tracemalloc
from pathlib import Path
from typing import Any

import lz4.frame
import pytest
import zstandard

from kafkaprod.loader.bad_rows import dead_letter
from kafkaprod.loader.finding.inputs import find_sources
from kafkaprod.loader.formats import text
from kafkaprod.loader.formats.readers import ReadOptions, read_rows
from kafkaprod.loader.opening.errors import LoadError, LoadRefusedError
from kafkaprod.loader.positions.manifest_file import ManifestFile
from kafkaprod.tables.row_plan import RowPlan, Template

Row = bytes | str | None


def read(path: Path, plan: RowPlan | None = None, encoding: str | None = None, **options: Any) -> list[Row]:
    """The values of good rows as bytes, the reasons of bad ones as text, in order of the rows."""
    (source,) = find_sources([str(path)], encoding=encoding)
    found: dict[int, Row] = {}
    for block in read_rows(source, ReadOptions(plan or RowPlan(""), **options)):
        assert block.value is not None or not block.row_count
        found |= {n: block.value[i] if block.value else None for i, n in enumerate(block.numbers.tolist())}
        found |= {bad.row: bad.reason for bad in block.bad}
    assert sorted(found) == list(range(len(found)))
    return [found[number] for number in sorted(found)]


def written(tmp_path: Path, name: str, data: bytes) -> Path:
    path = tmp_path / name
    path.write_bytes(data)
    return path


OPEN, AFTER = "a quote is opened and not closed", "text follows a closing quote"

# The text behind the line of names, and what becomes of it.
QUOTES: list[tuple[bytes, list[Row]]] = [
    (b'1,5" pipe\n2,b\n3,6" pipe\n4,d\n', [b'1,5" pipe', b"2,b", b'3,6" pipe', b"4,d"]),
    (b'1,"open\n2,b\n3,c\n', [OPEN, b"2,b", b"3,c"]),
    (b'1,"a"b\n2,b\n', [AFTER, b"2,b"]),
    (b'1,"a\n2,b\n3,"c\n4,d\n', [AFTER, b"2,b", OPEN, b"4,d"]),
    (b'1,"a""b\nc"\n2,b\n', [b'1,"a""b\nc"', b"2,b"]),
    (b'1, "a\n2,b\n', [b'1, "a', b"2,b"]),
    (b"1,a\r2,b\r", [b"1,a", b"2,b"]),
    (b"1,a\r\n\r\n2,b", [b"1,a", b"2,b"]),
    (b'1,"a\r"\r2,b\r', [b'1,"a\r"', b"2,b"]),
    (b'"1"\n2,b\n', ['Expected 2 columns, got 1: "1"', b"2,b"]),
]


@pytest.mark.parametrize("piece_bytes", [16, 4096])
@pytest.mark.parametrize(("data", "expected"), QUOTES)
def test_quotes_count_where_a_field_begins_and_a_bad_one_costs_one_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: bytes, expected: list[Row], piece_bytes: int
) -> None:
    monkeypatch.setattr(text, "PIECE_BYTES", piece_bytes)
    end = b"\r" if b"\r" in data and b"\n" not in data else b"\n"
    path = written(tmp_path, "a.csv", b"id,name" + end + data)
    assert read(path, RowPlan("raw", key=Template.of_column("id"))) == expected
    unparsed = read(path, RowPlan("raw"))
    assert [isinstance(row, str) for row in unparsed] == [row in (OPEN, AFTER) for row in expected]


def test_quotes_can_be_another_character_or_none(tmp_path: Path) -> None:
    path = written(tmp_path, "a.tsv", b"id\tname\n1\t\"a\n2\t'b\tc'\n")
    assert read(path, quote="'") == [b'{"id":"1","name":"\\"a"}', b'{"id":"2","name":"b\\tc"}']
    assert read(path, quote=None)[0] == b'{"id":"1","name":"\\"a"}'
    assert isinstance(read(path, quote=None)[1], str)


def test_a_quoted_field_is_as_long_as_a_row_may_be_at_most(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = b"".join(b"%d,b\n" % i for i in range(100))
    path = written(tmp_path, "a.csv", b'id,name\n1,"a\n' + rows + b'"\n' + rows)
    whole = [b'{"id":"1","name":"a\\n' + rows.replace(b"\n", b"\\n") + b'"}']
    after = [b'{"id":"%d","name":"b"}' % i for i in range(100)]
    for piece_bytes in (64, 100, 1 << 20):  # the rule is about the row: it does not matter how the text is read
        monkeypatch.setattr(text, "PIECE_BYTES", piece_bytes)
        assert read(path) == whole + after
        assert read(path, RowPlan("", max_row_bytes=300))[: 1 + 100] == [OPEN, *after]


@pytest.mark.parametrize("name", ["a.txt", "a.jsonl", "a.csv", "a.json"])
@pytest.mark.parametrize("piece_bytes", [64, 1 << 20])
def test_a_row_that_is_too_long_is_refused_with_the_option(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, piece_bytes: int
) -> None:
    monkeypatch.setattr(text, "PIECE_BYTES", piece_bytes)
    rows = [b"1" * 50, b"2" * 301]
    data = b"[" + b",\n".join(rows) + b"]" if name == "a.json" else b"\n".join(rows)
    path = written(tmp_path, name, data)
    assert len(read(path, column_names=["x"])) == 2
    assert len(read(path, RowPlan("", max_row_bytes=301), column_names=["x"])) == 2
    with pytest.raises(LoadError, match=r"more than 300 bytes.*--max-row-bytes"):
        read(path, RowPlan("", max_row_bytes=300), column_names=["x"])


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "utf-16", "utf-16-le", "utf-32", "utf-8", "shift_jis"])
def test_text_in_another_encoding_is_sent_as_utf8(tmp_path: Path, name: str, encoding: str) -> None:
    word = "日本" if encoding == "shift_jis" else "Müller"
    data = f"id,name\n1,{word}\n2,Smith\n".encode(encoding)
    path = written(tmp_path, name, gzip.compress(data) if name.endswith(".gz") else data)
    assert read(path, encoding=encoding) == [
        f'{{"id":"1","name":"{word}"}}'.encode(),
        b'{"id":"2","name":"Smith"}',
    ]


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.json", "a.txt"])
@pytest.mark.parametrize("encoding", ["utf-16", "utf-32", "utf-16-le", "utf-16-be"])
def test_wide_text_is_refused_with_the_option(tmp_path: Path, name: str, encoding: str) -> None:
    path = written(tmp_path, name, '[{"a":1}]\n'.encode(encoding))
    if name == "a.txt" and encoding in ("utf-16-le", "utf-16-be"):  # without a mark it could be any bytes
        return
    with pytest.raises(LoadError, match=rf"UTF-.*--encoding {encoding}"):
        read(path)


def test_bytes_that_an_encoding_does_not_have_are_a_bad_row_or_refused(tmp_path: Path) -> None:
    path = written(tmp_path, "a.csv", b"id,name\n1,\x81\n2,b\n")
    assert [type(row) for row in read(path, encoding="cp1252")] == [str, bytes]
    path = written(tmp_path, "b.csv", "id,name\n1,a\n".encode("utf-16-le") + b"\x00")
    with pytest.raises(LoadError, match="ends within a character of utf-16-le"):
        read(path, encoding="utf-16-le")


def test_a_line_of_names_that_is_not_utf8_is_refused_with_the_option(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="--encoding"):
        read(written(tmp_path, "a.csv", b"id,Gr\xf6\xdfe\n1,2\n"))


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.json"])
def test_a_byte_order_mark_is_not_part_of_the_first_row(tmp_path: Path, name: str) -> None:
    mark = b"\xef\xbb\xbf"
    rows = {"a.csv": b"id\n1\n", "a.jsonl": b'{"id":"1"}\n', "a.json": b'[{"id":"1"}]'}
    path = written(tmp_path, name, mark + rows[name])
    assert read(path) == [b'{"id":"1"}']
    assert read(path, RowPlan("", key=Template.of_column("id"))) == [b'{"id":"1"}']
    if name == "a.csv":
        assert read(path, RowPlan("raw")) == [b"1"]
        assert read(path, RowPlan("raw"), column_names=["x"]) == [b"id", b"1"]


def test_lines_keep_their_byte_order_mark(tmp_path: Path) -> None:
    assert read(written(tmp_path, "a.txt", b"\xef\xbb\xbfa\nb")) == [b"\xef\xbb\xbfa", b"b"]


def test_a_file_name_that_is_not_utf8_can_be_loaded_and_shown(tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"caf\xe9.csv")
    path.write_bytes(b"id\n1,2\n")
    (source,) = find_sources([str(path)])
    assert source.name.endswith("caf\\xe9.csv")
    assert ManifestFile.for_load([str(path)], "t", None).path.parent == tmp_path
    (block,) = read_rows(source, ReadOptions(RowPlan("")))
    assert b"caf" in dead_letter(block.bad[0])


@pytest.mark.parametrize("name", ["a.txt", "a.jsonl", "a.csv", "a.json"])
def test_a_small_file_takes_little_memory(tmp_path: Path, name: str) -> None:
    path = written(tmp_path, name, b"[1,\n2]" if name == "a.json" else b"1\n2\n")
    read(path, column_names=["x"])  # what is imported and kept
    tracemalloc.start()
    try:
        assert len(read(path, column_names=["x"])) == 2
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < text.PIECE_BYTES // 8


@pytest.mark.parametrize(
    "data", [b'{\n  "a": 1\n}\n', b'\n {"a": {\n}}', b"[\n1\n]\n", b'{"type": "FeatureCollection",\n"features": []}']
)
def test_one_document_over_several_lines_is_no_json_lines(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(LoadRefusedError, match=r"and does not end it\. --format documents .* --elements NAME"):
        read(written(tmp_path, "document.jsonl", data))


@pytest.mark.parametrize("data", [b'{"a":1}\n', b"no JSON at all\n", b"[1]\n{\n"])
def test_other_first_lines_of_json_lines_are_forwarded(tmp_path: Path, data: bytes) -> None:
    assert read(written(tmp_path, "lines.jsonl", data)) == data.splitlines()


@pytest.mark.parametrize(
    ("data", "advice"),
    [
        (b'{"a":1}\n{"a":2}\n', "say --format jsonl"),
        (b'{"type":"FeatureCollection","features":[]}', "--elements features sends the elements"),
        (b'{\n  "a": 1\n}\n', "--format documents sends each document as a record"),
    ],
)
def test_what_is_no_array_comes_with_advice_that_fits(tmp_path: Path, data: bytes, advice: str) -> None:
    with pytest.raises(LoadError, match=f"is not a JSON array. .*{advice}"):
        read(written(tmp_path, "object.json", data))


def test_a_delimiter_that_no_text_has_sends_a_file_as_one_record(tmp_path: Path) -> None:
    data = b'{\n  "a": 1\n}\n'
    assert read(written(tmp_path, "document.txt", data), RowPlan("", delimiter=0)) == [data]


@pytest.mark.parametrize("last", [b"[" * 5000 + b"]" * 5000, b'{"a":' + b"1" * 5000 + b"}", b'{"a":NaN}'])
def test_a_last_line_without_an_end_may_be_deeper_than_python_reads(tmp_path: Path, last: bytes) -> None:
    assert read(written(tmp_path, "a.jsonl", b"{}\n" + last)) == [b"{}", last]
    (bad,) = read(written(tmp_path, "b.jsonl", last[:-1]))
    assert isinstance(bad, str)
    assert "the input is cut off" in bad


@pytest.mark.parametrize("inner", ["gz", "zst", "lz4", "xz"])
def test_what_is_compressed_twice_is_refused(tmp_path: Path, inner: str) -> None:
    data = {"gz": gzip.compress, "zst": zstandard.compress, "lz4": lz4.frame.compress, "xz": lzma.compress}[inner](
        b"1\n"
    )
    for name, outer in (("a.txt.gz", gzip.compress(data)), ("b.csv.zst", zstandard.compress(data))):
        with pytest.raises(LoadRefusedError, match=r"is compressed twice: decompress it once"):
            read(written(tmp_path, name, outer))
