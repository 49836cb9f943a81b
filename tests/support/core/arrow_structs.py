"""Arrow C structs made by hand with ctypes, right or wrong, which count how often they are released."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any


class Schema(ctypes.Structure):
    pass


class Array(ctypes.Structure):
    pass


RELEASE_SCHEMA = ctypes.CFUNCTYPE(None, ctypes.POINTER(Schema))
RELEASE_ARRAY = ctypes.CFUNCTYPE(None, ctypes.POINTER(Array))
Schema._fields_ = [
    ("format", ctypes.c_char_p),
    ("name", ctypes.c_char_p),
    ("metadata", ctypes.c_char_p),
    ("flags", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("children", ctypes.POINTER(ctypes.POINTER(Schema))),
    ("dictionary", ctypes.POINTER(Schema)),
    ("release", RELEASE_SCHEMA),
    ("private_data", ctypes.c_void_p),
]
Array._fields_ = [
    ("length", ctypes.c_int64),
    ("null_count", ctypes.c_int64),
    ("offset", ctypes.c_int64),
    ("n_buffers", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("buffers", ctypes.POINTER(ctypes.c_void_p)),
    ("children", ctypes.POINTER(ctypes.POINTER(Array))),
    ("dictionary", ctypes.POINTER(Array)),
    ("release", RELEASE_ARRAY),
    ("private_data", ctypes.c_void_p),
]
_capsule = ctypes.pythonapi.PyCapsule_New
_capsule.restype = ctypes.py_object
_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


# A consumer may release a struct long after the test that made it; the callbacks must still be there.
_alive: list[HandMade] = []


class HandMade:
    """An object with __arrow_c_array__ whose structs say what the caller wants, true or not.

    Args: format: of the one column. buffers: bytes or None each. children: HandMades below. fields: of the ArrowArray.
    Attributes: schema_releases, array_releases: how often the consumer released the structs.
    """

    def __init__(
        self,
        format: str,
        length: int,
        buffers: Sequence[bytes | None],
        children: Sequence[HandMade] = (),
        dictionary: HandMade | None = None,
        name: str = "column",
        **fields: int,
    ) -> None:
        _alive.append(self)
        self.schema_releases = 0
        self.array_releases = 0
        self._kept: list[Any] = [list(buffers), children, dictionary]
        self._release_schema = RELEASE_SCHEMA(self._on_schema)
        self._release_array = RELEASE_ARRAY(self._on_array)
        self.schema = Schema(format.encode(), name.encode(), None, 0, len(children), release=self._release_schema)
        self.array = Array(length, 0, 0, len(buffers), len(children), release=self._release_array)
        places = (ctypes.c_void_p * max(len(buffers), 1))()
        for i, buffer in enumerate(buffers):
            if buffer is not None:
                held = ctypes.create_string_buffer(buffer, max(len(buffer), 1))
                self._kept.append(held)
                places[i] = ctypes.addressof(held)
        self._kept.append(places)
        self.array.buffers = ctypes.cast(places, ctypes.POINTER(ctypes.c_void_p))
        if children:
            schemas = (ctypes.POINTER(Schema) * len(children))(*[ctypes.pointer(one.schema) for one in children])
            arrays = (ctypes.POINTER(Array) * len(children))(*[ctypes.pointer(one.array) for one in children])
            self._kept += [schemas, arrays]
            self.schema.children = ctypes.cast(schemas, ctypes.POINTER(ctypes.POINTER(Schema)))
            self.array.children = ctypes.cast(arrays, ctypes.POINTER(ctypes.POINTER(Array)))
        if dictionary is not None:
            self.schema.dictionary = ctypes.pointer(dictionary.schema)
            self.array.dictionary = ctypes.pointer(dictionary.array)
        for field, value in fields.items():
            setattr(self.array, field, value)

    def _on_schema(self, schema: Any) -> None:
        self.schema_releases += 1
        ctypes.cast(ctypes.addressof(schema.contents) + Schema.release.offset, ctypes.POINTER(ctypes.c_void_p))[0] = (
            None
        )

    def _on_array(self, array: Any) -> None:
        self.array_releases += 1
        ctypes.cast(ctypes.addressof(array.contents) + Array.release.offset, ctypes.POINTER(ctypes.c_void_p))[0] = None

    def __arrow_c_array__(self, requested_schema: Any = None) -> tuple[Any, Any]:
        return (
            _capsule(ctypes.addressof(self.schema), b"arrow_schema", None),
            _capsule(ctypes.addressof(self.array), b"arrow_array", None),
        )
