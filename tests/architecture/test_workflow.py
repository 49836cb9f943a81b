"""What the workflow that releases may run: actions by commit, and nothing from the index where it may publish."""

from __future__ import annotations

import re

from tests.architecture.core_sources import ROOT

WORKFLOW = (ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
JOBS = dict(
    re.findall(
        r"^  ([\w-]+):\n((?:    .*\n|\n)+)",
        re.sub(r"^ *#.*\n", "", WORKFLOW.partition("\njobs:\n")[2], flags=re.MULTILINE),
        re.MULTILINE,
    )
)


def test_actions_are_named_by_their_commit_with_the_version_beside_it() -> None:
    used = re.findall(r"uses: (.+)", WORKFLOW)
    assert len(used) > 10
    assert [one for one in used if not re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}  # v\d+(\.\d+)*", one)] == []


def test_a_job_that_may_publish_runs_nothing_from_the_index() -> None:
    may_write = {name: steps for name, steps in JOBS.items() if re.search(r"^ +[\w-]+: write$", steps, re.MULTILINE)}
    assert list(may_write) == ["release"]
    assert re.findall(r"\b(?:pip|pipx|python3?|npm|checkout)\b", may_write["release"]) == []
    assert re.findall(r"- run: (\w+)", may_write["release"]) == ["gh"]


def test_tools_that_look_at_the_release_have_versions() -> None:
    tools = re.findall(r"pipx run (\S+)", WORKFLOW)
    assert tools
    assert [tool for tool in tools if "==" not in tool] == []
