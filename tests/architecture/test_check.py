"""README's second command, the check and what runs before a change lands."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import check

ROOT = Path(__file__).resolve().parents[2]


def test_far_tests_run_each_step_once(monkeypatch: pytest.MonkeyPatch) -> None:
    titles: list[str] = []

    def run(step: check.Step, *, is_beside: bool = False) -> bool:
        titles.append(step.title)
        return step.title != "wheel"

    monkeypatch.setattr(check, "run", run)
    assert check.failures_of(check.FAR_LISTS) == ["wheel"]
    assert sorted(titles) == sorted({step.title for step in check.FAR_STEPS})
    assert not set(titles) & {step.title for step in check.NEAR_STEPS}


def test_near_steps_run_once_each_after_the_build(monkeypatch: pytest.MonkeyPatch) -> None:
    titles: list[str] = []
    titles_of_costs: list[str] = []

    def run(step: check.Step, *, is_beside: bool = False) -> bool:
        titles.append(step.title)
        return step is not check.BUILD

    monkeypatch.setattr(check, "run", run)
    monkeypatch.setattr(check, "print_costs", titles_of_costs.extend)
    monkeypatch.setattr("sys.argv", ["check"])
    assert check.main() == 1
    assert titles[0] == "build"
    assert sorted(titles_of_costs) == sorted(titles[1:])
    assert sorted(titles) == sorted({step.title for step in check.NEAR_STEPS})


def test_each_folder_of_tests_is_in_one_step() -> None:
    tests = [step.command for step in (*check.NEAR_STEPS, *check.FAR_STEPS) if "pytest" in step.command]
    named = [word for command in tests for word in command if word.startswith("tests")]
    files = [name for name in named if name.startswith("tests/integration/test_")]
    folders = [name for name in named if name not in files]
    assert sorted(folders) == sorted((*check.NEAR_TESTS, "tests", check.CLUSTER, "tests/spark"))
    assert sorted(files) == sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("tests/integration/test_*.py"))
    assert all((ROOT / name).exists() for name in named)


def test_what_must_be_green_before_a_change_lands_runs_readmes_command() -> None:
    readme = (ROOT / "README.md").read_text()
    script = (ROOT / ".ci" / "run").read_text()
    assert "&& .venv/bin/python -m tests.check\n" in readme
    assert "\npython -m tests.check ||" in script
    assert "\npython -m tests.check --far ||" in script
    assert "KAFKAPROD_REQUIRE_KAFKA=1" in script


def test_a_changed_page_runs_what_looks_at_pages() -> None:
    static, unit = check.changed_lists(["docs/json.md"])
    titles = {step.title for step in static}
    assert {"format", "lint", "docs", "types of tests", "rules and properties"} <= titles
    assert not titles & {"types", "stubs", "cython lint", "workflow"}
    assert "tests/unit/loader/test_types_table.py" in unit[0].command
    assert "tests/unit/net/test_pool.py" not in unit[0].command


def test_a_changed_module_runs_the_near_tests_that_it_reaches() -> None:
    static, unit = check.changed_lists(["kafkaprod/net/pool.py"])
    assert {"types", "docs", "imports"} <= {step.title for step in static}
    assert "tests/unit/net/test_pool.py" in unit[0].command
    assert "tests/unit/broker/storage/log/test_log_dir.py" not in unit[0].command


def test_steps_of_a_change_are_steps_of_the_whole() -> None:
    assert set(check.LOOKED_AT) <= {step.title for step in check.STATIC_STEPS}


def test_costs_end_the_check(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(check.durations, "of_steps", lambda titles: {f"tests/{n}.py": [n, n / 2] for n in range(12)})
    check.print_costs(["unit tests"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[lines.index("the dearest test files:") + 1].split() == [
        "11.0",
        "s",
        "5.5",
        "s",
        "of",
        "CPU",
        "tests/11.py",
    ]
    assert sum("s of CPU" in line for line in lines) == 10
    assert lines[-1].endswith("all")


def test_apache_kafka_is_started_by_one_of_the_processes_of_integration_tests() -> None:
    files = [path for path in check.MORE_INTEGRATION_TESTS.command if path.startswith("tests/")]
    assert len(files) > 20
    assert [path for path in files if "mark.external" in (ROOT / path).read_text()] == []
