"""Each name that the product defines has a user in the product, or is offered to users by the documentation."""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = ("kafkaprod", "pyspark_kafkaprod")
WORD = re.compile(r"[A-Za-z_][A-Za-z_0-9]*")
COMPILED = re.compile(
    r"^\s*(?:async )?(?:def|cdef class|class)\s+(\w+)|^\s*cdef (?:inline )?[\w *]+?(\w+)\(", re.MULTILINE
)

# Other programs' names and Kafka's messages: they are found by name, or are the interface that is copied.
NOT_READ = ("kafkaprod/compat/", "kafkaprod/protocol/messages/")
ALLOWED = {
    "_repr_html_": "notebooks call it",
    "do_GET": "http.server calls it",
    "do_POST": "http.server calls it",
    "from_fixed": "a public way to make a Column; the class is documented with all its members",
    "get_loop": "asyncio calls it where a future is awaited",
    "handle_error": "socketserver calls it",
    "hook_directories": "PyInstaller calls it",
    "log_message": "http.server calls it",
    "pytest_runtest_call": "pytest calls it",
    "pytest_runtest_makereport": "pytest calls it",
    "pytest_runtest_teardown": "pytest calls it",
    "refused_release_count": "counts a bug of the engine; every stress test looks at it",
    "send_error": "http.server calls it",
    "streamReader": "Spark calls it",
    "streamWriter": "Spark calls it",
    "waiting_flushes": "shows that an interrupted flush has left nothing behind, which nothing else does",
}


def sources() -> Iterator[Path]:
    for folder in PRODUCT:
        yield from (path for path in (ROOT / folder).rglob("*") if path.suffix in (".py", ".pyx", ".pxd", ".h"))


def names_of(path: Path, text: str) -> Iterator[str]:
    """Yield the functions, methods and classes that a source file defines."""
    if path.suffix == ".py":
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        yield from (node.name for node in ast.walk(ast.parse(text)) if isinstance(node, kinds))
    elif path.suffix == ".pyx":
        yield from (match[1] or match[2] for match in COMPILED.finditer(text))


@cache
def without_user() -> dict[str, str]:
    """Return each defined name that no other word of the product repeats, and the files that define it."""
    words: Counter[str] = Counter()
    defined: defaultdict[str, list[str]] = defaultdict(list)
    for path in sources():
        text = path.read_text(encoding="utf-8")
        words.update(WORD.findall(text))
        place = path.relative_to(ROOT).as_posix()
        if not place.startswith(NOT_READ):
            for name in names_of(path, text):
                defined[name].append(place)
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    offered = {word for page in pages for word in WORD.findall(page.read_text(encoding="utf-8"))}
    return {
        name: ", ".join(places)
        for name, places in defined.items()
        if not name.startswith("__") and name not in offered and words[name] <= len(places)
    }


def test_a_name_without_a_user_in_the_product_is_removed_or_allowed() -> None:
    """What only tests use belongs to the tests: `tests/support`, or `tests/native` for C functions."""
    found = without_user()
    assert {name: places for name, places in found.items() if name not in ALLOWED} == {}


def test_each_allowed_name_is_still_without_a_user() -> None:
    assert ALLOWED.keys() - without_user().keys() == set()
