"""The pages made from the code are what the code gives; nothing in it is without an explanation."""

from __future__ import annotations

from pathlib import Path

from kafkaprod.metrics.meanings import BASES, MEANINGS, STAGE_MEANINGS
from kafkaprod.metrics.producer_metrics import STAGES
from tests.pages.errors import CODES, REMEDIES, classes, errors_page
from tests.pages.metrics import metrics_page, snapshot

DOCS = Path(__file__).resolve().parents[3] / "docs"


def test_the_page_of_errors_is_made_from_the_code() -> None:
    assert (DOCS / "errors.md").read_text(encoding="utf-8") == errors_page(), "python -m tests.pages"


def test_each_error_has_a_remedy_and_each_remedy_an_error() -> None:
    assert {error.__name__ for error in classes()} == REMEDIES.keys()
    assert all(remedy.endswith((".", ")")) for remedy in [*REMEDIES.values(), *CODES.values()])


def test_the_page_of_metrics_is_made_from_a_producers_metrics() -> None:
    assert (DOCS / "metrics.md").read_text(encoding="utf-8") == metrics_page(), "python -m tests.pages"


def test_each_meaning_has_a_metric() -> None:
    groups = snapshot()
    names = {name for group, values in groups.items() if group.startswith("producer-") for name in values}
    assert MEANINGS.keys() <= names
    assert {f"{base}-{kind}" for base in BASES for kind in ("rate", "total")} <= names
    assert STAGE_MEANINGS.keys() == set(STAGES)
