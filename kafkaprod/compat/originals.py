"""Attributes that the original package has and the producer does not need: consumers, admin clients and so on."""

from __future__ import annotations

import importlib
from typing import Any


def original(package: str, name: str, asked: str) -> Any:
    """Return attribute `name` of the installed original.

    Args:
        package: Its import name, such as "kafka".
        name: The attribute.
        asked: Name of the module of this package that lacks it, for messages.

    Raises:
        AttributeError: The original has no such attribute either, or is not installed.
    """
    if name.startswith("__"):
        raise AttributeError(f"module {asked!r} has no attribute {name!r}")
    try:
        module = importlib.import_module(package)
    except ImportError:
        raise AttributeError(
            f"{asked}.{name} is not part of the producer; it is taken from the package "
            f"{package.partition('.')[0]!r}, which is not installed"
        ) from None
    try:
        return getattr(module, name)
    except AttributeError:
        pass
    try:
        return importlib.import_module(f"{package}.{name}")
    except ImportError:
        raise AttributeError(f"neither {asked} nor {package} has an attribute {name!r}") from None
