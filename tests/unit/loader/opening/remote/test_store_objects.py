"""What is read of a store is one object, and a folder of it is what has rows."""

from __future__ import annotations

import pickle
from collections.abc import Iterator

import obstore
import pytest

from kafkaprod.loader.finding.inputs import find_sources
from kafkaprod.loader.finding.paths import Listing
from kafkaprod.loader.load import describe_source
from kafkaprod.loader.opening.errors import LoadError, LoadRefusedError, is_temporary
from kafkaprod.loader.opening.opening import open_source
from kafkaprod.loader.opening.remote import remote_file
from kafkaprod.loader.opening.remote.access import Access
from kafkaprod.loader.opening.remote.objects import RangePatience
from kafkaprod.loader.opening.source import Source
from tests.support.loader.object_server import ObjectServer, cut, headers, object_server, status

TEXT = b"".join(b"row %d\n" % number for number in range(40_000))
KEY = "/bucket/rows.txt"
ADDRESS = "s3://bucket/rows.txt"
SECRET = "canary81c2"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectServer]:
    monkeypatch.setattr(remote_file, "FIRST_BYTES", 16 << 10)
    monkeypatch.setattr(remote_file, "MOST_BYTES", 100 << 10)
    with object_server({KEY: TEXT}) as running:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{running.port}")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "someone")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
        monkeypatch.setenv("AWS_REGION", "eu-west-1")
        yield running


def find(*addresses: str) -> list[Source]:
    access = Access(patience=RangePatience(all_s=0.3, first_pause_s=0.001))
    return find_sources(list(addresses), access=access)


def content_of(source: Source) -> bytes:
    with open_source(source) as stream:
        return stream.readall()


def test_an_object_is_read_by_ranges_that_name_its_etag(server: ObjectServer) -> None:
    (source,) = find(ADDRESS)
    assert source.path == ADDRESS
    assert content_of(source) == TEXT
    ranges = [asked for asked in server.asked if asked.range]
    assert len(ranges) > 2
    assert {asked.headers["if-match"] for asked in ranges} == {server.etag(KEY)}
    assert describe_source(source)["validator"] == f"etag:{server.etag(KEY)}"


@pytest.mark.parametrize("has_conditions", [True, False])
@pytest.mark.parametrize("other", [TEXT[::-1], TEXT + b"more\n", TEXT[:50_000]])
def test_a_replaced_object_stops_the_load(server: ObjectServer, other: bytes, has_conditions: bool) -> None:
    server.has_conditions = has_conditions
    (source,) = find(ADDRESS)
    with open_source(source) as stream:
        stream.read(20_000)
        server.objects[KEY] = other
        with pytest.raises(LoadError, match="was replaced while it was read") as caught:
            stream.readall()
    assert not is_temporary(caught.value)


def test_a_cut_answer_and_a_busy_store_are_continued_at_the_byte_that_lacks(server: ObjectServer) -> None:
    (source,) = find(ADDRESS)
    server.once(cut(10_000), 0)
    server.once(status(503), 1)
    server.once(cut(0), 3)
    assert content_of(source) == TEXT
    assert source.remote is not None
    assert source.remote.counts.retry_count >= 3


@pytest.mark.parametrize(("code", "message"), [(403, "answers 403"), (404, "deleted"), (401, "answers 401")])
def test_a_store_that_refuses_says_the_status_and_no_secret(server: ObjectServer, code: int, message: str) -> None:
    (source,) = find(ADDRESS)
    server.once(status(code), 1)
    with pytest.raises(LoadError, match=rf"s3://bucket/rows.txt.*{message}") as caught:
        content_of(source)
    assert "127.0.0.1" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_an_object_without_etag_is_refused(server: ObjectServer) -> None:
    server.faults.append(headers(ETag=""))
    with pytest.raises(LoadRefusedError, match="gives no ETag"):
        find(ADDRESS)


def test_keys_are_literal(server: ObjectServer) -> None:
    server.objects["/bucket/a b%41+#?.txt"] = b"odd\n"
    (source,) = find("s3://bucket/a b%41+#?.txt")
    assert content_of(source) == b"odd\n"


@pytest.mark.parametrize("key", ["a//b.txt", "../b.txt", "a/./b.txt", "a\n.txt"])
def test_a_key_that_obstore_cannot_name_is_refused(server: ObjectServer, key: str) -> None:
    with pytest.raises(LoadRefusedError, match="takes no key with"):
        find(f"s3://bucket/{key}")


def test_a_panic_of_obstore_is_an_error_of_the_load(server: ObjectServer, monkeypatch: pytest.MonkeyPatch) -> None:
    class PanicException(BaseException):
        """As Rust's, which is no Exception."""

    def get(*_: object, **__: object) -> None:
        raise PanicException("request valid")

    (source,) = find(ADDRESS)
    monkeypatch.setattr(obstore, "get", get)
    with pytest.raises(LoadError, match="cannot be requested by obstore: request valid"):
        content_of(source)


def test_a_folder_has_its_objects_without_markers_and_hidden_names(server: ObjectServer) -> None:
    server.objects |= {
        "/bucket/day/year=2024/a.csv": b"id\n1\n",
        "/bucket/day/year=2025/b.csv": b"id\n2\n",
        "/bucket/day/year=2025": b"",
        "/bucket/day/year=2024_$folder$": b"",
        "/bucket/day": b"",
        "/bucket/day/_SUCCESS": b"",
        "/bucket/day/_temporary/0/c.csv": b"id\n3\n",
        "/bucket/day/year=2024/.a.csv.crc": b"x",
        "/bucket/days/d.csv": b"id\n4\n",
    }
    wanted = ["s3://bucket/day/year=2024/a.csv", "s3://bucket/day/year=2025/b.csv"]
    for name in ("s3://bucket/day", "s3://bucket/day/", "s3://bucket/day/year=*/*.csv", "s3://bucket/day/**/*.csv"):
        found = find(name)
        assert [source.path for source in found] == wanted, name
        assert [source.folder_columns for source in found] == [(("year", 2024),), (("year", 2025),)]
    assert [source.path for source in find("s3://bucket/day/*/a.csv")] == wanted[:1]
    server.objects = {"/bucket/a.csv": b"id\n1\n", "/bucket/b.csv": b"id\n2\n"}
    assert [source.path for source in find("s3://bucket")] == ["s3://bucket/a.csv", "s3://bucket/b.csv"]


def test_an_object_that_comes_while_its_folder_is_read_is_noticed(server: ObjectServer) -> None:
    server.objects["/bucket/day/a.csv"] = b"id\n1\n"
    listing = Listing.of(["s3://bucket/day/"]).with_files(source.path for source in find("s3://bucket/day/"))
    listing.check()
    server.objects["/bucket/day/b.csv"] = b"id\n2\n"
    with pytest.raises(LoadError, match=r"1 file came while the input was read, s3://bucket/day/b.csv first"):
        listing.check()


@pytest.mark.parametrize("log", ["_delta_log/0.json", ".hoodie/x", "metadata/v1.metadata.json", "_spark_metadata/0"])
def test_a_table_is_refused(server: ObjectServer, log: str) -> None:
    server.objects |= {"/bucket/table/a.parquet": b"PAR1", f"/bucket/table/{log}": b"{}"}
    with pytest.raises(LoadRefusedError, match="is a table"):
        find("s3://bucket/table/")


def test_what_is_not_there_is_refused(server: ObjectServer) -> None:
    with pytest.raises(LoadRefusedError, match=r"s3://bucket/none.csv: there is no such object, and nothing below it"):
        find("s3://bucket/none.csv")
    server.once(status(404), 1)  # of the listing: no such bucket
    with pytest.raises(LoadRefusedError, match="cannot be read: the store answers 404"):
        find("s3://bucket/none.csv")
    with pytest.raises(LoadRefusedError, match="reads no hdfs:// addresses"):
        find("hdfs://host/none.csv")


def test_the_bound_of_the_process_holds_for_stores(server: ObjectServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKAPROD_ALLOWED_URLS", "https://elsewhere.example")
    with pytest.raises(LoadRefusedError, match="is not allowed: allowed_urls, or the variable KAFKAPROD_ALLOWED_URLS"):
        find(ADDRESS)
    monkeypatch.setenv("KAFKAPROD_ALLOWED_URLS", f"http://127.0.0.1:{server.port}/bucket/")
    assert len(find(ADDRESS)) == 1


def test_the_option_holds_for_stores(server: ObjectServer) -> None:
    with pytest.raises(LoadRefusedError, match="is not allowed: allowed_urls"):
        find_sources([ADDRESS], access=Access(allowed_urls=("https://elsewhere.example",)))
    server.objects["/bucket/day/a.csv"] = b"id\n1\n"
    with pytest.raises(LoadRefusedError, match="is not allowed: allowed_urls"):
        Listing.of(["s3://bucket/day"], Access(allowed_urls=("https://elsewhere.example",)))
    assert server.asked == []


def test_a_copy_of_a_source_for_another_process_reads_the_same_object(server: ObjectServer) -> None:
    (source,) = find(ADDRESS)
    copied = pickle.dumps(source)
    assert SECRET.encode() not in copied
    assert content_of(pickle.loads(copied)) == TEXT
    server.objects[KEY] = TEXT[::-1]
    with pytest.raises(LoadError, match="replaced"):
        content_of(pickle.loads(copied))
