"""Headers, and the splitting of a byte stream into frames."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterable

import pytest

from kafkaprod.errors import CorruptDataError
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.frames import (
    MAX_FRAME_BYTES,
    FrameSplitter,
    RequestHeader,
    encode_request,
    encode_request_header,
    encode_response,
    peek_correlation_id,
    read_request_header,
    read_request_start,
    split_response,
)
from kafkaprod.protocol.messages.api_versions import ApiVersionsResponse
from kafkaprod.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from kafkaprod.protocol.messages.heartbeat import HeartbeatResponse
from kafkaprod.protocol.messages.sasl_handshake import SaslHandshakeRequest
from kafkaprod.protocol.primitives import Reader


def test_a_request_header_keeps_its_classic_client_id_in_flexible_versions() -> None:
    header = RequestHeader(ApiKey.METADATA, 12, 7, "c")

    assert encode_request_header(header, is_flexible=False).hex() == "0003000c000000070001" + "63"
    assert encode_request_header(header, is_flexible=True).hex() == "0003000c000000070001" + "63" + "00"


@pytest.mark.parametrize("client_id", [None, "", "clïent"])
@pytest.mark.parametrize("is_flexible", [False, True])
def test_a_request_header_is_read_back(client_id: str | None, is_flexible: bool) -> None:
    header = RequestHeader(9999, 3, -1, client_id)
    encoded = encode_request_header(header, is_flexible)
    reader = Reader(encoded + b"body")

    assert read_request_start(encoded) == (9999, 3, -1)
    assert read_request_header(reader, is_flexible) == header
    assert reader.remaining == len(b"body")


def test_tagged_fields_in_headers_are_passed_over() -> None:
    reader = Reader(bytes.fromhex("0003 000c 00000007 ffff 01 05 02 abcd"))

    assert read_request_header(reader, is_flexible=True).client_id is None
    assert reader.remaining == 0
    assert split_response(bytes.fromhex("00000007 01 05 01 ab 63"), ApiKey.METADATA, True) == (7, b"c")


def test_a_response_header_has_tagged_fields_only_in_flexible_versions() -> None:
    classic = b"".join(encode_response(HeartbeatResponse(error_code=27), 3, 7))
    flexible = b"".join(encode_response(HeartbeatResponse(error_code=27), 4, 7))

    assert classic.hex() == "0000000a 00000007 00000000 001b".replace(" ", "")
    assert flexible.hex() == "0000000c 00000007 00 00000000 001b 00".replace(" ", "")
    assert split_response(classic[4:], ApiKey.HEARTBEAT, False) == (7, classic[8:])
    assert split_response(flexible[4:], ApiKey.HEARTBEAT, True) == (7, flexible[9:])


@pytest.mark.parametrize("version", [0, 3, 4])
def test_an_api_versions_response_never_has_a_tagged_header(version: int) -> None:
    response = ApiVersionsResponse()
    frame = b"".join(encode_response(response, version, 7))

    correlation_id, body = split_response(frame[4:], ApiKey.API_VERSIONS, response.is_flexible(version))

    assert correlation_id == peek_correlation_id(frame[4:]) == 7
    assert body == frame[8:] == response.encode(version)


def test_sasl_handshake_is_never_flexible() -> None:
    frame = b"".join(encode_request(SaslHandshakeRequest(mechanism="PLAIN"), 1, 2, None))

    assert frame.hex() == "00000011 0011 0001 00000002 ffff 0005 504c41494e".replace(" ", "")


def test_records_travel_into_a_response_frame_without_a_copy() -> None:
    records = bytearray(100_000)
    partition = PartitionData(records=records)
    response = FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[partition])])

    parts = encode_response(response, 12, 1)

    assert any(part is records for part in parts)
    assert int.from_bytes(parts[0], "big") == sum(len(part) for part in parts[1:])


@pytest.mark.parametrize("frame", [b"", b"\0\3\0\7\0\0\0"])
def test_a_frame_too_short_for_a_header_is_damage(frame: bytes) -> None:
    with pytest.raises(CorruptDataError):
        read_request_start(frame)
    with pytest.raises(CorruptDataError):
        peek_correlation_id(frame[:3])


def frame_of(content: bytes) -> bytes:
    return len(content).to_bytes(4, "big") + content


def collect(splitter: FrameSplitter, pieces: Iterable[bytes], frames: list[bytes]) -> None:
    """As `split`, but keeps what came before damage."""
    for piece in pieces:
        frames.extend(bytes(frame) for frame in splitter.feed(piece))


STREAM = b"".join(map(frame_of, [b"first", b"", b"a longer third frame", b"4"]))
FRAMES = [b"first", b"", b"a longer third frame", b"4"]


def split(splitter: FrameSplitter, *pieces: bytes) -> list[bytes]:
    return [bytes(frame) for piece in pieces for frame in splitter.feed(piece)]


def test_frames_are_the_same_wherever_the_stream_is_cut() -> None:
    for first in range(len(STREAM) + 1):
        for second in range(first, len(STREAM) + 1):
            splitter = FrameSplitter()
            assert split(splitter, STREAM[:first], STREAM[first:second], STREAM[second:]) == FRAMES
            assert splitter.incomplete_bytes == 0


def test_frames_arrive_byte_by_byte() -> None:
    assert split(FrameSplitter(), *(STREAM[at : at + 1] for at in range(len(STREAM)))) == FRAMES


def test_a_frame_owns_memory_that_may_be_written_to() -> None:
    data = bytearray(STREAM)
    splitter = FrameSplitter()
    whole = list(splitter.feed(data[:20]))
    pieced = list(splitter.feed(data[20:]))

    data[:] = bytes(len(data))
    for frame in whole + pieced:
        frame[:1] = b"F"[: len(frame)]

    assert [bytes(frame) for frame in whole + pieced] == [b"First", b"", b"F longer third frame", b"F"]


def test_a_frame_at_the_limit_passes_and_one_byte_more_does_not() -> None:
    assert split(FrameSplitter(5), frame_of(b"12345")) == [b"12345"]
    with pytest.raises(CorruptDataError, match="frame of 6 bytes exceeds 5"):
        split(FrameSplitter(5), frame_of(b"123456"))


def test_frames_before_a_damaged_size_are_delivered_wherever_the_stream_is_cut() -> None:
    stream = frame_of(b"good") + b"\xff\xff\xff\xff"
    for cut in range(len(stream)):
        frames: list[bytes] = []
        splitter = FrameSplitter()
        with pytest.raises(CorruptDataError, match="frame of -1 bytes"):
            collect(splitter, (stream[:cut], stream[cut:]), frames)
        assert frames == [b"good"]


@pytest.mark.parametrize(
    ("start", "cause"),
    [
        (b"HTTP/1.1 400 Bad Request", "which is HTTP"),
        (b"GET / HTTP/1.1", "which is HTTP"),
        (b"POST /", "which is HTTP"),
        (bytes.fromhex("15030300020246"), "which is TLS"),
        (bytes.fromhex("1603010200"), "which is TLS"),
        (b"SSH-2.0-OpenSSH", "which is SSH"),
        (b"\xff\xff\xff\xff", "not speaking Kafka's protocol"),
        (b"\x7f\xff\xff\xff", "not speaking Kafka's protocol"),
    ],
)
def test_bytes_of_another_protocol_are_named(start: bytes, cause: str) -> None:
    with pytest.raises(CorruptDataError, match=cause):
        split(FrameSplitter(), start)
    with pytest.raises(CorruptDataError, match=cause):
        split(FrameSplitter(), start[:2], start[2:])


def test_an_announced_size_takes_no_memory_until_its_bytes_arrive() -> None:
    splitters = [FrameSplitter() for _ in range(100)]
    tracemalloc.start()
    try:
        for splitter in splitters:
            assert split(splitter, MAX_FRAME_BYTES.to_bytes(4, "big"), b"some bytes") == []
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < 1 << 20
    assert splitters[0].incomplete_bytes == 14
