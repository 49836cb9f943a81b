"""`kafkaprod load --engine spark` does what one machine does: the same records, partitions and bad rows."""

import gzip
import json
import os
import signal
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from kafkaprod.cli import load_spark
from kafkaprod.cli.main import main
from kafkaprod.loader.load import Load
from tests.spark.topics import Row, read_topic

ROWS = 3000
SOME_BAD_ROWS = 3


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four inputs in three formats; some keys are null, and three rows bad."""
    folder = tmp_path_factory.mktemp("in")
    for part in (0, 1):
        lines = [f"{id},{'' if id % 5 == 0 else f'k{id % 97}'},text {id}" for id in range(part, ROWS, 2)]
        lines[10] += ",one,too,many"
        (folder / f"{part}.csv").write_text("id,name,text\n" + "\n".join(lines) + "\n")
    documents = [json.dumps({"id": id, "name": None if id % 3 else f"n{id}", "text": "x" * 200}) for id in range(ROWS)]
    documents[7] = "{broken"
    (folder / "2.jsonl.gz").write_bytes(gzip.compress("\n".join(documents).encode()))
    (folder / "3.jsonl").write_text("")
    return folder


def load(files: Path, broker: EmbeddedBroker, topic: str, state: Path, *more: str) -> int:
    arguments = ["load", str(files), "-b", broker.bootstrap_servers, "-t", topic, "--create-topic", "4"]
    state.mkdir(exist_ok=True)
    arguments += ["-H", "from={id}", "--state", str(state), "--on-error", f"dead-letter={state}/bad", "-q", "--json"]
    return main([*arguments, *more])


def records(broker: EmbeddedBroker, topic: str) -> list[Row]:
    """Without what depends on who was first."""
    return sorted(
        (row._replace(offset=0, timestamp_ms=0) for row in read_topic(broker.bootstrap_servers, topic)), key=repr
    )


@pytest.mark.parametrize("key", [("--key", "name"), (), ("-k", "one")], ids=["column", "none", "fixed"])
def test_load_by_spark_is_the_load_of_one_machine(
    spark: SparkSession,
    embedded_broker: EmbeddedBroker,
    topic_name: str,
    files: Path,
    tmp_path: Path,
    key: tuple[str, ...],
    capsys: pytest.CaptureFixture[str],
) -> None:
    reports = {}
    for engine in ("local", "spark"):
        more = ("--engine", engine, "--report", str(tmp_path / f"{engine}.html"), *key)
        status = load(files, embedded_broker, f"{topic_name}-{engine}", tmp_path / engine, *more)
        assert status == SOME_BAD_ROWS
        reports[engine] = json.loads(capsys.readouterr().out.splitlines()[-1])
    by_spark, alone = (records(embedded_broker, f"{topic_name}-{engine}") for engine in ("spark", "local"))
    assert len(alone) == 2 * ROWS - 3
    assert by_spark == alone
    assert (tmp_path / "spark" / "bad").read_bytes() == (tmp_path / "local" / "bad").read_bytes()
    for name in ("records", "bytes", "bad_rows", "complete", "partitions", "sizes"):
        assert reports["spark"][name] == reports["local"][name], name
    assert sum(reports["spark"]["partitions"].values()) == 2 * ROWS - 3
    assert "Records by size" in (tmp_path / "spark.html").read_text()
    assert [path.name for path in (tmp_path / "spark").iterdir() if ".spark" in path.name] == []


def die_once(marker: Path) -> None:
    """Kill the first worker that comes here."""
    if not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)


def test_task_that_dies_goes_on_from_its_manifest(
    spark: SparkSession,
    embedded_broker: EmbeddedBroker,
    topic_name: str,
    files: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = Load.run

    def deadly_load(job: load_spark.SparkLoad, index: int) -> dict[str, object]:
        """Everything is sent and written down, but Spark does not hear of it."""
        answer = load_source(job, index)
        die_once(tmp_path / "died")
        return answer

    load_source = load_spark._load_source
    assert run is Load.run
    monkeypatch.setattr(load_spark, "_load_source", deadly_load)
    status = load(files, embedded_broker, topic_name, tmp_path / "state", "--engine", "spark", "--key", "name")
    assert (tmp_path / "died").exists()
    assert status == SOME_BAD_ROWS
    assert len(records(embedded_broker, topic_name)) == 2 * ROWS - 3


def test_failed_load_by_spark_says_why_and_is_resumed(
    spark: SparkSession,
    embedded_broker: EmbeddedBroker,
    topic_name: str,
    files: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    page = tmp_path / "out.html"
    more: tuple[str, ...] = ("--engine", "spark", "--key", "name", "--on-error", "stop", "--report", str(page))
    assert load(files, embedded_broker, topic_name, tmp_path / "state", *more) == 1
    found = capsys.readouterr()
    assert "row " in found.err
    assert "--on-error skip" in found.err
    summary = json.loads(found.out.splitlines()[-1])
    assert 0 < summary["records"] <= len(records(embedded_broker, topic_name))
    assert summary["complete"] is False
    assert "stopped. " in page.read_text()
    more = ("--engine", "spark", "--key", "name", "--on-error", "skip", "--resume")
    assert load(files, embedded_broker, topic_name, tmp_path / "state", *more) == SOME_BAD_ROWS
    assert len(records(embedded_broker, topic_name)) == 2 * ROWS - 3


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--engine", "spark", "--rate", "5"), "--rate is for one machine"),
        (("--engine", "spark", "--no-manifest"), "needs manifests"),
        (("--master", "local[2]"), "use it with --engine spark"),
    ],
)
def test_what_only_one_engine_can_do_is_refused(
    embedded_broker: EmbeddedBroker,
    files: Path,
    tmp_path: Path,
    more: tuple[str, ...],
    words: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert load(files, embedded_broker, "refused", tmp_path / "state", *more) != 0
    assert words in capsys.readouterr().err
