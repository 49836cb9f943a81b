"""How a load goes on, and when it refuses to: manifests, tails of the log, requests that arrive late."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_END, TopicPartition
from confluent_kafka.admin import AdminClient

from kafkaprod.admin.client import ClusterClient
from kafkaprod.admin.topics import delete_topic, log_offsets
from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from kafkaprod.config import ProducerConfig
from kafkaprod.loader.attempt import LoadOptions
from kafkaprod.loader.bad_rows import Stop
from kafkaprod.loader.finding.inputs import find_sources
from kafkaprod.loader.formats.readers import ReadOptions
from kafkaprod.loader.load import Load
from kafkaprod.loader.opening.errors import LoadError
from kafkaprod.loader.positions.manifest import Manifest, PartitionState, Position
from kafkaprod.loader.positions.manifest_file import ManifestFile
from kafkaprod.loader.producing import LoadProducer
from kafkaprod.loader.progress import Quiet
from kafkaprod.loader.reports.report import LoadReport
from kafkaprod.producer import Producer
from kafkaprod.tables.row_plan import RowPlan
from tests.kafka.cluster import wait_until
from tests.kafka.ports import free_ports
from tests.support.loader.load_rig import LoadRig, run_here

LINES = [b"line %d" % i for i in range(50_000)]


@pytest.fixture
def rig(embedded_broker: EmbeddedBroker, tmp_path: Path, topic_name: str) -> LoadRig:
    return LoadRig(embedded_broker.bootstrap_servers, tmp_path / "state", topic_name)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "lines.txt"
    path.write_bytes(b"\n".join(LINES))
    return path


def begin(rig: LoadRig, path: Path, client: ClusterClient) -> tuple[Load, Manifest]:
    """A load that has written its first manifest and sent nothing."""
    sources = find_sources([str(path)])
    file = ManifestFile.for_load([str(path)], rig.topic, str(rig.state_dir))
    options = LoadOptions(rig.topic, {"bootstrap_servers": rig.bootstrap}, 1 << 20)
    load = Load(sources, ReadOptions(RowPlan(value="")), options, client, Stop(), Quiet(), file)
    manifest = load.begin()
    return load, manifest


def resume(load: Load, manifest: Manifest) -> LoadReport:
    """Another process goes on with what it reads of the manifest."""
    assert load._file is not None
    load._file.write(manifest)
    parts = (load._sources, load._reading, load._options, load._client, Stop(), Quiet(), load._file)
    return Load(*parts, load._file.read()).run()


@pytest.fixture
def client(rig: LoadRig) -> object:
    with ClusterClient(ProducerConfig.from_options({"bootstrap_servers": rig.bootstrap})) as client:
        yield client


def test_rows_that_the_log_has_are_passed_over_wherever_the_manifest_stands(
    rig: LoadRig, path: Path, client: ClusterClient
) -> None:
    rig.create(1)
    load, manifest = begin(rig, path, client)
    with LoadProducer.open(load._options.producer, rig.topic, (manifest.producer_id, manifest.producer_epoch)) as dead:
        dead.send_many(rig.topic, LINES[:20_000], partition=0).result()
    manifest.position = Position(0, 7, len(b"\n".join(LINES[:7])) + 1)
    manifest.partitions[0] = PartitionState(7, 15, 15)
    report = resume(load, manifest)
    assert (report.passed_count, report.sent_count) == (20_000, len(LINES) - 20_000)
    assert rig.values() == LINES


def test_a_batch_of_the_dead_process_that_arrives_after_the_tail_was_read_is_not_doubled(
    rig: LoadRig, path: Path, client: ClusterClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kafkaprod.loader import load as module

    rig.create(1)
    load, manifest = begin(rig, path, client)
    identity = (manifest.producer_id, manifest.producer_epoch)
    tails = module.read_tails
    late = [LINES[:100], LINES[100:350]]

    def read_and_be_late(asked: ClusterClient, known: Manifest) -> object:
        found = tails(asked, known)
        if late:
            with LoadProducer.open(load._options.producer, rig.topic, identity, {0: found[0].rank}) as dead:
                dead.send_many(rig.topic, late.pop(0), partition=0).result()
        return found

    monkeypatch.setattr(module, "read_tails", read_and_be_late)
    report = resume(load, manifest)
    assert not late
    assert report.is_complete
    assert report.passed_count + report.sent_count == len(LINES)
    assert rig.values() == LINES


@pytest.mark.parametrize("transactional_id", [None, "id"], ids=["manifest", "transactions"])
def test_the_counts_of_a_resumed_load_are_together_the_rows_of_the_input(
    rig: LoadRig, tmp_path: Path, client: ClusterClient, topic_name: str, transactional_id: str | None
) -> None:
    path = tmp_path / "in.csv"
    rows = [b"%d,x" % i for i in range(60_000)]
    rows[10] = rows[59_000] = b"bad"
    path.write_bytes(b"id,name\n" + b"\n".join(rows) + b"\n")
    rig.create(2)
    rig.transactional_id = transactional_id and topic_name
    arguments = (str(path), "--key", "id", "--on-error", "skip")
    slow = ("--rate", "1000", "--checkpoint-interval", "0.3")
    with subprocess.Popen(rig.command(*arguments, *slow), stderr=subprocess.DEVNULL) as first:
        deadline_s = time.monotonic() + 30
        while sum(log_offsets(client, rig.topic).values()) < 1_000:
            assert time.monotonic() < deadline_s
            time.sleep(0.05)
        first.kill()
    there = len(rig.values())
    resumed = json.loads(rig.run(*arguments, "--resume", "--json").out)
    assert there < 59_998
    assert (resumed["records"], resumed["already_there"], resumed["bad_rows"]) == (59_998 - there, there, 2)
    assert len(rig.values()) == 59_998
    again = json.loads(rig.run(*arguments, "--resume", "--json").out)
    assert (again["records"], again["already_there"], again["bad_rows"]) == (0, 59_998, 2)
    assert again["complete"]
    assert "59,998 records" in rig.run(*arguments).err


def test_a_load_that_stopped_is_not_begun_anew_by_accident(rig: LoadRig, path: Path, client: ClusterClient) -> None:
    path.write_bytes(b"\n".join(LINES) + b"\n" + b"x" * 2_000_000)
    rig.create(1)
    stopped = rig.run(str(path))
    assert stopped.code == 1
    assert "row 50001" in stopped.err
    refused = rig.run(str(path))
    assert refused.code == 2
    assert "--resume" in refused.err
    assert "--restart" in refused.err
    assert rig.run(str(path), "--resume", "--on-error", "skip").code == 3
    assert rig.values() == LINES
    assert rig.run(str(path), "--resume", "--on-error", "skip").code == 3  # as it ended: nothing is left
    assert len(rig.values()) == len(LINES)


def test_a_complete_load_is_not_repeated_by_accident(rig: LoadRig, path: Path, client: ClusterClient) -> None:
    rig.create(1)
    assert rig.run(str(path)).code == 0
    refused = rig.run(str(path))
    assert refused.code == 2
    assert f"already loaded into {rig.topic!r} at 20" in refused.err
    assert "50,000 records" in refused.err
    assert "--restart" in refused.err
    assert rig.run(str(path), "--resume").code == 0
    assert rig.values() == LINES
    assert rig.run(str(path), "--restart").code == 0
    assert rig.values() == LINES * 2
    delete_topic(client, rig.topic)
    rig.create(1)
    assert rig.run(str(path)).code == 0, "the topic is another one"
    path.write_bytes(b"something else")
    assert rig.run(str(path)).code == 0, "the content is another one"
    assert rig.values() == [*LINES, b"something else"]


def test_a_pipe_may_have_other_content_than_the_load_before(rig: LoadRig) -> None:
    rig.create(1)
    for data in (b"one", b"two"):
        done = rig.run("-", stdin=data)
        assert done.code == 0, done.err
    assert rig.values() == [b"one", b"two"]


@pytest.mark.parametrize(
    "arguments", [("--resume", "--restart"), ("--resume", "--no-manifest"), ("--key", "a", "-k", "b")]
)
def test_arguments_that_contradict_each_other_are_refused(rig: LoadRig, path: Path, arguments: tuple[str, ...]) -> None:
    refused = rig.run(str(path), *arguments)
    assert refused.code == 2
    assert "exclude each other" in refused.err


@pytest.mark.parametrize(
    "arguments",
    [("--separator", ";"), ("--infer-types",), ("--no-quote",), ("--null", "NA"), ("--timestamp-unit", "s")],
)
def test_options_that_no_input_uses_are_refused(rig: LoadRig, path: Path, arguments: tuple[str, ...]) -> None:
    refused = rig.run(str(path), *arguments)
    assert refused.code == 2
    assert f"{arguments[0]} is " in refused.err


def test_a_command_that_failed_before_it_sent_anything_can_be_corrected(rig: LoadRig, tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    path.write_bytes(b"id,name\n1,a\n")
    rig.create(1)
    wrong = rig.run(str(path), "--column-names", "a,b,c")
    assert wrong.code == 1
    assert "row 1" in wrong.err
    assert rig.run(str(path), "--key", "id").code == 0
    assert len(rig.values()) == 1


def test_a_refused_run_leaves_the_manifest_of_the_load_before_as_it_was(rig: LoadRig, tmp_path: Path) -> None:
    rig.create()
    path = tmp_path / "rows.csv"
    path.write_bytes(b"id,n\n" + b"".join(b"%d,%d\n" % (i, i) for i in range(500)) + b"x,y,z\n")
    assert rig.run(str(path)).code == 1
    (file,) = rig.state_dir.glob("*.load.json")
    manifest = file.read_bytes()
    for arguments in (
        (),
        ("--resume", "--key", "n"),
        ("--resume", "--columns", "id"),
        ("--resume", "--expect-bytes", "7"),
        ("--restart", "--partition", "7"),
        ("--restart", "--key", "nothing"),
        ("--restart", "--timestamp", "n"),  # its first row is a bad one
        ("--restart", "--expect-bytes", "7"),
        ("--resume", "-X", "enable.idempotence=false"),
    ):
        assert rig.run(str(path), *arguments).code in (1, 2), arguments
        assert file.read_bytes() == manifest, arguments
    good = path.read_bytes()
    for changed in (good + b"1,2\n", b"X" + good, b"", b"id,id\n" + good[5:]):
        path.write_bytes(changed)
        assert rig.run(str(path), "--resume").code in (1, 2)
        assert file.read_bytes() == manifest
    assert len(rig.values()) == 500


def test_a_pipe_is_known_when_its_first_row_is_sent(rig: LoadRig) -> None:
    rig.create()
    command = rig.command("-", "--checkpoint-interval", "600")
    with subprocess.Popen(command, stdin=subprocess.PIPE) as load:
        assert load.stdin is not None
        load.stdin.write(b"".join(line + b"\n" for line in LINES))
        load.stdin.flush()
        wait_until(lambda: bool(rig.values()), 60, "the first rows")
        load.kill()
    count = len(rig.values())
    done = rig.run("-", "--resume", stdin=b"\n".join([b"foreign" for _ in LINES]))
    assert done.code == 1
    assert "are not those that an earlier run of the load read" in done.err
    assert len(rig.values()) == count
    assert rig.run("-", "--resume", stdin=b"\n".join(LINES)).code == 0
    assert sorted(rig.values()) == sorted(LINES)


def test_an_input_that_changed_is_not_resumed(rig: LoadRig, path: Path, client: ClusterClient) -> None:
    rig.create(1)
    begin(rig, path, client)
    path.write_bytes(b"changed")
    refused = rig.run(str(path), "--resume")
    assert refused.code == 2
    assert "another size" in refused.err


def test_a_file_that_came_into_a_directory_does_not_make_it_another_load(rig: LoadRig, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "b.txt").write_bytes(b"1\n2\n" + b"x" * 2_000_000)
    rig.create(1)
    assert rig.run(str(folder)).code == 1
    (folder / "a.txt").write_bytes(b"3\n")
    refused = rig.run(str(folder), "--resume")
    assert refused.code == 2
    assert "2 files instead of 1" in refused.err
    assert rig.values() == [b"1", b"2"]
    (folder / "a.txt").unlink()
    assert rig.run(str(folder), "--resume", "--on-error", f"dead-letter={folder}/bad.json").code == 3
    done = rig.run(str(folder), "--resume", "--on-error", f"dead-letter={folder}/bad.json")  # no input of its own
    assert done.code == 3, done.err
    assert rig.values() == [b"1", b"2"]


def test_two_processes_do_not_work_at_one_load(rig: LoadRig, path: Path) -> None:
    rig.create(1)
    file = ManifestFile.for_load([str(path)], rig.topic, str(rig.state_dir))
    with file.locked():
        refused = rig.run(str(path), "--resume")
        assert refused.code == 75
        assert "another process works at this load" in refused.err
        assert rig.values() == []
    assert rig.run(str(path), "--resume").code == 0
    assert rig.values() == LINES
    assert [found.name for found in rig.state_dir.iterdir()] == [file.path.name]


def test_other_options_are_not_resumed_with(rig: LoadRig, tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_bytes(b'{"a":1}\n{"a":2}\nx')
    rig.create(1)
    assert rig.run(str(path), "--key", "a").code == 1
    refused = rig.run(str(path), "--resume", "--key", "b")
    assert refused.code == 2
    assert "options are not those" in refused.err


def test_a_log_that_lost_acknowledged_records_is_not_resumed(rig: LoadRig, path: Path, client: ClusterClient) -> None:
    rig.create(1)
    load, manifest = begin(rig, path, client)
    manifest.partitions[0].offset = 99
    with pytest.raises(LoadError, match="ends at offset 0, but 99 was acknowledged"):
        resume(load, manifest)


def test_a_topic_that_was_made_anew_is_not_resumed_into(rig: LoadRig, path: Path, client: ClusterClient) -> None:
    rig.create(1)
    load, manifest = begin(rig, path, client)
    dead = LoadProducer.open(load._options.producer, rig.topic, (manifest.producer_id, manifest.producer_epoch))
    with dead:
        dead.send_many(rig.topic, LINES[:10], partition=0).result()
    manifest.position = Position(0, 10, len(b"\n".join(LINES[:10])) + 1)
    manifest.partitions[0] = PartitionState(10, 10, 10)
    delete_topic(client, rig.topic)
    rig.create(1)
    with Producer(load._options.producer) as other:  # as many records as the load had there
        other.send_many(rig.topic, [b"other"] * 10).result()
    with pytest.raises(LoadError, match=r"began with the topic .* of id"):
        resume(load, manifest)
    manifest.topic_id = None  # as of a broker that tells none
    with pytest.raises(LoadError, match="another producer's record at offset 9"):
        resume(load, manifest)
    assert rig.values() == [b"other"] * 10


def test_another_cluster_is_not_resumed_into(rig: LoadRig, path: Path, client: ClusterClient) -> None:
    rig.create(1)
    load, manifest = begin(rig, path, client)
    manifest.cluster_id = "another"
    with pytest.raises(LoadError, match="began with the cluster of id another"):
        resume(load, manifest)


def test_a_manifest_of_another_log_is_not_resumed(rig: LoadRig, path: Path, client: ClusterClient) -> None:
    rig.create(1)
    load, manifest = begin(rig, path, client)
    with LoadProducer.open(load._options.producer, rig.topic, (manifest.producer_id, manifest.producer_epoch)) as dead:
        dead.send_many(rig.topic, LINES[:10], partition=0).result()
    manifest.partitions[0] = PartitionState(5, 5, 0)
    with pytest.raises(LoadError, match="belongs to another log"):
        resume(load, manifest)


def test_the_manifest_is_whole_also_where_the_process_died_while_writing_it(tmp_path: Path) -> None:
    file = ManifestFile(tmp_path / "m.load.json")
    manifest = Manifest("t", None, None, 1, 0, 1, 1, {}, [], Position(), {0: PartitionState(0, 0, 0)})
    file.write(manifest)
    (tmp_path / "m.load.json.new").write_text(json.dumps({"version": 1})[:5])
    read = file.read()
    assert read == manifest
    manifest.sent_count = 7
    file.write(manifest)
    assert file.read() == manifest


def test_other_producers_may_write_between_the_rows_of_a_load(rig: LoadRig, path: Path, client: ClusterClient) -> None:
    rig.create(1)
    load, manifest = begin(rig, path, client)
    with (
        LoadProducer.open(load._options.producer, rig.topic, (manifest.producer_id, manifest.producer_epoch)) as dead,
        LoadProducer.open(load._options.producer, rig.topic) as other,
    ):
        for first in range(0, 300, 100):
            dead.send_many(rig.topic, LINES[first : first + 100], partition=0).result()
            other.send(rig.topic, b"other", partition=0).result()
    resume(load, manifest)
    assert [value for value in rig.values() if value != b"other"] == LINES


def test_a_complete_load_is_compared_with_the_topic_that_is_there_now(rig: LoadRig, tmp_path: Path) -> None:
    path = tmp_path / "in.txt"
    path.write_bytes(b"1\n2\n")
    assert rig.run(str(path), "--create-topic", "1").code == 0
    assert rig.run(str(path), "--resume").code == 0
    assert run_here(["topics", "delete", rig.topic, "-b", rig.bootstrap]).code == 0
    rig.create(1)
    done = rig.run(str(path), "--resume")
    assert done.code != 0
    assert "the load began with the topic" in done.err


def test_another_stdin_is_not_believed_to_be_loaded(rig: LoadRig) -> None:
    assert rig.run("-", "--create-topic", "1", stdin=b"1\n2\n").code == 0
    done = rig.run("-", "--resume", stdin=b"3\n4\n")
    assert done.code == 2
    assert "cannot be compared" in done.err


def test_a_load_ends_soon_when_another_cluster_comes_back_in_the_middle(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    path = tmp_path / "lines.txt"
    path.write_bytes(b"\n".join(LINES))
    rig = LoadRig(f"127.0.0.1:{port}", tmp_path / "state", "t")
    with EmbeddedBroker(port=port, topics={"t": 1}):
        command = rig.command(str(path), "--rate", "1000", "--checkpoint-interval", "0.1")
        load = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
        try:
            with ClusterClient(ProducerConfig.from_options({"bootstrap_servers": rig.bootstrap})) as client:
                wait_until(lambda: log_offsets(client, "t")[0] > 100, 60, "records")
        except BaseException:
            load.kill()
            raise
    with EmbeddedBroker(port=port, topics={"t": 1}):
        try:
            _, error = load.communicate(timeout=40)  # all lines take 50 s, the delivery timeout is 120 s
        finally:
            load.kill()
        assert load.returncode == 1, error
        assert b"another cluster answers at this address" in error
        assert rig.values() == []
        again = rig.run(str(path), "--resume")
        assert again.code == 1
        assert "began with the cluster of id" in again.err
        assert rig.values() == []


@pytest.mark.parametrize("more", [(), ("--transactional-id", "complete")])
def test_a_complete_load_whose_records_were_deleted_does_not_claim_them(
    rig: LoadRig, tmp_path: Path, more: tuple[str, ...]
) -> None:
    path = tmp_path / "in.txt"
    path.write_bytes(b"1\n2\n3\n")
    rig.create(1)
    rig.transactional_id = more[1] if more else None
    assert rig.run(str(path)).code == 0
    again = rig.run(str(path), "--resume")
    assert "3 records already in the log" in again.err
    admin = AdminClient({"bootstrap.servers": rig.bootstrap})
    for deleted in admin.delete_records([TopicPartition(rig.topic, 0, OFFSET_END)]).values():
        assert deleted.result(timeout=30).low_watermark >= 3
    again = rig.run(str(path), "--resume")
    assert again.code == 0
    assert "is empty: the records of this load were deleted, by retention or on request. --restart" in again.err
    assert "already in the log" not in again.err
