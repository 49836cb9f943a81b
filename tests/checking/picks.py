"""Picks the near tests that a change can reach.

    python -m tests.checking.picks kafkaprod/loader/formats/csv_rows.py

A test can notice a change only of what it uses (`uses`). Where that cannot be seen, the test is picked: all tests of
architecture; tests that look for files in the tree (`rglob`, a copy of the tree); those whose texts name a changed
page or table, or, if no test names it, its folder. What every test stands on picks them all.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Collection, Iterable
from pathlib import Path

from tests.checking.uses import ROOMS, SOURCES, Uses

ROOT = Path(__file__).resolve().parents[2]
NEAR = ("tests/unit/", "tests/property/", "tests/architecture/", "tests/conformance/")
ALWAYS = "tests/architecture/"
# How tests are found and run, and what the compiler is given.
UNDER_ALL = {"pyproject.toml", "setup.py", "tests/conftest.py"}


def is_near_test(path: str) -> bool:
    """Whether pytest finds tests in this file when the near ones run."""
    return path.startswith(NEAR) and path.rpartition("/")[2].startswith("test_") and path.endswith(".py")


def picked(uses: Uses, changed: Collection[str]) -> list[str]:
    """The near tests that can notice a change of these files."""
    tests = [path for path in uses.files if is_near_test(path) and (uses.root / path).is_file()]
    if UNDER_ALL & set(changed):
        return sorted(tests)
    others = [path for path in changed if not path.endswith(SOURCES)]
    naming = {user for path in others for user in _naming(uses, path)}
    found = uses.users([*changed, *uses.searching, *naming])
    below = tuple(path.removesuffix("conftest.py") for path in changed if path.endswith("conftest.py"))
    return sorted(test for test in tests if test in found or test.startswith((ALWAYS, *below)))


def _naming(uses: Uses, path: str) -> set[str]:
    """The files of the tests that name a file that is no source; where none does, those that name its folder."""
    *folders, name = path.split("/")
    tests = [other for other in uses.files if other.startswith("tests/") and other.endswith(".py")]
    for word in (name, *reversed(folders)):
        pattern = re.compile(rf"(?<![\w.]){re.escape(word)}(?!\w)")
        found = {
            test for test in tests if any(word in text and pattern.search(text) for text in uses.names(test).texts)
        }
        if found:
            return found
    return set(tests) if path.startswith("tests/") else set()


def tree_files(extra: Iterable[str] = ()) -> frozenset[str]:
    """The source files of the tree, also those that git does not know yet, and others that are given."""
    listed = _git("ls-files", "--cached", "--others", "--exclude-standard", *ROOMS)
    return frozenset(path for path in (*listed, *extra) if path.endswith(SOURCES))


def changed_files() -> list[str]:
    """What differs from the main branch of `origin`, or without one from the last commit; new files, too."""
    base = _git("merge-base", "HEAD", "origin/main") or ["HEAD"]
    return sorted(
        {*_git("diff", "--name-only", "--no-renames", base[0]), *_git("ls-files", "--others", "--exclude-standard")}
    )


def _git(*arguments: str) -> list[str]:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.splitlines() if done.returncode == 0 else []


def main() -> None:
    """Print the tests that the named files pick, or without names those that differ from main."""
    changed = sys.argv[1:] or changed_files()
    uses = Uses(ROOT, tree_files(changed))
    tests = picked(uses, changed)
    print("\n".join(tests))
    every = sum(map(is_near_test, uses.files))
    print(f"{len(tests)} of {every} near test files for {len(changed)} changed files", file=sys.stderr)


if __name__ == "__main__":
    main()
