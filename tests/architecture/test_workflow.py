"""What the workflow runs when, and what may be run where it publishes: actions by commit, nothing from the index."""

from __future__ import annotations

import re
import tomllib

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


def test_a_push_runs_everything_once_and_the_near_tests_with_every_other_python() -> None:
    classifiers = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["classifiers"]
    supported = {version for line in classifiers for version in re.findall(r"Python :: (3\.\d+)$", line)}
    at_night, on_push = (
        re.findall(r'"(3\.\d+)"', part) for part in re.findall(r"fromJSON\('(\[.*?\])'\)", JOBS["check"])
    )
    assert len(on_push) == 1
    assert set(at_night) == supported - set(on_push)
    assert set(re.findall(r"python: \[(.*)\]", JOBS["near"])[0].replace('"', "").split(", ")) == supported - set(
        on_push
    )
    assert "- run: python -m tests.check\n" in JOBS["near"]
    assert "- run: .ci/run\n" in JOBS["check"]


def test_every_mode_of_the_simulation_runs_at_night() -> None:
    program = (ROOT / "tests" / "simulation" / "__main__.py").read_text()
    modes = re.findall(r'add_argument\("(--[\w-]+)", action="store_true", help="with ', program)
    assert len(modes) >= 3
    (run,) = re.findall(r"mode: \[(.*)\]", JOBS["simulation"])
    assert run.split(", ") == ['""', *modes]


def test_cases_that_no_push_runs_run_at_night() -> None:
    assert "- run: python -m pytest -q -m nightly tests\n" in JOBS["campaigns"]
    assert "github.event.schedule == '41 1 * * *'" in JOBS["campaigns"]
