"""A copy of the working tree in tests/.cache, to be built in another way without disturbing the tree's own build."""

from __future__ import annotations

import shutil
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
FOLDERS = ("kafkaprod", "pyspark_kafkaprod", "tests", "benchmarks", "docs", ".ci", ".devcontainer", ".github")
NOT_COPIED = {".cache", "__pycache__"}


def copy_tree(name: str) -> Path:
    """Bring the copy `tests/.cache/<name>` up to date with the sources; return its directory.

    Compiled modules are left out. Only changed files are copied, so that a build does no more than it must; files that
    are gone from the tree are removed.
    """
    directory = ROOT / "tests" / ".cache" / name
    directory.mkdir(parents=True, exist_ok=True)
    for folder in FOLDERS:
        sources = {
            source.relative_to(ROOT)
            for source in (ROOT / folder).rglob("*")
            if source.is_file() and source.suffix != ".so" and not NOT_COPIED & set(source.parts)
        }
        for path in sources:
            _refresh(ROOT / path, directory / path)
        for copied in (directory / folder).rglob("*"):
            is_made_here = copied.suffix in (".so", ".c", ".pyc") or NOT_COPIED & set(
                copied.relative_to(directory).parts
            )
            if copied.is_file() and not is_made_here and copied.relative_to(directory) not in sources:
                copied.unlink()
    for file in ROOT.iterdir():
        if file.is_file() and file.name != ".git":
            _refresh(file, directory / file.name)
    return directory


def _refresh(source: Path, target: Path) -> None:
    if not target.exists() or target.stat().st_mtime < source.stat().st_mtime:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)
