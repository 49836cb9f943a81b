"""What docs/upgrading.md calls public: examples show nothing else."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.architecture.core_sources import ROOT

PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
_BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)
_IMPORT = re.compile(r"^\s*(?:from|import) (kafkaprod[\w.]*)", re.MULTILINE)


def public_modules() -> set[str]:
    page = (ROOT / "docs" / "upgrading.md").read_text(encoding="utf-8")
    start = page.index("What is public:")
    return set(re.findall(r"`(kafkaprod[\w.*]*)`", page[start : page.index("\n\n", start)]))


def is_public(module: str) -> bool:
    parts = module.split(".")
    parents = {".".join(parts[:end]) + ".*" for end in range(1, len(parts) + 1)}
    return bool(({module} | parents) & public_modules())


@pytest.mark.parametrize("page", PAGES, ids=[page.name for page in PAGES])
def test_examples_import_only_public_modules(page: Path) -> None:
    imported = {
        module for block in _BLOCK.findall(page.read_text(encoding="utf-8")) for module in _IMPORT.findall(block)
    }
    assert {module for module in imported if not is_public(module)} == set()


def test_public_modules_exist() -> None:
    for module in public_modules():
        place = ROOT.joinpath(*module.removesuffix(".*").split("."))
        assert place.is_dir() or place.with_suffix(".py").exists(), module
