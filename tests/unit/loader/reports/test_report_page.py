"""The page of a load needs nothing from elsewhere, and no text in it is taken for a part of the page."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from kafkaprod.loader.opening.errors import LoadError
from kafkaprod.loader.opening.source import Source
from kafkaprod.loader.reports.report import LoadReport
from kafkaprod.loader.reports.report_page import page_of, write_page
from kafkaprod.loader.reports.spread import Spread


class Tags(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.opened: list[str] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.opened.append(tag)
        assert not {"src", "href", "onload"} & {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.text += data


def report(topic: str = "orders") -> LoadReport:
    made = LoadReport(topic, sent_count=3, sent_bytes=1234, seconds=2.0, is_complete=True, spread=Spread())
    assert made.spread is not None
    made.spread.add(Spread.of(np.array([10, 20, 20]), np.array([1, 0, 2])))
    return made


def test_the_page_has_the_counts_and_the_bars() -> None:
    page = page_of(report().to_dict(), [Source("a.csv", "csv", size=99), Source("b.csv", "csv", size=1)])
    tags = Tags(page)
    assert "script" not in tags.opened
    assert not re.search(r"https?:|url\(|@import", page)
    for part in ("Load into orders", "complete", "1,234", "less than 16", "partition 2", "a.csv", "2, 100 bytes"):
        assert part in tags.text
    assert re.findall(r"width:([\d.]+)%", page) == ["50.00", "100.00", "50.00", "0.00", "100.00"]


def test_names_and_errors_are_text() -> None:
    page = page_of(
        report("<b>t").to_dict() | {"complete": False}, [Source("<img src=x>.csv", "csv")], "<script>1</script>"
    )
    assert not {"img", "script", "b"} & set(Tags(page).opened)
    assert "<script>1</script>" in Tags(page).text


def test_a_page_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    write_page(str(tmp_path / "out.html"), report().to_dict(), [])
    assert (tmp_path / "out.html").read_text().endswith("</html>\n")
    assert [path.name for path in tmp_path.iterdir()] == ["out.html"]
    with pytest.raises(LoadError, match=r"--report .*out.html cannot be written"):
        write_page(str(tmp_path / "no" / "out.html"), report().to_dict(), [])


def test_a_load_that_does_not_know_how_its_records_are_spread_has_no_bars() -> None:
    page = page_of(LoadReport("orders", sent_count=7).to_dict(), [Source("a.csv", "csv")], "a task died")
    assert "a task died" in page
    assert "Records by" not in page


def test_the_page_says_when_where_and_by_what_and_fits_a_phone() -> None:
    proof = {"begun": "2026-11-28 21:00:00+00:00", "cluster": "<b>id</b>"}
    page = page_of(report().to_dict(), [Source("a.csv", "csv", size=99)], proof=proof)
    tags = Tags(page)
    assert 'name="viewport"' in page
    assert "b" not in tags.opened
    for text in (*proof, *proof.values()):
        assert text in tags.text
