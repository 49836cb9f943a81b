from __future__ import annotations

import _thread
import contextvars
import signal
import subprocess
import sys
import threading
from types import FrameType

import pytest

from kafkaprod.threads import apart, importing, is_program_ending, make_thread

REQUEST: contextvars.ContextVar[str] = contextvars.ContextVar("REQUEST", default="none")


def test_a_thread_gets_its_arguments_and_does_not_keep_the_program_alive() -> None:
    seen: list[int] = []
    thread = make_thread(seen.append, "a name", 5)
    assert (thread.name, thread.daemon) == ("a name", True)
    thread.start()
    thread.join(10)
    assert seen == [5]


def test_a_thread_does_not_see_the_context_of_its_starter() -> None:
    seen: list[str] = []
    token = REQUEST.set("of a request")
    try:
        thread = make_thread(lambda: seen.append(REQUEST.get()), "reader")
        thread.start()
        thread.join(10)
    finally:
        REQUEST.reset(token)
    assert seen == ["none"]


@pytest.mark.skipif(sys.version_info < (3, 14), reason="no thread inherits a context before Python 3.14")
def test_a_thread_does_not_inherit_a_context_where_python_does() -> None:
    program = (
        "import contextvars\n"
        "from kafkaprod.threads import make_thread\n"
        "v = contextvars.ContextVar('v', default='none')\n"
        "v.set('of a request')\n"
        "t = make_thread(lambda: print(v.get()), 'reader')\n"
        "t.start(); t.join()\n"
    )
    done = subprocess.run(
        [sys.executable, "-X", "thread_inherit_context=1", "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "none\n"


def test_a_call_apart_runs_on_another_thread_and_returns_its_result() -> None:
    assert apart(threading.get_ident) != threading.get_ident()
    assert apart(lambda: 5) == 5


def test_a_call_apart_raises_what_it_raised() -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        apart(lambda: 1 // 0)
    assert caught.value.__context__ is None


def test_an_exception_ends_the_wait_for_a_call_apart_and_not_the_call() -> None:
    waiting = threading.get_ident()
    may_go, has_ended = threading.Event(), threading.Event()

    def call() -> None:
        signal.pthread_kill(waiting, signal.SIGALRM)
        may_go.wait(20)
        has_ended.set()

    def raise_limit(number: int, frame: FrameType | None) -> None:
        raise LookupError

    previous = signal.signal(signal.SIGALRM, raise_limit)
    try:
        with pytest.raises(LookupError):
            apart(call)
    finally:
        signal.signal(signal.SIGALRM, previous)
    assert not has_ended.is_set()
    may_go.set()
    assert has_ended.wait(20)


def test_a_call_apart_runs_in_place_where_the_system_gives_no_thread() -> None:
    before = threading.stack_size(1 << 50)  # more than there is to address
    try:
        with pytest.raises(RuntimeError):
            _thread.start_new_thread(threading.get_ident, ())
        assert apart(threading.get_ident) == threading.get_ident()
    finally:
        threading.stack_size(before)


@pytest.mark.parametrize("text", ["the time limit of the task is over", "can't start new thread"])
def test_an_error_of_a_signal_handler_is_not_taken_for_a_lack_of_threads(
    monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    calls: list[int] = []

    def interrupted(*_: object) -> None:
        raise RuntimeError(text)

    monkeypatch.setattr(_thread, "start_new_thread", interrupted)
    with pytest.raises(RuntimeError, match=text):
        apart(lambda: calls.append(1))
    assert not calls


def test_what_is_imported_is_imported_once() -> None:
    calls: list[int] = []

    @importing
    def load() -> int:
        calls.append(threading.get_ident())
        return len(calls)

    assert [load(), load()] == [1, 1]
    assert calls[0] != threading.get_ident()


def test_the_program_ends_when_its_main_thread_has_ended() -> None:
    assert not is_program_ending()
    program = "import atexit, kafkaprod.threads as threads\natexit.register(lambda: print(threads.is_program_ending()))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"
