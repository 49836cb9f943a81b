"""Attributes that the original package has and the producer does not need: consumers, admin clients and so on."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any, Final, TypeVar

Kind = TypeVar("Kind", bound=type)
_MISSING: Final = object()


def module_of(name: str) -> ModuleType | None:
    """Return a module of an original; None: it is not installed, or has no such module."""
    try:
        module = importlib.import_module(name)
    except ImportError:
        return None
    return None if module.__name__.startswith("kafkaprod.") else module  # put in its place by sys.modules


def taken(package: str, ours: Kind, name: str | None = None) -> Kind:
    """Return the original's class where the original is installed and has it, else `ours`.

    Args:
        package: Import name of the original's module.
        ours: The class for where it is missing.
        name: Its name there; None: that of `ours`.
    """
    module = module_of(package)
    theirs = getattr(module, name or ours.__name__, None) if module is not None else None
    return theirs if isinstance(theirs, type) else ours  # type: ignore[return-value]


def original(package: str, name: str, asked: str) -> Any:
    """Return attribute `name` of the installed original.

    Args:
        package: Its import name, such as "kafka".
        name: The attribute.
        asked: Name of the module of this package that lacks it, for messages.

    Raises:
        AttributeError: The original has no such attribute either, or is not installed.
    """
    if name.startswith("__") and name != "__version__":
        raise AttributeError(f"module {asked!r} has no attribute {name!r}")
    module = module_of(package)
    if module is None:
        raise AttributeError(
            f"{asked}.{name} is not part of the producer; it is taken from the package "
            f"{package.partition('.')[0]!r}, which is not installed"
        )
    found = getattr(module, name, _MISSING)
    if found is not _MISSING and not isinstance(found, ModuleType):
        return found
    here = _module_here(f"{asked}.{name}") if hasattr(sys.modules[asked], "__path__") else None
    if here is None and found is _MISSING:
        raise AttributeError(f"neither {asked} nor {package} has an attribute {name!r}")
    return found if here is None else here


def _module_here(name: str) -> ModuleType | None:
    """Return a module of this package, or one that `submodules` takes from the original; None: there is none."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        return None
