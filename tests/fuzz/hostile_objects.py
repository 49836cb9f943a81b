"""Objects that no honest program passes: numbers, lists and texts that change while they are read, spoiled buffers."""

from __future__ import annotations

import importlib.util
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np


class PlantedError(Exception):
    """What hostile objects raise: it may come out of any call."""


class Number:
    """A number that is another one each time it is asked, in each of the ways to ask."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def __index__(self) -> Any:
        if self._rng.random() < 0.05:
            raise PlantedError
        return self._rng.choice([0, 1, 2, -1, -3, 2**31, 2**62, 2**63 - 1, -(2**63), 2**70, LyingInt(1)])

    def __int__(self) -> int:
        return self._rng.choice([-3, 0, 2**40])

    def __lt__(self, other: Any) -> bool:
        return self._rng.random() < 0.5

    __le__ = __gt__ = __ge__ = __lt__

    def __add__(self, other: Any) -> Any:
        return self._rng.choice([0, -5, 2**60])

    __radd__ = __sub__ = __rsub__ = __mul__ = __add__


class LyingInt(int):
    """An int whose methods say something else than its digits."""

    def __index__(self) -> int:
        return -3

    __int__ = __trunc__ = __index__

    def __lt__(self, other: Any) -> bool:
        return False

    __le__ = __gt__ = __ge__ = __eq__ = __lt__

    def __hash__(self) -> int:
        return 7


class Sequence(list[Any]):
    """A list that changes itself, or raises, when it is looked at."""

    rng: random.Random

    def _twist(self) -> None:
        chance = self.rng.random()
        if chance < 0.2:
            self.clear()
        elif chance < 0.3:
            self.extend([b"more"] * 50)
        elif chance < 0.33:
            raise PlantedError

    def __len__(self) -> int:
        self._twist()
        return self.rng.choice([super().__len__(), 0, 2, 10**6])

    def __getitem__(self, item: Any) -> Any:
        self._twist()
        return super().__getitem__(item)

    def __iter__(self) -> Iterator[Any]:
        self._twist()
        return super().__iter__()


class Text(str):
    """Text with a hash and equality of its own."""

    __slots__ = ()

    def __hash__(self) -> int:
        return 1

    def __eq__(self, other: object) -> bool:
        return False


class Buffers:
    """Buffers that another thread writes to while calls use them."""

    def __init__(self, rng: random.Random) -> None:
        self.offsets32: Any = np.arange(0, 2048, 8, dtype=np.int32)
        self.offsets64: Any = np.arange(0, 2048, 8, dtype=np.int64)
        self.partitions: Any = np.zeros(255, np.int32)
        self.timestamps: Any = np.zeros(255, np.int64)
        self.mask: Any = np.ones(255, np.bool_)
        self.bitmap: Any = np.full(32, 255, np.uint8)
        self.data = bytearray(b"x" * 4096)
        self.arrays: Any = None  # without pyarrow there are none
        if importlib.util.find_spec("pyarrow") is not None:
            from tests.fuzz.changing_arrays import ChangingArrays

            self.arrays = ChangingArrays()
        self._rng = rng
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._spoil, daemon=True)

    @contextmanager
    def spoiled(self) -> Iterator[None]:
        """While the block runs, the buffers change."""
        self._thread.start()
        try:
            yield
        finally:
            self._is_over.set()
            self._thread.join()

    def restore(self) -> None:
        """Make them a well-formed column again."""
        self.offsets32[:] = np.arange(0, 2048, 8)
        self.offsets64[:] = np.arange(0, 2048, 8)
        self.partitions[:] = 0
        if self.arrays is not None:
            self.arrays.restore()

    def _spoil(self) -> None:
        while not self._is_over.wait(0.0002):
            if self.arrays is not None:
                self.arrays.wreck(self._rng)
            target: Any = self._rng.choice(
                [self.offsets32, self.offsets64, self.partitions, self.timestamps, self.bitmap]
            )
            target[self._rng.randrange(len(target))] = (
                self._rng.choice([0, 255, 1, 127])
                if target is self.bitmap
                else (self._rng.choice([-1, 2**31 - 1, -(2**31), 0, 5000]))
            )
