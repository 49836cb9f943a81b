"""Arrow arrays of every layout over memory that a thread writes to while rows are made of them and sent."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa

ROWS = 1000
_WRONG = (-1, 0, 1, 3, 255, 5000, 1 << 30, 2**31 - 1, -(2**31))

FIELDS = {
    "string": '["null", "string"]',
    "large_string": '["null", "string"]',
    "binary": '["null", "bytes"]',
    "large_binary": '["null", "bytes"]',
    "string_view": '["null", "string"]',
    "dictionary": '["null", "string"]',
    "list": '["null", {"type": "array", "items": ["null", "int"]}]',
    "large_list": '["null", {"type": "array", "items": ["null", "int"]}]',
    "map": '["null", {"type": "map", "values": ["null", "int"]}]',
    "fixed": '["null", {"type": "fixed", "name": "f", "size": 4}]',
    "int32": '["null", "int"]',
    "int64": '["null", "long"]',
    "float64": '["null", "double"]',
    "bool": '["null", "boolean"]',
    "struct": '["null", {"type": "record", "name": "s", "fields": [{"name": "a", "type": ["null", "string"]}]}]',
}
"""Layout -> its Avro type."""


class ChangingArrays:
    """See the module docstring. `wreck` and `restore` are for the thread that writes.

    Attributes:
        table: A column of each layout; its memory is NumPy's.
    """

    def __init__(self) -> None:
        self._memory: list[Any] = []
        self._right: list[Any] = []
        arrays = {name: getattr(self, f"_{name}")() for name in FIELDS}
        self.table = pa.table(arrays)

    def wreck(self, rng: random.Random) -> None:
        """Write wrong values to some places of one array, or right ones to all of it."""
        number = rng.randrange(len(self._memory))
        memory = self._memory[number]
        if rng.random() < 0.3:
            memory[:] = self._right[number]
            return
        wrong = np.array(rng.choices(_WRONG, k=rng.choice([1, 5, 50])), np.int64)
        places = np.array([rng.randrange(len(memory)) for _ in wrong])
        memory[places] = wrong.astype(memory.dtype)

    def restore(self) -> None:
        """Make all of it right."""
        for memory, right in zip(self._memory, self._right, strict=True):
            memory[:] = right

    def _changing(self, values: Any) -> Any:
        memory = np.array(values)
        self._memory.append(memory)
        self._right.append(memory.copy())
        return pa.py_buffer(memory)

    def _validity(self) -> Any:
        return self._changing(np.full(ROWS // 8 + 1, 0b11101111, np.uint8))

    def _offsets(self, kind: Any, width: Any) -> Any:
        data = pa.py_buffer(b'\xc3\xa4"\\abcd' * (ROWS // 2))
        offsets = self._changing(np.arange(0, 4 * ROWS + 1, 4, dtype=width))
        return pa.Array.from_buffers(kind, ROWS, [self._validity(), offsets, data])

    def _string(self) -> Any:
        return self._offsets(pa.string(), np.int32)

    def _large_string(self) -> Any:
        return self._offsets(pa.large_string(), np.int64)

    def _binary(self) -> Any:
        return self._offsets(pa.binary(), np.int32)

    def _large_binary(self) -> Any:
        return self._offsets(pa.large_binary(), np.int64)

    def _string_view(self) -> Any:
        made = pa.array(["short", "long" * 20] * (ROWS // 2), pa.string_view())
        _, views, *data = made.buffers()
        changing = self._changing(np.frombuffer(views, np.int32)[: 4 * ROWS])
        return pa.Array.from_buffers(pa.string_view(), ROWS, [None, changing, *data])

    def _dictionary(self) -> Any:
        indices = self._changing(np.arange(ROWS, dtype=np.int32) % 2)
        places = pa.Array.from_buffers(pa.int32(), ROWS, [self._validity(), indices])
        return pa.DictionaryArray.from_arrays(places, pa.array(["ab", "cd"]))

    def _numbers(self, kind: Any, width: Any) -> Any:
        return pa.Array.from_buffers(kind, ROWS, [self._validity(), self._changing(np.arange(ROWS, dtype=width))])

    def _int32(self) -> Any:
        return self._numbers(pa.int32(), np.int32)

    def _int64(self) -> Any:
        return self._numbers(pa.int64(), np.int64)

    def _float64(self) -> Any:
        return self._numbers(pa.float64(), np.float64)

    def _bool(self) -> Any:
        return pa.Array.from_buffers(pa.bool_(), ROWS, [self._validity(), self._validity()])

    def _fixed(self) -> Any:
        data = self._changing(np.full(4 * ROWS, 97, np.uint8))
        return pa.Array.from_buffers(pa.binary(4), ROWS, [self._validity(), data])

    def _listed(self, kind: Any, width: Any) -> Any:
        offsets = self._changing(np.arange(ROWS + 1, dtype=width))
        return pa.Array.from_buffers(kind, ROWS, [self._validity(), offsets], children=[self._int32()])

    def _list(self) -> Any:
        return self._listed(pa.list_(pa.int32()), np.int32)

    def _large_list(self) -> Any:
        return self._listed(pa.large_list(pa.int32()), np.int64)

    def _map(self) -> Any:
        kind = pa.map_(pa.string(), pa.int32())
        keys = self._offsets(pa.string(), np.int32).drop_null()
        keys = pa.concat_arrays([keys, keys])[:ROWS]
        fields = [pa.field(kind.key_field.name, kind.key_type, nullable=False), kind.item_field]
        items = pa.StructArray.from_arrays([keys, self._int32()], fields=fields)
        return pa.Array.from_buffers(
            kind, ROWS, [self._validity(), self._changing(np.arange(ROWS + 1, dtype=np.int32))], children=[items]
        )

    def _struct(self) -> Any:
        return pa.StructArray.from_arrays([self._string()], ["a"])


def avro_schema(names: list[str]) -> str:
    """Return the Avro schema of rows with these columns."""
    fields = [f'{{"name": "{name}", "type": {FIELDS[name]}}}' for name in names]
    return f'{{"type": "record", "name": "row", "fields": [{", ".join(fields)}]}}'
