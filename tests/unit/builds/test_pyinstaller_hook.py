"""The hook for PyInstaller names every module of the package that a program may need."""

from __future__ import annotations

import importlib
import runpy
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[3]


def test_the_hook_names_compiled_modules_and_leaves_out_those_of_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def collect_submodules(package: str, filter: Callable[[str], bool], on_error: str) -> list[str]:
        asked.append(package)
        folder = ROOT / package
        found = {path.relative_to(ROOT).with_suffix("") for kind in ("py", "pyx") for path in folder.rglob(f"*.{kind}")}
        return [name for name in (".".join(path.parts) for path in found) if filter(name)]

    hooks = ModuleType("PyInstaller.utils.hooks")
    hooks.collect_submodules = collect_submodules  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "PyInstaller", ModuleType("PyInstaller"))
    monkeypatch.setitem(sys.modules, "PyInstaller.utils", ModuleType("PyInstaller.utils"))
    monkeypatch.setitem(sys.modules, "PyInstaller.utils.hooks", hooks)
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["pyinstaller40"]
    module, _, function = declared["hook-dirs"].partition(":")
    (folder,) = getattr(importlib.import_module(module), function)()
    names = set(runpy.run_path(str(Path(folder) / "hook-kafkaprod.py"))["hiddenimports"])
    assert asked == ["kafkaprod"]
    assert {"numpy", "kafkaprod._core.records.varint", "kafkaprod.producer", "kafkaprod.results.record_wait"} <= names
    assert not [name for name in names if "spark" in name.split(".") or "__pyinstaller" in name]
