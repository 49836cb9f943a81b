"""Build the compiled modules in the tree, unless each is newer than all sources.

    python -m tests.support.builds.in_place

`setup.py build_ext` alone would compile everything once more after `pip install -e`: pip builds with a Cython of its
own, and the headers of the one it installs then are newer than what was built. Warnings and performance hints of
Cython are looked for in `tests/architecture/test_annotations.py`.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def is_built(root: Path) -> bool:
    """Return whether every .pyx below `root`/kafkaprod has a module, and all are newer than every source."""
    package = root / "kafkaprod"
    sources = [root / "setup.py", *(path for suffix in ("pyx", "pxd", "h") for path in package.rglob(f"*.{suffix}"))]
    modules = [max(path.parent.glob(f"{path.stem}.*.so"), key=_time, default=None) for path in package.rglob("*.pyx")]
    newest_source = max(map(_time, sources))
    return all(module is not None and _time(module) > newest_source for module in modules)


def _time(path: Path) -> float:
    return path.stat().st_mtime


def main() -> int:
    """Build if it is needed; return the exit status."""
    if is_built(ROOT):
        print("all modules are newer than their sources")
        return 0
    return subprocess.run([sys.executable, "setup.py", "build_ext", "--inplace"], cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
