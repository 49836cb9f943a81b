"""Arguments for the fuzzer's calls: good ones, wrong ones, and those of hostile_objects.py."""

from __future__ import annotations

import array
import random
from collections.abc import Callable
from typing import Any

import numpy as np

from kafkaprod._core.columns.arrow import ArrowBatch
from kafkaprod._core.columns.columns import Column, Headers
from tests.fuzz.hostile_objects import Buffers, LyingInt, Number, Sequence, Text

_HUGE = 10**5000
_NUMBERS: tuple[Any, ...] = (
    *(None, 0, 1, 2, 5, -1, -2, 2**31, 2**62 - 1, 2**63 - 1, _HUGE, True, 1.0, "1", b"1", np.int64(1), LyingInt(1)),
)
_DATA: tuple[Any, ...] = (
    *(b"v", b"", None, b"x" * 5000, b"x" * 70000, memoryview(b"mv"), memoryview(b"mvmv")[::2], "text", 5),
)
_TEXTS = (
    *(
        b'a,"b""c"\r\nd,e\n',
        b'{"k": "v", "n": [1, {"x": "\\""}]}\n{"k": 2}\n',
        b'"open\n',
        b"key\tvalue\nonly\n",
        b"\xff\x00",
    ),
)
_FORMATS = ("z", "u", "U", "Z", "i", "l", "g", "b", "tsm:", "tdD", "vu", "+l", "+s", "n", "", "w:4", "?", "d:5,2")


class Arguments:
    """Makes arguments with the random generator of one call."""

    def __init__(self, buffers: Buffers, rng: random.Random) -> None:
        self.buffers = buffers
        self.rng = rng

    def pick(self, *makers: Callable[[], Any]) -> Any:
        """Call one of the makers."""
        return self.rng.choice(makers)()

    def number(self) -> Any:
        return Number(self.rng) if self.rng.random() < 0.2 else self.rng.choice(_NUMBERS)

    def sequence(self, items: list[Any]) -> Any:
        made = Sequence(items)
        made.rng = self.rng
        return made

    def data(self) -> Any:
        if self.rng.random() < 0.6:
            return self.rng.choice(_DATA)
        return self.pick(
            lambda: bytearray(b"ba"),
            object,
            lambda: np.zeros(3),
            lambda: np.zeros((2, 2))[:, 0],
            lambda: array.array("d", [1]),
            lambda: self.buffers.data,
            lambda: memoryview(self.buffers.data)[self.rng.randrange(4096) :],
        )

    def text(self) -> Any:
        """Return what is to be cut into rows."""
        return self.pick(
            lambda: self.rng.choice(_TEXTS),
            lambda: self.rng.choice(_TEXTS) * 50,
            lambda: bytes(self.rng.choices(b'a",\r\n\\{}[]:1 \xff', k=self.rng.randrange(200))),
            lambda: self.buffers.data,
            self.data,
        )

    def pair(self) -> Any:
        pair = [self.rng.choice(["h", "\ud800", b"h", None, Text("h")]), self.data()]
        return self.pick(
            lambda: tuple(pair),
            lambda: pair,
            lambda: self.sequence(pair),
            lambda: tuple(pair[:1]),
            lambda: None,
            lambda: "ab",
            lambda: (*pair, 1),
        )

    def headers(self) -> Any:
        good: list[Any] = [("h", b"1"), ("g", None)]
        return self.pick(
            lambda: None,
            lambda: good,
            lambda: dict(good),
            lambda: self.sequence(good),
            lambda: self.sequence([self.pair() for _ in range(5)]),
            lambda: [self.pair() for _ in range(3)],
            lambda: iter(good),
            lambda: self.rng.choice([5, "ab"]),
            lambda: self.many(good),
            lambda: Headers.from_python(good),
        )

    def many(self, item: Any) -> Any:
        return self.pick(
            lambda: [item] * 5,
            lambda: self.sequence([item] * 5),
            lambda: (item,) * 5,
            lambda: iter([item] * 3),
            lambda: [item, None, item],
        )

    def rows(self) -> Any:
        return self.pick(
            lambda: None,
            lambda: self.many(b"v"),
            lambda: self.many(self.data()),
            lambda: [self.data() for _ in range(5)],
            lambda: self.rng.choice([b"abc", "abc", 5]),
        )

    def integers(self) -> Any:
        return self.pick(
            lambda: None,
            lambda: [0] * 5,
            lambda: [self.number() for _ in range(5)],
            lambda: self.sequence([self.number() for _ in range(5)]),
            lambda: np.zeros(5, self.rng.choice(["f8", "i8", "i4", ">i4", "M8[ms]", "u1"])),
            lambda: np.full(5, -1, "i4"),
            lambda: self.rng.choice([self.buffers.partitions, self.buffers.timestamps]),
            lambda: np.zeros((5, 1), "i4"),
            lambda: np.zeros(10, "i4")[::2],
            lambda: "01234",
            lambda: array.array("i", [0, 1, 2, 0, 9]),
            self.data,
        )

    def zeros(self, count: int, kind: str) -> Any:
        return np.zeros(count, kind)

    def offsets(self) -> Any:
        return self.pick(
            lambda: self.buffers.offsets32,
            lambda: self.buffers.offsets64,
            lambda: np.arange(6),
            lambda: np.arange(6.0),
            lambda: np.zeros(0, "i4"),
            self.integers,
        )

    def validity(self) -> Any:
        return self.pick(
            lambda: None,
            lambda: None,
            lambda: self.rng.choice([self.buffers.bitmap, self.buffers.mask]),
            lambda: np.ones(5, "i8"),
            self.data,
        )

    def column(self) -> Any:
        """Return what send_columns() takes for a column."""
        data = self.pick(lambda: self.buffers.data, lambda: b"abcdefgh", self.data)
        return self.pick(
            lambda: None,
            lambda: (self.offsets(), data),
            lambda: (self.offsets(), data, self.validity()),
            lambda: (self.offsets(),),
            self.offsets,
            self.made_column,
        )

    def made_column(self) -> Any:
        """Return a Column, or raise what its maker raises."""
        options = {"start": self.number(), "row_count": self.number()} if self.rng.random() < 0.5 else {}
        return self.pick(
            lambda: Column.from_offsets(self.buffers.offsets32, self.buffers.data, self.buffers.bitmap, **options),
            lambda: Column.from_fixed(self.buffers.data, self.rng.choice([1, 8, 0, -1, 2**62]), **options),
            lambda: Column.from_list(self.rows()),
            lambda: Column.constant(self.data()),
            lambda: Column.from_views(
                np.frombuffer(self.rng.randbytes(80), "u1"), self.many(self.buffers.data), **options
            ),
            Column.nulls,
        )

    def good_column(self) -> Column:
        """Return a column whose making does not fail."""
        return self.rng.choice(
            [
                Column.from_offsets(self.buffers.offsets32, self.buffers.data, self.buffers.bitmap),
                Column.from_list([b"1", None, b"-2.5e3", b"2024-02-29T12:00:00Z", b"x"]),
                Column.constant(b"c"),
                Column.from_fixed(self.buffers.data, 8),
            ]
        )

    def views(self) -> Any:
        """Return views of rows, most of them made of anything."""
        return self.pick(
            lambda: np.frombuffer(self.rng.randbytes(self.rng.choice([0, 16, 80, 81])), "u1"),
            lambda: np.zeros(32, "u1"),
            self.buffers_bytes,
            self.data,
        )

    def buffers_bytes(self) -> Any:
        """Return bytes that another thread changes."""
        return self.rng.choice([self.buffers.bitmap, np.frombuffer(self.buffers.data, "u1")])

    def arrow_batch(self) -> ArrowBatch:
        """Return rows of plain buffers, or raise what their maker raises."""
        return ArrowBatch.from_columns(self.pick(lambda: [self.arrow_column() for _ in range(2)], self.headers))

    def arrow_column(self) -> Any:
        if self.rng.random() < 0.5:
            given: Any = self.rng.choice(
                [
                    ("n", "l", 200, [None, self.buffers.timestamps]),
                    ("s", "z", 200, [self.buffers.bitmap, self.buffers.offsets32, self.buffers.data]),
                    ("i", "i", 200, [None, self.buffers.partitions]),
                    ("u", "u", 200, [None, self.buffers.offsets32, b"a" * 4096]),
                ]
            )
            return given
        held = self.many(self.pick(self.validity, self.offsets, self.data))
        return (self.pick(lambda: "n", lambda: Text("n"), self.data), self.rng.choice(_FORMATS), self.number(), held)
