"""Transaction markers: the protocol guide's bytes, both ways."""

from __future__ import annotations

import pytest

from kafkaprod.broker.storage.format.control_batch import EndTransactionMarker, build_marker, parse_marker
from kafkaprod.errors import CorruptDataError
from kafkaprod.storage.batch_header import parse_header
from tests.support.broker.fixtures_log import make_batch

GOLDEN_COMMIT = bytes.fromhex(  # producer 4000 epoch 1, coordinator epoch 3
    "0000000000000000 00000042 ffffffff 02 db9b9b4c 0030 00000000 0000018bcfe56800 0000018bcfe56800"
    "0000000000000fa0 0001 ffffffff 00000001 20 00 00 00 08 00000001 0c 000000000003 00"
)


def test_commit_marker_is_the_golden_one() -> None:
    marker = EndTransactionMarker(is_commit=True, coordinator_epoch=3)
    assert bytes(build_marker(4000, 1, marker, 1_700_000_000_000)) == GOLDEN_COMMIT


@pytest.mark.parametrize("is_commit", [True, False])
def test_marker_is_read_back(is_commit: bool) -> None:
    marker = EndTransactionMarker(is_commit, 7)
    batch = build_marker(1, 2, marker, 3)
    assert parse_marker(memoryview(batch), parse_header(batch)) == marker


def test_other_control_records_end_no_transaction() -> None:
    batch = make_batch([b"leader change"], keys=[b"\0\0\0\2"], attributes=0x20)
    assert parse_marker(memoryview(batch), parse_header(batch)) is None
    empty = make_batch([], attributes=0x20)
    assert parse_marker(memoryview(empty), parse_header(empty)) is None


@pytest.mark.parametrize(("key", "value"), [(b"\0\0\0", b"\0" * 6), (None, b"\0" * 6), (b"\0\0\0\1", b"\0" * 5)])
def test_short_marker_is_corrupt(key: bytes | None, value: bytes) -> None:
    batch = make_batch([value], keys=[key], attributes=0x30)
    with pytest.raises(CorruptDataError):
        parse_marker(memoryview(batch), parse_header(batch))
