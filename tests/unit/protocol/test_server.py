"""The broker's side of a connection, without a socket."""

from __future__ import annotations

import struct

import pytest

from kafkaprod.errors import CorruptDataError, IllegalStateError, UnsupportedVersionError
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.frames import encode_request, split_response
from kafkaprod.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from kafkaprod.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kafkaprod.protocol.messages.metadata import MetadataRequest
from kafkaprod.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from kafkaprod.protocol.server import ConnectionRefused, RequestReceived, ServerConnection

VERSIONS = {ApiKey.PRODUCE: (0, 12), ApiKey.HEARTBEAT: (0, 4), ApiKey.API_VERSIONS: (0, 4)}


def heartbeat(correlation_id: int, version: int = 4) -> bytes:
    request = HeartbeatRequest(group_id=f"group {correlation_id}", member_id="m")
    return b"".join(encode_request(request, version, correlation_id, "c"))


def received(connection: ServerConnection) -> list[RequestReceived]:
    events = connection.events()
    assert all(isinstance(event, RequestReceived) for event in events)
    return [event for event in events if isinstance(event, RequestReceived)]


def refusal(connection: ServerConnection) -> Exception:
    (event,) = connection.events()
    assert isinstance(event, ConnectionRefused)
    return event.error


def sent(connection: ServerConnection) -> bytes:
    data = b"".join(connection.data_to_send(100))
    connection.data_sent(len(data))
    return data


def correlation_ids(data: bytes) -> list[int]:
    ids = []
    while data:
        size = int.from_bytes(data[:4], "big")
        ids.append(int.from_bytes(data[4:8], "big"))
        data = data[4 + size :]
    return ids


def test_a_request_is_announced_with_its_header_and_decoded_when_asked() -> None:
    connection = ServerConnection(VERSIONS)
    connection.receive_data(heartbeat(7))

    (request,) = received(connection)

    assert request.header == (ApiKey.HEARTBEAT, 4, 7, "c")
    assert request.api is ApiKey.HEARTBEAT
    assert request.decode() == HeartbeatRequest(group_id="group 7", member_id="m")


def test_events_are_the_same_wherever_the_bytes_are_cut() -> None:
    stream = heartbeat(1) + heartbeat(2, version=0)
    whole = ServerConnection(VERSIONS)
    whole.receive_data(stream)
    expected = [(event.header, bytes(event.body), event.position) for event in received(whole)]
    assert len(expected) == 2

    for cut in range(len(stream)):
        connection = ServerConnection(VERSIONS)
        connection.receive_data(stream[:cut])
        connection.receive_data(stream[cut:])
        assert [(event.header, bytes(event.body), event.position) for event in received(connection)] == expected


def test_a_response_goes_out_in_the_version_of_its_request() -> None:
    connection = ServerConnection(VERSIONS)
    connection.receive_data(heartbeat(7, version=4))
    (request,) = received(connection)

    connection.send_response(request, HeartbeatResponse(error_code=27))

    correlation_id, body = split_response(sent(connection)[4:], ApiKey.HEARTBEAT, is_flexible=True)
    assert correlation_id == 7
    assert HeartbeatResponse.decode(body, 4) == HeartbeatResponse(error_code=27)


def test_responses_leave_in_the_order_of_the_requests() -> None:
    connection = ServerConnection(VERSIONS)
    connection.receive_data(heartbeat(1) + heartbeat(2) + heartbeat(3))
    first, second, third = received(connection)

    connection.send_response(third, HeartbeatResponse())
    connection.send_response(second, HeartbeatResponse())
    assert sent(connection) == b""
    connection.send_response(first, HeartbeatResponse())

    assert correlation_ids(sent(connection)) == [1, 2, 3]


def test_a_request_without_a_response_lets_the_next_one_pass() -> None:
    connection = ServerConnection(VERSIONS)
    topic = TopicProduceData(name="t", partition_data=[PartitionProduceData(records=b"batch")])
    produce = b"".join(encode_request(ProduceRequest(acks=0, topic_data=[topic]), 9, 1, "c"))
    connection.receive_data(produce + heartbeat(2))
    first, second = received(connection)
    connection.send_response(second, HeartbeatResponse())

    connection.send_nothing(first)

    assert correlation_ids(sent(connection)) == [2]


def test_records_of_a_request_may_be_changed_in_place() -> None:
    topic = TopicProduceData(name="t", partition_data=[PartitionProduceData(records=b"batch")])
    connection = ServerConnection(VERSIONS)
    connection.receive_data(b"".join(encode_request(ProduceRequest(topic_data=[topic]), 9, 1, "c")))
    (request,) = received(connection)
    produce = request.decode()
    assert isinstance(produce, ProduceRequest)
    records = produce.topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)

    records[:1] = b"B"

    assert bytes(records) == b"Batch"


def test_a_request_cannot_be_answered_twice_or_by_another_api() -> None:
    connection = ServerConnection(VERSIONS)
    connection.receive_data(heartbeat(1) + heartbeat(2))
    first, second = received(connection)
    with pytest.raises(IllegalStateError, match="ProduceResponse cannot answer HEARTBEAT"):
        connection.send_response(first, ProduceResponse())
    connection.send_response(first, HeartbeatResponse())
    connection.send_response(second, HeartbeatResponse())

    with pytest.raises(IllegalStateError, match="request 0 of this connection was answered already"):
        connection.send_response(first, HeartbeatResponse())
    with pytest.raises(IllegalStateError, match="request 1"):
        connection.send_nothing(second)


def test_an_unknown_version_of_api_versions_is_answered_in_version_0_and_in_order() -> None:
    connection = ServerConnection(VERSIONS)
    unknown = bytes.fromhex("0012 0063 00000009 0001 63 00 what ever".replace("what ever", "abcdef"))
    connection.receive_data(heartbeat(8) + len(unknown).to_bytes(4, "big") + unknown)
    (request,) = received(connection)
    assert sent(connection) == b""

    connection.send_response(request, HeartbeatResponse())

    data = sent(connection)
    assert correlation_ids(data) == [8, 9]
    answer = data[data.index(bytes.fromhex("00000009")) :]
    assert answer.hex() == "00000009 0023 00000001 0012 0000 0004".replace(" ", "")
    assert ApiVersionsResponse.decode(answer[4:], 0) == ApiVersionsResponse(
        error_code=35, api_keys=[ApiVersion(api_key=18, min_version=0, max_version=4)]
    )


@pytest.mark.parametrize(
    ("start", "message"),
    [
        ("2710 0000", "API 10000 version 0 is not among those this broker announces"),  # no such API
        ("0001 000c", "API 1 version 12 is not among those this broker announces"),  # one this broker does not handle
        ("0000 000d", "PRODUCE version 13 is not among those this broker takes: 3 to 12"),  # above what it announces
        ("0000 0002", "PRODUCE version 2 is not among those this broker takes: 3 to 12"),  # announced, but gone
        ("000c ffff", "HEARTBEAT version -1 is not among those this broker takes: 0 to 4"),
    ],
)
def test_a_request_that_is_not_taken_ends_the_connection(start: str, message: str) -> None:
    frame = bytes.fromhex(start + "00000001 ffff")
    connection = ServerConnection(VERSIONS)
    connection.receive_data(len(frame).to_bytes(4, "big") + frame)

    error = refusal(connection)

    assert isinstance(error, UnsupportedVersionError)
    assert str(error) == message
    with pytest.raises(IllegalStateError):
        connection.receive_data(b"more")


@pytest.mark.parametrize("data", [b"GET / HTTP/1.1\r\n", bytes.fromhex("00000000"), bytes.fromhex("00000003 001200")])
def test_damage_ends_the_connection(data: bytes) -> None:
    connection = ServerConnection(VERSIONS)
    connection.receive_data(data)

    assert isinstance(refusal(connection), CorruptDataError)


@pytest.mark.parametrize(("api", "is_refused"), [(ApiKey.HEARTBEAT, True), (ApiKey.PRODUCE, False)])
def test_only_records_make_a_large_request(api: ApiKey, is_refused: bool) -> None:
    frame = struct.pack(">ihhi", 1_001, api, 3, 1) + bytes(993)
    for pieces in ([frame], [frame[:6], frame[6:]], [frame[:3], frame[3:5], frame[5:]]):
        connection = ServerConnection({api: (3, 3)}, 2_000, 1_000)
        events = []
        for piece in pieces:
            connection.receive_data(piece)
            events += connection.events()
            if events:
                break
        (event,) = events
        assert isinstance(event, ConnectionRefused) is is_refused
        if isinstance(event, ConnectionRefused):
            assert "HEARTBEAT request of 1001 bytes exceeds 1000" in str(event.error)
    begun = ServerConnection({api: (3, 3)}, 2_000, 1_000)
    begun.receive_data(frame[:6])  # refused before the rest comes
    assert bool(begun.events()) is is_refused


def test_requests_before_the_damage_are_announced() -> None:
    connection = ServerConnection(VERSIONS)
    connection.receive_data(heartbeat(1) + b"\xff\xff\xff\xff")

    first, second = connection.events()

    assert isinstance(first, RequestReceived)
    assert isinstance(second, ConnectionRefused)


def test_a_lost_connection_releases_what_waited() -> None:
    connection = ServerConnection(VERSIONS)
    connection.receive_data(heartbeat(1) + heartbeat(2))
    first, second = received(connection)
    connection.send_response(first, HeartbeatResponse())

    connection.connection_lost()

    assert connection.data_to_send(10) == []
    with pytest.raises(IllegalStateError):
        connection.send_response(second, HeartbeatResponse())


def test_bytes_behind_a_complete_request_are_ignored(caplog: pytest.LogCaptureFixture) -> None:
    """librdkafka writes the null array of Metadata v9+, "all topics", as four zero bytes instead of one."""
    caplog.set_level("DEBUG", "kafkaprod")
    body = "00000000 00 00 00"  # topics, allow_auto_topic_creation, include_topic_authorized_operations, tags
    header = struct.pack(">hhih", 3, 12, 7, 7) + b"rdkafka" + b"\0"
    frame = header + bytes.fromhex(body)
    connection = ServerConnection({ApiKey.METADATA: (0, 12), ApiKey.API_VERSIONS: (0, 4)})
    connection.receive_data((struct.pack(">i", len(frame)) + frame) * 2)

    first, second = received(connection)

    assert first.decode() == second.decode() == MetadataRequest(topics=None, allow_auto_topic_creation=False)
    assert [record.message for record in caplog.records] == ["METADATA v12: 3 bytes after the request are ignored"]


def test_a_request_cut_short_is_damage() -> None:
    frame = heartbeat(7)
    cut = struct.pack(">i", len(frame) - 4 - 3) + frame[4:-3]
    connection = ServerConnection(VERSIONS)
    connection.receive_data(cut)

    with pytest.raises(CorruptDataError, match="HeartbeatRequest v4"):
        received(connection)[0].decode()
