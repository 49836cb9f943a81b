"""Tests lie where tests/README.md says, and share what they share through helpers."""

from __future__ import annotations

import ast
import re
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

import pytest

from tests.architecture.core_sources import ROOT

TESTS = ROOT / "tests"
# What stays at the tests' root; programs have rooms.
ROOT_MODULES = {"__init__.py", "check.py", "conftest.py"}
PACKAGE = ROOT / "kafkaprod"
LEAST_MIRRORED = 170
_ROW = re.compile(r"^\| (`[^|]*`) \| ([^|]*) \|$", re.MULTILINE)
_QUOTED = re.compile(r"`([^`]+)`")
_HANDLERS = TESTS / "unit" / "broker" / "handlers"
_HELPERS = re.compile(r"^from (tests\.[\w.]+) import", re.MULTILINE)


def imports_of_test_modules(source: str) -> list[str]:
    """The test modules, with their names, that a module's source imports."""
    names = []
    for node in ast.walk(ast.parse(source)) if "test_" in source else ():
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return [
        name
        for name in names
        if name.startswith("tests.") and any(part.startswith("test_") for part in name.split("."))
    ]


@pytest.mark.parametrize(
    "source", ["from tests.unit.test_a import b", "import tests.test_a", "from tests.unit import test_a"]
)
def test_imports_of_test_modules_are_seen(source: str) -> None:
    assert imports_of_test_modules(source)


def test_no_module_imports_a_test_module() -> None:
    importers = {
        str(path.relative_to(ROOT)): names
        for path in _modules(TESTS)
        if (names := imports_of_test_modules(path.read_text(encoding="utf-8")))
    }
    assert importers == {}, "what tests share belongs into tests/support/<room>"


def test_only_the_check_lies_at_the_root_of_the_tests() -> None:
    assert {path.name for path in TESTS.glob("*.py")} == ROOT_MODULES


def test_every_module_has_its_test_where_the_map_says() -> None:
    lost = [_name(module) for module in _compiled_or_not() if not _mirror(module).exists() and not _is_mapped(module)]
    assert lost == [], "neither tests/unit/<room>/test_<module>.py nor a row of tests/README.md that fits"


def test_most_rules_have_a_test_of_their_modules_name() -> None:
    assert sum(_mirror(module).exists() for module in _compiled_or_not()) >= LEAST_MIRRORED


def test_every_row_of_the_map_is_used_and_every_place_exists() -> None:
    without = [_name(module) for module in _compiled_or_not() if not _mirror(module).exists()]
    for patterns, places in _rows():
        assert all(any(fnmatch(name, pattern) for name in without) for pattern in patterns), patterns
        assert all(_files(place) for place in places), places


def test_a_module_that_no_row_fits_is_lost() -> None:
    assert not _is_mapped(PACKAGE / "no_such_module.py")
    assert not _is_mapped(PACKAGE / "broker" / "handlers" / "no_such_handler.py")


def _is_mapped(module: Path) -> bool:
    """Whether the map has places for the module, and one of them names the module or its room."""
    if module.parent == PACKAGE / "broker" / "handlers":
        places = _handlers().get(module.stem, [])
    else:
        places = next((places for patterns, places in _rows() if _fits(module, patterns)), [])
    return any(_mentions(file, module) for place in places for file in _files(place))


def _fits(module: Path, patterns: list[str]) -> bool:
    return any(fnmatch(_name(module), pattern) for pattern in patterns)


def _mentions(file: Path, module: Path) -> bool:
    """Whether a test, or a helper that it imports, names the module, its API or its room."""
    dotted = "kafkaprod." + _name(module).replace("/", ".")
    # Handlers are reached through a broker, and never by their own names.
    room = "kafkaprod.broker" if module.parent == PACKAGE / "broker" / "handlers" else dotted.rpartition(".")[0]
    names = [dotted, module.stem, module.stem.title().replace("_", "") + "Request"]
    names += [room] if room != "kafkaprod" else []
    return any(re.search(rf"\b{re.escape(name)}\b", _text(file)) for name in names)


@cache
def _text(file: Path) -> str:
    text = file.read_text(encoding="utf-8")
    helpers = (ROOT / f"{name.replace('.', '/')}.py" for name in _HELPERS.findall(text))
    return text + "".join(helper.read_text(encoding="utf-8") for helper in helpers if helper.exists())


@cache
def _rows() -> list[tuple[list[str], list[str]]]:
    """The rows of the map: patterns of modules, and places of their tests; the first row that fits counts."""
    _, _, section = (TESTS / "README.md").read_text(encoding="utf-8").partition("## Where is the test of a module")
    rows = [[_QUOTED.findall(cell) for cell in row] for row in _ROW.findall(section.partition("\n## ")[0])]
    assert len(rows) > 15
    return [(modules, places) for modules, places in rows]


@cache
def _handlers() -> dict[str, list[str]]:
    """The places of each handler's tests, which the docstring of their room names."""
    docstring = ast.get_docstring(ast.parse((_HANDLERS / "__init__.py").read_text(encoding="utf-8"))) or ""
    places: dict[str, list[str]] = {}
    for place, *handlers in (line.split() for line in docstring.splitlines() if line.startswith("test")):
        for handler in handlers:
            near = str((_HANDLERS / place).relative_to(ROOT))
            places.setdefault(handler, []).append(place if place.startswith("tests/") else near)
    return places


def test_the_map_of_the_handlers_names_no_others() -> None:
    assert set(_handlers()) == {path.stem for path in (PACKAGE / "broker" / "handlers").glob("[!_]*.py")}
    assert all(_files(place) for places in _handlers().values() for place in places)


def _files(place: str) -> list[Path]:
    """The test files of a place: a file, a folder, or a pattern of files."""
    path = ROOT / place
    return _modules(path) if path.is_dir() else sorted(ROOT.glob(place))


def _compiled_or_not() -> list[Path]:
    paths = [path for suffix in ("py", "pyx") for path in PACKAGE.rglob(f"*.{suffix}")]
    return sorted(path for path in paths if path.name != "__init__.py")


def _name(module: Path) -> str:
    return module.relative_to(PACKAGE).with_suffix("").as_posix()


def _mirror(module: Path) -> Path:
    return TESTS / "unit" / module.parent.relative_to(PACKAGE) / f"test_{module.stem}.py"


def _modules(directory: Path) -> list[Path]:
    return [path for path in sorted(directory.rglob("*.py")) if ".cache" not in path.relative_to(ROOT).parts]
