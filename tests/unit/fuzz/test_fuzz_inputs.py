"""A short run of the fuzzers of inputs and of changing arrays; `python -m tests.fuzz.inputs` runs them for longer."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from kafkaprod._core.columns.arrow import ArrowBatch, ArrowStream
from kafkaprod._core.text.json_rows import JsonEncoder
from kafkaprod.errors import InvalidRecordError
from tests.fuzz import inputs
from tests.fuzz.changing_arrays import FIELDS, ChangingArrays


@pytest.mark.parametrize(("kind", "count"), [("messages", 1500), ("files", 150), ("texts", 1500), ("requests", 300)])
def test_damaged_inputs_are_read_or_refused(kind: str, count: int) -> None:
    names, found = inputs.fuzz(kind, 1, 0, count)
    assert not found, found[0]
    assert sum(names.values()) == count


def test_an_unexpected_error_is_found() -> None:
    def check(rng: random.Random) -> str:
        names: dict[float, str] = {}
        return names[rng.random()]

    ((name, wrong),) = inputs.run(check, 1, 0, 1)
    assert name == "KeyError"
    assert "--seed 1 --first 0 --count 1" in wrong


def test_arrays_of_every_layout_are_right_until_they_are_wrecked() -> None:
    arrays = ChangingArrays()
    arrays.table.validate(full=True)
    (batch,) = ArrowStream(arrays.table)
    rows = rows_of(batch)
    rng = random.Random(1)
    for _ in range(100):
        arrays.wreck(rng)
    with pytest.raises(InvalidRecordError, match="have changed while rows were read"):
        rows_of(batch)
    arrays.restore()
    assert rows_of(batch) == rows
    assert len(rows) == pa.table(arrays.table).num_rows
    assert (rows[1] or b"").count(b":") >= len(FIELDS)


def rows_of(batch: ArrowBatch) -> list[bytes | None]:
    """Return the rows as JSON."""
    made = JsonEncoder(batch, list(range(len(FIELDS)))).encode(0, 1 << 20)
    return made.rows(0, len(made))
