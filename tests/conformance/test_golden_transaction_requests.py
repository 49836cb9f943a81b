"""Bodies of the requests that a transactional producer sends, byte for byte.

Where the expected bytes come from: PROVENANCE.md.
Transactional id "tx", producer id 4000 epoch 1, topic "t", group "g".
"""

from __future__ import annotations

import pytest

from kafkaprod.engine.transactions import requests
from kafkaprod.engine.transactions.calls import CallKind, OffsetsCall
from kafkaprod.engine.transactions.offsets import GroupMetadata, OffsetAndMetadata
from kafkaprod.engine.transactions.requests import TransactionalProducer, TransactionRequest
from kafkaprod.structs import Node, TopicPartition

TX = TransactionalProducer("tx", 4000, 1)
NODE = Node(1, "h", 9092)
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
OFFSETS = {T0: OffsetAndMetadata(42, leader_epoch=3)}


def offsets(group: GroupMetadata, *, is_v2: bool) -> TransactionRequest:
    call = OffsetsCall(CallKind.OFFSETS, group=group, wanted=OFFSETS, missing=OFFSETS)
    return requests.commit_offsets(TX, NODE, call, is_v2=is_v2)


def init(*, is_bump: bool) -> TransactionRequest:
    return requests.init_producer_id(TX, NODE, 60_000, is_bump=is_bump)


GOLDEN: list[tuple[str, TransactionRequest, int, str]] = [
    ("find", requests.find_coordinator("tx", None), 1, "0002 7478 01"),
    ("find", requests.find_coordinator("tx", None), 6, "01 02 03 7478 00"),
    ("init", init(is_bump=False), 1, "0002 7478 0000ea60"),
    ("bump", init(is_bump=True), 5, "03 7478 0000ea60 0000000000000fa0 0001 00"),
    (
        "partitions",
        requests.add_partitions(TX, NODE, [T0, T1]),
        1,
        "0002 7478 0000000000000fa0 0001 00000001 0001 74 00000002 00000000 00000001",
    ),
    (
        "partitions",
        requests.add_partitions(TX, NODE, [T1, T0]),
        3,
        "03 7478 0000000000000fa0 0001 02 02 74 03 00000000 00000001 00 00",
    ),
    ("group", requests.add_offsets(TX, NODE, "g"), 4, "03 7478 0000000000000fa0 0001 02 67 00"),
    (
        "offsets",
        offsets(GroupMetadata("g"), is_v2=False),
        2,
        "0002 7478 0001 67 0000000000000fa0 0001 00000001 0001 74 00000001 00000000 000000000000002a 00000003 0000",
    ),
    (
        "offsets",
        offsets(GroupMetadata("g", 5, "m"), is_v2=True),
        5,
        "03 7478 02 67 0000000000000fa0 0001 00000005 02 6d 00"
        "02 02 74 02 00000000 000000000000002a 00000003 01 00 00 00",
    ),
    ("commit", requests.end(TX, NODE, is_commit=True, is_v2=False), 1, "0002 7478 0000000000000fa0 0001 01"),
    ("abort", requests.end(TX, NODE, is_commit=False, is_v2=True), 5, "03 7478 0000000000000fa0 0001 00 00"),
]


@pytest.mark.parametrize(
    ("request_", "version", "expected"), [row[1:] for row in GOLDEN], ids=[f"{row[0]}-v{row[2]}" for row in GOLDEN]
)
def test_request_body_equals_the_golden_bytes(request_: TransactionRequest, version: int, expected: str) -> None:
    lowest, highest = request_.versions
    assert lowest <= version <= highest
    assert bytes(request_.message_in(version).encode(version)).hex() == bytes.fromhex(expected).hex()
