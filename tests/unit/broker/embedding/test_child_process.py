"""Lines of JSON to and from a child process."""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkaprod.broker.embedding.child_process import ChildProcess, EmbeddedBrokerError, start_module
from kafkaprod.broker.embedding.cluster_changes import ChangeSignal, send_signal

ECHO = "import sys; [print(line, end='', flush=True) for line in sys.stdin]"
SILENCE = "import sys; sys.stdin.read()"
LATE = "import sys; sys.stdout.writelines([sys.stdin.readline(), sys.stdin.readline()])"  # answers the first late


@pytest.fixture
def _many_open_files() -> Iterator[None]:
    """New files have descriptors above 1,023, which select() does not take."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard if hard < 4096 else 4096, hard))
    taken = [os.dup(0) for _ in range(1100)]
    yield
    for descriptor in taken:
        os.close(descriptor)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def start(program: str) -> ChildProcess:
    return ChildProcess([sys.executable, "-c", program])


@pytest.mark.usefixtures("_many_open_files")
def test_an_answer_comes_however_many_files_are_open() -> None:
    with start(ECHO) as process:
        assert process.exchange({"command": "view"}, 30, "it") == {"command": "view"}


@pytest.mark.usefixtures("_many_open_files")
def test_a_change_is_waited_for_however_many_files_are_open(tmp_path: Path) -> None:
    with ChangeSignal(str(tmp_path)) as signal:
        signal.wait(0.001)
        send_signal(signal.path)
        signal.wait(30)


def test_a_process_that_is_silent_is_an_error() -> None:
    with start(SILENCE) as process:
        with pytest.raises(EmbeddedBrokerError, match=r"it did not answer within 0\.01 s"):
            process.exchange({"command": "view"}, 0.01, "it")
        assert process.stdin is not None
        process.stdin.close()


def test_an_answer_after_the_timeout_is_not_taken_for_the_next_commands() -> None:
    with start(LATE) as process:
        with pytest.raises(EmbeddedBrokerError, match=r"it did not answer within 0\.01 s"):
            process.exchange({"command": "view"}, 0.01, "it")
        assert process.exchange({"command": "clear"}, 30, "it") == {"command": "clear"}


def test_a_packed_program_does_not_start_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    with pytest.raises(EmbeddedBrokerError, match="packed program has no Python"):
        start_module("kafkaprod.broker.embedding.child")
