"""A compat module as it is where the original package is not installed."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType
from unittest.mock import patch


def without_original(module: ModuleType, package: str) -> ModuleType:
    """Return a second copy of a compat module, made as if `package` were not installed."""
    spec = importlib.util.find_spec(module.__name__)
    assert spec is not None
    assert spec.loader is not None
    copy = importlib.util.module_from_spec(spec)
    hidden = {name: None for name in sys.modules if name == package or name.startswith(f"{package}.")}
    with patch.dict(sys.modules, {package: None, **hidden}):
        spec.loader.exec_module(copy)
    return copy
