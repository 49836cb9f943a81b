"""docs/json.md says what becomes of every type of Arrow in a file, and it is so."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

from kafkaprod.loader.opening.errors import LoadRefusedError
from tests.support.loader.reading import values_of

PAGE: Final = Path(__file__).parents[3] / "docs" / "json.md"
REFUSED: Final = "refused"
NOON: Final = datetime.datetime(2024, 2, 29, 1, 2, 3, 456_000)
NUMBER: Final = Decimal("1.50")
IDS: Final = pa.array([0], pa.int8())


def _samples() -> Iterator[tuple[str, pa.Array]]:
    yield "null", pa.nulls(1)
    yield "bool", pa.array([True])
    for bits in (8, 16, 32, 64):
        yield f"int{bits}", pa.array([-1], getattr(pa, f"int{bits}")())
        yield f"uint{bits}", pa.array([1], getattr(pa, f"uint{bits}")())
    for name, kind in (("halffloat", pa.float16()), ("float", pa.float32()), ("double", pa.float64())):
        yield name, pa.array([1.5], pa.float64()).cast(kind)
    for name, kind in (("string", pa.string()), ("large_string", pa.large_string()), ("string_view", pa.string_view())):
        yield name, pa.array(["é"], kind)
    bytes_types = {"binary": pa.binary(), "large_binary": pa.large_binary(), "binary_view": pa.binary_view()}
    for name, kind in (bytes_types | {"fixed_size_binary": pa.binary(1)}).items():
        yield name, pa.array([b"\x01"], kind)
    decimals = {"decimal32": pa.decimal32(9, 2), "decimal64": pa.decimal64(18, 2), "decimal128": pa.decimal128(38, 2)}
    for name, kind in (decimals | {"decimal256 to 38 digits": pa.decimal256(38, 2)}).items():
        yield name, pa.array([NUMBER], kind)
    yield "decimal256 of more", pa.array([NUMBER], pa.decimal256(39, 2))
    for name, kind in (("date32", pa.date32()), ("date64", pa.date64())):
        yield name, pa.array([NOON.date()], kind)
    for name, kind in (("time32", pa.time32("ms")), ("time64", pa.time64("ns"))):
        yield name, pa.array([datetime.time(1, 2, 3, 450_000)], kind)
    for unit in ("ms", "us", "ns"):
        yield f"timestamp[{unit}]", pa.array([NOON], pa.timestamp(unit))
        yield f"timestamp[{unit}] with a zone", pa.array([NOON], pa.timestamp(unit, "UTC"))
    yield "duration", pa.array([1], pa.duration("s"))
    yield "month_day_nano_interval", pa.array([(1, 2, 3)], pa.month_day_nano_interval())
    lists = {"list": pa.list_, "large_list": pa.large_list, "list_view": pa.list_view}
    for name, make in (lists | {"large_list_view": pa.large_list_view}).items():
        yield name, pa.array([[1]], make(pa.int64()))
    yield "fixed_size_list", pa.array([[1]], pa.list_(pa.int64(), 1))
    yield "struct", pa.array([{"a": 1}])
    yield "map", pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64()))
    yield "dictionary", pa.array(["é"]).dictionary_encode()
    yield "run_end_encoded", pa.RunEndEncodedArray.from_arrays(pa.array([1], pa.int32()), pa.array(["é"]))
    yield "sparse_union", pa.UnionArray.from_sparse(IDS, [pa.array([1])])
    yield "dense_union", pa.UnionArray.from_dense(IDS, pa.array([0], pa.int32()), [pa.array([1])])
    yield "arrow.uuid", pa.array([b"\x01" * 16], pa.uuid())
    yield "arrow.bool8", pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1], pa.int8()))
    yield "arrow.json", pa.ExtensionArray.from_storage(pa.json_(), pa.array(["{}"]))
    yield "other extension types", pa.ExtensionArray.from_storage(pa.opaque(pa.int64(), "x", "y"), pa.array([1]))


SAMPLES: Final = dict(_samples())


def documented() -> dict[str, str]:
    """The table of the page: type -> text, or `refused`."""
    section = PAGE.read_text().partition("## Every type")[2].partition("\n#")[0]
    found = {}
    for names, text in re.findall(r"^\| (.+?) \| (?:`(.+)`|refused.*) \|$", section, re.MULTILINE):
        found.update(dict.fromkeys(names.split(", "), text or REFUSED))
    return found


def test_the_page_has_each_sample_and_nothing_else() -> None:
    assert set(documented()) == set(SAMPLES)


def test_there_is_a_sample_of_every_type_that_arrow_has() -> None:
    wanted = {name: getattr(pa.lib, name) for name in dir(pa.lib) if name.startswith("Type_")}
    seen = {array.type.id for array in SAMPLES.values()} | {
        array.type.storage_type.id for array in SAMPLES.values() if hasattr(array.type, "storage_type")
    }
    only_of_others = {"Type_INTERVAL_MONTHS", "Type_INTERVAL_DAY_TIME"}  # pyarrow can neither make nor read them
    assert {name for name, number in wanted.items() if number not in seen} == only_of_others


@pytest.mark.parametrize("name", SAMPLES)
def test_a_type_has_the_text_of_the_page_or_is_refused(name: str, tmp_path: Path) -> None:
    table: Any = pa.table({"x": SAMPLES[name]})
    path = tmp_path / "x.arrow"
    with pa.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table)
    text = documented()[name]
    if text == REFUSED:
        with pytest.raises(LoadRefusedError, match=r"x\.arrow: column 'x' has type"):
            values_of(path)
    else:
        assert values_of(path) == [f'{{"x":{text}}}'.encode()]
