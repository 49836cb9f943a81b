"""Which file uses which: imports, cimports, and what is found by name.

A file uses what it imports when it is loaded or called, the packages around that, and what its texts name: a module
(`python -m kafkaprod.cli`, a program in a string) or a file. A compiled module is one with its `.pxd`, `.pyx` and
headers. Names that a package loads on first use (`_MODULES`) are followed from those who use them, and so are the
fixtures of a conftest. Three places find modules by a name that they make: `FOUND_BY_NAME`.

An import for annotations alone is no use: it never runs.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path

SOURCES = (".py", ".pyx", ".pxd", ".h")
ROOMS = ("kafkaprod", "pyspark_kafkaprod", "tests", "benchmarks")
# Modules that others find by a name that they make, and where these lie.
FOUND_BY_NAME = {
    "kafkaprod/broker/server/router.py": "kafkaprod/broker/handlers/",
    "kafkaprod/protocol/messages/__init__.py": "kafkaprod/protocol/messages/",
    "kafkaprod/cli/main.py": "kafkaprod/cli/",
}
NATIVE = "tests/native/"
# Where a search for files is one in the tree, if it begins at a place of the tree's own.
SEARCHING = ("tests/unit/", "tests/property/", "tests/conformance/", "tests/support/builds/", "tests/pages/")

_DOTTED = re.compile(r"\b(?:kafkaprod|pyspark_kafkaprod|tests|benchmarks)(?:\.\w+)+")
_FROM = re.compile(r"^\s*from\s+([\w.]+)\s+c?import\s+(\([^)]*\)|[^\n#]*)", re.MULTILINE)
_IMPORT = re.compile(r"^\s*c?import\s+([\w.]+)", re.MULTILINE)
_EXTERN = re.compile(r'(?:extern from|#include)\s+"([^"]+)"')
_FILE = re.compile(r"[\w./-]+\.\w+")
_PROGRAM = re.compile(r"(?:^|\s)-m\s+([\w.]+)", re.MULTILINE)
_SEARCH = re.compile(r"\br?glob\(|\bcopytree\(|\bcopy_tree\(|\biterdir\(")
_OWN_PLACE = re.compile(r"\bROOT\b|\bPACKAGE\b|__file__|\bLISTS\b")
_WORD = re.compile(r"\w+")
_NAMING = (ast.Import, ast.ImportFrom, ast.Attribute, ast.Constant)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
# Nodes that name nothing and have nothing below them that does: half of a tree.
_LEAVES = (ast.Name, ast.expr_context, ast.operator, ast.cmpop, ast.boolop, ast.unaryop)
_WITH_DOCSTRINGS = (ast.Module, ast.ClassDef, *_FUNCTIONS)


@dataclass(frozen=True)
class Names:
    """What one file names: modules and what is in them, programs that it starts, and its texts."""

    dotted: frozenset[str]
    programs: frozenset[str] = frozenset()
    texts: tuple[str, ...] = ()


@dataclass(frozen=True)
class Uses:
    """Which file uses which, by paths below the root; `files` may be the tree's of another time."""

    root: Path
    files: frozenset[str]
    _names: dict[str, Names] = field(default_factory=dict)

    @cached_property
    def direct(self) -> dict[str, frozenset[str]]:
        """Each source file, and the files that it uses itself."""
        return {path: frozenset(self._uses_of(path)) - {path} for path in self.files if path.endswith(SOURCES)}

    def reached(self, path: str) -> set[str]:
        """Everything that a file uses, also by way of others, and itself."""
        return _closed({path}, self.direct)

    def users(self, paths: Collection[str]) -> set[str]:
        """Everything that uses one of these files, also by way of others, and they themselves."""
        return _closed(set(paths), self._reverse)

    @cached_property
    def searching(self) -> list[str]:
        """The files of tests that look for files in the tree, or copy it: any of them may matter."""
        texts = {path: self.text(path) for path in self.files if path.startswith(SEARCHING) and path.endswith(".py")}
        return [path for path, text in texts.items() if _SEARCH.search(text) and _OWN_PLACE.search(text)]

    @cached_property
    def _reverse(self) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for path, used in self.direct.items():
            for other in used:
                found.setdefault(other, set()).add(path)
        return found

    def text(self, path: str) -> str:
        """The text of a file; "" if it is gone."""
        file = self.root / path
        return file.read_text(encoding="utf-8", errors="replace") if file.is_file() else ""

    def named_files(self, path: str) -> set[str]:
        """The words and paths with an ending that the texts of a Python file have."""
        return {name for text in self.names(path).texts for name in _FILE.findall(text)}

    def names(self, path: str) -> Names:
        """What a file names."""
        if path not in self._names:
            text = self.text(path)
            self._names[path] = python_names(text) if path.endswith(".py") else compiled_names(text)
        return self._names[path]

    def _uses_of(self, path: str) -> Iterator[str]:
        names = self.names(path)
        for name in names.dotted:
            yield from self.files_of(name)
        for name in names.programs:
            yield from {f"{name.replace('.', '/')}/__main__.py"} & self.files
        if not path.endswith(".py"):
            stem = path.rpartition(".")[0]
            yield from {f"{stem}{suffix}" for suffix in (".pyx", ".pxd", ".h")} & self.files
            yield from self._included(path)
        if folder := FOUND_BY_NAME.get(path):
            yield from (other for other in self.files if other.startswith(folder) and other.endswith(".py"))
        if path.startswith("tests/"):
            yield from self._fixtures(path)
            yield from self._faces(path)
        yield from self._files_in_texts(path)

    def files_of(self, name: str) -> Iterator[str]:
        """The files of a dotted name: of the module that it begins with, and of the packages around it."""
        parts = name.split(".")
        for count in range(1, len(parts) + 1):
            base = "/".join(parts[:count])
            yield from {f"{base}{suffix}" for suffix in (".py", ".pyx", ".pxd")} & self.files
            package = f"{base}/__init__.py"
            if package in self.files:
                yield package
                if count < len(parts) and (module := self._lazy.get(package, {}).get(parts[count])):
                    yield from self.files_of(module)

    @cached_property
    def _lazy(self) -> dict[str, dict[str, str]]:
        """Package -> the names that it loads on first use, and their modules."""
        found = {}
        for path in self.files:
            if path.endswith("/__init__.py") and "_MODULES = {" in (text := self.text(path)):
                package = path.removesuffix("/__init__.py").replace("/", ".")
                for node in ast.parse(text).body:
                    if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "_MODULES":
                        names: dict[str, str] = ast.literal_eval(node.value)
                        found[path] = {name: f"{package}.{module}" for name, module in names.items()}
        return found

    @cached_property
    def _given(self) -> dict[str, dict[str, str]]:
        """Conftest -> the names that it imports, which are fixtures, and the modules that define them."""
        found: dict[str, dict[str, str]] = {}
        for path in self.files:
            if path.endswith("conftest.py"):
                nodes = (node for node in ast.walk(ast.parse(self.text(path))) if isinstance(node, ast.ImportFrom))
                found[path] = {alias.name: f"{node.module}.{alias.name}" for node in nodes for alias in node.names}
        return found

    def _fixtures(self, path: str) -> Iterator[str]:
        words = set(_WORD.findall(self.text(path)))
        for conftest, given in self._given.items():
            if path != conftest and path.startswith(conftest.removesuffix("conftest.py")):
                for name in given.keys() & words:
                    yield from self.files_of(given[name])

    def _faces(self, path: str) -> Iterator[str]:
        if "tests.native.building.load" in self.names(path).dotted:
            names = {f"{NATIVE}{text}.pyx" for text in self.names(path).texts}
            yield from names & self.files

    def _included(self, path: str) -> Iterator[str]:
        folder = path.rpartition("/")[0]
        for name in _EXTERN.findall(self.text(path)):
            yield from {name, f"{folder}/{name}"} & self.files

    def _files_in_texts(self, path: str) -> Iterator[str]:
        folder = path.rpartition("/")[0]
        for name in self.named_files(path) if path.endswith(".py") and path.startswith("tests/") else ():
            yield from {name, f"kafkaprod/{name}", f"tests/{name}", f"{folder}/{name}"} & self.files


def _closed(paths: set[str], graph: Mapping[str, AbstractSet[str]]) -> set[str]:
    seen, left = set(paths), list(paths)
    while left:
        found = graph.get(left.pop(), frozenset()) - seen
        seen |= found
        left += found
    return seen


@cache
def python_names(source: str) -> Names:
    """What Python source names: imports that run, and the texts that are no docstrings."""
    dotted: set[str] = set()
    texts: list[str] = []
    for node in _nodes_that_run(ast.parse(source)):
        if not isinstance(node, _NAMING):
            continue
        if isinstance(node, ast.Import):
            dotted |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            dotted |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Attribute):
            if isinstance(node.value, ast.Name) and node.value.id == "kafkaprod":
                dotted.add(f"kafkaprod.{node.attr}")
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            texts.append(node.value)
            dotted |= set(_DOTTED.findall(node.value)) | _imports_in(node.value)
    # The arguments of a command are texts of their own: "-m", "kafkaprod".
    programs = set(_PROGRAM.findall("\n".join(texts)))
    return Names(frozenset(dotted), frozenset(programs), tuple(texts))


@cache
def compiled_names(source: str) -> Names:
    """What Cython or C source imports and cimports."""
    return Names(frozenset(_imports_in(source)))


def imports_when_loaded(source: str) -> set[str]:
    """The dotted names that Python source imports when it is loaded, not in functions."""
    names = set()
    for node in _nodes_that_run(ast.parse(source), in_functions=False):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def _imports_in(text: str) -> set[str]:
    found = set(_IMPORT.findall(text))
    for module, names in _FROM.findall(text):
        found |= {f"{module}.{name.split()[0]}" for name in names.strip("()").split(",") if name.split()}
    return found


def _nodes_that_run(tree: ast.AST, *, in_functions: bool = True) -> Iterator[ast.AST]:
    """All nodes but docstrings and what is below `if TYPE_CHECKING:`."""
    left: list[ast.AST] = [tree]
    while left:
        node = left.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            left += node.orelse
            continue
        if isinstance(node, _FUNCTIONS) and not in_functions:
            continue
        yield node
        children: list[ast.AST] = []
        for name in node._fields:
            value = getattr(node, name, None)
            if isinstance(value, list):
                is_documented = (
                    name == "body" and isinstance(node, _WITH_DOCSTRINGS) and bool(value) and _is_text(value[0])
                )
                below = value[1:] if is_documented else value
                children += [child for child in below if isinstance(child, ast.AST) and not isinstance(child, _LEAVES)]
            elif isinstance(value, ast.AST) and not isinstance(value, _LEAVES):
                children.append(value)
        left += reversed(children)


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
