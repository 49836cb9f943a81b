"""Open handles, bounded: a log of 10,000 segments must not hold 10,000 descriptors."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

V = TypeVar("V")


class LruCache(Generic[V]):
    """Keeps the `limit` values used last. A dropped value lives as long as there is a reference to it. Thread-safe."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._values: OrderedDict[str, V] = OrderedDict()  # guarded by _lock

    def get(self, key: str, make: Callable[[], V]) -> V:
        """The value of `key`; made, outside the lock, if it is not there."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                return self._values[key]
        value = make()
        with self._lock:
            self._values[key] = value
            self._values.move_to_end(key)
            while len(self._values) > self._limit:
                self._values.popitem(last=False)
        return value

    def forget(self, key: str) -> None:
        """Drop a key, present or not."""
        with self._lock:
            self._values.pop(key, None)
