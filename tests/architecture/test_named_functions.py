"""What the documents for contributors name exists: files, and the functions or classes in them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.architecture.core_sources import ROOT

PAGES = [ROOT / "docs" / "architecture.md", ROOT / "CONTRIBUTING.md", ROOT / "tests" / "README.md"]
_NAMED = re.compile(r"`([\w./]+\.(?:pyx|pxd|pyi|py|md|toml|sh))(?::(\w+))?`")


def _find(path: str) -> Path | None:
    places = (ROOT / path, ROOT / "kafkaprod" / path, ROOT / "tests" / path)
    return next((place for place in places if place.is_file()), None)


def _named() -> list[tuple[str, str, str]]:
    return sorted({(page.name, *match) for page in PAGES for match in _NAMED.findall(page.read_text())})


@pytest.mark.parametrize(("page", "path", "name"), _named())
def test_what_a_page_names_exists(page: str, path: str, name: str) -> None:
    file = _find(path)
    if file is None and "/" not in path:
        return  # a file name as an example, not a place
    assert file is not None, f"{page} names {path}"
    if name:
        text = file.read_text()
        assert re.search(rf"^\s*(?:cdef\s|async\s)?.*\b(?:def|class|cdef)\b.*\b{name}\b", text, re.MULTILINE), (
            f"{page} names {name} in {path}"
        )


def test_the_pages_name_something() -> None:
    assert len([row for row in _named() if row[2]]) > 15
