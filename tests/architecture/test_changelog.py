"""The first page of a release can be read in some minutes, and the version says whether it is released."""

from __future__ import annotations

import re

import pytest

import kafkaprod
from tests.architecture.core_sources import ROOT

MOST_BULLETS = 25
MOST_WORDS = 50
# Written before there was a first page of its own.
WITHOUT_LIMIT = {"0.1.0"}
CHANGELOG = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def _bullets(text: str) -> list[str]:
    return [bullet.strip() for bullet in re.split(r"^- ", text, flags=re.MULTILINE)[1:]]


def _sections() -> dict[str, str]:
    """Version and section -> its text."""
    found = {}
    for part in re.split(r"^## ", CHANGELOG, flags=re.MULTILINE)[1:]:
        version = part.partition("]")[0].strip("[")
        for section in re.split(r"^### ", part, flags=re.MULTILINE)[1:]:
            title, _, text = section.partition("\n")
            assert f"{version} {title}" not in found, "one section of a kind"
            found[f"{version} {title}"] = text
    return {name: text for name, text in found.items() if name.split()[0] not in WITHOUT_LIMIT}


@pytest.mark.parametrize("name", _sections())
def test_section_is_short(name: str) -> None:
    bullets = _bullets(_sections()[name])
    assert 0 < len(bullets) <= MOST_BULLETS, "the first page of a release: details belong into docs/history.md"
    assert [bullet for bullet in bullets if len(bullet.split()) > MOST_WORDS] == []


def test_no_bullet_of_a_version_begins_as_another_one() -> None:
    beginnings: dict[tuple[str, str], list[str]] = {}
    for name, text in _sections().items():
        for bullet in _bullets(text):
            beginnings.setdefault((name.split()[0], " ".join(bullet.split()[:6])), []).append(bullet)
    assert {key: bullets for key, bullets in beginnings.items() if len(bullets) > 1} == {}


def test_every_section_has_a_known_title() -> None:
    known = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security", "Not there yet"}
    assert {name.partition(" ")[2] for name in _sections()} <= known


def test_version_is_that_of_the_last_release_or_of_the_next_one_in_the_making() -> None:
    released = [
        tuple(map(int, version)) for version in re.findall(r"^## \[(\d+)\.(\d+)\.(\d+)\]", CHANGELOG, re.MULTILINE)
    ]
    number = tuple(map(int, kafkaprod.__version__.split(".")[:3]))
    if any(name.startswith("Unreleased") for name in _sections()):
        assert kafkaprod.__version__.endswith(".dev0"), "a version without .dev0 is a release: close [Unreleased]"
        assert number > max(released)
    else:
        assert number == max(released)
