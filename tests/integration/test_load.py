"""`kafkaprod load`: every format arrives as an independent client and pyarrow or polars read it."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import random
import shlex
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from typing import Any

import lz4.frame
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.ipc
import pyarrow.parquet
import pytest
import zstandard

from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from tests.support.core.faces import partition_of_key
from tests.support.loader.load_rig import LoadRig

ROWS = 2_000


@pytest.fixture
def rig(embedded_broker: EmbeddedBroker, tmp_path: Path, topic_name: str) -> LoadRig:
    return LoadRig(embedded_broker.bootstrap_servers, tmp_path / "state", topic_name)


@pytest.mark.parametrize("own", [False, True])
def test_batches_are_no_larger_than_the_most_that_is_given(rig: LoadRig, tmp_path: Path, own: bool) -> None:
    given = f'topic_options={{"{rig.topic}": {{"max_batch_size": 9000}}}}' if own else "max_batch_size=9000"
    path = tmp_path / "in.txt"
    path.write_bytes((b"x" * 99 + b"\n") * 500)
    done = rig.run(str(path), "--format", "lines", "--create-topic", "1", "-X", given)
    assert done.code == 0, done.err
    assert len(rig.values()) == 500


def test_a_load_imports_nothing_slow_that_it_does_not_need(rig: LoadRig, tmp_path: Path) -> None:
    path = tmp_path / "in.txt"
    path.write_bytes(b"a\nb\n")
    program = (
        "import sys\nfrom kafkaprod.cli.main import main\nassert main(sys.argv[1:]) == 0\n"
        "slow = {'numpy.ma', 'html', 'http.client', 'email', 'ssl', 'pyarrow', 'polars', 'asyncio'}\n"
        "print(sorted({*slow, 'multiprocessing'} & set(sys.modules)))"
    )
    arguments = ["load", str(path), "-b", rig.bootstrap, "-t", rig.topic, "--create-topic", "1", "-q", "--no-manifest"]
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "[]"
    assert len(rig.values()) == 2


def flights() -> pl.DataFrame:
    random.seed(5)
    return pl.DataFrame(
        {
            "id": range(ROWS),
            "carrier": [random.choice(["AA", "B6", 'ä,\n"quoted"', "UA"]) for _ in range(ROWS)],
            "delay": [random.choice([None, 1.5, -3.0, 20.25]) for _ in range(ROWS)],
            "late": [random.random() < 0.5 for _ in range(ROWS)],
        }
    )


def as_bytes(format_name: str, frame: pl.DataFrame) -> bytes:
    out = io.BytesIO()
    table = frame.to_arrow()
    if format_name == "csv":
        frame.write_csv(out)
    elif format_name == "jsonl":
        frame.write_ndjson(out)
    elif format_name == "json":
        out.write(json.dumps(frame.to_dicts(), indent=1).encode())
    elif format_name == "parquet":
        pa.parquet.write_table(table, out, row_group_size=300)
    elif format_name == "feather":
        pa.feather.write_feather(table, out, compression="lz4")
    else:
        maker = pa.ipc.new_file if format_name == "arrow" else pa.ipc.new_stream
        with maker(out, table.schema) as writer:
            writer.write_table(table, max_chunksize=700)
    return out.getvalue()


COMPRESSORS = {
    "": lambda data: data,
    ".gz": gzip.compress,
    ".zst": zstandard.ZstdCompressor().compress,
    ".lz4": lz4.frame.compress,
    ".bz2": bz2.compress,
}


FORMATS = ["csv", "jsonl", "json", "parquet", "arrow", "arrows", "feather"]
# What decompresses text is the same code for all text formats, and tables are read as a whole.
PAIRS = [*((name, "") for name in FORMATS), *(("csv", suffix) for suffix in COMPRESSORS if suffix), ("parquet", ".gz")]


@pytest.mark.parametrize(("format_name", "suffix"), PAIRS)
def test_rows_of_each_format_arrive_with_their_values(
    rig: LoadRig, tmp_path: Path, format_name: str, suffix: str
) -> None:
    frame = flights()
    path = tmp_path / f"flights.{format_name}{suffix}"
    path.write_bytes(COMPRESSORS[suffix](as_bytes(format_name, frame)))
    types = ["--infer-types"] if format_name == "csv" else []
    done = rig.run(str(path), "--create-topic", "3", "--key", "id", *types)
    assert done.code == 0, done.err
    seen = {}
    for number, records in rig.read().items():
        for record in records:
            assert record.key is not None
            assert record.value is not None
            assert partition_of_key(record.key, 3) == number
            seen[int(record.key)] = json.loads(record.value)
    assert [seen[i] for i in range(ROWS)] == frame.to_dicts()


def test_members_of_a_zip_archive_arrive_in_order(rig: LoadRig, tmp_path: Path) -> None:
    path = tmp_path / "two.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.csv", "x\n1\n2\n")
        archive.writestr("b.csv", "x\n3\n")
    assert rig.run(str(path), "--create-topic", "1").code == 0
    assert rig.values() == [b'{"x":"1"}', b'{"x":"2"}', b'{"x":"3"}']


def test_lines_arrive_byte_for_byte_in_order(rig: LoadRig, tmp_path: Path) -> None:
    random.seed(1)
    lines = [bytes(random.choices(range(14, 256), k=random.choice([0, 3, 11, 12, 13, 500]))) for _ in range(ROWS)]
    path = tmp_path / "lines.txt"
    path.write_bytes(b"\n".join(lines))
    assert rig.run(str(path), "--create-topic", "1").code == 0
    assert rig.values() == lines


def test_json_lines_are_forwarded_as_they_stand(rig: LoadRig, tmp_path: Path) -> None:
    odd = [b'{"a" : 1e2,  "a": 2 }', b'{"b": "\\u00e4"}\r', b"[1,2]", b"not json"]
    path = tmp_path / "odd.jsonl"
    path.write_bytes(b"\n".join(odd) + b"\n\n")
    assert rig.run(str(path), "--create-topic", "1").code == 0
    assert rig.values() == [line.rstrip(b"\r") for line in odd]


def test_keys_headers_timestamps_and_partitions_come_from_fields(rig: LoadRig, tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    rows: list[dict[str, Any]] = [
        {"user": f'u"{i}', "nested": {"user": 1}, "at": 1_700_000_000 + i, "place": i % 3} for i in range(100)
    ]
    path.write_text("\n".join(map(json.dumps, rows)))
    done = rig.run(
        *(str(path), "--create-topic", "3", "--key", "{user}/{place}", "-H", "from={user}", "-H", "fixed=1"),
        *("--timestamp", "at", "--timestamp-unit", "s", "--partition-column", "place"),
    )
    assert done.code == 0, done.err
    for number, records in rig.read().items():
        expected = [row for row in rows if row["place"] == number]
        assert [json.loads(record.value or b"") for record in records] == expected
        assert [record.timestamp for record in records] == [row["at"] * 1000 for row in expected]
        assert [record.key for record in records] == [f"{row['user']}/{number}".encode() for row in expected]
        assert [record.headers for record in records] == [
            [("from", row["user"].encode()), ("fixed", b"1")] for row in expected
        ]


def test_one_column_can_be_the_value_and_another_the_time(rig: LoadRig, tmp_path: Path) -> None:
    path = tmp_path / "in.parquet"
    times = pa.array([1_700_000_000_123_456, 1_700_000_001_000_000], pa.timestamp("us"))
    table = pa.table({"body": pa.array([b"\x00\xff", None], pa.binary()), "at": times})
    pa.parquet.write_table(table, path)
    assert rig.run(str(path), "--create-topic", "1", "--value", "body", "--timestamp", "at").code == 0
    (records,) = rig.read().values()
    assert [record.value for record in records] == [b"\x00\xff", None]
    assert [record.timestamp for record in records] == [1_700_000_000_123, 1_700_000_001_000]


@pytest.mark.parametrize(
    ("at", "options", "is_warned"),
    [
        (1_700_000_000_000, {"retention_ms": "604800000"}, True),
        (1_700_000_000_000, {"retention_ms": "-1"}, False),
        (1_700_000_000_000, {"cleanup_policy": "compact"}, False),
        (1_700_000_000_000, {"message_timestamp_type": "LogAppendTime"}, False),
        (int(time.time() * 1000), {"retention_ms": "604800000"}, False),
    ],
)
def test_rows_that_the_topic_will_not_keep_are_named(
    rig: LoadRig, tmp_path: Path, at: int, options: dict[str, str], is_warned: bool
) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text(f'{{"at":{at},"k":1}}\n{{"at":{int(time.time() * 1000)},"k":1}}\n')
    rig.create(1, **options)
    done = rig.run(str(path), "--timestamp", "at", "--key", "k")
    assert done.code == 0
    warning = "the oldest timestamp is 2023-11-14T22:13:20, and topic"
    assert (warning in done.err) == is_warned
    assert ("keeps records for 7 days by their timestamps" in done.err) == is_warned


def test_rows_of_csv_can_be_forwarded_raw_with_a_key(rig: LoadRig, tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    path.write_bytes(b'id,text\n1,"a\n""b"""\n\n2,c\n')
    assert rig.run(str(path), "--create-topic", "1", "--value", "raw", "--key", "id").code == 0
    (records,) = rig.read().values()
    assert [(record.key, record.value) for record in records] == [(b"1", b'1,"a\n""b"""'), (b"2", b"2,c")]


def test_stdin_patterns_and_directories_are_inputs(rig: LoadRig, tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    for name in ("b.txt", "a.txt"):
        (tmp_path / "d" / name).write_text(f"{name}\n")
    assert rig.run("-", "--create-topic", "1", stdin=b"one\ntwo").code == 0
    assert rig.run(str(tmp_path / "d"), "--format", "lines").code == 0
    assert rig.run(str(tmp_path / "d" / "*.txt"), "--restart").code == 0
    assert rig.values() == [b"one", b"two", b"a.txt", b"b.txt", b"a.txt", b"b.txt"]


def test_process_substitution_loses_no_row(rig: LoadRig) -> None:
    rig.create(1)
    command = f"{shlex.join(rig.command('--format', 'lines'))} <(seq 1 100000)"
    done = subprocess.run(["bash", "-c", command], capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert rig.values() == [b"%d" % i for i in range(1, 100_001)]


def test_a_dry_run_shows_records_and_needs_no_broker(tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    path.write_text("id,name\n1,x\n2,y\n3,z\n")
    done = LoadRig("127.0.0.1:1", tmp_path, "t").run(str(path), "--dry-run", "2", "--key", "name")
    assert done.code == 0
    assert "key        x" in done.out
    assert '{"id":"2","name":"y"}' in done.out
    assert "z" not in done.out.replace(str(path), "")


def test_the_summary_as_json_counts_what_was_sent(rig: LoadRig, tmp_path: Path) -> None:
    path = tmp_path / "in.txt"
    path.write_bytes(b"12345\n" * 1000)
    done = rig.run(str(path), "--create-topic", "2", "--json", "-k", "k")
    report = json.loads(done.out)
    assert (report["records"], report["bytes"], report["bad_rows"], report["complete"]) == (1000, 6000, 0, True)
