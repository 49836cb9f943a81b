"""The messages of transactions, byte for byte. Where the expected bytes come from: PROVENANCE.md.

Transactional id "tx", producer id 4000 in epoch 1, topic "t", group "g", timeout 60 s, time 1700000000000. Each vector
is the size of the frame and its body; client id "c", correlation id 1.
"""

from __future__ import annotations

from typing import Any

import pytest

from kafkaprod.broker.storage.format.control_batch import EndTransactionMarker, build_marker
from kafkaprod.protocol.frames import encode_request, encode_response
from kafkaprod.protocol.messages import add_partitions_to_txn as add
from kafkaprod.protocol.messages import api_versions, end_txn, produce
from kafkaprod.protocol.messages import describe_producers as producers
from kafkaprod.protocol.messages import describe_transactions as described
from kafkaprod.protocol.messages import find_coordinator as find
from kafkaprod.protocol.messages import init_producer_id as init
from kafkaprod.protocol.messages import list_transactions as listed
from kafkaprod.protocol.messages import txn_offset_commit as offsets
from kafkaprod.protocol.messages import write_txn_markers as markers
from kafkaprod.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from kafkaprod.protocol.schema import Message, Request, Response

NOW_MS = 1_700_000_000_000
PRODUCER: dict[str, Any] = {"producer_id": 4000, "producer_epoch": 1}
TX: dict[str, Any] = {"transactional_id": "tx", **PRODUCER}
OLD_TX: dict[str, Any] = {f"v3_and_below_{name}": value for name, value in TX.items()}
BATCH = bytes.fromhex(
    "0000000000000000 0000003a ffffffff 02 9997a0c8 0010 00000000 0000018bcfe56800 0000018bcfe56800"
    "0000000000000fa0 0001 00000000 00000001 10 00 00 00 02 6b 02 76 00"
)


def offsets_of_t(metadata: str | None, leader_epoch: int) -> list[offsets.TxnOffsetCommitRequestTopic]:
    partition = offsets.TxnOffsetCommitRequestPartition(
        partition_index=0, committed_offset=42, committed_leader_epoch=leader_epoch, committed_metadata=metadata
    )
    return [offsets.TxnOffsetCommitRequestTopic(name="t", partitions=[partition])]


TOPICS = [add.AddPartitionsToTxnTopic(name="t", partitions=[0, 1])]
REFUSED = add.AddPartitionsToTxnTopicResult(
    name="t",
    results_by_partition=[
        add.AddPartitionsToTxnPartitionResult(partition_index=0, partition_error_code=55),
        add.AddPartitionsToTxnPartitionResult(partition_index=1, partition_error_code=29),
    ],
)
GOLDEN: list[tuple[Message, int, str]] = [
    (find.FindCoordinatorRequest(key="tx", key_type=1), 1, "00000010 0002 7478 01"),
    (find.FindCoordinatorRequest(key_type=1, coordinator_keys=["tx"]), 6, "00000012 01 02 03 7478 00"),
    (
        find.FindCoordinatorResponse(
            coordinators=[find.Coordinator(key="tx", node_id=1, host="h", port=9092, error_message="")]
        ),
        4,
        "0000001c 00000000 02 03 7478 00000001 02 68 00002384 0000 01 00 00",
    ),
    (
        init.InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=60_000),
        1,
        "00000013 0002 7478 0000ea60",
    ),
    (
        init.InitProducerIdRequest(transaction_timeout_ms=60_000, **TX),
        5,
        "0000001e 03 7478 0000ea60 0000000000000fa0 0001 00",
    ),
    (
        init.InitProducerIdRequest(
            transactional_id="tx", transaction_timeout_ms=60_000, enable2_pc=True, keep_prepared_txn=True
        ),
        6,
        "00000020 03 7478 0000ea60 ffffffffffffffff ffff 01 01 00",
    ),
    (
        init.InitProducerIdResponse(producer_id=4000, producer_epoch=2),
        5,
        "00000016 00000000 0000 0000000000000fa0 0002 00",
    ),
    (
        init.InitProducerIdResponse(
            producer_id=4000, producer_epoch=2, ongoing_txn_producer_id=4000, ongoing_txn_producer_epoch=1
        ),
        6,
        "00000020 00000000 0000 0000000000000fa0 0002 0000000000000fa0 0001 00",
    ),
    (
        add.AddPartitionsToTxnRequest(v3_and_below_topics=TOPICS, **OLD_TX),
        1,
        "0000002c 0002 7478 0000000000000fa0 0001 00000001 0001 74 00000002 00000000 00000001",
    ),
    (
        add.AddPartitionsToTxnRequest(v3_and_below_topics=TOPICS, **OLD_TX),
        3,
        "00000027 03 7478 0000000000000fa0 0001 02 02 74 03 00000000 00000001 00 00",
    ),
    (
        add.AddPartitionsToTxnRequest(
            transactions=[add.AddPartitionsToTxnTransaction(verify_only=True, topics=TOPICS, **TX)]
        ),
        5,
        "0000002a 02 03 7478 0000000000000fa0 0001 01 02 02 74 03 00000000 00000001 00 00 00",
    ),
    (
        add.AddPartitionsToTxnResponse(results_by_topic_v3_and_below=[REFUSED]),
        3,
        "0000001d 00000000 02 02 74 03 00000000 0037 00 00000001 001d 00 00 00",
    ),
    (AddOffsetsToTxnRequest(group_id="g", **TX), 4, "0000001c 03 7478 0000000000000fa0 0001 02 67 00"),
    (AddOffsetsToTxnResponse(error_code=120), 4, "0000000c 00000000 0078 00"),
    (
        offsets.TxnOffsetCommitRequest(group_id="g", topics=offsets_of_t("", 3), **TX),
        2,
        "00000039 0002 7478 0001 67 0000000000000fa0 0001 00000001 0001 74 00000001 00000000"
        "000000000000002a 00000003 0000",
    ),
    (
        offsets.TxnOffsetCommitRequest(
            group_id="g", generation_id_or_member_epoch=5, member_id="m", topics=offsets_of_t("", 3), **TX
        ),
        5,
        "0000003a 03 7478 02 67 0000000000000fa0 0001 00000005 02 6d 00 02 02 74 02 00000000"
        "000000000000002a 00000003 01 00 00 00",
    ),
    (
        offsets.TxnOffsetCommitResponse(
            topics=[
                offsets.TxnOffsetCommitResponseTopic(
                    name="t", partitions=[offsets.TxnOffsetCommitResponsePartition(partition_index=0)]
                )
            ]
        ),
        5,
        "00000016 00000000 02 02 74 02 00000000 0000 00 00 00",
    ),
    (end_txn.EndTxnRequest(committed=True, **TX), 1, "0000001a 0002 7478 0000000000000fa0 0001 01"),
    (end_txn.EndTxnRequest(committed=False, **TX), 5, "0000001b 03 7478 0000000000000fa0 0001 00 00"),
    (
        end_txn.EndTxnResponse(producer_id=4000, producer_epoch=2),
        5,
        "00000016 00000000 0000 0000000000000fa0 0002 00",
    ),
    (end_txn.EndTxnResponse(error_code=51), 4, "0000000c 00000000 0033 00"),
    (
        markers.WriteTxnMarkersRequest(
            markers=[
                markers.WritableTxnMarker(
                    producer_id=4000,
                    producer_epoch=2,
                    transaction_result=True,
                    topics=[markers.WritableTxnMarkerTopic(name="t", partition_indexes=[0, 1])],
                    coordinator_epoch=3,
                    transaction_version=2,
                )
            ]
        ),
        2,
        "0000002c 02 0000000000000fa0 0002 01 02 02 74 03 00000000 00000001 00 00000003 02 00 00",
    ),
    (
        markers.WriteTxnMarkersResponse(
            markers=[
                markers.WritableTxnMarkerResult(
                    producer_id=4000,
                    topics=[
                        markers.WritableTxnMarkerTopicResult(
                            name="t", partitions=[markers.WritableTxnMarkerPartitionResult(partition_index=0)]
                        )
                    ],
                )
            ]
        ),
        1,
        "0000001c 02 0000000000000fa0 02 02 74 02 00000000 0000 00 00 00 00",
    ),
    (
        producers.DescribeProducersRequest(topics=[producers.TopicRequest(name="t", partition_indexes=[0])]),
        0,
        "00000016 02 02 74 02 00000000 00 00",
    ),
    (
        producers.DescribeProducersResponse(
            topics=[
                producers.TopicResponse(
                    name="t",
                    partitions=[
                        producers.PartitionResponse(
                            partition_index=0,
                            active_producers=[
                                producers.ProducerState(
                                    last_sequence=0,
                                    last_timestamp=NOW_MS,
                                    coordinator_epoch=3,
                                    current_txn_start_offset=7,
                                    **PRODUCER,
                                )
                            ],
                        )
                    ],
                )
            ]
        ),
        0,
        "0000003d 00000000 02 02 74 02 00000000 0000 00 02 0000000000000fa0 00000001 00000000"
        "0000018bcfe56800 00000003 0000000000000007 00 00 00 00",
    ),
    (described.DescribeTransactionsRequest(transactional_ids=["tx"]), 0, "00000011 02 03 7478 00"),
    (
        described.DescribeTransactionsResponse(
            transaction_states=[
                described.TransactionState(
                    transaction_state="Ongoing",
                    transaction_timeout_ms=60_000,
                    transaction_start_time_ms=NOW_MS,
                    topics=[described.TopicData(topic="t", partitions=[0, 1])],
                    **TX,
                )
            ]
        ),
        0,
        "0000003c 00000000 02 0000 03 7478 08 4f6e676f696e67 0000ea60 0000018bcfe56800"
        "0000000000000fa0 0001 02 02 74 03 00000000 00000001 00 00 00",
    ),
    (
        listed.ListTransactionsRequest(state_filters=["Ongoing"], duration_filter=1000, transactional_id_pattern="a.*"),
        2,
        "00000023 02 08 4f6e676f696e67 01 00000000000003e8 04 612e2a 00",
    ),
    (
        listed.ListTransactionsResponse(
            transaction_states=[
                listed.TransactionState(transactional_id="tx", producer_id=4000, transaction_state="Ongoing")
            ]
        ),
        2,
        "00000022 00000000 0000 01 02 03 7478 0000000000000fa0 08 4f6e676f696e67 00 00",
    ),
    (
        api_versions.ApiVersionsResponse(
            api_keys=[api_versions.ApiVersion(api_key=26, min_version=0, max_version=5)],
            supported_features=[
                api_versions.SupportedFeatureKey(name="transaction.version", min_version=0, max_version=2)
            ],
            finalized_features_epoch=7,
            finalized_features=[
                api_versions.FinalizedFeatureKey(name="transaction.version", max_version_level=2, min_version_level=2)
            ],
        ),
        4,
        "00000055 0000 02 001a 0000 0005 00 00000000 03"
        "00 1a 02 14 7472616e73616374696f6e2e76657273696f6e 0000 0002 00"
        "01 08 0000000000000007"
        "02 1a 02 14 7472616e73616374696f6e2e76657273696f6e 0002 0002 00",
    ),
    (
        produce.ProduceRequest(
            transactional_id="tx",
            acks=-1,
            timeout_ms=30_000,
            topic_data=[
                produce.TopicProduceData(
                    name="t", partition_data=[produce.PartitionProduceData(index=0, records=BATCH)]
                )
            ],
        ),
        12,
        "00000067 03 7478 ffff 00007530 02 02 74 02 00000000 47" + BATCH.hex() + "00 00 00",
    ),
]
IDS = [f"{type(message).__name__}-v{version}" for message, version, _ in GOLDEN]


@pytest.mark.parametrize(("message", "version", "expected"), GOLDEN, ids=IDS)
def test_encoded_message_equals_the_golden_bytes(message: Message, version: int, expected: str) -> None:
    if isinstance(message, Request):
        frame = b"".join(encode_request(message, version, correlation_id=1, client_id="c"))
    else:
        assert isinstance(message, Response)
        frame = b"".join(encode_response(message, version, correlation_id=1))
    golden = bytes.fromhex(expected)

    assert message.encode(version).hex() == golden[4:].hex()
    assert frame[:4].hex() == golden[:4].hex()


@pytest.mark.parametrize(("message", "version", "expected"), GOLDEN, ids=IDS)
def test_golden_bytes_decode_to_the_message(message: Message, version: int, expected: str) -> None:
    assert type(message).decode(bytes.fromhex(expected)[4:], version) == message


@pytest.mark.parametrize(
    ("is_commit", "expected"),
    [
        (
            False,
            "0000000000000000 00000042 ffffffff 02 5956c115 0030 00000000 0000018bcfe56800 0000018bcfe56800"
            "0000000000000fa0 0002 ffffffff 00000001 20 00 00 00 08 0000 0000 0c 0000 00000003 00",
        ),
        (
            True,
            "0000000000000000 00000042 ffffffff 02 ad68175d 0030 00000000 0000018bcfe56800 0000018bcfe56800"
            "0000000000000fa0 0002 ffffffff 00000001 20 00 00 00 08 0000 0001 0c 0000 00000003 00",
        ),
    ],
)
def test_marker_equals_the_golden_bytes(is_commit: bool, expected: str) -> None:
    marker = build_marker(4000, 2, EndTransactionMarker(is_commit, 3), NOW_MS)

    assert marker.hex() == bytes.fromhex(expected).hex()
