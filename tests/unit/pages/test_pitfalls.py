"""Each problem in `tests/PITFALLS.md` has a test."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def test_each_problem_has_a_test_that_exists() -> None:
    rows = [line for line in (ROOT / "tests/PITFALLS.md").read_text().splitlines() if line.startswith("| ")][1:]
    assert len(rows) >= 20
    for row in rows:
        found = re.search(r"`(tests/\S+\.py)::(\w+)` \|$", row)
        assert found is not None, row
        assert f"def {found[2]}(" in (ROOT / found[1]).read_text(), row
