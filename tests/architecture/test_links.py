"""Links of the Markdown pages, as a reader of the bare files or of GitHub meets them.

The documentation's builder fills a link without text with the page's title; elsewhere it is invisible.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"\[([^\]]*)\]\(([^()\s]+)\)")
HEADING = re.compile(r"^#+ +(.+)$", re.MULTILINE)
NOT_IN_SLUGS = re.compile(r"[^\w\- ]")


def _pages() -> Iterator[Path]:
    for pattern in ("*.md", "docs/*.md", "tests/*.md", "benchmarks/*.md", "kafkaprod/**/*.md"):
        yield from ROOT.glob(pattern)


def _anchors(page: Path) -> set[str]:
    """What `#...` may name in `page`: its headings as GitHub writes them, and anchors by hand."""
    text = page.read_text(encoding="utf-8")
    slugs = {NOT_IN_SLUGS.sub("", heading.lower()).replace(" ", "-") for heading in HEADING.findall(text)}
    return slugs | set(re.findall(r"^\(([\w-]+)\)=$", text, re.MULTILINE))


@pytest.mark.parametrize("page", sorted(_pages()), ids=lambda page: str(page.relative_to(ROOT)))
def test_each_link_has_a_text_and_a_target(page: Path) -> None:
    wrong = []
    for text, target in LINK.findall(page.read_text(encoding="utf-8")):
        name, _, anchor = target.partition("#")
        if not text.strip():
            wrong.append(f"{target}: no text")
        if ":" in name:
            continue
        linked = page.parent / name if name else page
        if not linked.exists():
            wrong.append(f"{target}: no such file")
        elif anchor and anchor not in _anchors(linked):
            wrong.append(f"{target}: no such heading")
    assert wrong == []
