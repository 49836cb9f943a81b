"""Tests of a missing optional package (extra `dev-all`) are left out, but never where everything is demanded."""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.checking.picks import is_near_test, tree_files
from tests.checking.uses import Uses, imports_when_loaded
from tests.conftest import OPTIONAL

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import importlib.machinery, sys
find = importlib.machinery.PathFinder.find_spec
class WithoutSome:
    def __call__(self, name, *rest):
        return None if name.partition(".")[0] in sys.argv[1].split() else find(name, *rest)
importlib.machinery.PathFinder.find_spec = WithoutSome()
import pytest
sys.exit(pytest.main(["--collect-only", "-qq", "-p", "no:cacheprovider", *sys.argv[2:]]))
"""


def requirements(name: str, extras: list[str]) -> Iterator[Requirement]:
    """Yield what a package with extras requires here. The project's own list may be newer than its installation."""
    if name == "kafkaprod":
        project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        lists = [project["optional-dependencies"][extra] if extra else project["dependencies"] for extra in extras]
        yield from (Requirement(line) for lines in lists for line in lines)
        return
    try:
        lines = importlib.metadata.requires(name) or []
    except importlib.metadata.PackageNotFoundError:  # for another system
        return
    for requirement in map(Requirement, lines):
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in extras):
            yield requirement


def closure(name: str, extras: frozenset[str], known: set[tuple[str, str]]) -> Iterator[str]:
    """Yield the packages that installing a package with extras brings, itself included."""
    wanted = [extra for extra in (*extras, "") if (name, extra) not in known]
    known |= {(name, extra) for extra in wanted}
    if not wanted:
        return
    yield name
    for requirement in requirements(name, wanted):
        yield from closure(canonicalize_name(requirement.name), frozenset(requirement.extras), known)


def missing_with_dev() -> set[str]:
    """Return the modules that are here, and not where the extra `dev` was installed."""
    there = set(closure("kafkaprod", frozenset({"dev"}), set()))
    return {
        module
        for module, owners in importlib.metadata.packages_distributions().items()
        if not there & set(map(canonicalize_name, owners))
    }


def collect(*paths: str, required: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"KAFKAPROD_REQUIRE_KAFKA": required}
    missing = missing_with_dev()
    plugins = importlib.metadata.entry_points(group="pytest11")
    without = [f"-pno:{plugin.name}" for plugin in plugins if plugin.module.partition(".")[0] in missing]
    command = [sys.executable, "-c", PROGRAM, " ".join(missing), *without, *paths]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)


def test_what_dev_brings_is_told_from_what_dev_all_brings() -> None:
    missing = missing_with_dev()
    installed = importlib.metadata.packages_distributions().keys()
    assert missing >= {"pyspark", "duckdb", "polars"} & installed
    assert not missing & {"kafkaprod", "pytest", "hypothesis", "numpy", "pyarrow", "confluent_kafka", "google"}


def needed_when_collected(uses: Uses, tests: Iterable[str]) -> dict[str, set[str]]:
    """Test file -> the packages that it, and everything that it imports, needs to be imported."""

    @cache
    def imported_by(path: str) -> tuple[set[str], set[str]]:
        names = imports_when_loaded(uses.text(path)) if path.endswith(".py") else set()
        return {name.partition(".")[0] for name in names}, {file for name in names for file in uses.files_of(name)}

    found = {}
    for test in tests:
        needed, seen, left = set(), {test}, [test]
        while left:
            packages, files = imported_by(left.pop())
            needed |= packages
            left += files - seen
            seen |= files
        found[test] = needed
    return found


def test_near_tests_need_no_other_package_than_dev_brings() -> None:
    uses = Uses(ROOT, tree_files())
    missing = missing_with_dev()
    left_out = re.compile(
        rf"^\s*(?:from|import) (?:{'|'.join(text for name, text in OPTIONAL.items() if name in missing) or '$'})\b",
        re.MULTILINE,
    )
    tests = [path for path in uses.files if is_near_test(path) and not left_out.search(uses.text(path))]
    assert len(tests) > 300
    found = needed_when_collected(uses, tests)
    assert {test: needed & missing for test, needed in found.items() if needed & missing} == {}


def test_what_a_test_needs_to_be_collected_is_seen(tmp_path: Path) -> None:
    (tmp_path / "tests" / "unit").mkdir(parents=True)
    texts = {
        "tests/rig.py": "import duckdb\ndef run():\n    import polars\n",
        "tests/unit/test_a.py": "from tests import rig\nif TYPE_CHECKING:\n    import pandas\n",
    }
    for path, text in texts.items():
        (tmp_path / path).write_text(text)
    (needed,) = needed_when_collected(Uses(tmp_path, frozenset(texts)), ["tests/unit/test_a.py"]).values()
    assert needed == {"tests", "duckdb"}


def test_tests_of_a_missing_package_are_left_out() -> None:
    done = collect("tests/unit/spark", "tests/unit/hooks", required="0")
    assert done.returncode == 0, done.stdout
    assert "tests/unit/spark/test_pushdown.py" not in done.stdout
    assert "tests/unit/hooks/test_chain.py" in done.stdout


def test_no_test_skips_itself_for_a_missing_package() -> None:
    # A skip passes everywhere; tests/conftest.py leaves such tests out, and lets them fail where all are demanded.
    skipping = [
        str(path.relative_to(ROOT))
        for path in sorted((ROOT / "tests").rglob("*.py"))
        for package in re.findall(r"""importorskip\(["']?([\w.]+)""", path.read_text(encoding="utf-8"))
        if ".cache" not in path.parts and package != "_testcapi"  # CPython's own, which some builds of it leave out
    ]
    assert not skipping


def test_a_missing_package_fails_where_everything_is_demanded() -> None:
    done = collect("tests/unit/spark/test_pushdown.py", required="1")
    assert done.returncode != 0
    assert "pyspark" in done.stdout
