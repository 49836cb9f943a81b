"""README names the programs that tests start and this project does not bring; its own are where texts say they are."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

from tests.architecture.core_sources import ROOT

PROGRAM = re.compile(r"\bpython3? -m ((?:tests|benchmarks|kafkaprod)(?:\.\w+)*)")
IN_SCRIPT = re.compile(r"\$root/([\w./-]+\.\w+)")


def test_readme_names_the_programs_that_tests_start() -> None:
    calls = [
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r'\bprogram\("([\w-]+)"\)', path.read_text())
    ]
    assert "kcat" in calls
    text = (ROOT / "README.md").read_text()
    assert [name for name in calls if not re.search(rf"\b{name}\b", text)] == []


def is_program(name: str) -> bool:
    """Return whether `python -m NAME` finds a module."""
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def test_a_program_that_was_moved_is_not_found() -> None:
    text = "Run `python -m tests.check`, then python -m tests.moved.away --far."
    assert [is_program(name) for name in PROGRAM.findall(text)] == [True, False]


def test_each_program_of_the_project_that_a_text_names_is_there() -> None:
    rooms = ("docs", "tests", "benchmarks", "kafkaprod", ".github", ".ci")
    texts = [*ROOT.glob("*.*"), *(path for room in rooms for path in (ROOT / room).rglob("*"))]
    files = [path for path in texts if path.suffix in (".md", ".py", ".toml", ".yml", ".sh") and path != Path(__file__)]
    files = [path for path in files if ".cache" not in path.relative_to(ROOT).parts]  # copies, of former states, too
    assert ROOT / "docs" / "history.md" in files
    wrong = [
        f"{path.relative_to(ROOT)}: {program}"
        for path in files
        for program in PROGRAM.findall(path.read_text(encoding="utf-8"))
        if not is_program(program)
    ]
    assert wrong == []


def test_each_file_of_the_project_that_a_script_names_is_there() -> None:
    scripts = [path for room in ("tests", "benchmarks", ".ci") for path in (ROOT / room).rglob("*.sh")]
    named = [(script, name) for script in scripts for name in IN_SCRIPT.findall(script.read_text(encoding="utf-8"))]
    assert "tests/fuzz/harness.c" in [name for _, name in named]
    assert [f"{script.name}: {name}" for script, name in named if not (ROOT / name).exists()] == []


def test_each_campaign_is_in_the_list_of_commands() -> None:
    text = (ROOT / "tests" / "README.md").read_text(encoding="utf-8")
    campaigns = (ROOT / "tests" / "campaigns").glob("*.py")
    programs = [path.stem for path in campaigns if '__name__ == "__main__"' in path.read_text(encoding="utf-8")]
    assert "cluster_faults" in programs
    assert [name for name in programs if f"python -m tests.campaigns.{name}" not in text] == []
