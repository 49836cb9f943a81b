"""The compiled modules are linked so that a stray write finds little to use; read from their ELF headers."""

from __future__ import annotations

import struct
import sys
from pathlib import Path

import pytest

from tests.architecture.core_sources import ROOT

BUILT = sorted((ROOT / "kafkaprod").rglob("*.so"))
MODULES = [path for path in BUILT if path.with_name(f"{path.name.split('.')[0]}.pyx").exists()]
PT_DYNAMIC, PT_GNU_STACK, PT_GNU_RELRO = 2, 0x6474E551, 0x6474E552
DT_NULL, DT_RPATH, DT_FLAGS, DT_RUNPATH, DT_BIND_NOW, DT_FLAGS_1 = 0, 15, 30, 29, 24, 0x6FFFFFFB
DF_BIND_NOW, DF_1_NOW, EXECUTABLE = 8, 1, 1

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or sys.byteorder != "little" or sys.maxsize < 2**32, reason="reads 64-bit ELF"
)


def segments(data: bytes) -> dict[int, tuple[int, int, int]]:
    """Type -> (flags, offset, size) of the program headers."""
    (table,) = struct.unpack_from("<Q", data, 32)
    size, count = struct.unpack_from("<HH", data, 54)
    found = {}
    for i in range(count):
        kind, flags, offset, _, _, length = struct.unpack_from("<IIQQQQ", data, table + i * size)
        found[kind] = (flags, offset, length)
    return found


def dynamic(data: bytes) -> dict[int, int]:
    """Tag -> value of the dynamic section."""
    _, offset, size = segments(data)[PT_DYNAMIC]
    return dict(struct.iter_unpack("<QQ", data[offset : offset + size]))


def test_no_module_is_left_from_a_source_that_is_gone() -> None:
    stale = sorted(set(BUILT) - set(MODULES))
    assert not stale, f"delete {', '.join(str(path) for path in stale)}"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.name.split(".")[0])
def test_module_is_linked_read_only_and_without_paths(path: Path) -> None:
    data = path.read_bytes()
    assert data[:6] == b"\x7fELF\x02\x01"
    parts, tags = segments(data), dynamic(data)
    assert PT_GNU_RELRO in parts
    assert tags.get(DT_FLAGS, 0) & DF_BIND_NOW or tags.get(DT_FLAGS_1, 0) & DF_1_NOW or DT_BIND_NOW in tags
    assert DT_RPATH not in tags
    assert DT_RUNPATH not in tags
    assert not parts[PT_GNU_STACK][0] & EXECUTABLE


def test_functions_with_arrays_on_the_stack_are_guarded() -> None:
    guarded = {path.name.split(".")[0] for path in MODULES if b"__stack_chk_fail" in path.read_bytes()}
    assert {"socket_calls", "produce_request", "varint", "record_arguments"} & guarded == {
        "socket_calls",
        "produce_request",
        "varint",
        "record_arguments",
    }
