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

import Cython

from tests.support.builds.tree_copy import copy_tree

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "kafkaprod"
CORE = PACKAGE / "_core"

_IMPORT = re.compile(r"^\s*(?:from\s+([\w.]+)\s+c?import\b|c?import\s+([\w.]+))", re.MULTILINE)
_CDEF_FUNCTION = re.compile(r"(\s*)cdef\s[^=]*?\b(\w+)\(")
_LINE = re.compile(r'<pre class="cython line score-(\d+)"[^>]*>(.*)')
_LINE_NUMBER = re.compile(r'<span class="">(\d+)</span>:')
_POSITION = re.compile(r'/\* "([\w/.]+)":(\d+)\n.*?\*/', re.DOTALL)
"""What precedes the C code of a source line; the code goes on to the next one."""
_PYTHON_CALL = re.compile(r"\b_*(?:Py[A-Z]\w*_\w+|__Pyx_(?!RefNanny)\w+|Py_[A-Z]+)\(")


@dataclass(frozen=True, slots=True)
class NogilFunction:
    """A function of a .pyx or .pxd whose declaration says nogil; `lines` are those of its body, from 1."""

    module: str
    name: str
    lines: range


def sources(*suffixes: str, root: Path = CORE) -> list[Path]:
    """The files below `root` with one of these suffixes."""
    return sorted(path for path in root.rglob("*") if path.suffix in suffixes)


def imported_modules(source: str) -> set[str]:
    """Names of all modules that Python or Cython source imports or cimports."""
    return {first or second for first, second in _IMPORT.findall(_without_strings(source))}


def nogil_functions(path: Path) -> Iterator[NogilFunction]:
    """The nogil functions that a .pyx or .pxd defines."""
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


def translate() -> tuple[Path, str]:
    """Translate all Cython sources to annotated C, in a copy of the tree; return its directory and what Cython said.

    The copy is kept, so that only what has changed is translated; after a warning or a hint all is, once more.
    """
    directory = copy_tree("translated")
    translated = directory / "build"
    made_by = "\n".join([sys.version, Cython.__version__, (ROOT / "setup.py").read_text()])
    record = translated / "made-by.txt"
    if not record.exists() or record.read_text() != made_by:
        shutil.rmtree(translated, ignore_errors=True)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("KAFKAPROD_")}
    done = subprocess.run(
        [sys.executable, "setup.py", "--version"],
        cwd=directory,
        env=environment | {"KAFKAPROD_ANNOTATE": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    output = done.stdout + done.stderr
    if is_spoken_of(output):
        shutil.rmtree(translated)
    else:
        record.write_text(made_by)
    return directory, output


def is_spoken_of(output: str) -> bool:
    """Whether Cython said more than what it translates."""
    return "performance hint" in output.lower() or "warning" in output.lower()


def annotation_scores(directory: Path, module: str) -> dict[int, int]:
    """How much Python each line of a translated module does, by line number; 0 is plain C."""
    (found,) = (directory / "build" / "kafkaprod").rglob(f"{module}.html")
    page = found.read_text()
    scores = {}
    for line in page.split("\n"):
        match = _LINE.search(line)
        number = _LINE_NUMBER.search(html.unescape(match[2])) if match else None
        if match and number:
            scores[int(number[1])] = int(match[1])
    return scores


def python_calls_of_declarations(directory: Path) -> dict[tuple[str, int], str]:
    """Return each line of a .pxd that does Python work in the C code of a module, and its first call: (path, line).

    Cython's annotation shows only the lines of a module's own .pyx. What a .pxd defines is translated in each module
    that cimports it.
    """
    found: dict[tuple[str, int], str] = {}
    for path in (directory / "build" / "kafkaprod").rglob("*.c"):
        _, *parts = _POSITION.split(path.read_text())
        for file, line, code in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
            call = _PYTHON_CALL.search(code.partition("\n}\n")[0]) if file.endswith(".pxd") else None
            if call is not None:
                found[file, int(line)] = call[0]
    return found


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _without_strings(source: str) -> str:
    return re.sub(r'"""(.|\n)*?"""', '""', source)
