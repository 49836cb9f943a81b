"""Lines of code by room, beside what each room may have: `python -m tests.checking.weight`.

A line of code is one that is not blank, no comment and no docstring. A budget is no goal: a room that needs more takes
it, by raising its number in the same commit, so that weight is added on purpose; one that has become smaller lowers
it (`tests/architecture/test_weight.py`).
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
PACKAGE: Final = ROOT / "kafkaprod"
# Rooms that are shown by their own rooms.
SHOWN_BY_ROOM: Final = ("broker", "loader")
NO_ROOM: Final = "single modules"

BUDGETS: Final = {
    "__pyinstaller": 30,
    "_core": 12400,
    "admin": 1180,
    "broker": 210,
    "broker/calls": 1035,
    "broker/cluster": 3100,
    "broker/controller": 2480,
    "broker/coordinator": 3480,
    "broker/embedding": 3775,
    "broker/handlers": 4390,
    "broker/metadata": 850,
    "broker/peers": 410,
    "broker/replication": 1290,
    "broker/server": 1660,
    "broker/settings": 1670,
    "broker/storage": 4200,
    "broker/window": 950,
    "cli": 4275,
    "compat": 3520,
    "compression": 360,
    "config": 3120,
    "engine": 5350,
    "hooks": 780,
    "intake": 710,
    "loader": 1430,
    "loader/finding": 1020,
    "loader/formats": 3130,
    "loader/opening": 1950,
    "loader/positions": 900,
    "loader/reports": 220,
    "marks": 980,
    "metadata": 440,
    "metrics": 960,
    "net": 2030,
    "protocol": 4080,
    "results": 770,
    "security": 1110,
    "single modules": 1140,
    "spark": 2120,
    "spool": 1330,
    "storage": 440,
    "tables": 1090,
}


@cache
def count() -> dict[str, int]:
    """Room -> its lines of code."""
    found: Counter[str] = Counter()
    for path in PACKAGE.rglob("*"):
        if path.suffix in (".py", ".pyx", ".pxd", ".h"):
            text = path.read_text(encoding="utf-8")
            found[room(path)] += lines_of_python(text) if path.suffix == ".py" else lines_of_cython(text)
    return dict(sorted(found.items()))


def room(path: Path) -> str:
    """The room of a file: the folder below the package, or below a large one of these."""
    parts = path.relative_to(PACKAGE).parts[:-1]
    if not parts:
        return NO_ROOM
    return "/".join(parts[:2]) if parts[0] in SHOWN_BY_ROOM else parts[0]


def lines_of_python(source: str) -> int:
    """The lines of code of Python source."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    texts: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, documented) and ast.get_docstring(node, clean=False) is not None:
            texts |= set(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    lines = enumerate(source.splitlines(), 1)
    return sum(number not in texts and bool(line.strip()) and line.lstrip()[0] != "#" for number, line in lines)


def lines_of_cython(source: str) -> int:
    """The lines of code of Cython or C source."""
    source = re.sub(r'^\s*"""(?:.|\n)*?"""', "", source, flags=re.MULTILINE)
    source = re.sub(r"/\*(?:.|\n)*?\*/", "", source)
    return sum(bool(line.strip()) and not line.strip().startswith(("# ", "//")) for line in source.splitlines())


def over() -> dict[str, tuple[int, int]]:
    """The rooms that have more lines than their budget, or none: (lines, budget)."""
    return {name: (lines, BUDGETS.get(name, 0)) for name, lines in count().items() if lines > BUDGETS.get(name, 0)}


def lines() -> list[str]:
    """One line a room: its lines of code, its budget, and whether it is over it."""
    found = count()
    rows = [
        f"{number:7,} of {BUDGETS.get(name, 0):7,}  {name}{'  OVER' if number > BUDGETS.get(name, 0) else ''}"
        for name, number in found.items()
    ]
    return [*rows, f"{sum(found.values()):7,} of {sum(BUDGETS.values()):7,}  all"]


if __name__ == "__main__":
    print("\n".join(lines()))
