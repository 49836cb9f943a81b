"""Every compiled module has its stub and its C contract; the package says that it is typed."""

import importlib
import re

import pytest

from tests.architecture.core_sources import CORE, ROOT, sources


@pytest.mark.parametrize("path", sources(".pyx"), ids=lambda path: path.stem)
def test_compiled_module_has_a_stub(path):
    assert path.with_suffix(".pyi").exists()


@pytest.mark.parametrize("path", sources(".pyi"), ids=lambda path: path.stem)
def test_stub_belongs_to_a_module_that_can_be_imported(path):
    assert path.with_suffix(".pyx").exists()
    importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))


def test_package_ships_types_and_contracts():
    assert (ROOT / "kafkaprod" / "py.typed").exists()
    assert '"*" = ["*.pyi", "*.pxd", "*.h"]' in (ROOT / "pyproject.toml").read_text()


@pytest.mark.parametrize("path", sources(".pyx", ".pxd"), ids=lambda path: path.name)
def test_cython_sources_keep_to_the_plain_language(path):
    text = path.read_text()
    assert not re.search(r"^\s*(DEF|IF|include)\s", text, re.MULTILINE)
    assert "cpdef" not in text
    assert text.startswith('"""'), "a module begins with its docstring"


@pytest.mark.parametrize("path", sources(".pyx", ".pxd"), ids=lambda path: path.name)
def test_cdef_functions_declare_their_exception_contract(path):
    """Never a bare `cdef void f()`: noexcept, an except clause, or a Python object as the result."""
    text = re.sub(r'"""(.|\n)*?"""', '""', path.read_text())
    for match in re.finditer(
        r"^\s*cdef\s+(?:inline\s+)?void\s+\*?\w+\((?:[^()]|\([^()]*\))*\)([^:\n]*)", text, re.MULTILINE
    ):
        assert "noexcept" in match[1] or "except" in match[1], match[0]


def test_core_directory_holds_nothing_else():
    known = {".pyx", ".pxd", ".pyi", ".py", ".h", ".so", ".html"}
    assert {path.suffix for path in CORE.rglob("*") if path.is_file() and path.parent.name != "__pycache__"} <= known
