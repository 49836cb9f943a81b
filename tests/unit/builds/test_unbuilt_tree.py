"""A clone whose compiled modules were not built says so, with the command that builds them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def unbuilt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tree = tmp_path_factory.mktemp("clone")
    no_binaries = shutil.ignore_patterns("*.so", "__pycache__")
    shutil.copytree(ROOT / "kafkaprod", tree / "kafkaprod", ignore=no_binaries)
    return tree


@pytest.mark.parametrize(
    "program",
    [
        ["-c", "from kafkaprod import Producer"],
        ["-c", "import kafkaprod.spark"],
        ["-c", "from kafkaprod.broker import EmbeddedBroker"],
        ["-m", "kafkaprod", "broker", "--help"],
        ["-m", "kafkaprod.config"],
    ],
)
def test_an_unbuilt_tree_names_the_command_that_builds_it(unbuilt: Path, program: list[str]) -> None:
    done = subprocess.run([sys.executable, *program], cwd=unbuilt, capture_output=True, text=True)
    assert done.returncode == 1
    *_, last = done.stderr.splitlines()
    assert last.startswith(f"ImportError: kafkaprod in {unbuilt} is not built for cpython")
    assert f"run `{sys.executable} -m pip install -e '.[load]'` in {unbuilt}" in last


def test_an_editable_installation_is_a_plain_path() -> None:
    """With setuptools' import hook Spark would not find the data source: pkgutil does not list the package."""
    assert 'options={"editable_wheel": {"mode": "compat"}}' in (ROOT / "setup.py").read_text()
