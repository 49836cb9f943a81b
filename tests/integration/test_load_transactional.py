"""Loads in transactions: each row once for readers of committed records, whatever happens on the way."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kafkaprod import Producer
from kafkaprod.admin.client import ClusterClient
from kafkaprod.admin.topics import delete_topic
from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from kafkaprod.broker.embedding.faults import Fault, close_after_handling, drop_reply, reply_with
from kafkaprod.cli.main import main
from kafkaprod.config import ProducerConfig
from kafkaprod.errors import AuthorizationError, ConfigError
from kafkaprod.loader.positions import positions
from kafkaprod.loader.transactional import find_position
from kafkaprod.marks import looks
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.error_codes import ErrorCode
from tests.support.loader.load_rig import LoadRig, run_here

LINES = [b"line %d" % i for i in range(20_000)]


@pytest.fixture(scope="module", params=[1, 2], ids=["v1", "v2"])
def broker(request: pytest.FixtureRequest) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(transaction_version=request.param) as broker:
        yield broker


@pytest.fixture
def rig(broker: EmbeddedBroker, tmp_path: Path, topic_name: str) -> Iterator[LoadRig]:
    yield LoadRig(broker.bootstrap_servers, tmp_path / "state", topic_name, f"load-{topic_name}")
    broker.faults.clear()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "lines.txt"
    path.write_bytes(b"\n".join(LINES))
    return path


def rank(rig: LoadRig) -> int:
    """How many rows are committed."""
    assert rig.transactional_id is not None
    with ClusterClient(ProducerConfig.from_options({"bootstrap_servers": rig.bootstrap})) as client:
        committed = find_position(client, rig.transactional_id, rig.topic)
        return 0 if committed is None else committed.rank


def await_commit(rig: LoadRig) -> int:
    """Wait until a load in another process has committed something."""
    deadline_s = time.monotonic() + 30
    while not (found := rank(rig)):
        assert time.monotonic() < deadline_s
        time.sleep(0.01)
    return found


def test_a_load_in_transactions_keeps_nothing_on_disk_and_is_not_repeated(rig: LoadRig, path: Path) -> None:
    done = rig.run(str(path), "--create-topic", "3", "--checkpoint-interval", "0.001")
    assert done.code == 0, done.err
    assert sorted(rig.values()) == sorted(LINES)
    assert os.listdir(path.parent) == ["lines.txt"]
    again = rig.run(str(path))
    assert again.code == 2
    assert "already loaded" in again.err
    resumed = rig.run(str(path), "--resume")
    assert resumed.code == 0
    assert "already loaded" in resumed.err
    assert len(rig.values()) == len(LINES)
    restarted = rig.run(str(path), "--restart")
    assert restarted.code == 0
    assert len(rig.values()) == 2 * len(LINES)


def test_the_next_input_is_loaded_with_the_same_id(rig: LoadRig, path: Path) -> None:
    assert rig.run(str(path), "--create-topic", "1").code == 0
    path.write_bytes(b"other\n")
    assert rig.run(str(path), "--resume").code == 0
    assert rig.values() == [*LINES, b"other"]


def test_one_id_loads_many_files_and_the_same_loop_again_loads_nothing(rig: LoadRig, tmp_path: Path) -> None:
    rig.create(3)
    files = [tmp_path / f"n{number}.txt" for number in range(4)]
    for number, file in enumerate(files):
        file.write_bytes(b"%d\n" % number * 5)
    for has_begun in (False, True):
        for file in files[: 4 if has_begun else 3]:
            done = rig.run(str(file), "--resume", "--json")
            assert done.code == 0, done.err
            assert json.loads(done.out)["already_there"] == (5 if has_begun and file != files[3] else 0)
            assert ("already loaded" in done.err) is (has_begun and file != files[3])
    assert sorted(rig.values()) == sorted(b"%d" % number for number in range(4) for _ in range(5))
    again = rig.run(str(files[0]))
    assert again.code == 2
    assert "already loaded" in again.err


def test_a_file_that_stops_does_not_keep_others_of_its_id_from_being_loaded(rig: LoadRig, tmp_path: Path) -> None:
    rig.create(2)
    files = {name: tmp_path / f"{name}.txt" for name in "abc"}
    files["a"].write_bytes(b"a1\na2\n")
    files["b"].write_bytes(b"b1\n" + b"x" * 2_000_000 + b"\nb3\n")
    files["c"].write_bytes(b"c1\nc2\n")
    assert [rig.run(str(file), "--resume").code for file in files.values()] == [0, 1, 0]
    assert [rig.run(str(file), "--resume").code for file in files.values()] == [0, 1, 0]
    assert rig.run(str(files["b"]), "--resume", "--on-error", "skip").code == 3
    assert [rig.run(str(file), "--resume").code for file in files.values()] == [0, 3, 0]
    assert sorted(rig.values()) == [b"a1", b"a2", b"b1", b"b3", b"c1", b"c2"]


def test_a_complete_file_that_was_written_again_may_be_another_one(rig: LoadRig, path: Path) -> None:
    rig.create(1)
    os.utime(path, ns=(0, 5_000_000_000))
    assert rig.run(str(path)).code == 0
    assert rig.run(str(path), "--resume").code == 0
    os.utime(path, ns=(0, 9_000_000_000))
    done = rig.run(str(path), "--resume")
    assert done.code == 2
    assert "this may be another one" in done.err
    assert len(rig.values()) == len(LINES)


@pytest.mark.parametrize("is_complete", [True, False])
def test_records_that_are_gone_are_noticed(
    rig: LoadRig, path: Path, monkeypatch: pytest.MonkeyPatch, *, is_complete: bool
) -> None:
    rig.create(1)
    if not is_complete:
        path.write_bytes(b"\n".join([*LINES[:10], b"x" * 2_000_000]))
    assert rig.run(str(path), "--checkpoint-interval", "0.001").code == (0 if is_complete else 1)
    monkeypatch.setattr("kafkaprod.loader.transactional.log_offsets", lambda *_: {0: 3})
    done = rig.run(str(path), "--resume")
    assert done.code == 2
    assert f"{rig.topic}[0] ends at offset 3, but records of the load were committed up to" in done.err


@pytest.mark.parametrize("fault", [close_after_handling(), drop_reply()], ids=["closed", "no-answer"])
@pytest.mark.parametrize("api", [ApiKey.END_TXN, ApiKey.TXN_OFFSET_COMMIT, ApiKey.PRODUCE], ids=lambda api: api.name)
def test_lost_answers_lose_and_double_nothing(
    broker: EmbeddedBroker, rig: LoadRig, path: Path, api: ApiKey, fault: Fault
) -> None:
    rig.create(2)
    broker.faults.on(api, fault, times=2)
    done = rig.run(str(path), "--checkpoint-interval", "0.001", "-X", "request.timeout.ms=500")
    assert done.code == 0, done.err
    assert sorted(rig.values()) == sorted(LINES)


def test_an_aborted_transaction_is_sent_again(broker: EmbeddedBroker, rig: LoadRig, path: Path) -> None:
    rig.create(2)
    broker.faults.on(ApiKey.TXN_OFFSET_COMMIT, reply_with(ErrorCode.ILLEGAL_GENERATION), times=2)
    done = rig.run(str(path))
    assert done.code == 0, done.err
    assert sorted(rig.values()) == sorted(LINES)


def test_a_second_process_takes_over_and_the_first_one_commits_nothing_more(rig: LoadRig, path: Path) -> None:
    rig.create(2)
    slow = ("--rate", "2000", "--checkpoint-interval", "0.05")
    first = subprocess.Popen(rig.command(str(path), *slow), stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
    committed = await_commit(rig)
    assert 0 < committed < len(LINES)
    second = rig.run(str(path), "--resume")
    assert second.code == 0, second.err
    _, error = first.communicate(timeout=30)
    assert first.returncode == 1
    assert b"another process took over transactional id" in error
    assert sorted(rig.values()) == sorted(LINES)


def test_a_coordinator_that_forgot_the_position_is_caught_before_the_commit(
    rig: LoadRig, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A coordinator that was deposed while it was paused answers that nothing is committed."""
    rig.create(2)
    assert rig.run(str(path)).code == 0
    monkeypatch.setattr(positions, "read_offsets", forgetting(3))
    again = run_here(rig.command(str(path), "--resume")[3:])
    assert again.code == 0, again.err
    assert sorted(rig.values()) == sorted(LINES)


def test_without_the_guard_the_rows_would_be_loaded_twice(
    rig: LoadRig, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.create(2)
    assert rig.run(str(path)).code == 0
    monkeypatch.setattr(positions, "read_offsets", forgetting(3))
    monkeypatch.setattr(looks, "offsets_before", lambda *_: {})
    assert run_here(rig.command(str(path), "--resume")[3:]).code == 0
    assert len(rig.values()) == 2 * len(LINES)


def forgetting(times: int) -> Callable[..., looks.CommittedOffsets]:
    """Read the offsets of a group, but find none so often."""
    left: list[looks.CommittedOffsets] = [{} for _ in range(times)]
    return lambda *arguments: left.pop() if left else looks.read_offsets(*arguments)


def test_a_load_with_a_write_id_is_written_once(
    rig: LoadRig, path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other.txt"
    other.write_bytes(b"other")
    server = ("-b", rig.bootstrap)
    write = ["load", "-t", rig.topic, "--write-id", f"load of {rig.topic}", *server]
    created = run_here([*write, str(path), "--create-topic", "3", "--checkpoint-interval", "0.001"])
    assert created.code == 0, created.err
    again = run_here([*write, str(path)])
    assert again.code == 0
    assert "already written at 20" in again.err
    assert f"20,000 records of load of {rig.topic}" in again.err
    for refused in ([*write, str(other)], [*write, str(path), str(other)]):
        assert "nothing was written. Give this load another write id" in run_here(refused).err
    elsewhere = [*write, str(path), "--create-topic", "1", "-t", f"{rig.topic}-other"]
    assert "has the mark of a write into" in run_here(elsewhere).err
    assert sorted(rig.values()) == sorted(LINES)
    assert "--write-id and --transactional-id exclude" in run_here([*write, str(path), "--transactional-id", "x"]).err
    capsys.readouterr()
    assert main(["writes", "show", f"load of {rig.topic}", *server]) == 0
    shown = capsys.readouterr().out
    assert f"load of {rig.topic}  20,000 rows  {rig.topic}  20" in shown
    assert "by kafkaprod load, digest none" in shown
    with (
        Producer(bootstrap_servers=rig.bootstrap) as producer,
        pytest.raises(ConfigError, match="is no mark of a write"),
    ):
        producer.send_many(rig.topic, [b"a"], write_id=f"load of {rig.topic}")


def test_a_load_with_a_write_id_that_was_killed_continues_by_itself(rig: LoadRig, path: Path) -> None:
    rig.create(2)
    write = ["load", "-t", rig.topic, "-b", rig.bootstrap, "--write-id", f"killed-{rig.topic}", str(path)]
    slow = [*write, "--rate", "2000", "--checkpoint-interval", "0.05"]
    first = subprocess.Popen([sys.executable, "-m", "kafkaprod", *slow], stderr=subprocess.DEVNULL)
    await_commit(replace(rig, transactional_id=f"kafkaprod.write.killed-{rig.topic}"))
    first.kill()
    first.wait(30)
    assert 0 < len(rig.values()) < len(LINES)
    again = run_here(write)
    assert again.code == 0, again.err
    assert sorted(rig.values()) == sorted(LINES)


def test_a_killed_load_is_continued_with_a_copy_of_the_file_elsewhere(rig: LoadRig, path: Path, tmp_path: Path) -> None:
    rig.create(2)
    slow = ("--rate", "2000", "--checkpoint-interval", "0.05")
    with subprocess.Popen(rig.command(str(path), *slow), stderr=subprocess.DEVNULL) as first:
        await_commit(rig)
        first.kill()
    copy = tmp_path / "other-machine" / "lines.txt"
    copy.parent.mkdir()
    shutil.copyfile(path, copy)
    refused = rig.run(str(copy))
    assert refused.code == 2
    assert "continue it with --resume" in refused.err
    done = rig.run(str(copy), "--resume")
    assert done.code == 0, done.err
    assert sorted(rig.values()) == sorted(LINES)


def test_another_input_or_other_options_are_not_continued_with(rig: LoadRig, path: Path) -> None:
    rig.create(2)
    path.write_bytes(b"\n".join([*LINES[:10], b"x" * 2_000_000]))
    assert rig.run(str(path)).code == 1
    assert rank(rig) == 10
    other = rig.run(str(path), "--resume", "-k", "key")
    assert "the options are not those" in other.err
    path.write_bytes(b"\n".join(LINES))
    changed = rig.run(str(path), "--resume")
    assert "the input is not what it was" in changed.err
    assert rig.values().count(LINES[0]) == 1


def test_rows_before_a_bad_one_are_committed_and_the_load_continues_behind_it(rig: LoadRig, path: Path) -> None:
    rig.create(1)
    path.write_bytes(b"\n".join([*LINES[:10], b"x" * 2_000_000, *LINES[10:20]]))
    stopped = rig.run(str(path))
    assert stopped.code == 1
    assert "row 11" in stopped.err
    assert rig.values() == LINES[:10]
    done = rig.run(str(path), "--resume", "--on-error", "skip")
    assert done.code == 3, done.err
    assert rig.values() == LINES[:20]


def test_bad_rows_in_a_topic_are_part_of_the_transaction(
    broker: EmbeddedBroker, rig: LoadRig, path: Path, topic_name: str
) -> None:
    rig.create(1)
    aside = LoadRig(rig.bootstrap, rig.state_dir, f"{topic_name}-bad", rig.transactional_id)
    aside.create(1, max_message_bytes="3000000")
    path.write_bytes(b"\n".join([*LINES[:5], b"x" * 2_000_000, *LINES[5:9]]))
    broker.faults.on(ApiKey.TXN_OFFSET_COMMIT, reply_with(ErrorCode.ILLEGAL_GENERATION), times=1)
    done = rig.run(str(path), "--on-error", f"dead-letter=topic:{aside.topic}", "-X", "max.request.size=3000000")
    assert done.code == 3, done.err
    assert rig.values() == LINES[:9]
    assert len(aside.values()) == 1


def test_bad_rows_in_a_file_are_there_once_after_an_aborted_transaction(
    broker: EmbeddedBroker, rig: LoadRig, path: Path, tmp_path: Path
) -> None:
    rig.create(1)
    path.write_bytes(b"\n".join([*LINES[:5], b"x" * 2_000_000, *LINES[5:9]]))
    broker.faults.on(ApiKey.TXN_OFFSET_COMMIT, reply_with(ErrorCode.ILLEGAL_GENERATION), times=2)
    done = rig.run(str(path), "--on-error", f"dead-letter={tmp_path / 'bad.jsonl'}")
    assert done.code == 3, done.err
    assert [json.loads(line)["row"] for line in (tmp_path / "bad.jsonl").read_text().splitlines()] == [6]


def test_rows_that_the_broker_refuses_are_left_out_and_their_neighbours_committed(
    rig: LoadRig, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def is_hidden(*_: object) -> None:
        raise AuthorizationError("describing the topic's options is not allowed")

    rig.create(1, cleanup_policy="compact")
    monkeypatch.setattr("kafkaprod.cli.load_setup.topic_options", is_hidden)
    rows = [b'{"k":%s}' % (b"null" if i in (7, 40) else b"%d" % i) for i in range(60)]
    source = path.with_suffix(".jsonl")
    source.write_bytes(b"\n".join(rows))
    done = rig.run(str(source), "--key", "k", "--on-error", "skip")
    assert done.code == 3, done.err
    assert "row 8: the broker refused it" in done.err
    assert rig.values() == [row for i, row in enumerate(rows) if i not in (7, 40)]


def test_a_topic_that_was_created_again_is_not_continued_into(rig: LoadRig, path: Path) -> None:
    path.write_bytes(b"\n".join([*LINES[:10], b"x" * 2_000_000]))
    rig.create(1)
    assert rig.run(str(path)).code == 1
    with ClusterClient(ProducerConfig.from_options({"bootstrap_servers": rig.bootstrap})) as client:
        delete_topic(client, rig.topic)
    rig.create(1)
    done = rig.run(str(path), "--resume", "--on-error", "skip")
    # Kafka forgets the offsets of a deleted topic: then the load begins again.
    assert (done.code == 2 and "was created again" in done.err) or rig.values() == LINES[:10]


def test_a_position_is_that_of_one_topic(rig: LoadRig, path: Path) -> None:
    rig.create(1)
    assert rig.run(str(path)).code == 0
    other = LoadRig(rig.bootstrap, rig.state_dir, f"{rig.topic}-2", rig.transactional_id)
    other.create(1)
    assert other.run(str(path)).code == 0
    assert other.values() == LINES


@pytest.mark.parametrize("arguments", [("--no-manifest",), ("--state", "x"), ("--engine", "spark")])
def test_what_transactions_exclude_is_refused(rig: LoadRig, path: Path, arguments: tuple[str, ...]) -> None:
    done = rig.run(str(path), *arguments)
    assert done.code == 2
    assert "exclude each other" in done.err


def test_the_id_may_be_an_option_of_the_producer(rig: LoadRig, path: Path) -> None:
    rig.create(1)
    arguments = ["load", str(path), "-b", rig.bootstrap, "-t", rig.topic, "-q"]
    done = run_here([*arguments, "-X", f"transactional.id={rig.transactional_id}"])
    assert done.code == 0, done.err
    assert rank(rig) == len(LINES)


def test_an_offset_that_no_load_committed_is_refused(rig: LoadRig, path: Path) -> None:
    from kafkaprod import Producer

    rig.create(1)
    with Producer(bootstrap_servers=rig.bootstrap, transactional_id=rig.transactional_id) as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.send_offsets_to_transaction({(rig.topic, 0): 5}, rig.transactional_id)
    done = rig.run(str(path))
    assert done.code == 1
    assert "is not one of a load" in done.err
