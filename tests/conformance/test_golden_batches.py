"""Batches and Produce bodies byte for byte as the protocol guide's reference vectors have them."""

import pytest

from kafkaprod._core.records.batch_reader import RecordBatchReader
from tests.support.core.core_engine import TIMESTAMP, Engine, batches_of, body_of, succeed
from tests.support.core.core_model import ModelRecord, encode_batch

A = bytes.fromhex(
    "0000000000000000 0000003a ffffffff 02 e99b8dd8 0000 00000000 0000018bcfe56800 0000018bcfe56800"
    "ffffffffffffffff ffff ffffffff 00000001 10 00 00 00 02 6b 02 76 00"
)
B = bytes.fromhex(
    "0000000000000000 00000050 ffffffff 02 cd4a725b 0000 00000001 0000018bcfe56800 0000018bcfe5692c"
    "0000000000000fa0 0001 00000007 00000002 28 00 00 00 01 0a 68656c6c6f 04 04 6831 02 78 04 6832 01"
    "12 00 d804 02 04 6b32 01 00"
)
C = bytes.fromhex(
    "0000000000000000 00000042 ffffffff 02 db9b9b4c 0030 00000000 0000018bcfe56800 0000018bcfe56800"
    "0000000000000fa0 0001 ffffffff 00000001 20 00 00 00 08 00000001 0c 000000000003 00"
)
TOPIC_ID = bytes.fromhex("00112233445566778899aabbccddeeff")


def test_one_keyed_record_without_idempotence() -> None:
    assert len(A) == 70
    engine = Engine()
    engine.append(b"v", key=b"k")
    assert batches_of(engine.take()) == [A]


def test_nulls_headers_and_sequence_numbers() -> None:
    assert len(B) == 92
    engine = Engine(is_idempotent=True)
    # Seven records before it, so that the batch of the vector starts at sequence 7.
    for _ in range(7):
        engine.append(b"earlier")
    succeed(engine.take())
    engine.append(b"hello", headers=[("h1", b"x"), ("h2", None)])
    engine.append(None, key=b"k2", timestamp=TIMESTAMP + 300)
    assert batches_of(engine.take()) == [B]


def test_the_oracle_of_the_tests_agrees_with_the_vectors() -> None:
    assert encode_batch([ModelRecord(b"k", b"v")]) == A
    records = [
        ModelRecord(None, b"hello", (("h1", b"x"), ("h2", None))),
        ModelRecord(b"k2", None, (), TIMESTAMP + 300),
    ]
    assert encode_batch(records, 4000, 1, 7) == B


def test_reader_reads_a_plain_batch() -> None:
    reader = RecordBatchReader(A)
    assert (reader.size_bytes, reader.base_offset, reader.leader_epoch, reader.attributes) == (70, 0, -1, 0)
    assert reader.records() == [(0, TIMESTAMP, b"k", b"v", [])]


def test_reader_reads_nulls_headers_and_sequence_numbers() -> None:
    reader = RecordBatchReader(B)
    assert (reader.producer_id, reader.producer_epoch, reader.base_sequence) == (4000, 1, 7)
    assert (reader.base_timestamp, reader.max_timestamp, reader.last_offset) == (TIMESTAMP, TIMESTAMP + 300, 1)
    assert reader.records() == [
        (0, TIMESTAMP, None, b"hello", [("h1", b"x"), ("h2", None)]),
        (1, TIMESTAMP + 300, b"k2", None, []),
    ]


def test_reader_reads_a_commit_marker() -> None:
    assert len(C) == 78
    reader = RecordBatchReader(C)
    assert reader.is_control
    assert reader.is_transactional
    assert (reader.producer_id, reader.producer_epoch, reader.base_sequence) == (4000, 1, -1)
    assert reader.records() == [(0, TIMESTAMP, b"\x00\x00\x00\x01", b"\x00\x00\x00\x00\x00\x03", [])]


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        (7, "ffff ffff 00007530 00000001 0001 74 00000001 00000000 00000046 <A>"),
        (9, "00 ffff 00007530 02 02 74 02 00000000 47 <A> 00 00 00"),
        (13, "00 ffff 00007530 02 00112233445566778899aabbccddeeff 02 00000000 47 <A> 00 00 00"),
    ],
)
def test_produce_body(version: int, expected: str) -> None:
    engine = Engine()
    engine.lead([2])  # only topic t is drained below
    engine.lead([1], "t", topic_id=TOPIC_ID)
    engine.append(b"v", key=b"k", topic="t")
    assert body_of(engine.take(), version) == bytes.fromhex(expected.replace("<A>", A.hex()))
