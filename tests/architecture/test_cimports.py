"""Who may import whom where import-linter does not look: in Cython sources, and from Python into compiled modules."""

import ast
from pathlib import Path

import pytest

from tests.architecture.core_sources import CORE, ROOT, imported_modules, sources

FORBIDDEN_STDLIB = {"socket", "ssl", "selectors", "threading", "asyncio", "time"}
ALLOWED_PACKAGE_IMPORTS = {"kafkaprod.errors", "kafkaprod.structs"}
LAYERS_WITHOUT_CORE = [
    "protocol",
    "security",
    "errors",
    "structs",
    "config",
    "clock",
    "retry",
    "compression",
    "metrics",
]


def _layer_files(layer: str) -> list[Path]:
    path = ROOT / "kafkaprod" / layer
    return sorted(path.rglob("*.py")) if path.is_dir() else [path.with_suffix(".py")]


def test_import_scan_finds_every_kind_of_import() -> None:
    source = '"""from no.such import x"""\nfrom a.b cimport (\n    c\n)\ncimport d\nfrom e import f\nimport g.h\n'
    assert imported_modules(source) == {"a.b", "d", "e", "g.h"}


@pytest.mark.parametrize("path", sources(".pyx", ".pxd", ".pyi"), ids=lambda path: path.name)
def test_core_imports_only_errors_structs_and_itself(path: Path) -> None:
    modules = imported_modules(path.read_text())
    if path.suffix == ".pyi":
        modules -= {"kafkaprod.compression"}  # the type of a codec that is passed in
    ours = {name for name in modules if name.split(".")[0] == "kafkaprod" and not name.startswith("kafkaprod._core")}
    assert ours <= ALLOWED_PACKAGE_IMPORTS
    assert not {name.split(".")[0] for name in modules} & FORBIDDEN_STDLIB


def test_core_modules_do_not_import_each_other_in_circles() -> None:
    graph: dict[str, set[str]] = {}
    for path in sources(".pxd", ".pyx"):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        graph.setdefault(module, set()).update(imported_modules(path.read_text()) - {module})
    done: set[str] = set()
    while len(done) < len(graph):
        free = {module for module, needs in graph.items() if module not in done and not (needs & graph.keys()) - done}
        assert free, f"import circle among {sorted(graph.keys() - done)}"
        done |= free


def rooms_of_the_core() -> list[str]:
    """Its rooms as its docstring orders them, the highest first."""
    docstring = ast.get_docstring(ast.parse((CORE / "__init__.py").read_text())) or ""
    words = [line.split()[0] for line in docstring.splitlines() if line]
    return [word for word in words if (CORE / word / "__init__.py").exists()]


@pytest.mark.parametrize("path", sources(".pyx", ".pxd"), ids=lambda path: path.name)
def test_rooms_of_the_core_import_only_from_those_below(path: Path) -> None:
    rooms = rooms_of_the_core()
    assert {"machine", "records", "queues", "requests"} <= set(rooms)
    above = rooms[: rooms.index(path.parent.name)]
    imported = {name.removeprefix("kafkaprod._core.").split(".")[0] for name in imported_modules(path.read_text())}
    assert not imported & set(above)


@pytest.mark.parametrize("layer", LAYERS_WITHOUT_CORE)
def test_layers_beside_and_below_the_core_do_not_import_it(layer: str) -> None:
    for path in _layer_files(layer):
        if not path.exists():
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            assert not [name for name in names if name.startswith("kafkaprod._core")], f"{path}: {ast.unparse(node)}"
