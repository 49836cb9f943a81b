"""Loads of inputs that are not what the script expects, and loads that must be continued."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import json
import lzma
import zipfile
from collections.abc import Callable
from pathlib import Path

import lz4.frame
import pytest
import zstandard

from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from tests.support.loader.load_rig import LoadRig

ROWS = [b"row %d" % i for i in range(1000)]
WHOLE = b"\n".join(ROWS) + b"\n"
CUT = WHOLE[: WHOLE.index(ROWS[600])]  # at the end of a row, as a dead writer may leave it
WAYS = (
    ("--expect-rows", "1000"),
    ("--expect-bytes", str(len(WHOLE))),
    ("--expect-sha256", hashlib.sha256(WHOLE).hexdigest()),
)


@pytest.fixture(params=[False, True], ids=["manifest", "transactions"])
def rig(request: pytest.FixtureRequest, embedded_broker: EmbeddedBroker, tmp_path: Path, topic_name: str) -> LoadRig:
    transactional_id = f"load-{topic_name}" if request.param else None
    rig = LoadRig(embedded_broker.bootstrap_servers, tmp_path / "state", topic_name, transactional_id)
    rig.create(2)
    return rig


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way[0])
def test_a_cut_pipe_is_not_complete_and_the_whole_one_continues_it(rig: LoadRig, way: tuple[str, str]) -> None:
    done = rig.run("-", *way, "--json", stdin=CUT)
    assert done.code == 1, done.err
    assert f"but {way[0]} is" in done.err
    report = json.loads(done.out)
    assert not report["complete"]
    assert f"{report['records']} records of the load are in the topic, and it is not complete" in done.err
    assert len(rig.values()) == report["records"]
    if rig.transactional_id is not None:
        assert report["records"] == 0  # nothing of the last block is committed
    whole = rig.run("-", *way, "--resume", stdin=WHOLE)
    assert whole.code == 0, whole.err
    assert sorted(rig.values()) == sorted(ROWS)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way[0])
def test_a_cut_file_is_refused_before_anything_is_sent(rig: LoadRig, way: tuple[str, str], tmp_path: Path) -> None:
    path = tmp_path / "rows.txt"
    path.write_bytes(CUT)
    done = rig.run(str(path), *way)
    is_counted = way[0] == "--expect-rows"
    assert done.code == (1 if is_counted else 2)
    assert f"but {way[0]} is" in done.err
    if not is_counted or rig.transactional_id is not None:
        assert rig.values() == []
    path.write_bytes(WHOLE)
    assert rig.run(str(path), *way, "--restart").code == 0


def test_more_rows_than_expected_are_not_sent(rig: LoadRig) -> None:
    done = rig.run("-", "--expect-rows", "999", "--json", stdin=WHOLE)
    assert done.code == 1
    assert "more rows than --expect-rows 999" in done.err
    assert len(rig.values()) == json.loads(done.out)["records"] <= 999
    assert rig.transactional_id is None or rig.values() == []


def test_a_complete_load_is_compared_with_the_rows_that_are_expected(rig: LoadRig, tmp_path: Path) -> None:
    path = tmp_path / "rows.txt"
    path.write_bytes(WHOLE)
    assert rig.run(str(path)).code == 0
    assert rig.run(str(path), "--resume", "--expect-rows", "1000").code == 0
    done = rig.run(str(path), "--resume", "--expect-rows", "1001")
    assert done.code == 1
    assert "ends after 1,000 rows, but --expect-rows is 1,001" in done.err


def test_bad_rows_are_expected_rows(rig: LoadRig, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"k":1}\n[]\n{"k":3}\n')
    done = rig.run(str(path), "--key", "k", "--on-error", "skip", "--expect-rows", "3")
    assert done.code == 3, done.err


def test_a_pipe_that_is_continued_must_begin_as_it_did(rig: LoadRig) -> None:
    bad = [*ROWS[:600], b"x" * 2_000_000, *ROWS[600:]]
    other = [b"X" + ROWS[0][1:], *bad[1:]]
    assert rig.run("-", stdin=b"\n".join(bad)).code == 1
    again = ("-", "--resume", "--on-error", "skip")
    for wrong, why in (
        (b"\n".join(other), "are not those that an earlier run"),
        (b"\n".join(ROWS[:700]), "earlier run"),
    ):
        done = rig.run(*again, stdin=wrong)
        assert done.code == 1, done.err
        assert why in done.err
        assert sorted(rig.values()) == sorted(ROWS[:600])
    done = rig.run(*again, stdin=b"\n".join(bad))
    assert done.code == 3, done.err
    assert sorted(rig.values()) == sorted(ROWS)


def zipped(data: bytes, year: int) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(zipfile.ZipInfo("rows.txt", (year, 1, 1, 0, 0, 0)), data)
    return out.getvalue()


COMPRESS: dict[str, Callable[[bytes, int], bytes]] = {  # the same content, and other bytes for each number
    "gzip": lambda data, number: gzip.compress(data, mtime=number),
    "zstd": lambda data, number: zstandard.compress(data, level=number),
    "lz4": lambda data, number: lz4.frame.compress(data, compression_level=number),
    "bz2": lambda data, number: bz2.compress(data, number),
    "xz": lambda data, number: lzma.compress(data, preset=number),
    "zip": lambda data, number: zipped(data, 2000 + number),
}


COMPRESSED_RIGS = [  # where the digest is kept does not depend on the codec
    *((False, codec) for codec in COMPRESS),
    *((True, codec) for codec in ("gzip", "zip")),
]


@pytest.mark.parametrize(("rig", "codec"), COMPRESSED_RIGS, indirect=["rig"])
def test_a_compressed_pipe_is_continued_with_the_same_content_only(rig: LoadRig, codec: str) -> None:
    compress = COMPRESS[codec]
    bad = [*ROWS[:600], b"x" * 2_000_000, *ROWS[600:]]
    stopped = rig.run("-", stdin=compress(b"\n".join(bad), 1))
    assert stopped.code == 1, stopped.err
    manifests = {path: path.read_bytes() for path in rig.state_dir.glob("*.json")}
    again = ("-", "--resume", "--on-error", "skip")
    foreign = [b"X" + row[1:] for row in bad]
    refused = (
        compress(b"\n".join([foreign[0], *bad[1:]]), 1),
        compress(b"\n".join(foreign[:100]), 1),  # what a first refusal writes down would be taken for the load's own
        compress(b"\n".join(foreign[:100]), 2),
        compress(b"\n".join(bad[:100]), 1),
        compress(b"\n".join(bad), 1)[:30],
    )
    for wrong in refused:
        done = rig.run(*again, stdin=wrong)
        assert done.code in (1, 2), done.err
        assert {path: path.read_bytes() for path in rig.state_dir.glob("*.json")} == manifests
    assert sorted(rig.values()) == sorted(ROWS[:600])
    done = rig.run(*again, stdin=compress(b"\n".join(bad), 2))
    assert done.code == 3, done.err
    assert sorted(rig.values()) == sorted(ROWS)


def test_a_load_that_must_continue_does_not_begin(rig: LoadRig, tmp_path: Path) -> None:
    path = tmp_path / "rows.txt"
    path.write_bytes(WHOLE)
    done = rig.run(str(path), "--must-resume")
    assert done.code == 2
    assert "--must-resume: there is no " in done.err
    assert rig.values() == []
    assert rig.run(str(path)).code == 0
    again = rig.run(str(path), "--must-resume")
    assert again.code == 0, again.err
    assert len(rig.values()) == len(ROWS)
    assert rig.run(str(path), "--must-resume", "--restart").code == 2
