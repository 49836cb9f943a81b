"""CRC-32C by the package crc32c, without the rest of that package.

Its `__init__` asks importlib.metadata for its own version, which imports 45 modules: a sixth of the CPU time that a
broker needs to start. The compiled module in it is loaded by its file, and the package as usual where it is not there.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader
from importlib.util import find_spec, module_from_spec, spec_from_file_location

__all__ = ["crc32c"]

_NAME = "crc32c._crc32c"


def _load() -> Callable[..., int]:
    """Return the function, from the compiled module if it can be loaded alone."""
    package = None if "crc32c" in sys.modules else find_spec("crc32c")
    for directory in (package and package.submodule_search_locations) or ():
        for suffix in EXTENSION_SUFFIXES:
            path = os.path.join(directory, f"_crc32c{suffix}")
            if os.path.exists(path):
                spec = spec_from_file_location(_NAME, path, loader=ExtensionFileLoader(_NAME, path))
                assert spec is not None
                assert spec.loader is not None
                module = module_from_spec(spec)
                spec.loader.exec_module(module)
                function: Callable[..., int] = module.crc32c
                return function
    from crc32c import crc32c as of_package  # see the module docstring

    return of_package


crc32c: Callable[..., int] = _load()
"""Return the CRC-32C of bytes."""
