"""The table of orders in docs/architecture.md names each function that relies on one, with the helper that makes it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from tests.architecture.core_sources import PACKAGE, ROOT, sources

PAGE = ROOT / "docs" / "architecture.md"
HELPERS = Path("_core/machine/lock.pxd")
_FUNCTION = re.compile(r"\s*(?:cdef|def)\s[^=]*?\b(\w+)\(")
_HELPER = re.compile(r"\b((?:publish|observe|swap|add)(?:_?\w+)?|fence)\(&?")
_NAMES = {"fence", "swap32", "add32", "publish_batch", "observe_batch"} | {
    f"{verb}{kind}" for verb in ("publish", "observe") for kind in ("32", "_i32", "_size", "_object")
}
_ENTRY = re.compile(r"`([\w/]+\.(?:pyx|pxd)):(\w+)` \(`(\w+)`\)")


def uses_of(text: str) -> Iterator[tuple[str, str]]:
    """Yield the function and the helper for each call of a helper that orders memory."""
    function = ""
    for line in text.splitlines():
        if match := _FUNCTION.match(line):
            function = match[1]
        else:
            yield from ((function, name) for name in _HELPER.findall(line) if name in _NAMES)


def in_source() -> set[tuple[str, str, str]]:
    found: set[tuple[str, str, str]] = set()
    for path in sources(".pyx", ".pxd", root=PACKAGE):
        name = path.relative_to(PACKAGE)
        if name != HELPERS:
            found |= {(name.as_posix(), *use) for use in uses_of(path.read_text(encoding="utf-8"))}
    return found


def test_the_scan_sees_what_orders_memory() -> None:
    text = "cdef inline void f(A *a) noexcept nogil:\n    x = observe32(&a.x)\n    def g(self):\n        fence()\n"
    assert list(uses_of(text)) == [("f", "observe32"), ("g", "fence")]


def test_table_of_orders_is_that_of_the_source() -> None:
    named = set(_ENTRY.findall(PAGE.read_text(encoding="utf-8")))
    assert named == in_source()


def test_an_order_has_two_sides() -> None:
    """A publish that nobody observes, or the reverse, orders nothing."""
    rows = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if _ENTRY.search(line)]
    for row in rows:
        helpers = {helper for _, _, helper in _ENTRY.findall(row)}
        published = any(helper.startswith("publish") for helper in helpers)
        assert published == any(helper.startswith("observe") for helper in helpers), row
