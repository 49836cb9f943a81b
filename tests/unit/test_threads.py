from __future__ import annotations

import contextvars
import subprocess
import sys

import pytest

from kafkaprod.threads import is_program_ending, make_thread

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


def test_the_program_ends_when_its_main_thread_has_ended() -> None:
    assert not is_program_ending()
    program = "import atexit, kafkaprod.threads as threads\natexit.register(lambda: print(threads.is_program_ending()))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"
