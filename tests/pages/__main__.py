"""Write docs/errors.md and docs/metrics.md."""

from __future__ import annotations

from pathlib import Path

from tests.pages.errors import errors_page
from tests.pages.metrics import metrics_page

DOCS = Path(__file__).resolve().parents[2] / "docs"

if __name__ == "__main__":
    (DOCS / "errors.md").write_text(errors_page(), encoding="utf-8")
    (DOCS / "metrics.md").write_text(metrics_page(), encoding="utf-8")
