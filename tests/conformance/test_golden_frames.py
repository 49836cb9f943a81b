"""Request frames byte for byte.

Where the expected bytes come from: PROVENANCE.md.
Client id "c", correlation id 1; the batch is one record, key "k", value "v", without idempotence.
"""

from __future__ import annotations

import uuid

import pytest

from kafkaprod.protocol.frames import encode_request, read_request_header
from kafkaprod.protocol.messages import REQUESTS
from kafkaprod.protocol.messages.api_versions import ApiVersionsRequest
from kafkaprod.protocol.messages.find_coordinator import FindCoordinatorRequest
from kafkaprod.protocol.messages.init_producer_id import InitProducerIdRequest
from kafkaprod.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from kafkaprod.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkaprod.protocol.primitives import Reader
from kafkaprod.protocol.schema import Request

BATCH = bytes.fromhex(
    "0000000000000000 0000003a ffffffff 02 e99b8dd8 0000 00000000 0000018bcfe56800 0000018bcfe56800"
    "ffffffffffffffff ffff ffffffff 00000001 10 00 00 00 02 6b 02 76 00"
)


def produce(topic: TopicProduceData) -> ProduceRequest:
    topic.partition_data = [PartitionProduceData(index=0, records=BATCH)]
    return ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic])


GOLDEN: list[tuple[Request, int, str]] = [
    (
        ApiVersionsRequest(client_software_name="kafkaprod", client_software_version="0.1.0"),
        3,
        "0000001d 0012 0003 00000001 0001 63 00 0a 6b61666b6170726f64 06 302e312e30 00",
    ),
    (
        MetadataRequest(topics=[MetadataRequestTopic(name="t")]),
        7,
        "00000013 0003 0007 00000001 0001 63 00000001 0001 74 01",
    ),
    (
        MetadataRequest(topics=[MetadataRequestTopic(name="t")]),
        12,
        "00000023 0003 000c 00000001 0001 63 00 02 00000000000000000000000000000000 02 74 00 01 00 00",
    ),
    (
        produce(TopicProduceData(name="t")),
        7,
        "0000006c 0000 0007 00000001 0001 63 ffff ffff 00007530 00000001 0001 74 00000001 00000000 00000046"
        + BATCH.hex(),
    ),
    (
        produce(TopicProduceData(name="t")),
        9,
        "00000065 0000 0009 00000001 0001 63 00 00 ffff 00007530 02 02 74 02 00000000 47" + BATCH.hex() + "00 00 00",
    ),
    (
        produce(TopicProduceData(topic_id=uuid.UUID("00112233-4455-6677-8899-aabbccddeeff"))),
        13,
        "00000073 0000 000d 00000001 0001 63 00 00 ffff 00007530 02 00112233445566778899aabbccddeeff 02 00000000 47"
        + BATCH.hex()
        + "00 00 00",
    ),
    (
        InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0x7FFFFFFF),
        4,
        "0000001c 0016 0004 00000001 0001 63 00 00 7fffffff ffffffffffffffff ffff 00",
    ),
    (
        FindCoordinatorRequest(key_type=1, coordinator_keys=["tx"]),
        4,
        "00000012 000a 0004 00000001 0001 63 00 01 02 03 7478 00",
    ),
]
IDS = [f"{type(request).__name__}-v{version}" for request, version, _ in GOLDEN]


@pytest.mark.parametrize(("request_message", "version", "expected"), GOLDEN, ids=IDS)
def test_request_frame_equals_the_golden_bytes(request_message: Request, version: int, expected: str) -> None:
    frame = b"".join(encode_request(request_message, version, correlation_id=1, client_id="c"))

    assert frame.hex() == bytes.fromhex(expected).hex()


@pytest.mark.parametrize(("request_message", "version", "expected"), GOLDEN, ids=IDS)
def test_golden_bytes_decode_to_the_request(request_message: Request, version: int, expected: str) -> None:
    reader = Reader(bytes.fromhex(expected))
    size = reader.read_int32()
    assert size == reader.remaining

    header = read_request_header(reader, request_message.is_flexible(version))
    body = reader.read_view(reader.remaining)

    assert header == (request_message.api, version, 1, "c")
    assert REQUESTS[request_message.api].decode(body, version) == request_message
