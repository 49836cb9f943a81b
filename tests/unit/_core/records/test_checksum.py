import pytest

from kafkaprod._core.records.checksum import checksum


def test_check_value_of_crc32c():
    assert checksum(b"123456789") == 0xE3069283


@pytest.mark.parametrize("cut", [0, 1, 5, 9])
def test_checksum_is_carried_on_over_pieces(cut):
    assert checksum(b"123456789"[cut:], checksum(b"123456789"[:cut])) == 0xE3069283


def test_no_bytes_leave_the_checksum_as_it_was():
    assert checksum(b"", 0xE3069283) == 0xE3069283
    assert checksum(b"") == 0
