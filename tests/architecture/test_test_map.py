"""Tests lie where tests/README.md says, and share what they share through helpers."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.architecture.core_sources import ROOT

TESTS = ROOT / "tests"
# What stays at the tests' root; programs have rooms.
ROOT_MODULES = {"__init__.py", "check.py", "conftest.py"}


def imports_of_test_modules(source: str) -> list[str]:
    """The test modules, with their names, that a module's source imports."""
    names = []
    for node in ast.walk(ast.parse(source)):
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


def _modules(directory: Path) -> list[Path]:
    return [path for path in sorted(directory.rglob("*.py")) if ".cache" not in path.relative_to(ROOT).parts]
