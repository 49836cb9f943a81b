"""Allocations that fail on demand, by CPython's own test module."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

_testcapi = pytest.importorskip("_testcapi")


@contextmanager
def failing(position: int, count: int = 1) -> Iterator[None]:
    """Let Python's allocations from number `position` on fail, `count` of them, in all threads."""
    gc.disable()
    _testcapi.set_nomemory(position, position + count)
    try:
        yield
    finally:
        _testcapi.remove_mem_hooks()
        gc.enable()
