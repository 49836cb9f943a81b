"""The process of a command: signals, closed pipes, terminals, encodings, and answers of hostile brokers."""

from __future__ import annotations

import json
import os
import pty
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from kafkaprod.admin import topics as admin_topics
from kafkaprod.admin.client import ClusterClient
from kafkaprod.admin.reading import PartitionReader
from kafkaprod.admin.topics import create_topic, delete_topic, find_topic, log_offsets, topic_options
from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from kafkaprod.cli.main import main
from kafkaprod.config import ProducerConfig
from kafkaprod.errors import CorruptDataError
from kafkaprod.producer import Producer
from tests.support.loader.load_rig import run_here

COMMAND = (sys.executable, "-m", "kafkaprod")
BOUND_S = 60
NASTY = b"\x1b]52;c;aGk=\x07 \x9b31m\r\n"


@pytest.fixture
def topic(embedded_broker: EmbeddedBroker, topic_name: str) -> str:
    assert main(["topics", "create", topic_name, "-b", embedded_broker.bootstrap_servers, "-q"]) == 0
    return topic_name


def send(broker: EmbeddedBroker, topic: str, *values: bytes) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send_many(topic, list(values), keys=list(values))


def test_a_reader_that_closes_the_pipe_ends_a_command_silently(embedded_broker: EmbeddedBroker, topic: str) -> None:
    send(embedded_broker, topic, *(b"%01000d" % number for number in range(500)))
    tail = [*COMMAND, "tail", topic, "-b", embedded_broker.bootstrap_servers, "-n", "500"]
    with subprocess.Popen(tail, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(BOUND_S) == 141


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
@pytest.mark.parametrize("command", ["load", "produce", "perf", "doctor"])
def test_signals_end_a_command_in_one_line(
    embedded_broker: EmbeddedBroker, topic: str, command: str, number: signal.Signals, code: int
) -> None:
    arguments = {
        "load": ["-", "--format", "lines", "-t", topic, "--no-manifest"],
        "produce": ["-t", topic, "-v"],
        "perf": ["-t", topic, "--num-records", "100000", "--record-size", "1", "--throughput", "10"],
        "doctor": ["-X", "bootstrap.servers=127.0.0.1:1"],
    }[command]
    run = [*COMMAND, command, *arguments]
    run += [] if command == "doctor" else ["-b", embedded_broker.bootstrap_servers]
    with subprocess.Popen(run, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        until(lambda: handles_signals(process.pid))
        process.send_signal(number)
        _, errors = process.communicate(timeout=BOUND_S)
    *_, last = errors.decode().splitlines()
    assert last.startswith(f"kafkaprod {command}: interrupted")
    assert b"Traceback" not in errors
    assert process.returncode == code


def test_an_interrupt_of_an_import_leaves_the_exit_code_alone(tmp_path: Path) -> None:
    # The import of a data class runs exec() of a text, which CPython remembers when an interrupt passes through it.
    (tmp_path / "interrupted.py").write_text(
        dedent("""
            import sys
            from kafkaprod.cli import main as command

            def interrupted_import(*arguments, **options):
                exec("import os, signal\\nos.kill(os.getpid(), signal.SIGINT)\\nfor _ in range(10**6): pass")

            command._run = interrupted_import
            sys.argv[1:] = ["tail"]
            sys.exit(command.main())
        """)
    )
    run = [sys.executable, "-m", "interrupted"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    done = subprocess.run(run, env=environment, capture_output=True, text=True, timeout=BOUND_S)
    assert (done.returncode, done.stderr) == (130, "kafkaprod tail: interrupted\n")


def handles_signals(pid: int) -> bool:
    """Whether a process has taken over SIGTERM."""
    status = Path(f"/proc/{pid}/status").read_text()
    caught = int(status.partition("SigCgt:")[2].split()[0], 16)
    return bool(caught >> (signal.SIGTERM - 1) & 1)


def until(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + BOUND_S
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def test_tail_ends_quietly_by_ctrl_c(embedded_broker: EmbeddedBroker, topic: str) -> None:
    send(embedded_broker, topic, b"1")
    run = [*COMMAND, "tail", topic, "-f", "-b", embedded_broker.bootstrap_servers]
    with subprocess.Popen(run, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"0:0\t1\t1\n"
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=BOUND_S) == (b"", b"")
        assert process.returncode == 0


def on_a_terminal(*arguments: str, environment: dict[str, str] | None = None) -> str:
    """Run a command with a terminal as stdout; return what it wrote there."""
    terminal, stdout = pty.openpty()
    with subprocess.Popen([*COMMAND, *arguments], stdout=stdout, env=os.environ | (environment or {})) as process:
        os.close(stdout)
        shown = b""
        while True:
            try:
                data = os.read(terminal, 4096)
            except OSError:  # the other end is closed
                break
            if not data:
                break
            shown += data
        process.wait(BOUND_S)
    os.close(terminal)
    return shown.decode()


def test_records_cannot_control_a_terminal(embedded_broker: EmbeddedBroker, topic: str) -> None:
    send(embedded_broker, topic, NASTY)
    address = embedded_broker.bootstrap_servers
    shown = on_a_terminal("tail", topic, "-b", address)
    assert "\x1b" not in shown
    assert shown.count("\n") == 1
    assert "\\x1b]52;c;aGk=\\x07" in shown
    assert "\x1b]52" in on_a_terminal("tail", topic, "-b", address, "--raw")
    piped = subprocess.run([*COMMAND, "tail", topic, "-b", address], capture_output=True, timeout=BOUND_S).stdout
    assert b"\x1b]52" in piped


def test_colours_are_for_terminals_without_no_color(embedded_broker: EmbeddedBroker, topic: str) -> None:
    command = ["doctor", "-t", topic, "-b", embedded_broker.bootstrap_servers]
    assert "\x1b[32mok" in on_a_terminal(*command, environment={"TERM": "xterm"})
    assert "\x1b" not in on_a_terminal(*command, environment={"TERM": "xterm", "NO_COLOR": "1"})
    assert "\x1b" not in run_here(command).out


@pytest.mark.parametrize("command", ["", *(f"help {name}" for name in ("load", "perf", "tail", "topics"))])
def test_help_needs_no_encoding(command: str) -> None:
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    done = subprocess.run([*COMMAND, *command.split()], env=environment, capture_output=True, text=True)
    assert done.stderr == ""
    assert "usage: kafkaprod" in done.stdout


def test_the_broker_says_how_to_stop_it_and_names_a_used_port(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        command = [*COMMAND, "broker", "--data-dir", str(tmp_path / "a"), "--port", str(port)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=BOUND_S)
        assert done.returncode == 1
        assert f"127.0.0.1:{port} is in use" in done.stderr
        assert "or 0 for a free one" in done.stderr
    run = [*COMMAND, "broker", "--data-dir", str(tmp_path / "b"), "--port", "0"]
    with subprocess.Popen(run, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith("listening on 127.0.0.1:")
        hint = process.stderr.readline()
        assert f"kill {process.pid}" in hint
        command = hint.partition("Try: kafkaprod ")[2].split()
        assert run_here(command).code == 0
        process.terminate()
        assert process.wait(BOUND_S) == 0


@pytest.mark.parametrize(
    ("arguments", "address", "is_warned"),
    [
        (("--advertised-host", "localhost"), "localhost:", False),
        (("--advertised", "PLAINTEXT://broker.example.com:19092"), "broker.example.com:19092", False),
        (("--advertised-host", "0.0.0.0"), "127.0.0.1:", True),
        (("--advertised-host", "::"), "[::1]:", True),
    ],
)
def test_the_broker_shows_an_address_that_clients_can_use(
    arguments: tuple[str, ...], address: str, is_warned: bool
) -> None:
    run = [*COMMAND, "broker", "--port", "0", *arguments]
    with subprocess.Popen(run, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        assert f" -b {address}" in process.stderr.readline()
        process.terminate()
        assert process.wait(BOUND_S) == 0
        assert ("Clients on other machines" in process.stderr.read()) is is_warned


def test_a_broker_without_a_directory_has_one_that_goes_with_it() -> None:
    run = [*COMMAND, "broker", "--port", "0", "--topic", "orders"]
    with subprocess.Popen(run, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        data_dir = Path(line.partition("data in ")[2].partition(" (")[0])
        assert line.endswith("(removed at the end; --data-dir keeps it)\n")
        assert (data_dir / "orders-0").is_dir()
        process.terminate()
        assert process.wait(BOUND_S) == 0
    assert not data_dir.parent.exists()


def test_perf_prints_one_json_object_with_the_names_of_load(embedded_broker: EmbeddedBroker, topic: str) -> None:
    done = run_here([
        *("perf", "-t", topic, "--num-records", "1000", "--record-size", "10", "--json", "--print-metrics"),
        *("-b", embedded_broker.bootstrap_servers),
    ])  # fmt: skip
    summary: dict[str, Any] = json.loads(done.out)
    assert (summary["schema_version"], summary["topic"], summary["records"], summary["bytes"]) == (
        1,
        topic,
        1000,
        10_000,
    )
    assert set(summary["latency_ms"]) == {"p50", "p95", "p99", "p99.9", "mean", "max"}
    assert summary["bytes_per_second"] == pytest.approx(10 * summary["records_per_second"], rel=0.01)
    assert summary["retries"] == 0
    assert summary["metrics"]["producer-metrics"]


class EmptyAnswers:
    """A cluster client whose answers have no items in their arrays."""

    controller_id = 0

    def metadata(self, topics: Any, **_: Any) -> Any:
        return self

    def ask(self, *_: Any) -> Any:
        return self

    def wait(self, _: int) -> None:
        raise AssertionError("a damaged answer must not be tried again")

    topics: tuple[Any, ...] = ()
    responses = results = topics


@pytest.mark.parametrize(
    "work",
    [
        lambda client: find_topic(client, "t"),
        lambda client: create_topic(client, "t"),
        lambda client: delete_topic(client, "t"),
        lambda client: topic_options(client, "t"),
        lambda client: log_offsets(client, "t"),
        lambda client: PartitionReader(client, "t", 0).fetch(0),
    ],
)
def test_an_answer_with_an_empty_array_is_damaged_data(work: Callable[[Any], object]) -> None:
    with pytest.raises(CorruptDataError, match="the broker's answer has no"):
        work(EmptyAnswers())


def test_an_answer_without_a_partition_is_damaged_data(
    embedded_broker: EmbeddedBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = ProducerConfig.from_options({"bootstrap_servers": embedded_broker.bootstrap_servers})
    with ClusterClient(config) as client:
        ask = client.ask

        def without_partitions(request: Any, *rest: Any) -> Any:
            answer = ask(request, *rest)
            for found in getattr(answer, "topics", []) if isinstance(request, admin_topics.ListOffsetsRequest) else []:
                found.partitions.clear()
            return answer

        monkeypatch.setattr(client, "ask", without_partitions)
        with pytest.raises(CorruptDataError, match="lacks the offsets of partitions"):
            log_offsets(client, topic)
