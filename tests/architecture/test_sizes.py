"""Functions and files stay as short as CONTRIBUTING.md says."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.architecture.core_sources import ROOT

FUNCTION_LINES = 60
FILE_LINES = {".py": 480, ".pyx": 640, ".pxd": 400}

# Constructors with many keywords, most of whose lines are their docstring, and loops over records.
LONG_FUNCTIONS = {
    "broker/embedding/embedded.py:__init__": "a keyword and its documentation for each option of the broker",
    "broker/embedding/cluster.py:__init__": "a keyword and its documentation for each option of the cluster",
    "broker/cluster/broker.py:__init__": "a keyword for each part that the broker is made of",
    "_core/queues/accumulator.pyx:append_record": "its cases in one piece: a further call would be paid per record",
    "_core/queues/blocks.pyx:_append_run": "the loop over a block's rows, in one piece without the GIL",
    "_core/records/batch_reader.pyx:scan": "the loop over a batch's records, in one piece without the GIL",
}
_DEF = re.compile(r"^( *)(?:cdef |def |async def )[^=]*?(\w+)\((?!.*\bclass\b)")


def python_lengths(source: str) -> Iterator[tuple[str, int]]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno is not None:
            yield node.name, node.end_lineno - node.lineno + 1


def compiled_lengths(source: str) -> Iterator[tuple[str, int]]:
    """Names and lines of functions: from `def` to the last line that is indented further."""
    lines = source.split("\n")
    for first, line in enumerate(lines):
        match = _DEF.match(line)
        if match is None:
            continue
        last, is_open = first, True
        for number in range(first + 1, len(lines)):
            text = lines[number]
            if is_open:  # still in the signature, whose last line may stand at the left
                last = number - 1 if lines[number - 1].rstrip().endswith(":") else number
                is_open = not lines[last].rstrip().endswith(":")
                if is_open or last == number:
                    continue
            if text.strip() and len(text) - len(text.lstrip()) <= len(match[1]):
                break
            if text.strip():
                last = number
        yield match[2], last - first + 1


def sources() -> list[Path]:
    return [path for path in sorted((ROOT / "kafkaprod").rglob("*")) if path.suffix in FILE_LINES]


def long_functions() -> dict[str, int]:
    found = {}
    for path in sources():
        lengths = {".py": python_lengths, ".pyx": compiled_lengths}.get(path.suffix)
        for name, lines in lengths(path.read_text(encoding="utf-8")) if lengths else ():
            if lines > FUNCTION_LINES:
                found[f"{path.relative_to(ROOT / 'kafkaprod').as_posix()}:{name}"] = lines
    return found


def test_no_function_is_long_but_the_listed_ones() -> None:
    assert sorted(long_functions()) == sorted(LONG_FUNCTIONS)


def test_no_file_is_long() -> None:
    lengths = {path: len(path.read_text(encoding="utf-8").split("\n")) - 1 for path in sources()}
    assert {str(path): lines for path, lines in lengths.items() if lines > FILE_LINES[path.suffix]} == {}


def test_compiled_functions_are_measured() -> None:
    source = "cdef int a(\n    int b,\n) noexcept nogil:\n    return b\n\n\n"
    source += "cdef class C:\n    def d(self):\n\n        pass\n"
    assert dict(compiled_lengths(source)) == {"a": 4, "d": 3}


def test_contributing_says_the_limits() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert f"Functions have at most {FUNCTION_LINES} lines" in text
    assert f"files {FILE_LINES['.py']} ({FILE_LINES['.pyx']} if compiled)" in text
