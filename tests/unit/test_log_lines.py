"""Lines of a producer's own threads: queued, bounded, given in order by another thread, never one about another."""

from __future__ import annotations

import logging
import os
import re
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkaprod import log_lines
from kafkaprod.log_lines import LOGGERS, OwnLines
from kafkaprod.threads import is_own_thread, make_thread

PACKAGE = Path(log_lines.__file__).parent
NAME = "kafkaprod.test-of-lines"
BOUND_S = 30
# Their modules run in no thread of a producer: commands, the broker's processes, Spark's, callers of admin functions.
ELSEWHERE = ("admin", "broker", "cli", "loader", "spark")
OTHERS = {"kafkaprod.protocol.server", "kafkaprod.compat.installation"}  # the broker's side; callers of install()


class Keeper(logging.Handler):
    """Keeps the lines, and the threads that brought them; can be held up."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.threads: set[int] = set()
        self.may_go_on = threading.Event()
        self.may_go_on.set()

    def emit(self, record: logging.LogRecord) -> None:
        assert self.may_go_on.wait(BOUND_S)
        self.lines.append(record.getMessage())
        self.threads.add(threading.get_ident())


@pytest.fixture
def keeper() -> Iterator[Keeper]:
    handler = Keeper()
    logger = logging.getLogger(NAME)
    logger.addHandler(handler)
    logger.propagate = False
    yield handler
    handler.may_go_on.set()
    logger.handlers.clear()
    logger.filters.clear()


def lines_of(capacity: int = 100) -> OwnLines:
    lines = OwnLines(capacity)
    logging.getLogger(NAME).addFilter(lines)
    return lines


def warn(text: str) -> bool:
    """Log a line; return True, for places that want a value."""
    logging.getLogger(NAME).warning("%s", text)
    return True


def run_as_own(call: Any) -> int:
    """Run it on a thread of the package; return the thread's number."""
    idents: list[int] = []

    def run() -> None:
        assert is_own_thread()
        call()
        idents.append(threading.get_ident())

    thread = make_thread(run, "own")
    thread.start()
    thread.join(BOUND_S)
    return idents[0]


def test_an_own_thread_s_lines_come_in_order_by_another_thread(keeper: Keeper) -> None:
    lines = lines_of()
    keeper.may_go_on.clear()
    own = run_as_own(lambda: [warn(f"line {n}") for n in range(10)])
    keeper.may_go_on.set()
    lines.flush(BOUND_S)
    assert keeper.lines == [f"line {n}" for n in range(10)]
    assert not keeper.threads & {own, threading.get_ident()}


def test_other_threads_lines_are_given_at_once(keeper: Keeper) -> None:
    lines_of()
    logging.getLogger(NAME).warning("at once")
    assert keeper.lines == ["at once"]
    assert keeper.threads == {threading.get_ident()}


class Guarded(logging.Logger):
    """Takes no line while it handles one of the same thread: any logger of CPython 3.13.5."""

    is_handling = threading.local()

    def handle(self, record: logging.LogRecord) -> None:
        if not getattr(self.is_handling, "now", False):
            self.is_handling.now = True
            try:
                super().handle(record)
            finally:
                self.is_handling.now = False


def test_a_logger_that_refuses_lines_meanwhile_gives_them_too(keeper: Keeper, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.getLogger(NAME), "__class__", Guarded)
    lines = lines_of()
    warn("here")
    run_as_own(lambda: warn("there"))
    lines.flush(BOUND_S)
    assert keeper.lines == ["here", "there"]


def test_a_line_that_a_filter_of_the_user_replaces_is_given_as_replaced(keeper: Keeper) -> None:
    lines_of()
    other = logging.LogRecord(NAME, logging.WARNING, "", 0, "other", (), None)

    def replacing(_: logging.LogRecord) -> Any:
        return other

    logging.getLogger(NAME).addFilter(replacing)
    warn("one")
    assert keeper.lines == ["other" if sys.version_info >= (3, 12) else "one"]


def test_what_finds_no_place_is_counted_and_reported(keeper: Keeper, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_lines, "IDLE_S", 0.01)
    monkeypatch.setattr(log_lines, "logger", logging.getLogger(NAME))
    lines = lines_of(capacity=5)
    keeper.may_go_on.clear()
    run_as_own(lambda: [warn(f"line {n}") for n in range(20)])
    dropped = lines.dropped_count
    assert dropped in (14, 15)  # one may be with the handler
    reported = threading.Event()

    def note(record: logging.LogRecord) -> bool:
        if "were dropped" in record.getMessage():
            reported.set()
        return True

    keeper.addFilter(note)
    keeper.may_go_on.set()
    assert reported.wait(BOUND_S)
    lines.flush(BOUND_S)
    assert keeper.lines[-1].startswith(f"{dropped} log lines of kafkaprod were dropped")


@pytest.mark.parametrize("rounds", [1, 2, 4])
def test_each_report_of_dropped_lines_counts_those_since_the_one_before(
    keeper: Keeper, monkeypatch: pytest.MonkeyPatch, rounds: int
) -> None:
    monkeypatch.setattr(log_lines, "logger", logging.getLogger(NAME))
    lines, dropped = lines_of(capacity=5), []
    for _ in range(rounds):
        before = lines.dropped_count
        keeper.may_go_on.clear()
        run_as_own(lambda: [warn(f"line {n}") for n in range(20)])
        dropped.append(lines.dropped_count - before)
        keeper.may_go_on.set()
        lines.flush(BOUND_S)
        lines._report_dropped()
    reports = [line for line in keeper.lines if "were dropped" in line]
    assert [int(report.partition(" ")[0]) for report in reports] == dropped


def test_a_line_that_a_handler_causes_is_left_out(keeper: Keeper) -> None:
    lines = lines_of()
    keeper.addFilter(lambda _: warn("about a line"))
    logging.getLogger(NAME).warning("here")
    run_as_own(lambda: logging.getLogger(NAME).warning("there"))
    lines.flush(BOUND_S)
    assert keeper.lines == ["here", "there"]


def test_a_filter_of_the_user_that_raises_ends_no_thread(keeper: Keeper) -> None:
    lines = lines_of()
    logging.getLogger(NAME).addFilter(lambda record: bool(1 // (record.getMessage() != "bad")))
    run_as_own(lambda: [warn(text) for text in ("bad", "good")])
    lines.flush(BOUND_S)
    assert keeper.lines == ["good"]
    with pytest.raises(ZeroDivisionError):
        logging.getLogger(NAME).warning("bad")


def test_while_the_program_ends_lines_are_given_in_place(keeper: Keeper, monkeypatch: pytest.MonkeyPatch) -> None:
    class Refusing:
        def start(self) -> None:
            raise RuntimeError("can't create new thread at interpreter shutdown")

    lines = lines_of()
    monkeypatch.setattr(log_lines, "make_thread", lambda *_: Refusing())
    run_as_own(lambda: logging.getLogger(NAME).warning("no thread yet"))
    assert keeper.lines == []
    monkeypatch.setattr(log_lines, "is_program_ending", lambda: True)
    own = run_as_own(lambda: logging.getLogger(NAME).warning("the end"))
    assert keeper.lines == ["no thread yet", "the end"]
    assert keeper.threads == {own}
    run_as_own(lambda: logging.getLogger(NAME).warning("later"))
    lines.flush(BOUND_S)
    assert keeper.lines[-1] == "later"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork()")
def test_a_forked_child_has_neither_the_lines_nor_the_thread(keeper: Keeper) -> None:
    lines = lines_of()
    keeper.may_go_on.clear()
    run_as_own(lambda: [warn("line") for _ in range(3)])
    lines.forget()  # what a child calls
    came = threading.Event()

    def note(record: logging.LogRecord) -> bool:
        if record.getMessage() == "of the child":
            came.set()
        return True

    keeper.addFilter(note)
    keeper.may_go_on.set()
    lines.flush(0)
    run_as_own(lambda: logging.getLogger(NAME).warning("of the child"))
    assert came.wait(
        BOUND_S
    )  # a flush may miss it: unlike in a child, the thread of before is there and takes lines, too


def test_every_logger_of_a_producer_s_modules_is_in_the_list() -> None:
    found = set()
    for path in [*PACKAGE.rglob("*.py"), *PACKAGE.rglob("*.pyx")]:
        place = path.relative_to(PACKAGE)
        if place.parts[0] in ELSEWHERE or place.name == "log_lines.py":
            continue
        module = ".".join(("kafkaprod", *place.with_suffix("").parts))
        for given in re.findall(r"getLogger\(([^)]*)\)", path.read_text(encoding="utf-8")):
            found.add(module if given == "__name__" else given.strip('"'))
    assert found - OTHERS == set(LOGGERS)
