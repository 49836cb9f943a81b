"""Where PyInstaller finds the hook of this package: the entry point `pyinstaller40`.

<hooks>  named by the package that they are for: the modules that PyInstaller does not see
"""

from __future__ import annotations

from pathlib import Path


def hook_directories() -> list[str]:
    """Return the directories of hooks."""
    return [str(Path(__file__).parent)]
