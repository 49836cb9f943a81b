"""What is read of an HTTP server is one object, all of it, whatever the server does."""

from __future__ import annotations

import gzip
import io
import lzma
import pickle
import threading
import zipfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.orc
import pyarrow.parquet
import pytest

from kafkaprod.loader.finding.inputs import find_sources
from kafkaprod.loader.formats.readers import ReadOptions, read_rows
from kafkaprod.loader.load import describe_source
from kafkaprod.loader.opening.errors import LoadError, LoadRefusedError, is_temporary
from kafkaprod.loader.opening.opening import open_source
from kafkaprod.loader.opening.remote import remote_file
from kafkaprod.loader.opening.remote.access import Access
from kafkaprod.loader.opening.remote.objects import RangePatience
from kafkaprod.loader.opening.source import Source
from kafkaprod.tables.row_plan import RowPlan
from tests.support.loader.object_server import ObjectServer, cut, headers, object_server, redirect, status

ROWS = [b'{"row":%d}' % number for number in range(40_000)]
TEXT = b"\n".join(ROWS) + b"\n"
NAME = "/bucket/rows.jsonl"


@pytest.fixture
def server() -> Iterator[ObjectServer]:
    with object_server({NAME: TEXT}) as running:
        yield running


@pytest.fixture(autouse=True)
def ranges_are_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_file, "FIRST_BYTES", 16 << 10)
    monkeypatch.setattr(remote_file, "MOST_BYTES", 100 << 10)


def access() -> Access:
    """Tries again at once, for a short time."""
    return Access(patience=RangePatience(read_s=5, all_s=0.2, first_pause_s=0.001))


def find(address: str) -> Source:
    (source,) = find_sources([address], access=access())
    return source


def rows_of(source: Source) -> list[Any]:
    found: list[Any] = []
    for block in read_rows(source, ReadOptions(RowPlan(""))):
        assert block.value is not None
        found += [block.value[i] for i in range(block.row_count)]
    return found


def content_of(source: Source) -> bytes:
    with open_source(source) as stream:
        return stream.readall()


def replaced_by(server: ObjectServer, content: bytes) -> Any:
    def spoil(asked: Any, reply: Any) -> None:
        server.objects[NAME] = content

    return spoil


def test_rows_of_an_address_are_those_of_the_file(server: ObjectServer, tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_bytes(TEXT)
    (local,) = find_sources([str(tmp_path / "rows.jsonl")])
    assert rows_of(find(server.url(NAME))) == rows_of(local) == ROWS


def test_every_range_names_the_etag(server: ObjectServer) -> None:
    content_of(find(server.url(NAME)))
    first, *others = server.asked
    assert "if-match" not in first.headers
    assert len(others) > 1
    assert {asked.headers["if-match"] for asked in others} == {server.etag(NAME)}
    assert {asked.headers["accept-encoding"] for asked in server.asked} == {"identity"}


@pytest.mark.parametrize("has_conditions", [True, False])
@pytest.mark.parametrize("other", [TEXT[::-1], TEXT[:-9], TEXT + b"more\n", b"", TEXT[:100]])
@pytest.mark.parametrize("at", [0, 1, 2])
def test_an_object_that_is_replaced_between_ranges_stops_the_load(
    server: ObjectServer, other: bytes, at: int, has_conditions: bool
) -> None:
    server.has_conditions = has_conditions
    source = find(server.url(NAME))
    server.once(replaced_by(server, other), at)
    with pytest.raises(LoadError, match="was replaced while it was read: it had 5") as caught:
        content_of(source)
    assert not is_temporary(caught.value)


def test_an_object_that_is_replaced_while_a_range_is_sent_again_is_not_mixed(server: ObjectServer) -> None:
    source = find(server.url(NAME))
    server.once(cut(1000), 1)
    server.once(replaced_by(server, TEXT[::-1]), 2)
    with pytest.raises(LoadError, match="replaced"):
        content_of(source)


@pytest.mark.parametrize("after", [0, 1, 1000, 65_535])
def test_a_cut_connection_is_continued_at_the_byte_that_lacks(server: ObjectServer, after: int) -> None:
    source = find(server.url(NAME))
    server.once(cut(after), 0)
    server.once(cut(after), 1)
    server.once(cut(after), 3)
    assert content_of(source) == TEXT
    assert source.remote is not None
    assert source.remote.counts.retry_count >= 3
    assert source.remote.counts.byte_count == len(TEXT) + 512  # nothing twice but what recognized the format


def test_a_connection_that_is_always_cut_ends_the_load_for_a_reason_that_may_pass(server: ObjectServer) -> None:
    source = find(server.url(NAME))
    server.faults.append(cut(0))
    with pytest.raises(LoadError, match="cannot be read: the connection was cut") as caught:
        content_of(source)
    assert is_temporary(caught.value)


@pytest.mark.parametrize("code", [408, 429, 500, 502, 503, 504])
def test_a_busy_server_is_asked_again(server: ObjectServer, code: int) -> None:
    server.once(status(code), 0)
    source = find(server.url(NAME))
    server.once(status(code, Retry_After="0"), 1)
    assert content_of(source) == TEXT


@pytest.mark.parametrize(
    ("code", "message"),
    [(404, "was deleted while it was read .404"), (410, "was deleted"), (403, "answers 403.*expired"), (401, "401")],
)
def test_an_object_that_is_gone_or_denied_is_not_the_end(server: ObjectServer, code: int, message: str) -> None:
    source = find(server.url(NAME))
    server.once(status(code), 1)
    with pytest.raises(LoadError, match=message):
        content_of(source)


@pytest.mark.parametrize(
    "spoiled",
    [
        headers(Content_Range=f"bytes 0-9/{len(TEXT)}"),
        headers(Content_Range=f"bytes 512-1023/{len(TEXT) + 1}"),
        headers(Content_Range=""),
        headers(Content_Range="bytes 0-9/*"),
        headers(ETag=""),
        headers(ETag='W/"x"'),
        headers(Content_Encoding="gzip"),
    ],
)
def test_an_answer_that_does_not_say_what_it_is_stops_the_load(server: ObjectServer, spoiled: Any) -> None:
    source = find(server.url(NAME))
    server.once(spoiled, 1)
    with pytest.raises(LoadError, match=r"replaced|answers with"):
        content_of(source)


def test_an_answer_with_other_bytes_than_those_of_the_range_stops_the_load(server: ObjectServer) -> None:
    def shifted(asked: Any, reply: Any) -> None:
        start, end = asked.range
        reply.headers["Content-Range"] = f"bytes {start + 1}-{end + 1}/{len(TEXT)}"
        reply.body = TEXT[start + 1 : end + 2]

    source = find(server.url(NAME))
    server.once(shifted, 1)
    with pytest.raises(LoadError, match="answers with 'bytes "):
        content_of(source)


def test_an_answer_longer_than_its_range_stops_the_load(server: ObjectServer) -> None:
    def longer(asked: Any, reply: Any) -> None:
        reply.body += b"x"

    source = find(server.url(NAME))
    server.once(longer, 1)
    with pytest.raises(LoadError, match="more than the range"):
        content_of(source)


def test_a_range_that_is_ignored_later_stops_the_load(server: ObjectServer) -> None:
    source = find(server.url(NAME))
    server.has_ranges = False
    with pytest.raises(LoadError, match="answers 200 OK to a range"):
        content_of(source)


# -- without an identity -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"has_ranges": False},
        {"validators": ()},
        {"validators": ("weak",)},
        {"validators": ("modified",), "modified": "now"},
    ],
)
def test_an_object_without_identity_or_ranges_is_copied_and_known_by_its_digest(options: dict[str, Any]) -> None:
    with object_server({NAME: TEXT}, **options) as server:
        source = find(server.url(NAME))
        assert source.remote is not None
        assert "copied to a temporary file" in source.remote.note
        assert source.remote.validator.startswith("sha256:")
        server.objects[NAME] = b"other\n"
        assert rows_of(source) == ROWS


def test_a_copy_that_is_cut_off_is_made_again() -> None:
    with object_server({NAME: TEXT}, has_ranges=False) as server:
        server.once(cut(10_000), 1)
        assert content_of(find(server.url(NAME))) == TEXT


def test_a_body_without_length_and_end_mark_is_refused() -> None:
    with object_server({NAME: TEXT}, has_ranges=False) as server:
        server.faults.append(headers(Content_Length=""))
        with pytest.raises(LoadError, match="neither how long the object is nor where it ends"):
            find(server.url(NAME))


def test_an_old_time_is_an_identity_and_is_compared_at_the_end() -> None:
    with object_server({NAME: TEXT}, validators=("modified",)) as server:
        source = find(server.url(NAME))
        assert content_of(source) == TEXT
        assert {asked.headers.get("if-unmodified-since") for asked in server.asked[1:]} == {server.modified}
        assert server.asked[-1].range == (len(TEXT) - 1, len(TEXT) - 1)
        with open_source(source) as stream:
            whole = stream.read(len(TEXT))
            server.modified = "Sun, 02 Jan 2022 00:00:00 GMT"
            assert whole == TEXT
            with pytest.raises(LoadError, match="replaced"):
                stream.read(1)
            server.modified = "Sat, 01 Jan 2022 00:00:00 GMT"


def test_an_empty_object_has_no_rows() -> None:
    with object_server({NAME: b""}) as server:
        assert rows_of(find(server.url(NAME))) == []


def test_an_object_that_is_not_there_is_refused(server: ObjectServer) -> None:
    with pytest.raises(LoadRefusedError, match=r"rows.csv: its server answers 404 Not Found: there is no such object"):
        find(server.url("/bucket/rows.csv"))


# -- as files ----------------------------------------------------------------------------------------------------------


def test_a_stored_gzip_is_decompressed_by_its_first_bytes(server: ObjectServer) -> None:
    server.objects["/rows.jsonl.gz"] = gzip.compress(TEXT)
    server.headers["Content-Encoding"] = "gzip"
    assert rows_of(find(server.url("/rows.jsonl.gz"))) == ROWS
    assert rows_of(find(server.url(NAME))) == ROWS  # which is not compressed, whatever the header says


def test_the_manifest_has_the_validator_and_no_working_directory(
    server: ObjectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    described = describe_source(find(server.url(NAME)))
    monkeypatch.chdir(tmp_path)
    assert describe_source(find(server.url(NAME))) == described
    assert described["path"] == server.url(NAME)
    assert described["validator"] == f"etag:{server.etag(NAME)}"


def test_a_copy_of_a_source_for_another_process_reads_the_same_object(server: ObjectServer) -> None:
    source = pickle.loads(pickle.dumps(find(server.url(NAME))))
    assert content_of(source) == TEXT
    server.objects[NAME] = TEXT[::-1]
    with pytest.raises(LoadError, match="replaced"):
        content_of(pickle.loads(pickle.dumps(source)))


def test_a_reader_that_jumps_gets_the_bytes_that_are_there(
    server: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_file, "FIRST_BYTES", 1000)
    monkeypatch.setattr(remote_file, "MOST_BYTES", 5000)
    with open_source(find(server.url(NAME))) as stream:
        for start, size in [(0, 8), (len(TEXT) - 8, 8), (len(TEXT) - 900, 300), (70_000, 23_456), (93_456, 9), (5, 0)]:
            stream.seek(start)
            assert stream.read(size) == TEXT[start : start + size]
        assert stream.seek(0, io.SEEK_END) == len(TEXT)
        assert stream.read(1) == b""


def test_ranges_ahead_are_few_and_bounded(server: ObjectServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_file, "FIRST_BYTES", 1000)
    monkeypatch.setattr(remote_file, "MOST_BYTES", 8000)
    source = find(server.url(NAME))
    with open_source(source) as stream:
        assert stream.read(70_000) == TEXT[:70_000]
        enough = threading.Event()
        for _ in range(100):
            enough.wait(0.001)
        asked = max(asked.range[1] for asked in server.asked if asked.range)
    assert 70_000 < asked < 70_000 + 4 * 8000
    assert all(asked.range and asked.range[1] - asked.range[0] < 8000 for asked in server.asked)


def test_a_redirect_leads_to_the_object(server: ObjectServer) -> None:
    server.objects["/there"] = TEXT
    server.faults.append(lambda asked, reply: redirect("/there")(asked, reply) if asked.path == NAME else None)
    source = find(server.url(NAME))
    assert content_of(source) == TEXT
    assert sum(asked.path == NAME for asked in server.asked) == 1  # when it was found
    assert source.path == server.url(NAME)


def files() -> dict[str, bytes]:
    """An input of each format, larger than a range."""
    table = pa.table({"id": list(range(60_000)), "text": [f"text {number}" for number in range(60_000)]})
    found: dict[str, bytes] = {}
    for name, write in (
        ("a.parquet", partial(pyarrow.parquet.write_table, row_group_size=25_000)),
        ("a.orc", pyarrow.orc.write_table),
        ("a.arrow", partial(pyarrow.feather.write_feather, compression="uncompressed")),
        ("a.csv", pyarrow.csv.write_csv),
    ):
        sink = io.BytesIO()
        write(table, sink)
        found[name] = sink.getvalue()
    rows = io.BytesIO()
    schema = {"type": "record", "name": "row", "fields": [{"name": "id", "type": "int"}]}
    fastavro.writer(rows, schema, [{"id": number} for number in range(60_000)], sync_interval=1000)
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as members:
        members.writestr("a.csv", found["a.csv"])
        members.writestr("b.jsonl", TEXT)
    found |= {"a.avro": rows.getvalue(), "a.zip": archive.getvalue(), "a.csv.xz": lzma.compress(found["a.csv"])}
    return found | {"a.parquet.gz": gzip.compress(found["a.parquet"]), "a.json": b"[" + b",".join(ROWS) + b"]"}


@pytest.mark.parametrize("name", list(files()))
def test_each_format_has_the_rows_that_the_file_has(server: ObjectServer, tmp_path: Path, name: str) -> None:
    content = files()[name]
    (tmp_path / name).write_bytes(content)
    server.objects[f"/{name}"] = content
    local, remote = find_sources([str(tmp_path / name)]), find_sources([server.url(f"/{name}")], access=access())
    assert [rows_of(source) for source in remote] == [rows_of(source) for source in local]
    assert all(rows_of(source) for source in local)
    if ".gz" not in name and ".xz" not in name:
        server.objects[f"/{name}"] = content[:-1] + b"?"
        with pytest.raises(LoadError, match="replaced"):
            rows_of(remote[-1] if name != "a.zip" else find_again(remote[-1]))


def find_again(source: Source) -> Source:
    """The same input, with nothing open: an archive stays open as long as it is known."""
    return pickle.loads(pickle.dumps(source))
