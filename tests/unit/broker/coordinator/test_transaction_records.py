"""The records of `__transaction_state` against those that Kafka's own serializer wrote."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafkaprod.broker.coordinator.transaction import Transaction, TransactionState
from kafkaprod.broker.coordinator.transaction_log import _java_hash
from kafkaprod.broker.coordinator.transaction_records import decode_transaction, encode_transaction
from kafkaprod.errors import CorruptDataError
from kafkaprod.structs import TopicPartition

NOW_MS = 1_700_000_000_000
T0 = frozenset({TopicPartition("t", 0)})
EMPTY = Transaction("tx", 4000, 1, 60_000, NOW_MS)
ONGOING = replace(EMPTY, state=TransactionState.ONGOING, partitions=T0, start_ms=NOW_MS)
ONGOING_TV2 = replace(ONGOING, previous_producer_id=4000, client_version=2)
PREPARED = replace(
    ONGOING_TV2,
    state=TransactionState.PREPARE_COMMIT,
    epoch=32_767,
    next_producer_id=4001,
    last_update_ms=NOW_MS + 100,
)
GOLDEN = [
    (EMPTY, 0, "0000 0000000000000fa0 0001 0000ea60 00 ffffffff 0000018bcfe56800 ffffffffffffffff"),
    (
        ONGOING,
        0,
        "0000 0000000000000fa0 0001 0000ea60 01 00000001 0001 74 00000001 00000000 0000018bcfe56800 0000018bcfe56800",
    ),
    (EMPTY, 1, "0001 0000000000000fa0 0001 0000ea60 00 00 0000018bcfe56800 ffffffffffffffff 00"),
    (
        ONGOING_TV2,
        2,
        "0001 0000000000000fa0 0001 0000ea60 01 02 02 74 02 00000000 00 0000018bcfe56800 0000018bcfe56800"
        "02 00 08 0000000000000fa0 02 02 0002",
    ),
    (
        PREPARED,
        2,
        "0001 0000000000000fa0 7fff 0000ea60 02 02 02 74 02 00000000 00 0000018bcfe56864 0000018bcfe56800"
        "03 00 08 0000000000000fa0 01 08 0000000000000fa1 02 02 0002",
    ),
]


@pytest.mark.parametrize(("transaction", "level", "expected"), GOLDEN)
def test_record_equals_kafkas(transaction: Transaction, level: int, expected: str) -> None:
    key, value = encode_transaction(transaction, level)
    assert key == bytes.fromhex("0000 0002 7478")
    assert value is not None
    assert value.hex() == bytes.fromhex(expected).hex()
    assert decode_transaction(key, value) == ("tx", transaction)


def test_null_value_says_that_the_id_has_expired() -> None:
    assert decode_transaction(bytes.fromhex("0000 0002 7478"), None) == ("tx", None)


def test_key_of_another_kind_is_passed_over() -> None:
    assert decode_transaction(bytes.fromhex("0001 0002 7478"), b"whatever") is None


@pytest.mark.parametrize(("transaction", "level", "expected"), GOLDEN)
def test_record_cut_anywhere_raises(transaction: Transaction, level: int, expected: str) -> None:
    key, value = encode_transaction(transaction, level)
    assert value is not None
    for size in range(len(value)):
        with pytest.raises(CorruptDataError):
            decode_transaction(key, value[:size])
    for size in range(len(key)):
        with pytest.raises(CorruptDataError):
            decode_transaction(key[:size], value)


def test_unknown_version_and_state_raise() -> None:
    key, value = encode_transaction(EMPTY, 1)
    assert value is not None
    with pytest.raises(CorruptDataError, match="version 2"):
        decode_transaction(key, b"\x00\x02" + value[2:])
    with pytest.raises(CorruptDataError, match="state 9"):
        decode_transaction(key, value[:16] + b"\x09" + value[17:])


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", 0), ("a", 97), ("hello world", 1794106052), ("größe", 98762257), ("polygenelubricants", 0), ("😀", 1772899)],
)
def test_partition_of_an_id_is_where_kafka_puts_it(text: str, expected: int) -> None:
    assert _java_hash(text) == expected
