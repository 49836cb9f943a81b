"""README names the programs that tests start and this project does not bring."""

from __future__ import annotations

import re

from tests.architecture.core_sources import ROOT


def test_readme_names_the_programs_that_tests_start() -> None:
    calls = [
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r'\bprogram\("([\w-]+)"\)', path.read_text())
    ]
    assert "kcat" in calls
    text = (ROOT / "README.md").read_text()
    assert [name for name in calls if not re.search(rf"\b{name}\b", text)] == []
