import pytest

from kafkaprod.errors import InvalidRecordError
from tests.support.core.core_model import ModelRecord
from tests.support.core.core_model import encode_record as model_encode
from tests.support.core.faces import encode_record, size_bound

RECORDS = [
    ModelRecord(None, None),
    ModelRecord(b"", b""),
    ModelRecord(b"k", b"v"),
    ModelRecord(None, b"x" * 5000, (("h", None), ("h", b""), ("ü", b"y" * 200))),
    ModelRecord(b"k" * 63, b"v" * 64),
    ModelRecord(b"k" * 8191, b"v" * 8192),
]


@pytest.mark.parametrize("record", RECORDS)
@pytest.mark.parametrize("deltas", [(0, 0), (-1, 1), (300, 64), (-(2**63), 2**31 - 1), (2**63 - 1, 8192)])
def test_record_is_written_as_the_format_says(record, deltas):
    encoded = encode_record(record.key, record.value, list(record.headers), *deltas)
    assert encoded == model_encode(record, *deltas)
    assert len(encoded) <= size_bound(record.key, record.value, list(record.headers))


def test_null_and_empty_are_different():
    assert encode_record(None, None) != encode_record(b"", b"")


def test_bound_is_reached_by_the_largest_deltas():
    assert (
        size_bound(b"", None) - len(encode_record(b"", None, (), -(2**63), 2**31 - 1)) == 4
    )  # 4 of the length's 5 bytes


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("text", b"v"), "key must be bytes-like or None, not str"),
        ((b"k", 5), "value must be bytes-like or None, not int"),
        ((b"k", b"v", [("h", "text")]), r"headers\[0\] value must be bytes-like or None, not str"),
    ],
)
def test_wrong_type_is_named(arguments, message):
    with pytest.raises(InvalidRecordError, match=message):
        encode_record(*arguments)
