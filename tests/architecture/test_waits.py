"""How tests measure that something waited: by `Stopwatch`, whose clock is the program's."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
CLOCKS = {"monotonic", "perf_counter", "time"}


def is_elapsed(node: ast.expr) -> bool:
    """Whether an expression is `time.monotonic() - then`, or of another clock that counts finer than milliseconds."""
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Sub) or not isinstance(node.left, ast.Call):
        return False
    called = node.left.func
    return isinstance(called, ast.Attribute) and called.attr in CLOCKS and ast.unparse(called.value) == "time"


def least_waits(text: str) -> Iterator[str]:
    """Yield the assertions that such an expression is at least something."""
    if not any(f"time.{clock}" in text for clock in CLOCKS):
        return
    for assertion in ast.walk(ast.parse(text)):
        for node in ast.walk(assertion) if isinstance(assertion, ast.Assert) else ():
            if isinstance(node, ast.Compare):
                sides = [node.left, *node.comparators]
                for left, sign, right in zip(sides, node.ops, sides[1:], strict=False):
                    larger = left if isinstance(sign, ast.Gt | ast.GtE) else right
                    if isinstance(sign, ast.Gt | ast.GtE | ast.Lt | ast.LtE) and is_elapsed(larger):
                        yield ast.unparse(node)


@pytest.mark.parametrize(
    ("line", "count"),
    [
        ("assert time.monotonic() - started >= 0.3", 1),
        ("assert 0.3 <= time.monotonic() - started < 20", 1),
        ("assert done() and time.perf_counter() - started > 0.3", 1),
        ("assert time.monotonic() - started < 20", 0),
        ("assert 300 <= waited.ms < 20_000", 0),
        ("while time.monotonic() - started >= 0.3: pass", 0),
    ],
)
def test_least_waits_are_seen(line: str, count: int) -> None:
    assert len(list(least_waits(line))) == count


def test_least_waits_are_measured_by_the_programs_clock() -> None:
    found = {
        path.relative_to(TESTS).as_posix(): waits
        for path in sorted(TESTS.rglob("*.py"))
        if ".cache" not in path.relative_to(TESTS).parts  # copies of the tree for other builds
        if (waits := list(least_waits(path.read_text(encoding="utf-8"))))
    }
    assert found == {}, "use tests.support.clock.Stopwatch: a time-out ends up to a millisecond before a finer clock's"
