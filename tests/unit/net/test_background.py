"""Blocking calls on helper threads: results come back on the I/O thread, whatever becomes of the thread."""

from __future__ import annotations

import socket
import threading
from typing import Any

import pytest

from kafkaprod.errors import AuthenticationError, ConnectionLostError
from kafkaprod.net import background
from kafkaprod.net.background import BackgroundCalls, ThreadStartError
from kafkaprod.net.node_state import ConnectionFailure, ConnectionStage
from kafkaprod.structs import Node


class Calls:
    """Background calls with what came of them."""

    def __init__(self) -> None:
        self.woken = threading.Event()
        self.calls = BackgroundCalls(self.woken.set)
        self.results: list[Any] = []
        self.errors: list[Exception] = []

    def submit(self, call: Any) -> None:
        self.calls.submit(call, self.results.append, self.errors.append)

    def finish(self) -> None:
        assert self.woken.wait(10)
        self.calls.run_finished()


def refuse_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)


def test_a_result_comes_back_on_the_calling_thread() -> None:
    calls = Calls()
    calls.submit(threading.get_ident)
    calls.finish()
    assert calls.results != [threading.get_ident()]
    assert len(calls.results) == 1


def test_a_thread_that_cannot_start_is_a_failed_call(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = Calls()
    refuse_threads(monkeypatch)
    calls.submit(lambda: 1)
    calls.finish()
    assert calls.results == []
    assert isinstance(calls.errors[0], ThreadStartError)
    assert "can't start new thread" in str(calls.errors[0])


def test_a_call_runs_in_place_while_the_program_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = Calls()
    refuse_threads(monkeypatch)
    monkeypatch.setattr(background, "is_program_ending", lambda: True)
    calls.submit(threading.get_ident)
    calls.submit(lambda: 1 / 0)
    calls.finish()
    assert calls.results == [threading.get_ident()]
    assert isinstance(calls.errors[0], ZeroDivisionError)


def resolve_failure(cause: Exception) -> ConnectionFailure:
    error = ConnectionLostError("the name cannot be resolved")
    error.__cause__ = cause
    return ConnectionFailure(Node(-1, "h", 1), ConnectionStage.RESOLVE, error, 1)


@pytest.mark.parametrize(
    ("cause", "is_hopeless"),
    [
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), True),
        (socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution"), False),
        (ThreadStartError("no helper thread could be started"), False),
        (OSError(24, "Too many open files"), False),
        (UnicodeError("label too long"), True),
    ],
)
def test_only_a_name_that_does_not_exist_is_hopeless(cause: Exception, is_hopeless: bool) -> None:
    assert resolve_failure(cause).is_hopeless is is_hopeless


def test_refused_credentials_are_hopeless() -> None:
    failure = ConnectionFailure(Node(-1, "h", 1), ConnectionStage.SASL, AuthenticationError("refused"), 1)
    assert failure.is_hopeless
