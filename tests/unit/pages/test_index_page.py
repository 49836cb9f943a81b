"""The package's description on an index has links that lead somewhere; relative ones lead to files that exist."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
BUILD = {"KAFKAPROD_REPOSITORY": "https://github.com/owner/name", "KAFKAPROD_REVISION": "v1.2.3"}
LINK = re.compile(r"\]\(([^)\s]+)\)")


@pytest.fixture
def build_script(monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    monkeypatch.chdir(ROOT)
    return runpy.run_path("setup.py", run_name="setup")


def test_every_link_of_the_readme_leads_to_a_file() -> None:
    links = LINK.findall((ROOT / "README.md").read_text(encoding="utf-8"))
    files = {link.partition("#")[0] for link in links if not link.startswith(("https:", "#"))}
    assert len(files) > 10
    assert [name for name in files if not (ROOT / name).is_file()] == []


def test_every_link_of_the_description_is_absolute(build_script: dict[str, object]) -> None:
    text = build_script["description"]((ROOT / "README.md").read_text(encoding="utf-8"), BUILD)  # type: ignore[operator]
    links = [link for link in LINK.findall(text) if not link.startswith("#")]
    assert all(link.startswith("https://") for link in links)
    assert "https://github.com/owner/name/blob/v1.2.3/docs/tutorial.md" in links
    assert "![records a second by client](https://github.com/owner/name/raw/v1.2.3/docs/throughput.svg)" in text


def test_a_build_by_hand_keeps_the_text(build_script: dict[str, object]) -> None:
    assert build_script["description"]("[a](b.md)", {}) == "[a](b.md)"  # type: ignore[operator]
    assert build_script["project_urls"]({}) == {}  # type: ignore[operator]
