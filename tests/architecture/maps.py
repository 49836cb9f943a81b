"""The map of each room: its docstring names its modules, the highest first, and that is their order of imports.

A line of the map begins with names of modules or folders of the room, then two spaces or more, then what they are:

    loop       the sender thread
    answers, flushes   what it does between two turns

A module imports only from lines below its own. `<api>` instead of names stands for all that no line names; they may
import each other, but not in a circle.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

from tests.architecture import counts

_LINE = re.compile(r"(<\w+>|\w+(?:, \w+)*)  +\S")


def packages() -> list[str]:
    """The dotted names of all packages below the product's own, whose order pyproject.toml has."""
    paths = sorted(path.parent for path in counts.PACKAGE.glob("*/**/__init__.py"))
    return [counts.module_name(path / "__init__.py") for path in paths]


def children(package: str) -> set[str]:
    """The names of the modules and folders of a package."""
    folder = _folder(package)
    modules = {path.name.partition(".")[0] for path in folder.iterdir() if path.suffix in counts.SUFFIXES}
    folders = {path.parent.name for path in folder.glob("*/__init__.py")}
    return (modules | folders) - {"__init__", "__main__"}


@cache
def floors(package: str) -> list[set[str]]:
    """The map of a package, a set of names a line, the highest first."""
    known = children(package)
    found: list[set[str]] = []
    for line in _docstring(package).splitlines():
        match = _LINE.match(line)
        if match and match[1].startswith("<"):
            found.append(set())
        elif match and (names := set(match[1].split(", "))) <= known:
            found.append(names)
    rest = known.difference(*found)
    return [floor or rest for floor in found]


def misnamed(package: str) -> list[str]:
    """The lines of a map whose names are not in the package."""
    known = children(package)
    lines = [match for line in _docstring(package).splitlines() if (match := _LINE.match(line))]
    return [match[0] for match in lines if not match[1].startswith("<") and not set(match[1].split(", ")) <= known]


def unnamed(package: str) -> set[str]:
    """What lies in a package and is not on its map."""
    return children(package).difference(*floors(package))


def sibling_arrows(package: str) -> counts.Graph:
    """Which modules and folders of a package import which of their siblings."""
    graph: counts.Graph = {name: set() for name in children(package)}
    for module, targets in counts.imports().items():
        source = _child(package, module)
        if source in graph:
            graph[source] |= {_child(package, target) for target in targets} & graph.keys() - {source}
    return graph


def arrows_up(package: str) -> set[tuple[str, str]]:
    """The imports between siblings that go up on the map, or to a neighbour on the same line."""
    level = {name: number for number, names in enumerate(floors(package)) for name in names}
    rest = _rest(package)
    return {
        (source, target)
        for source, targets in sibling_arrows(package).items()
        for target in targets
        if source in level and target in level
        if level[target] < level[source] or (level[target] == level[source] and source not in rest)
    }


def circles() -> dict[str, list[list[str]]]:
    """Package -> the groups of its modules and folders that import each other in a circle, also inside functions."""
    groups = {package: counts.circles(sibling_arrows(package)) for package in ["kafkaprod", *packages()]}
    return {package: found for package, found in groups.items() if found}


def _rest(package: str) -> set[str]:
    """The names that stand on no line of their own."""
    named: set[str] = set()
    for line in _docstring(package).splitlines():
        if match := _LINE.match(line):
            named |= set(match[1].split(", "))
    return children(package) - named


def _docstring(package: str) -> str:
    return ast.get_docstring(ast.parse((_folder(package) / "__init__.py").read_text())) or ""


def _folder(package: str) -> Path:
    return counts.ROOT.joinpath(*package.split("."))


def _child(package: str, module: str) -> str:
    """The part of a module's name that lies directly in the package, "" if it is elsewhere."""
    return module[len(package) + 1 :].partition(".")[0] if module.startswith(f"{package}.") else ""
