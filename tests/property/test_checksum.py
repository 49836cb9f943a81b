"""CRC-32C of any bytes at any address, against the crc32c package; every way of reckoning it."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from kafkaprod._core.records.checksum import checksum
from tests.support.core.faces import checksum_by_table, joined_checksum, unfolded_checksum

WAYS = {"fastest": checksum, "unfolded": unfolded_checksum, "table": checksum_by_table}
RANDOM = random.Random(1).randbytes(200_000)
# RFC 3720, appendix B.4: the CRC as the number whose bytes are listed there, lowest first.
VECTORS = [
    (bytes(32), 0x8A9136AA),
    (b"\xff" * 32, 0x62A8AB43),
    (bytes(range(32)), 0x46DD794E),
    (bytes(reversed(range(32))), 0x113FDB5C),
    (
        bytes.fromhex(
            "01c00000000000000000000000000000140000000000040000000014000000182800000000000000" + "0200000000000000"
        ),
        0xD9963A56,
    ),
]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("data", "expected"), VECTORS)
def test_vectors_of_the_rfc(way: str, data: bytes, expected: int) -> None:
    assert WAYS[way](data) == expected


@pytest.mark.parametrize("way", WAYS)
def test_every_length_up_to_a_few_blocks_and_streams_at_every_alignment(way: str) -> None:
    check = WAYS[way]
    for length in range(2900):
        start = length % 9
        piece = memoryview(RANDOM)[start : start + length]
        assert check(piece, length) == crc32c(piece, length), (length, start)


@given(
    way=st.sampled_from(list(WAYS.values())), start=st.integers(0, 70), length=st.integers(0, 150_000), data=st.data()
)
def test_any_stretch_carried_on_over_any_pieces(
    way: Callable[[memoryview, int], int], start: int, length: int, data: st.DataObject
) -> None:
    piece = memoryview(RANDOM)[start : start + length]
    cuts = sorted(data.draw(st.lists(st.integers(0, len(piece)), max_size=4)))
    crc = 0
    for begin, end in zip([0, *cuts], [*cuts, len(piece)], strict=True):
        crc = way(piece[begin:end], crc)
    assert crc == crc32c(piece)


@given(start=st.integers(0, 70), cut=st.integers(0, 70_000), length=st.integers(0, 100_000))
def test_the_checksums_of_two_stretches_joined(start: int, cut: int, length: int) -> None:
    first = memoryview(RANDOM)[start : start + cut]
    second = memoryview(RANDOM)[start + cut : start + cut + length]
    joined = joined_checksum(crc32c(first), crc32c(second), len(second))
    assert joined == crc32c(memoryview(RANDOM)[start : start + cut + length])


def test_a_joined_stretch_of_zeros_may_have_any_length() -> None:
    crc = crc32c(b"123456789")
    for length in (0, 1, 255, 256, 65_535, 65_536, 16_777_216):
        assert joined_checksum(crc, crc32c(bytes(length)), length) == crc32c(bytes(length), crc)
