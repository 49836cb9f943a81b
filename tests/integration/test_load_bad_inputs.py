"""The table of bad inputs: what each does to a load, and a message a person can act on."""

from __future__ import annotations

import contextlib
import errno
import gzip
import json
import os
import random
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

from kafkaprod.admin.client import ClusterClient
from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from kafkaprod.broker.embedding.faults import delay
from kafkaprod.config import ProducerConfig
from kafkaprod.errors import AuthorizationError
from kafkaprod.protocol.api_keys import ApiKey
from tests.support.loader.load_rig import LoadRig, run_here

HUGE = b"x" * (10 << 20)
NOBODY = 65_534


@pytest.fixture
def rig(embedded_broker: EmbeddedBroker, tmp_path: Path, topic_name: str) -> LoadRig:
    return LoadRig(embedded_broker.bootstrap_servers, tmp_path / "state", topic_name)


def parquet_bytes() -> bytes:
    sink = pa.BufferOutputStream()
    pa.parquet.write_table(pa.table({"a": list(range(10_000))}), sink)
    return sink.getvalue().to_pybytes()


# name, bytes, arguments, what the message must say
STOPPED = [
    ("quotes.csv", b'a,b\n1,2\n"3,4\n5,6\n', (), "row 2"),
    ("fields.csv", b"a,b\n1,2\n3\n4,5\n", (), "row 2 (line 3): Expected 2 columns, got 1"),
    ("utf8.csv", b"a,b\nx,1\n\xff\xfe,2\n", ("--text-columns",), "row 2"),
    ("cut.jsonl.gz", gzip.compress(b'{"a":1}\n' * 1000)[:-20], (), "is cut off: it ends at byte"),
    ("cut.csv.gz", gzip.compress(b"a\n1\n" * 1000)[:-20], (), "is cut off: it ends at byte"),
    ("cut.parquet", parquet_bytes()[:-100], (), "not a whole parquet file"),
    ("cut.arrow", b"ARROW1\x00\x00" + b"\xff" * 50, (), "without the footer of an Arrow file"),
    ("cut.zip", b"PK\x03\x04" + b"x" * 50, (), "not a whole zip"),
    ("open.json", b'[{"a":1},', (), "does not end"),
    ("empty.json", b"", (), "is cut off: it is empty"),
    ("empty.jsonl.gz", b"", (), "is cut off: it is empty"),
    ("cut.jsonl", b'{"a":1}\n{"a"', (), "row 2: the last line has no line end and is no JSON"),
    ("object.json", b'{"a":1}', (), "--format jsonl"),
    ("more.json", b"[1] 2", (), "more text follows"),
    ("huge.txt", b"a\n" + HUGE + b"\n", (), "row 2: a record of 10485760 bytes is over the limit"),
    ("missing.csv", b"a,b\n1,2\n", ("--key", "c"), "has no column 'c'; it has: a, b"),
    ("missing.parquet", parquet_bytes(), ("--key", "c"), "has no column 'c'; it has: a"),
    ("lines.txt", b"x\n", ("--key", "c"), "lines have no columns"),
    ("type.csv", b"a\n1\nx\n", ("--column-type", "a=int"), "row 2"),
    (
        "time.jsonl",
        b'{"t":1}\n{"t":"soon"}\n',
        ("--timestamp", "t", "--timestamp-unit", "ms"),
        "row 2: t=b'soon' is not a timestamp",
    ),
    ("part.jsonl", b'{"p":0}\n{"p":9}\n', ("--partition-column", "p"), "row 2: partition 9 of 2"),
    ("object.jsonl", b'{"k":1}\nnot json\n', ("--key", "k"), "row 2: is not a JSON object"),
    ("raw.parquet", parquet_bytes(), ("--value", "raw"), "no raw form"),
    ("what.bin", b"\x00\x01", (), "--format"),
    ("seconds.jsonl", b'{"t":1700000000}\n', ("--timestamp", "t"), "t=1700000000 is before 1973 in ms"),
    ("micros.csv", b"t\n1700000000000000\n", ("--timestamp", "t"), "is after 2286 in ms: use --timestamp-unit"),
    ("semicolon.csv", b"a;b\n1;2\n", (), "has one column, 'a;b': use --separator ';'"),
    ("open.csv", b'a,b\n1,2\n3,"4\n5,6\n', (), "row 2 (line 3): a quote is opened and not closed"),
    ("long.txt", b"1\n" * 5 + b"x" * 20, ("--max-row-bytes", "10"), "--max-row-bytes"),
    ("wide.csv", "a,b\n1,2\n".encode("utf-16"), (), "--encoding utf-16"),
    ("twice.csv", b"a,a\n1,2\n", (), "two columns 'a'"),
]


# What is refused before anything is sent: the arguments do not fit the input.
REFUSED = {
    *("missing.csv", "missing.parquet", "lines.txt", "raw.parquet", "what.bin", "semicolon.csv", "wide.csv"),
    *("twice.csv", "cut.zip", "object.json"),
}


@pytest.mark.parametrize(("name", "data", "arguments", "message"), STOPPED, ids=[case[0] for case in STOPPED])
def test_a_bad_input_stops_the_load_with_a_message(
    rig: LoadRig, tmp_path: Path, name: str, data: bytes, arguments: tuple[str, ...], message: str
) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    done = rig.run(str(path), "--create-topic", "2", *arguments)
    assert done.code == (2 if name in REFUSED else 1)
    assert message in done.err, done.err
    assert "Traceback" not in done.err


def test_rows_before_a_bad_one_are_sent_and_none_behind_it(rig: LoadRig, tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    path.write_bytes(b"a,b\n1,2\n3\n4,5\n")
    assert rig.run(str(path), "--create-topic", "1").code == 1
    assert rig.values() == [b'{"a":"1","b":"2"}']


@pytest.mark.parametrize(("data", "is_first"), [(b"a,b\n1\n2,3\n", True), (b"a,b\n1,2\n3\n", False)])
def test_the_message_of_a_bad_row_names_the_command_that_continues(
    rig: LoadRig, tmp_path: Path, data: bytes, is_first: bool
) -> None:
    path = tmp_path / "in.csv"
    path.write_bytes(data)
    stopped = rig.run(str(path), "--create-topic", "1")
    assert "with the same command, --resume and --on-error skip (or dead-letter=FILE)" in stopped.err
    assert ("Rows before it are sent" in stopped.err) is not is_first
    assert rig.run(str(path), "--resume", "--on-error", "skip").code == 3
    assert len(rig.values()) == 1


def test_the_message_of_a_bad_row_names_no_resume_without_a_manifest(rig: LoadRig, tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    path.write_bytes(b"a,b\n1,2\n3\n")
    command = ["load", str(path), "-b", rig.bootstrap, "-t", rig.topic, "--create-topic", "1", "--no-manifest", "-q"]
    stopped = run_here(command)
    assert "start over with the same command and --on-error skip" in stopped.err
    assert "--resume" not in stopped.err


@pytest.mark.parametrize("on_error", ["dead-letter=", "dead-letter=topic:", "none"])
def test_a_dry_run_refuses_an_on_error_that_names_nothing(rig: LoadRig, tmp_path: Path, on_error: str) -> None:
    path = tmp_path / "in.txt"
    path.write_bytes(b"x\n")
    refused = rig.run(str(path), "--dry-run", "--on-error", on_error)
    assert refused.code == 2
    assert "dead-letter=FILE" in refused.err


def test_bad_rows_are_left_out_and_told_of(rig: LoadRig, tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    path.write_bytes(b"a,b\n1,2\n3\n4,5\n6,7,8\n9,x\n")
    done = rig.run(str(path), "--create-topic", "1", "--on-error", "skip", "--column-type", "b=int")
    assert done.code == 3
    assert rig.values() == [b'{"a":"1","b":2}', b'{"a":"4","b":5}']
    assert all(f"row {row}" in done.err for row in (2, 4, 5))
    assert "3 bad rows" in done.err


def test_bad_rows_are_put_aside_in_a_file_with_row_reason_and_bytes(rig: LoadRig, tmp_path: Path) -> None:
    path = tmp_path / "in.txt"
    path.write_bytes(b"good\n" + HUGE + b"\n" + b"\xff" * (2 << 20) + b"\ngood\n")
    aside = tmp_path / "bad.jsonl"
    done = rig.run(str(path), "--create-topic", "1", "--on-error", f"dead-letter={aside}")
    assert done.code == 3
    assert rig.values() == [b"good", b"good"]
    first, second = map(json.loads, aside.read_text().splitlines())
    assert (first["row"], first["value"]) == (2, HUGE.decode())
    assert first["source"] == str(path)
    assert "over the limit" in first["reason"]
    assert (second["row"], second["value_base64"][:4]) == (3, "////")


def test_bad_rows_are_put_aside_in_a_topic(rig: LoadRig, tmp_path: Path, topic_name: str) -> None:
    path = tmp_path / "in.jsonl"
    path.write_bytes(b'{"k":1}\nbroken\n{"k":2}\n')
    done = rig.run(str(path), "--create-topic", "1", "--key", "k", "--on-error", f"dead-letter=topic:{topic_name}-bad")
    assert done.code == 3
    assert rig.values() == [b'{"k":1}', b'{"k":2}']
    (record,) = [record for records in rig.read(f"{topic_name}-bad").values() for record in records]
    assert record.value == b"broken"
    assert dict(record.headers)["row"] == b"2"


def test_rows_that_could_not_be_put_aside_are_not_passed_over_by_a_resumed_load(
    rig: LoadRig, tmp_path: Path, topic_name: str
) -> None:
    path, aside, broken = tmp_path / "in.jsonl", f"{topic_name}-bad", b"broken " * 40
    path.write_bytes(b'{"k":1}\n' + broken + b'\n{"k":2}\n')
    rig.create(1)
    make = ["topics", "create", aside, "-b", rig.bootstrap]
    assert run_here([*make, "--config", "max.message.bytes=100"]).code == 0
    load = [str(path), "--key", "k", "--on-error", f"dead-letter=topic:{aside}", "--checkpoint-interval", "0.000001"]
    done = rig.run(*load)
    assert done.code == 1
    assert "1 record not delivered" in done.err
    assert run_here(["topics", "delete", aside, "-b", rig.bootstrap]).code == 0
    assert run_here(make).code == 0
    assert rig.run(*load, "--resume").code == 3
    (record,) = [record for records in rig.read(aside).values() for record in records]
    assert record.value == broken
    assert rig.values() == [b'{"k":1}', b'{"k":2}']


def test_a_dead_letter_topic_that_does_not_exist_is_named_before_anything_is_sent(tmp_path: Path) -> None:
    path = tmp_path / "in.txt"
    path.write_bytes(b"x\n")
    with EmbeddedBroker(tmp_path / "data", topics={"t": 1}, auto_create_topics=False) as broker:
        rig = LoadRig(broker.bootstrap_servers, tmp_path / "state", "t")
        done = rig.run(str(path), "--on-error", "dead-letter=topic:nope")
        assert done.code == 1
        assert "the dead-letter topic 'nope' does not exist" in done.err
        assert rig.values() == []


def test_a_key_that_no_row_has_is_reported(rig: LoadRig, tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_bytes(b'{"k":1}\n{"k":2}\n')
    done = rig.run(str(path), "--create-topic", "1", "--key", "nope")
    assert done.code == 0
    assert "--key nope: no row has such a key" in done.err
    assert "no row" not in rig.run(str(path), "--key", "k", "--restart").err


def test_a_column_that_has_no_text_form_cannot_be_a_key_and_is_named(rig: LoadRig, tmp_path: Path) -> None:
    path = tmp_path / "in.parquet"
    pa.parquet.write_table(pa.table({"k": pa.array([1], pa.duration("s")), "a": [1]}), path)
    done = rig.run(str(path), "--create-topic", "1", "--key", "k")
    assert done.code == 2
    assert f"{path}: column 'k' has type duration[s], which has no form in JSON" in done.err
    assert "damaged" not in done.err
    assert rig.run(str(path), "--columns", "a").code == 1  # the topic was not made
    assert rig.run(str(path), "--columns", "a", "--create-topic", "1").code == 0


def test_rows_that_do_not_fit_the_avro_schema_are_put_aside(rig: LoadRig, tmp_path: Path) -> None:
    path, schema, aside = tmp_path / "in.csv", tmp_path / "row.avsc", tmp_path / "bad.jsonl"
    path.write_bytes(b"a,b\n1,x\n,y\n3,z\n")
    fields = [{"name": "a", "type": "int"}, {"name": "b", "type": "string"}]
    schema.write_text(json.dumps({"type": "record", "name": "row", "fields": fields}))
    avro = ("--value", "avro", "--schema", str(schema), "--schema-id", "258", "--infer-types")
    done = rig.run(str(path), "--create-topic", "1", *avro, "--on-error", f"dead-letter={aside}")
    assert done.code == 3, done.err
    assert rig.values() == [b"\x00\x00\x00\x01\x02\x02\x02x", b"\x00\x00\x00\x01\x02\x06\x02z"]
    (bad,) = [json.loads(line) for line in aside.read_text().splitlines()]
    assert (bad["row"], json.loads(bad["value"])) == (2, {"a": None, "b": "y"})
    assert "does not fit the Avro schema" in bad["reason"]


def test_numbers_that_the_avro_schema_cannot_hold_are_put_aside(rig: LoadRig, tmp_path: Path) -> None:
    path, schema, aside = tmp_path / "in.csv", tmp_path / "row.avsc", tmp_path / "bad.jsonl"
    path.write_bytes(b"id,price\n1,2\n4294967296,3\n5,2.75\n")
    fields = [{"name": "id", "type": "int"}, {"name": "price", "type": "long"}]
    schema.write_text(json.dumps({"type": "record", "name": "row", "fields": fields}))
    avro = ("--value", "avro", "--schema", str(schema), "--schema-id", "7", "--column-type", "id=int64")
    done = rig.run(str(path), "--create-topic", "1", *avro, "--infer-types", "--on-error", f"dead-letter={aside}")
    assert done.code == 3, done.err
    assert rig.values() == []  # 2.75 makes floats of all prices
    reasons = [json.loads(line)["reason"] for line in aside.read_text().splitlines()]
    assert [reason.partition(": ")[2] for reason in reasons] == [
        "field 'price': 2.0 (float) is no long",
        "field 'id': 4294967296 (int) is no int",
        "field 'price': 2.75 (float) is no long",
    ]


@pytest.mark.parametrize("arguments", [("--value", "avro"), ("--value", "avro", "--schema-id", "1")])
def test_avro_without_its_schema_is_refused(rig: LoadRig, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    path = tmp_path / "in.csv"
    path.write_bytes(b"a\n1\n")
    done = rig.run(str(path), "--create-topic", "1", *arguments)
    assert done.code == 2
    assert "--schema FILE and --schema-id N belong together" in done.err


def refusing(rig: LoadRig, monkeypatch: pytest.MonkeyPatch, **options: str) -> None:
    """A topic whose options the loader may not see: what it refuses is known only from its answers."""

    def is_hidden(*_: object) -> None:
        raise AuthorizationError("describing the topic's options is not allowed")

    rig.create(2, **options)
    monkeypatch.setattr("kafkaprod.cli.load_setup.topic_options", is_hidden)


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_rows_that_the_broker_finds_too_large_are_put_aside(
    rig: LoadRig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, codec: str
) -> None:
    refusing(rig, monkeypatch, max_message_bytes="20000")
    lines = [b"%d" % i * 100 for i in range(1_000)]
    lines[300:300] = lines[800:800] = [random.Random(1).randbytes(30_000).hex().encode()]
    path, aside = tmp_path / "in.txt", tmp_path / "bad.jsonl"
    path.write_bytes(b"\n".join(lines))
    done = rig.run(str(path), "-z", codec, "--on-error", f"dead-letter={aside}")
    assert done.code == 3, done.err
    assert "2 bad rows" in done.err
    assert sorted(value or b"" for value in rig.values()) == sorted(line for line in lines if len(line) < 20_000)
    bad = [json.loads(line) for line in aside.read_text().splitlines()]
    assert [(row["row"], row["value"].encode()) for row in bad] == [(301, lines[300]), (801, lines[800])]
    assert all("the broker refused it" in row["reason"] for row in bad)
    assert "MESSAGE_TOO_LARGE" in bad[0]["reason"] or "max.message.bytes" in bad[0]["reason"]


def test_rows_that_the_broker_names_are_left_out_and_their_neighbours_sent(
    rig: LoadRig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusing(rig, monkeypatch, cleanup_policy="compact")
    path = tmp_path / "in.jsonl"
    rows = [b'{"k":%s}' % (b"null" if i in (7, 40) else b"%d" % i) for i in range(60)]
    path.write_bytes(b"\n".join(rows))
    done = rig.run(str(path), "--key", "k", "--on-error", "skip")
    assert done.code == 3, done.err
    assert sorted(value or b"" for value in rig.values()) == sorted(
        row for i, row in enumerate(rows) if i not in (7, 40)
    )
    assert "row 8: the broker refused it" in done.err
    assert "row 41: the broker refused it" in done.err


def test_a_row_that_the_broker_refuses_stops_the_load_with_its_number_and_bytes(
    rig: LoadRig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusing(rig, monkeypatch, max_message_bytes="20000")
    path = tmp_path / "in.txt"
    path.write_bytes(b"good\n" + b"y" * 40_000 + b"\ngood\n")
    done = rig.run(str(path), "-p", "0")
    assert done.code == 1
    assert "row 2: the broker refused it" in done.err
    assert "yyyyyyyy" in done.err
    assert rig.values() == [b"good"]


def test_without_a_manifest_a_row_that_the_broker_refuses_is_named(
    rig: LoadRig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusing(rig, monkeypatch, max_message_bytes="20000")
    path = tmp_path / "in.txt"
    path.write_bytes(b"good\n" + b"y" * 40_000 + b"\n")
    done = rig.run(str(path), "--no-manifest", "--on-error", "skip")
    assert done.code == 1
    assert "row 2: the broker refused it" in done.err
    assert "only if it has a manifest" in done.err


def test_a_row_without_a_key_is_bad_where_the_topic_is_compacted(rig: LoadRig, tmp_path: Path) -> None:
    rig.create(1, cleanup_policy="compact")
    path = tmp_path / "in.jsonl"
    path.write_bytes(b'{"k":1}\n{"k":null}\n')
    done = rig.run(str(path), "--key", "k")
    assert done.code == 1
    assert "row 2" in done.err
    assert "is compacted, and the row has no key" in done.err


def test_a_null_key_is_sent_as_null_elsewhere(rig: LoadRig, tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_bytes(b'{"k":"a"}\n{"k":null}\n{}\n')
    assert rig.run(str(path), "--create-topic", "1", "--key", "k").code == 0
    (records,) = rig.read().values()
    assert [record.key for record in records] == [b"a", None, None]


@pytest.mark.parametrize("name", ["empty.csv", "empty.jsonl", "empty.txt"])
def test_an_empty_file_is_a_load_of_nothing(rig: LoadRig, tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(b"")
    done = rig.run(str(path), "--create-topic", "1")
    assert done.code == 0
    assert "0 records" in done.err


def test_an_unreadable_file_is_named(rig: LoadRig, tmp_path: Path) -> None:
    done = rig.run(str(tmp_path / "none.csv"), "--create-topic", "1")
    assert done.code == 2
    assert "none.csv" in done.err


@contextlib.contextmanager
def ordinary_user() -> Iterator[None]:
    """Root may read everything: be somebody else for a while."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def public_path() -> Iterator[Path]:
    """A directory that everybody can look into, and nobody but this user write to."""
    with tempfile.TemporaryDirectory() as directory:
        os.chmod(directory, 0o755)
        yield Path(directory)


def test_a_file_that_may_not_be_read_is_named(rig: LoadRig, public_path: Path) -> None:
    path = public_path / "secret.csv"
    path.write_bytes(b"a\n1\n")
    path.chmod(0)
    rig.create(1)
    with ordinary_user():
        done = rig.run(str(path))
    assert done.code == 2
    assert done.err == f"kafkaprod load: {path}: Permission denied\n"
    path.chmod(0o644)
    assert rig.run(str(path)).code == 0
    assert rig.values() == [b'{"a":"1"}']


def test_a_manifest_is_in_the_state_directory_where_that_of_the_input_is_not_writable(
    embedded_broker: EmbeddedBroker,
    public_path: Path,
    tmp_path: Path,
    topic_name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = public_path / "in.txt"
    path.write_bytes(b"1\n")
    arguments = ["load", str(path), "-b", embedded_broker.bootstrap_servers, "-t", topic_name, "--create-topic", "-q"]
    public_path.chmod(0o555)
    state = tempfile.mkdtemp()  # outside of the directories of pytest, which only this user may enter
    try:
        monkeypatch.setenv("XDG_STATE_HOME", state)
        with ordinary_user():
            done = run_here(arguments)
            assert done.code == 1
            assert "Permission denied" in done.err
            assert "--state DIR" in done.err
            assert run_here([*arguments, "--no-manifest"]).code == 0
        os.chmod(state, 0o777)
        with ordinary_user():
            done = run_here(arguments)
            assert done.code == 0, done.err
            (manifest,) = Path(state, "kafkaprod").iterdir()
            assert f"manifest {manifest}" in done.err
            again = run_here(arguments)
            assert again.code == 2
            assert "already loaded" in again.err
        public_path.chmod(0o777)
        assert "already loaded" in run_here(arguments).err  # also when it could be beside the input now
        assert list(public_path.iterdir()) == [path]
    finally:
        shutil.rmtree(state)


def test_a_part_of_a_pipe_that_must_be_read_again_stops_the_load_with_what_to_do(rig: LoadRig, tmp_path: Path) -> None:
    rig.create(2, max_message_bytes="20000")
    lines = [b"good", random.Random(1).randbytes(30_000).hex().encode(), b"good too"]
    data = b"\n".join(lines) + b"\n"
    arguments = ("-", "-p", "0", "-z", "zstd", "--on-error", "skip")  # compressed: its size is known to the broker only
    stopped = rig.run(*arguments, stdin=data)
    assert stopped.code == 1, stopped.err
    assert "run the command with --resume and the same bytes" in stopped.err
    done = rig.run(*arguments, "--resume", stdin=data)  # with small batches, in which the row is alone
    assert done.code == 3, done.err
    assert rig.values() == [b"good", b"good too"]


def test_a_pattern_without_a_file_is_named(rig: LoadRig, tmp_path: Path) -> None:
    done = rig.run(str(tmp_path / "*.csv"), "--create-topic", "1")
    assert done.code == 2
    assert "no file matches" in done.err


def test_a_full_disk_for_the_manifest_stops_the_load_before_it_sends(
    rig: LoadRig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def is_full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    path = tmp_path / "in.txt"
    path.write_bytes(b"x\n")
    rig.create(1)
    monkeypatch.setattr("kafkaprod.loader.positions.manifest_file.os.fsync", is_full)
    done = rig.run(str(path))
    assert done.code == 1
    assert "No space left" in done.err
    assert "cannot be written" in done.err
    assert "--no-manifest" in done.err
    assert rig.values() == []


def test_a_missing_topic_is_named_with_the_flag_that_makes_it(rig: LoadRig, tmp_path: Path) -> None:
    path = tmp_path / "in.txt"
    path.write_bytes(b"x\n")
    done = rig.run(str(path))
    assert done.code == 1
    assert f"topic {rig.topic!r} does not exist" in done.err
    assert "--create-topic" in done.err


def test_a_broker_that_is_not_there_is_named(tmp_path: Path) -> None:
    path = tmp_path / "in.txt"
    path.write_bytes(b"x\n")
    done = LoadRig("127.0.0.1:1", tmp_path, "t").run(str(path), "-X", "request.timeout.ms=1000")
    assert done.code == 75
    assert "127.0.0.1:1" in done.err


def test_a_broker_that_goes_away_stops_the_load_which_goes_on_when_it_is_back(tmp_path: Path) -> None:
    lines = [b"line %d" % i for i in range(60_000)]
    path = tmp_path / "in.txt"
    path.write_bytes(b"\n".join(lines))
    with EmbeddedBroker(tmp_path / "data", topics={"t": 1}) as broker:
        rig = LoadRig(broker.bootstrap_servers, tmp_path, "t")
        broker.faults.on(ApiKey.PRODUCE, delay(60_000))
        short = ("-X", "delivery.timeout.ms=1000", "-X", "request.timeout.ms=900", "-X", "linger.ms=0")
        done = rig.run(str(path), *short)
        assert done.code == 75
        assert "kafkaprod load: " in done.err
        broker.kill()
        broker.start()
        assert rig.run(str(path), "--resume").code == 0
        assert rig.values() == lines


def test_a_wrong_answer_to_on_error_is_refused(rig: LoadRig, tmp_path: Path) -> None:
    path = tmp_path / "in.txt"
    path.write_bytes(b"x\n")
    done = rig.run(str(path), "--create-topic", "1", "--on-error", "ignore")
    assert done.code == 2
    assert "dead-letter=FILE" in done.err


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [("in.csv", (), r"pip install 'kafkaprod\[load\]'"), ("in.parquet", ("--value", "raw"), "no raw form")],
)
def test_what_cannot_be_read_at_all_makes_no_topic(
    rig: LoadRig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, arguments: tuple[str, ...], message: str
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)  # as if it were not installed
    (tmp_path / name).write_bytes(b"a,b\n1,2\n")
    done = rig.run(str(tmp_path / name), "--create-topic", "2", *arguments)
    assert done.code == 2
    assert re.search(message, done.err)
    assert rig.topic not in run_here(["topics", "list", "-b", rig.bootstrap]).out.split()


def test_an_object_is_refused_before_a_topic_is_made(rig: LoadRig, tmp_path: Path) -> None:
    path = tmp_path / "one.json"
    path.write_text('{"a": {"b": 1}}')
    done = rig.run(str(path), "--create-topic", "1")
    assert done.code == 2
    assert "is not a JSON array" in done.err
    assert "--format documents" in done.err
    assert rig.run(str(path), "--format", "documents").code == 1  # the topic was not made


@pytest.mark.parametrize(
    ("name", "data", "arguments"),
    [
        ("a.csv", b"a;b\n1;2\n", ()),
        ("a.csv", b"a,a\n1,2\n", ()),
        ("a.jsonl", b"{\n}\n", ()),
        ("a.json", b'{"x":[1]}', ("--elements", "y")),
        ("a.txt", "a".encode("utf-16"), ()),
        ("a.csv", b"a\n1\n", ("--column-type", "a=number")),
        ("a.txt", b"a\n", ("-p", "1")),
        ("a.txt", b"a\n", ("-X", "acks=1")),
        ("a.txt", b"a\n", ("--on-error", "dead-letter={}/none/file")),
        ("a.txt", b"a\n", ("--on-error", "dead-letter={}")),
    ],
)
def test_what_is_refused_makes_no_topic(
    rig: LoadRig, tmp_path: Path, name: str, data: bytes, arguments: tuple[str, ...]
) -> None:
    (tmp_path / name).write_bytes(data)
    more = [argument.format(tmp_path) for argument in arguments]
    assert rig.run(str(tmp_path / name), "--create-topic", "1", *more).code == 2
    with ClusterClient(ProducerConfig.from_options({"bootstrap.servers": rig.bootstrap})) as client:
        assert rig.topic not in [topic.name for topic in client.metadata(None).topics]
    assert not (tmp_path / "state").exists() or not list((tmp_path / "state").iterdir())
