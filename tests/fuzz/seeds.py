"""Write the seeds of the corpora, a folder for each target: `python -m tests.fuzz.seeds`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from kafkaprod.compression import make_codec
from kafkaprod.protocol.messages import RESPONSES
from kafkaprod.protocol.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from tests.fuzz.response_targets import API_KEYS, IS_FRAMED, IS_LOGIN, IS_READY, LAYOUTS, PRODUCE_VERSIONS
from tests.support.core.core_model import ModelRecord, encode_batch, encode_record
from tests.support.net.fake_broker import FakeBroker, api_versions_body, frame
from tests.support.net.protocol_samples import build, distinct_values
from tests.support.producer.sender_rig import WITHOUT_ID, topic_uuid

CORPUS = Path(__file__).parent / "corpus"
RECORDS = [
    ModelRecord(b"k", b"v"),
    ModelRecord(None, None, (("h", None), ("h2", b"x" * 70))),
    ModelRecord(b"", b"y" * 100, (), 1_700_000_000_300),
]


def batches() -> dict[str, bytes]:
    """For `read_batch`."""
    plain = b"".join(encode_record(r, r.timestamp - RECORDS[0].timestamp, i) for i, r in enumerate(RECORDS))
    seeds = {
        "plain": encode_batch(RECORDS),
        "numbered": encode_batch(RECORDS, 4000, 1, 7),
        "append-time": encode_batch(RECORDS, attributes=0x08),
        "two": encode_batch(RECORDS) + encode_batch(RECORDS[:1]),
        "control": encode_batch([ModelRecord(b"\x00\x00\x00\x01", bytes(6))], 4000, 1, -1, attributes=0x30),
    }
    for name in ("gzip", "snappy", "lz4", "zstd"):
        codec = make_codec(name)
        assert codec is not None
        seeds[name] = encode_batch(RECORDS, attributes=codec.codec_id, payload=codec.compress([plain]))
    return seeds


def responses() -> dict[str, bytes]:
    """For `read_response`: the oldest and newest version of each."""
    seeds = {}
    for index, api_key in enumerate(API_KEYS):
        response_type = RESPONSES[api_key]
        lowest, highest = response_type.versions
        for version in {lowest, highest}:
            body = build(response_type, version, distinct_values(), element_count=1).encode(version)
            seeds[f"{api_key.name.lower()}-{version}"] = bytes([index, version - lowest]) + body
    return seeds


def answers(version: int, code: int) -> Iterator[tuple[int, bytes]]:
    """Index and answer of each layout that a request may have."""
    for index, layout in enumerate(LAYOUTS):
        topics = [
            TopicProduceResponse(
                name="" if version >= 13 else name,
                topic_id=topic_uuid(name) if version >= 13 else WITHOUT_ID,
                partition_responses=[
                    PartitionProduceResponse(index=i, error_code=code, base_offset=7) for i in range(count)
                ],
            )
            for name, count in layout.items()
        ]
        yield index, ProduceResponse(responses=topics, throttle_time_ms=0).encode(version)


def produce_answers() -> dict[str, bytes]:
    """For `settle_response`."""
    return {
        f"version-{version}-layout-{index}-code-{code}": bytes([version - PRODUCE_VERSIONS[0], index]) + body
        for version in (3, 5, 8, 9, 13)
        for code in (0, 6)
        for index, body in answers(version, code)
        if index < 3
    }


def connections() -> dict[str, bytes]:
    """For `receive_bytes`."""
    api_versions = api_versions_body(4, FakeBroker().ranges, transaction_version=2)
    old_api_versions = api_versions_body(0, FakeBroker().ranges)
    (_, produce), *_ = answers(9, 0)
    handshake = b"\0\0\0\0\0\1\0\x0dSCRAM-SHA-256"
    challenge = b"r=nonceserver,s=QUFB,i=4096"
    token = b"\0\0\0" + bytes([len(challenge) + 1]) + challenge + bytes(8) + b"\0"
    return {
        "start": bytes([0]) + frame(bytes(4) + api_versions),
        "start-in-pieces": bytes([5 << 3]) + frame(bytes(4) + api_versions),
        "start-framed": bytes([IS_FRAMED, len(api_versions)]) + api_versions,
        "produce": bytes([IS_READY]) + frame(b"\0\0\0\1\0" + produce),
        "produce-framed": bytes([IS_READY | IS_FRAMED, len(produce) + 1, 0]) + produce,
        "login": bytes([IS_LOGIN | IS_FRAMED])
        + b"".join(bytes([len(each)]) + each for each in (old_api_versions, handshake, b"\0" + token)),
        "oversize": bytes([IS_READY]) + b"\x7f\xff\xff\xff" + bytes(20),
        "http": bytes([0]) + b"HTTP/1.1 400 Bad Request\r\n\r\n",
        "tls": bytes([0]) + bytes.fromhex("15030300020246"),
    }


def main() -> None:
    """Write one file per seed."""
    corpora = {
        "read_batch": batches(),
        "read_response": responses(),
        "settle_response": produce_answers(),
        "receive_bytes": connections(),
    }
    for target, seeds in corpora.items():
        (CORPUS / target).mkdir(parents=True, exist_ok=True)
        for name, content in seeds.items():
            (CORPUS / target / name).write_bytes(content)


if __name__ == "__main__":
    main()
