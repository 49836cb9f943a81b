"""What an exception of a signal handler would leave broken: locks taken in Python, and imports inside calls.

`kafkaprod/locks.pyx` and `kafkaprod/threads.py` say why. Left out is what runs in the broker's own processes: signal
handlers there do not raise.
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
IN_BROKERS = {f"{EMBEDDING}{name}.py" for name in ("child", "children", "cluster_child", "control_socket", "host")}

# What takes a lock otherwise, and why that is right.
TRIED = {"kafkaprod/security/tls.py": "tried only, on the thread that connects; nobody waits for it"}
LOCKS = {"Lock", "Condition", "Event", "Semaphore", "BoundedSemaphore", "Barrier"}
WORDS = ("lock", "mutex", "condition", "semaphore")


# Where functions import without `importing`, and why that is right.
IMPORTS_APART = {
    "kafkaprod/__init__.py": "the user's own import, which an exception ends as any other",
    "kafkaprod/aio.py": "on a thread for the call",
    "kafkaprod/compat/installation.py": "the user's own import, which an exception ends as any other",
    "kafkaprod/compat/originals.py": "while a compat module is imported",
    "kafkaprod/compression/__init__.py": "engine/engine.py calls make_codec apart",
    "kafkaprod/engine/wiring.py": "connection_settings calls it apart",
    "kafkaprod/hooks/chain.py": "NumPy: intake/blocks.py has imported it",
    "kafkaprod/hooks/partitioners.py": "NumPy: intake/blocks.py has imported it",
    "kafkaprod/hooks/serializers.py": "JsonSerializer calls it apart",
    "kafkaprod/net/network.py": "engine/wiring.py has imported it",
    "kafkaprod/net/proxy.py": "engine/wiring.py makes it apart",
    "kafkaprod/storage/crc.py": "while the module is imported",
    "kafkaprod/protocol/messages/__init__.py": "declarations, which a second try imports; the room starts no threads",
    "kafkaprod/security/assertions.py": "on the thread that fetches tokens",
    "kafkaprod/security/kerberos.py": "engine/wiring.py calls it apart",
    "kafkaprod/security/msk.py": "engine/wiring.py calls it apart",
}
# Commands are programs of their own; a load and Spark's tasks end with the exception that interrupts them.
PROGRAMS = ("kafkaprod/cli/", "kafkaprod/loader/", "kafkaprod/spark/", "kafkaprod/broker/", "pyspark_kafkaprod/")


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
    assert name in TRIED or not found, (
        f"{name}: use kafkaprod.locks.locked, a Waiter or a queue.SimpleQueue instead of {found}"
    )


def test_what_is_left_out_is_there() -> None:
    """Else a new name would hide what the old one allowed."""
    assert all((ROOT / name).exists() for name in IN_BROKERS)
    assert all(any(breakable_locks((ROOT / name).read_text(encoding="utf-8"))) for name in TRIED)
    assert all(any(imports_in_calls((ROOT / name).read_text(encoding="utf-8"))) for name in IMPORTS_APART)


def imports_in_calls(text: str) -> Iterator[str]:
    """Yield the imports in functions that are not `importing`."""
    for function in ast.walk(ast.parse(text)):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if any(last_name(decorator) == "importing" for decorator in function.decorator_list):
            continue
        for node in ast.walk(function):
            is_call = isinstance(node, ast.Call) and last_name(node.func) in ("import_module", "__import__")
            if is_call or isinstance(node, ast.Import | ast.ImportFrom):
                yield f"{function.name}: {ast.unparse(node)}"


def test_imports_in_calls_are_seen() -> None:
    assert list(imports_in_calls("def f():\n    import json"))
    assert list(imports_in_calls("class C:\n    async def f(self):\n        from json import dumps"))
    assert list(imports_in_calls("def f():\n    return import_module('json')"))
    assert not list(imports_in_calls("import json\n@importing\ndef f():\n    import json\n    return json"))


@pytest.mark.parametrize("name", [name for name in sources() if not name.startswith(PROGRAMS)])
def test_what_an_application_calls_imports_apart(name: str) -> None:
    found = list(imports_in_calls((ROOT / name).read_text(encoding="utf-8")))
    assert name in IMPORTS_APART or not found, f"{name}: use kafkaprod.threads.importing for {found}"
