import pytest

from kafkaprod.errors import CorruptDataError
from tests.support.core.core_model import varint
from tests.support.core.faces import decode_varint, encode_varint, size_of_varint

EDGES = [0, -1, 1, 63, 64, -64, -65, 8191, 8192, -8192, -8193, 2**20 - 1, 2**20, -(2**27), 2**31 - 1, -(2**31)]


@pytest.mark.parametrize(
    ("value", "encoded"),
    [(0, "00"), (-1, "01"), (1, "02"), (63, "7e"), (-64, "7f"), (64, "8001"), (300, "d804"), (2**31 - 1, "feffffff0f")],
)
def test_known_encodings(value, encoded):
    assert encode_varint(value) == bytes.fromhex(encoded)


@pytest.mark.parametrize("value", [*EDGES, 2**63 - 1, -(2**63)])
def test_size_encoding_and_decoding_agree(value):
    encoded = encode_varint(value)
    assert encoded == varint(value)
    assert len(encoded) == size_of_varint(value)
    assert decode_varint(b"\xff" + encoded + b"\x00", 1) == (value, 1 + len(encoded))


@pytest.mark.parametrize(("value", "size"), [(63, 1), (64, 2), (8191, 2), (8192, 3), (2**20 - 1, 3), (2**63 - 1, 10)])
def test_sizes_change_where_the_format_says(value, size):
    assert size_of_varint(value) == size
    assert size_of_varint(-value - 1) == size


def test_cut_varint_is_refused():
    with pytest.raises(CorruptDataError, match="position 0"):
        decode_varint(b"\x80\x80")


def test_varint_of_more_than_ten_bytes_is_refused():
    with pytest.raises(CorruptDataError, match="longer than 10 bytes"):
        decode_varint(b"\x80" * 10 + b"\x00")


@pytest.mark.parametrize("position", [-1, 3, 100])
def test_position_outside_the_data_is_refused(position):
    with pytest.raises(CorruptDataError, match="outside the 3 bytes"):
        decode_varint(b"\x00\x00\x00", position)
