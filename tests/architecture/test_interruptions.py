"""What an exception of a signal handler would leave broken: locks that a thread of the application takes in Python.

`kafkaprod/locks.pyx` says why. Left out is what runs in the broker's own processes: signal handlers there do not raise.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = ("kafkaprod", "pyspark_kafkaprod")
# Of the broker only what starts one runs in the application.
BROKER = "kafkaprod/broker/"
EMBEDDING = "kafkaprod/broker/embedding/"
IN_BROKERS = {f"{EMBEDDING}{name}.py" for name in ("child", "children", "cluster_child", "host")}

LOCKS = {"Lock", "Condition", "Event", "Semaphore", "BoundedSemaphore", "Barrier"}
WORDS = ("lock", "mutex", "condition", "semaphore")


def is_of_application(name: str) -> bool:
    return name not in IN_BROKERS and (not name.startswith(BROKER) or name.startswith(EMBEDDING))


def sources() -> list[str]:
    paths = [path for folder in PRODUCT for path in (ROOT / folder).rglob("*.py")]
    return sorted(name for path in paths if is_of_application(name := path.relative_to(ROOT).as_posix()))


def last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Call):
        return last_name(node.func)
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def is_lock(node: ast.expr) -> bool:
    """Whether an expression is a lock by its name."""
    return last_name(node).lower().lstrip("_").endswith(WORDS)


def breakable_locks(text: str) -> Iterator[str]:
    """Yield the lines that take a lock, or make what has one, so that an exception can leave it locked."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.With | ast.AsyncWith):
            found = isinstance(node, ast.With) and any(is_lock(item.context_expr) for item in node.items)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            is_made = last_name(node.func.value) == "threading" and node.func.attr in LOCKS
            found = is_made or (node.func.attr == "acquire" and is_lock(node.func.value))
        else:
            found = isinstance(node, ast.ImportFrom) and node.module == "threading"
        if found and isinstance(node, ast.stmt | ast.expr):
            yield f"line {node.lineno}: {ast.unparse(node).splitlines()[0]}"


@pytest.mark.parametrize(
    "line",
    [
        "with self._lock: pass",
        "with _lock as held: pass",
        "with open(x) as file, self.topic_lock: pass",
        "event = threading.Event()",
        "self._condition = threading.Condition()",
        "self._lock.acquire()",
        "from threading import Lock",
    ],
)
def test_breakable_locks_are_seen(line: str) -> None:
    assert list(breakable_locks(line))


@pytest.mark.parametrize(
    "line", ["self._lock = threading.RLock()", "with open(x) as file: pass", "buffer.acquire()", "waiter = Waiter()"]
)
def test_what_cannot_break_is_not_taken_for_a_lock(line: str) -> None:
    assert not list(breakable_locks(line))


@pytest.mark.parametrize("name", sources())
def test_what_an_application_runs_takes_its_locks_in_compiled_code(name: str) -> None:
    found = list(breakable_locks((ROOT / name).read_text(encoding="utf-8")))
    assert not found, f"{name}: use kafkaprod.locks.locked, a Waiter or a queue.SimpleQueue instead of {found}"


def test_rooms_that_run_in_brokers_are_there() -> None:
    """Else a new name of one would hide what it does."""
    assert all((ROOT / name).exists() for name in IN_BROKERS)
