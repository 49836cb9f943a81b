"""Counts what the layout promises: `python -m tests.architecture` prints the figures, `test_counts` holds them.

A room is a module or package directly below the package. An arrow is an import (or cimport) from one room to another,
also one inside a function; it goes up if the layers in pyproject.toml put the target above, and sideways if both are in
one layer. Inside a room `maps` looks: at the order of its modules, which its docstring gives, at every depth.
"""

from __future__ import annotations

import ast
import tomllib
from collections import defaultdict
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from tests.architecture.core_sources import ROOT, imported_modules

PACKAGE = ROOT / "kafkaprod"
SUFFIXES = (".py", ".pyx", ".pxd")
MOST_ROOMS = 31

Graph = dict[str, set[str]]


def module_name(path: Path) -> str:
    """The dotted name of a source file: of a package for its `__init__`."""
    name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    return name.removesuffix(".__init__")


def product_files(*suffixes: str) -> list[Path]:
    """All sources of the product with one of these suffixes."""
    return sorted(path for path in PACKAGE.rglob("*") if path.suffix in suffixes)


def rooms() -> list[str]:
    """The names of the modules and packages directly below the package; `__name__` is an entry for another program."""
    modules = {path.stem for path in PACKAGE.glob("*.py")}
    packages = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    return sorted(name for name in modules | packages if not name.startswith("__"))


@cache
def imports() -> Graph:
    """What each module of the product imports from the product, when it is loaded or called: module names.

    Imports for annotations alone do not count: they never run.
    """
    names = {module_name(path) for path in product_files(*SUFFIXES)}
    graph: Graph = defaultdict(set)
    for path in product_files(*SUFFIXES):
        module = module_name(path)
        found = _python_imports(path) if path.suffix == ".py" else imported_modules(path.read_text())
        graph[module] |= {target for name in found if (target := _known(name, names)) and target != module}
    return dict(graph)


def circles(graph: Graph) -> list[list[str]]:
    """Return the groups of modules that import each other in a circle; none is the right answer."""
    left = {module: set(targets) for module, targets in graph.items()}
    while True:
        free = {module for module, targets in left.items() if not targets & left.keys()}
        if not free:
            break
        left = {module: targets for module, targets in left.items() if module not in free}
    # What is left either is in a circle or imports one: drop what nothing in it imports, from the other end.
    while left:
        imported = set().union(*left.values())
        if left.keys() <= imported:
            break
        left = {module: targets for module, targets in left.items() if module in imported}
    return _strong_groups(left)


def room_arrows() -> set[tuple[str, str]]:
    """The arrows between rooms."""
    found = set()
    for module, targets in imports().items():
        source = _room(module)
        found |= {(source, _room(target)) for target in targets}
    return {(source, target) for source, target in found if source and target and source != target}


def arrows_up() -> set[tuple[str, str]]:
    """The arrows that go to a higher layer, or sideways where the layers forbid it."""
    level = _levels()
    return {
        (source, target)
        for source, target in room_arrows()
        if source in level and target in level and level[target] >= level[source]
    }


def foreign_privates(path: Path) -> list[str]:
    """Uses of `x._name` where x is not self or cls: a module that reaches into another object's privates."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__"):
            owner = node.value
            if not (isinstance(owner, ast.Name) and owner.id in {"self", "cls"}):
                found.append(f"{path.name}:{node.lineno} .{node.attr}")
    return found


def _python_imports(path: Path) -> set[str]:
    found = set()
    for node in _statements_that_run(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def _statements_that_run(node: ast.AST) -> Iterable[ast.AST]:
    """All nodes but those below `if TYPE_CHECKING:`."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
            yield from (inner for branch in child.orelse for inner in [branch, *_statements_that_run(branch)])
            continue
        yield child
        yield from _statements_that_run(child)


def _known(name: str, names: set[str]) -> str:
    """The longest known module that the dotted name begins with; the package itself does not count."""
    while name and name not in names:
        name = name.rpartition(".")[0]
    return "" if name == "kafkaprod" else name


def _room(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else ""


def _levels() -> dict[str, int]:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = next(contract["layers"] for contract in contracts if contract["type"] == "layers")
    level = {}
    for height, layer in enumerate(reversed(layers)):
        for name in layer.replace("|", " ").replace(":", " ").replace("(", " ").replace(")", " ").split():
            level[name] = height
    return level


def _strong_groups(graph: Graph) -> list[list[str]]:
    reach: Graph = {module: _reached(module, graph) for module in graph}
    groups = {
        tuple(sorted(other for other in reach[module] if module in reach[other]))
        for module in graph
        if module in reach[module]
    }
    return [list(group) for group in sorted(groups)]


def _reached(start: str, graph: Graph) -> set[str]:
    seen: set[str] = set()
    waiting = list(graph[start] & graph.keys())
    while waiting:
        module = waiting.pop()
        if module not in seen:
            seen.add(module)
            waiting += graph[module] & graph.keys()
    return seen
