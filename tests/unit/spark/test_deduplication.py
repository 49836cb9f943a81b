"""Headers by which readers see that a row came twice."""

import pyarrow as pa

from kafkaprod.spark.deduplication import HEADER_TYPE, RowIdentity, with_identity


def test_identity_headers_stand_behind_a_rows_own() -> None:
    own = pa.array([[{"key": "x", "value": b"1"}], None, [{"key": "y", "value": None}]], HEADER_TYPE)
    batch, position = with_identity(pa.record_batch({"headers": own}), "headers", RowIdentity("q", 7, 2), 10)
    assert [[(pair["key"], pair["value"]) for pair in row] for row in batch.column(position).to_pylist()] == [
        [("x", b"1"), ("kp.query", b"q"), ("kp.batch", b"7"), ("kp.part", b"2"), ("kp.seq", b"10")],
        [("kp.query", b"q"), ("kp.batch", b"7"), ("kp.part", b"2"), ("kp.seq", b"11")],
        [("y", None), ("kp.query", b"q"), ("kp.batch", b"7"), ("kp.part", b"2"), ("kp.seq", b"12")],
    ]
