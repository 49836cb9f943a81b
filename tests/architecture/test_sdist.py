"""The source distribution is the tree: what is tracked in its folders, and nothing else."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("kafkaprod/", "tests/", "docs/", "benchmarks/")


def test_the_source_distribution_has_what_is_tracked_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    from setuptools._distutils.filelist import FileList  # where setuptools is not installed, the file still loads

    if not (ROOT / ".git").exists():
        pytest.skip("not a checkout")
    listed = subprocess.run(["git", "ls-files", *FOLDERS], cwd=ROOT, capture_output=True, text=True, check=True)
    tracked = {name for name in listed.stdout.splitlines() if (ROOT / name).exists()}
    untracked = subprocess.run(
        ["git", "ls-files", "--others", "--exclude-standard", *FOLDERS],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    monkeypatch.chdir(ROOT)
    chosen = FileList()
    chosen.set_allfiles([os.path.relpath(path) for top in FOLDERS for path in _files(ROOT / top)])
    for line in (ROOT / "MANIFEST.in").read_text().splitlines():
        chosen.process_template_line(line)
    taken = set(chosen.files) - set(untracked)  # those that are not committed yet
    assert {name for name in tracked if name not in taken} == set()
    assert {name for name in taken if name.startswith(FOLDERS) and name not in tracked} == set()


def _files(top: Path) -> list[str]:
    return [os.path.join(folder, name) for folder, _, names in os.walk(top) for name in names]
