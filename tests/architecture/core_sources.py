"""The core's sources as the architecture tests look at them: imports, nogil functions, Cython's translation."""

from __future__ import annotations

import html
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CORE = ROOT / "kafkaprod" / "_core"

_IMPORT = re.compile(r"^\s*(?:from\s+([\w.]+)\s+c?import\b|c?import\s+([\w.]+))", re.MULTILINE)
_CDEF_FUNCTION = re.compile(r"(\s*)cdef\s[^=]*?\b(\w+)\(")
_LINE = re.compile(r'<pre class="cython line score-(\d+)"[^>]*>(.*)')
_LINE_NUMBER = re.compile(r'<span class="">(\d+)</span>:')


@dataclass(frozen=True, slots=True)
class NogilFunction:
    """A function of a .pyx whose declaration says nogil; `lines` are those of its body, from 1."""

    module: str
    name: str
    lines: range


def sources(*suffixes: str) -> list[Path]:
    """The core's files with one of these suffixes."""
    return sorted(path for path in CORE.rglob("*") if path.suffix in suffixes)


def imported_modules(source: str) -> set[str]:
    """Names of all modules that Python or Cython source imports or cimports."""
    return {first or second for first, second in _IMPORT.findall(_without_strings(source))}


def nogil_functions(path: Path) -> Iterator[NogilFunction]:
    """The nogil functions that a .pyx defines."""
    lines = path.read_text().splitlines()
    number = 0
    while number < len(lines):
        match = _CDEF_FUNCTION.match(lines[number])
        signature = lines[number]
        last = number
        while match and signature.count("(") > signature.count(")"):
            last += 1
            signature += lines[last]
        if match and signature.rstrip().endswith("nogil:"):
            end = last + 1
            while end < len(lines) and (not lines[end].strip() or _indent(lines[end]) > len(match[1])):
                end += 1
            yield NogilFunction(path.stem, match[2], range(last + 2, end + 1))
        number = last + 1


def translate(directory: Path) -> str:
    """Translate a copy of the core to C, annotated, in `directory`; return what Cython said."""
    (directory / "kafkaprod").mkdir()
    for path in [ROOT / "setup.py", ROOT / "pyproject.toml", ROOT / "README.md", ROOT / "LICENSE"]:
        shutil.copy(path, directory)
    for path in (ROOT / "kafkaprod").glob("*.py"):
        shutil.copy(path, directory / "kafkaprod")
    shutil.copytree(CORE, directory / "kafkaprod" / "_core", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("KAFKAPROD_")}
    done = subprocess.run(
        [sys.executable, "setup.py", "--version"],
        cwd=directory,
        env=environment | {"KAFKAPROD_ANNOTATE": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout + done.stderr


def annotation_scores(directory: Path, module: str) -> dict[int, int]:
    """How much Python each line of a translated module does, by line number; 0 is plain C."""
    (found,) = (directory / "build" / "kafkaprod" / "_core").rglob(f"{module}.html")
    page = found.read_text()
    scores = {}
    for line in page.split("\n"):
        match = _LINE.search(line)
        number = _LINE_NUMBER.search(html.unescape(match[2])) if match else None
        if match and number:
            scores[int(number[1])] = int(match[1])
    return scores


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _without_strings(source: str) -> str:
    return re.sub(r'"""(.|\n)*?"""', '""', source)
