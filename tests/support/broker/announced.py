"""The table of docs/broker-for-tests.md that says where the announced versions are not Apache Kafka's."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

PAGE = Path(__file__).parents[3] / "docs" / "broker-for-tests.md"

_ROW = re.compile(r"\| (?P<apis>[^|]*\(\d+\)[^|]*) \| (?P<kafka>[^|]*) \| (?P<here>[^|]*) \| (?P<why>[^|]+) \|")

Range = tuple[int, int] | None


class Row(NamedTuple):
    """The versions of an API, None where it is not announced, and why they differ."""

    kafka: Range
    here: Range
    why: str


def versions_of_page() -> dict[int, Row]:
    """Return the rows of the table, by the number of the API."""
    section = PAGE.read_text(encoding="utf-8").partition("### Announced versions")[2].partition("\n## ")[0]
    return {
        int(number): Row(_range(row["kafka"]), _range(row["here"]), row["why"])
        for row in _ROW.finditer(section)
        for number in re.findall(r"\((\d+)\)", row["apis"])
    }


def _range(text: str) -> Range:
    if text == "none":
        return None
    lowest, _, highest = text.partition(" to ")
    return int(lowest), int(highest or lowest)
