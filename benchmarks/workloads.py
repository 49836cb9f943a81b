"""The only place that makes benchmark data: values, keys and headers of given sizes, from a seed.

Each workload comes as a list of bytes and as columns (``int32`` offsets and ``uint8`` data, Arrow's binary layout),
both holding the same records. Building them is never part of a measurement.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

VALUE_SIZES = (10, 100, 1_000, 10_000)
KEY_BYTES = 8
HEADERS = (("trace-id", b"0af7651916cd43dd8448eb211c80319c"), ("origin", b"benchmark"))

# More than a batch holds, so that a codec never meets the same object twice in one batch.
_DISTINCT_BYTES = 2 * 1024 * 1024
_WORDS = ("departure", "arrival", "gate", "delayed", "boarding", "cancelled", "runway", "taxi")


@dataclass(frozen=True, slots=True)
class Column:
    """Byte strings in one buffer.

    Attributes:
        offsets: shape (count + 1,), int32; string i is ``data[offsets[i]:offsets[i + 1]]``.
        data: shape (total bytes,), uint8.
    """

    offsets: NDArray[np.int32]
    data: NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def as_list(self) -> list[bytes]:
        """One bytes object each."""
        whole = self.data.tobytes()
        bounds = self.offsets.tolist()
        return [whole[start:end] for start, end in itertools.pairwise(bounds)]

    @staticmethod
    def of(strings: Sequence[bytes]) -> "Column":
        """Columns of a list; at most 2 GiB in total."""
        lengths = np.fromiter(map(len, strings), dtype=np.int64, count=len(strings))
        total = int(lengths.sum())
        if total > np.iinfo(np.int32).max:
            raise ValueError(f"column of {total} bytes exceeds the int32 offsets' limit of {np.iinfo(np.int32).max}")
        offsets = np.zeros(len(strings) + 1, dtype=np.int32)
        np.cumsum(lengths, out=offsets[1:])
        return Column(offsets, np.frombuffer(b"".join(strings), dtype=np.uint8))


@dataclass(frozen=True, slots=True)
class Workload:
    """Records to send: ``keys`` is None for a key-less workload, ``headers`` are the same on each record."""

    name: str
    values: Column
    keys: Column | None
    headers: tuple[tuple[str, bytes], ...]

    @property
    def payload_bytes(self) -> int:
        """Bytes of keys and values."""
        return self.values.data.size + (0 if self.keys is None else self.keys.data.size)


def make_workload(
    count: int,
    value_bytes: int,
    *,
    keyed: bool = True,
    headers: bool = False,
    content: str = "random",
    seed: int = 1,
    distinct_keys: int = 100_000,
) -> Workload:
    """Make ``count`` records of ``value_bytes`` each.

    Args:
        count: number of records.
        value_bytes: size of every value.
        keyed: 8-byte keys drawn evenly from ``distinct_keys``.
        headers: attach HEADERS to each record.
        content: ``random`` (incompressible bytes), or ``json`` (objects of event data, about four times compressible).
        seed: same seed, same bytes.
        distinct_keys: how many different keys there are.
    """
    generator = np.random.default_rng([seed, value_bytes])
    name = f"{value_bytes} B {content}{', keyed' if keyed else ''}{', headers' if headers else ''}"
    values = {"random": _random_values, "json": _json_values}[content](generator, count, value_bytes)
    keys = _keys(generator, count, distinct_keys) if keyed else None
    return Workload(name, values, keys, HEADERS if headers else ())


def _random_values(generator: np.random.Generator, count: int, value_bytes: int) -> Column:
    return _even_column(generator.integers(0, 256, count * value_bytes, dtype=np.uint8), value_bytes)


def _json_values(generator: np.random.Generator, count: int, value_bytes: int) -> Column:
    """Different objects of _DISTINCT_BYTES in all, then the same again: text is too slow to make for every record."""
    different = min(count, _DISTINCT_BYTES // value_bytes)
    rows = [_json_object(generator, index, value_bytes) for index in range(different)]
    data = np.frombuffer(b"".join(rows), dtype=np.uint8).reshape(different, value_bytes)
    return _even_column(data[np.arange(count) % different].reshape(-1), value_bytes)


def _json_object(generator: np.random.Generator, index: int, value_bytes: int) -> bytes:
    """An object of exactly this size, at least ten bytes: fields while they fit, then spaces before the brace."""
    most_fields = value_bytes // len(',"taxi":0.00')
    words = generator.integers(0, len(_WORDS), most_fields).tolist()
    numbers = (generator.random(most_fields) * 1000).tolist()
    text = f'{{"n":{index % 10_000}'
    for word, number in zip(words, numbers, strict=True):
        field = f',"{_WORDS[word]}":{number:.2f}'
        if len(text) + len(field) >= value_bytes:
            break
        text += field
    return f"{text:<{value_bytes - 1}}}}".encode()


def _keys(generator: np.random.Generator, count: int, distinct: int) -> Column:
    drawn = generator.integers(0, distinct, count, dtype=np.uint64)
    # An odd multiplier permutes the 64-bit integers: different keys stay different and look nothing alike.
    spread = drawn * np.uint64(0x9E3779B97F4A7C15)
    return _even_column(spread.view(np.uint8), KEY_BYTES)


def _even_column(data: NDArray[np.uint8], item_bytes: int) -> Column:
    if data.size > np.iinfo(np.int32).max:
        raise ValueError(f"column of {data.size} bytes exceeds the int32 offsets' limit of {np.iinfo(np.int32).max}")
    return Column(np.arange(0, data.size + item_bytes, item_bytes, dtype=np.int32), data)
