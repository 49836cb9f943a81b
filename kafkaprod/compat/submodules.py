"""Modules of the original packages under the names here: `kafkaprod.compat.kafka_python.admin` is `kafka.admin`."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Final

from kafkaprod.compat.originals import module_of

_HERE: Final = "kafkaprod.compat."
_ORIGINALS: Final = {"aiokafka": "aiokafka", "confluent_kafka": "confluent_kafka", "kafka_python": "kafka"}


class _Originals(MetaPathFinder):
    """Finds a module that is not here in the original, and gives that one, not a second copy."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not fullname.startswith(_HERE):
            return None
        client, _, rest = fullname.removeprefix(_HERE).partition(".")
        if not rest or client not in _ORIGINALS:
            return None
        parent = fullname.rpartition(".")[0]
        name = f"{_ORIGINALS[client]}.{rest}"
        spec = PathFinder.find_spec(fullname, path) if sys.modules[parent].__name__ == parent else None
        if spec is not None:
            if spec.submodule_search_locations is None and _is_package(name):
                spec.submodule_search_locations = []  # one file here, a package there, whose modules are found below it
            return spec
        module = module_of(name)
        return None if module is None else ModuleSpec(fullname, _Taken(module))


def _is_package(name: str) -> bool:
    """Return whether an original has such a package."""
    try:
        spec = importlib.util.find_spec(name)
    except ImportError:
        return False
    return spec is not None and spec.submodule_search_locations is not None


class _Taken(Loader):
    """Gives a module that is loaded."""

    def __init__(self, module: ModuleType) -> None:
        self._module = module
        self._spec = module.__spec__

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return the module; the import system then sets its spec."""
        return self._module

    def exec_module(self, module: ModuleType) -> None:
        """Give the module its own spec back."""
        module.__spec__ = self._spec


def offer() -> None:
    """Let them be imported."""
    if not any(isinstance(finder, _Originals) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Originals())
