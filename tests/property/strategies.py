"""Hypothesis strategies for records, and for how hypothesis is run here."""

from __future__ import annotations

from hypothesis import strategies as st

from tests.support.core.core_model import ModelRecord

INT64 = st.integers(-(2**63), 2**63 - 1)
TIMESTAMPS = st.one_of(st.integers(1_600_000_000_000, 1_700_000_000_000), st.integers(-1, 2**63 - 1))


@st.composite
def byte_strings(draw: st.DrawFn, max_size: int = 300) -> bytes:
    """Bytes; lengths around the steps of varints and slabs are more likely than hypothesis would make them."""
    size = draw(st.one_of(st.integers(0, max_size), st.sampled_from([0, 1, 62, 63, 64, 65, 127, 128])))
    return draw(st.binary(min_size=min(size, 8), max_size=8)).ljust(min(size, max_size), b"\xa5")[: min(size, max_size)]


def nullable_bytes(max_size: int = 300) -> st.SearchStrategy[bytes | None]:
    """Bytes or None."""
    return st.none() | byte_strings(max_size)


HEADERS = st.lists(st.tuples(st.text(st.characters(codec="utf-8"), max_size=10), nullable_bytes(100)), max_size=4).map(
    tuple
)


def records(max_size: int = 300) -> st.SearchStrategy[ModelRecord]:
    """A record with any key, value, headers and timestamp."""
    return st.builds(ModelRecord, nullable_bytes(max_size), nullable_bytes(max_size), HEADERS, TIMESTAMPS)
