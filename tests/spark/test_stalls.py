"""What a campaign says of a program that does not get on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kafkaprod import Producer
from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from tests.campaigns.spark_faults import await_exit, await_records
from tests.spark import stalls
from tests.spark.stalls import Patience, await_end, cpu_s, last_line, report_of

PROGRAM = """
import subprocess, sys
from tests.spark.stalls import show_stacks_on_signal
show_stacks_on_signal()
child = subprocess.Popen([sys.executable, "-c", "print('begun', flush=True); input()"], stdin=subprocess.PIPE)
def waits_for_its_child():
    child.wait()
waits_for_its_child()
"""


class JvmErrorWithoutJvm(Exception):
    def __str__(self) -> str:
        raise ConnectionRefusedError("no JVM")


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (RuntimeError("a\nb\n\n"), "RuntimeError: b"),
        (RuntimeError(), "RuntimeError: no text"),
        (JvmErrorWithoutJvm(), "JvmErrorWithoutJvm: no text: ConnectionRefusedError"),
    ],
)
def test_last_line_of_an_error_can_be_had_whatever_its_text_is(error: Exception, line: str) -> None:
    assert last_line(error) == line


def test_report_has_processes_stacks_and_open_transactions(
    embedded_broker: EmbeddedBroker, topic_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stalls.shutil, "which", lambda name: None)  # without py-spy, as on most machines
    servers, stacks = embedded_broker.bootstrap_servers, tmp_path / "stacks"
    producer = Producer(bootstrap_servers=servers, transactional_id=topic_name)
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(topic_name, b"a").result(30)
    with (
        stacks.open("wb") as output,
        subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, stderr=output) as process,
    ):
        assert process.stdout is not None
        assert process.stdout.readline() == b"begun\n"
        report = report_of(process.pid, servers)
        while b"waits_for_its_child" not in stacks.read_bytes():
            assert process.poll() is None
        for pid in stalls.descendants(process.pid):
            subprocess.run(["kill", str(pid)], check=True)
    assert f"process {process.pid}, state" in report
    assert report.count("-- process") == 2
    assert f"transactional_id='{topic_name}'" in report
    assert "state='Ongoing'" in report
    producer.abort_transaction()
    producer.close()


def test_program_that_ends_without_a_record_is_named_at_once(embedded_broker: EmbeddedBroker, topic_name: str) -> None:
    servers = embedded_broker.bootstrap_servers
    process = subprocess.Popen([sys.executable, "-c", "import sys; sys.exit(3)"])
    with pytest.raises(AssertionError, match=f"no more than 0 records(.|\n)*process {process.pid}"):
        await_records(servers, topic_name, pid=process.pid)
    with pytest.raises(AssertionError, match="ended with 3"):
        await_exit(process, servers)


class Query:
    """A stream that does not end."""

    status, lastProgress = {"isTriggerActive": True}, None

    def awaitTermination(self, timeout: float) -> bool:
        return False

    def exception(self) -> Any:
        raise AssertionError("it has not ended")


def test_program_has_not_had_enough_time_before_it_has_used_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    own = os.getpid()
    monkeypatch.setattr(stalls, "ENOUGH_CPU_S", 0.2)
    begin_s, patience = cpu_s(own), Patience(own, patience_s=0.0)
    assert not patience.is_over()
    while cpu_s(own) - begin_s < 0.3:
        sum(range(10_000))
    assert patience.is_over()
    assert not Patience(own).is_over()
    monkeypatch.setattr(stalls, "LONGEST_S", -1.0)
    assert Patience(own, patience_s=0.0).is_over()


def test_stream_that_does_not_end_is_described(
    embedded_broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stalls, "ENOUGH_CPU_S", -1.0)
    with pytest.raises(AssertionError, match=r"not end: \{'isTriggerActive': True\}(.|\n)*-- open transactions"):
        await_end(Query(), embedded_broker.bootstrap_servers, patience_s=0.0)
