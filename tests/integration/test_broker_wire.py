"""The broker against clients that break the rules: the right answer or a closed connection, and nobody else suffers."""

from __future__ import annotations

import random
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from kafkaprod.protocol.frames import encode_request
from kafkaprod.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kafkaprod.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from kafkaprod.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from kafkaprod.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kafkaprod.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from kafkaprod.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from kafkaprod.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from kafkaprod.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from kafkaprod.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from kafkaprod.protocol.schema import Request
from tests.support.broker.fixtures_broker import wait_until
from tests.support.broker.fixtures_log import make_batch
from tests.support.clock import Stopwatch
from tests.support.net.raw_client import RawClient

# Share groups (KIP-932) and streams groups (KIP-1071), which the embedded broker does not have.
NOT_THERE = {
    **{76: "ShareGroupHeartbeat", 77: "ShareGroupDescribe", 78: "ShareFetch", 79: "ShareAcknowledge"},
    **{83: "InitializeShareGroupState", 84: "ReadShareGroupState", 85: "WriteShareGroupState"},
    **{86: "DeleteShareGroupState", 87: "ReadShareGroupStateSummary", 88: "StreamsGroupHeartbeat"},
    **{89: "StreamsGroupDescribe", 90: "DescribeShareGroupOffsets", 91: "AlterShareGroupOffsets"},
    92: "DeleteShareGroupOffsets",
}


@pytest.fixture
def client(embedded_broker: EmbeddedBroker) -> Iterator[RawClient]:
    with RawClient(embedded_broker.bootstrap_servers) as client:
        yield client


@pytest.fixture
def topic(client: RawClient, topic_name: str) -> str:
    """A topic with 3 partitions."""
    wanted = MetadataRequest(topics=[MetadataRequestTopic(name=topic_name)])
    assert client.call(wanted, MetadataResponse, 4).topics[0].error_code == 0
    return topic_name


def frame_of(request: Request, version: int) -> bytes:
    return b"".join(map(bytes, encode_request(request, version, 1, "raw client")))


def produce_request(topic: str, batch: bytes | bytearray, *, acks: int = -1) -> ProduceRequest:
    data = [PartitionProduceData(index=0, records=batch)]
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[TopicProduceData(name=topic, partition_data=data)])


def produce(client: RawClient, topic: str, batch: bytes | bytearray) -> None:
    answer = client.call(produce_request(topic, batch), ProduceResponse, 9)
    assert answer.responses[0].partition_responses[0].error_code == 0


def fetch_request(topic: str, offset: int, *, max_wait_ms: int = 0, min_bytes: int = 1) -> FetchRequest:
    wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=64 << 20)
    topics = [FetchTopic(topic=topic, partitions=[wanted])]
    return FetchRequest(max_wait_ms=max_wait_ms, min_bytes=min_bytes, topics=topics)


def large_batch(megabytes: int) -> bytes:
    return bytes(make_batch([random.Random(value).randbytes(1000) for value in range(1000 * megabytes)]))


def resident_bytes(broker: EmbeddedBroker) -> int:
    for line in Path(f"/proc/{broker.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmRSS")


def assert_serves(broker: EmbeddedBroker) -> None:
    with RawClient(broker.bootstrap_servers) as client:
        assert client.call(ApiVersionsRequest(), ApiVersionsResponse, 0).error_code == 0


# -- protocol ----------------------------------------------------------------------------------------------------------


def test_unknown_version_of_api_versions_is_answered_in_version_0(client: RawClient) -> None:
    client.socket.sendall(struct.pack(">ihhih", 12, 18, 99, 7, -1) + b"\xff\xff")
    assert client.receive_frame() == struct.pack(">ihihhh", 7, 35, 1, 18, 0, 5)
    assert client.call(ApiVersionsRequest(), ApiVersionsResponse, 0).error_code == 0


@pytest.mark.parametrize(
    "frame",
    [
        struct.pack(">ihhih", 10, 999, 0, 1, -1),
        struct.pack(">ihhih", 10, 0, 2, 1, -1),
        struct.pack(">ihhih", 10, 3, 13, 1, -1),
        struct.pack(">ihhih", 10, 3, -1, 1, -1),
        struct.pack(">ihhih", 10, 7, 1, 1, -1),
        struct.pack(">i", 0),
        struct.pack(">ih", 2, 18),
        struct.pack(">i", -1),
        struct.pack(">i", (100 << 20) + 1),
        struct.pack(">i", 0x7FFFFFFF),
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        frame_of(MetadataRequest(), 1)[:4] + b"\xff" * 100,
        struct.pack(">ihhihi", 14, 3, 1, 1, -1, 0x7FFFFFFF),
        struct.pack(">ihhihi", 14, 3, 1, 1, -1, -2),
        struct.pack(">i", len(frame_of(MetadataRequest(), 1)) - 4 - 1) + frame_of(MetadataRequest(), 1)[4:-1],
        frame_of(MetadataRequest(topics=[MetadataRequestTopic(name="t")] * 25_001), 1),
    ],
)
def test_broken_request_closes_its_connection_only(embedded_broker: EmbeddedBroker, frame: bytes) -> None:
    with RawClient(embedded_broker.bootstrap_servers) as other, RawClient(embedded_broker.bootstrap_servers) as client:
        client.socket.sendall(frame)
        assert client.is_closed_by_broker()
        assert other.call(ApiVersionsRequest(), ApiVersionsResponse, 0).error_code == 0


def test_thousands_of_damaged_frames_leave_the_broker_as_it_was(embedded_broker: EmbeddedBroker, topic: str) -> None:
    dice = random.Random(11)
    good = [
        frame_of(produce_request(topic, bytes(make_batch([b"v" * 50]))), 9),
        frame_of(fetch_request(topic, 0), 12),
        frame_of(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), 9),
        frame_of(ApiVersionsRequest(client_software_name="x", client_software_version="1"), 3),
        frame_of(HeartbeatRequest(group_id="g"), 4),
    ]
    before = resident_bytes(embedded_broker)
    for _ in range(1500):
        frame = bytearray(dice.choice(good))
        for _ in range(dice.randrange(1, 4)):
            frame[dice.randrange(4, len(frame))] = dice.randrange(256)
        with RawClient(embedded_broker.bootstrap_servers) as client:
            client.socket.sendall(frame)
    assert_serves(embedded_broker)
    assert resident_bytes(embedded_broker) - before < 32 << 20


def test_requests_sent_at_once_are_answered_in_order(client: RawClient, topic: str) -> None:
    produce(client, topic, make_batch())
    expected: list[tuple[int, type]] = []
    for number in range(100):
        if number % 3 == 0:
            expected.append((client.send(HeartbeatRequest(group_id="g"), 3), HeartbeatResponse))
        elif number % 3 == 1:
            expected.append((client.send(fetch_request(topic, 0), 11), FetchResponse))
        else:
            expected.append((client.send(ListOffsetsRequest(replica_id=-1), 5), ListOffsetsResponse))
    versions: dict[type, int] = {HeartbeatResponse: 3, FetchResponse: 11, ListOffsetsResponse: 5}
    for correlation_id, response_class in expected:
        assert client.receive(response_class, versions[response_class])[0] == correlation_id


def test_request_may_come_byte_by_byte(client: RawClient) -> None:
    for byte in frame_of(ApiVersionsRequest(), 0):
        client.socket.sendall(bytes((byte,)))
    assert client.receive(ApiVersionsResponse, 0)[1].error_code == 0


def test_produce_without_acknowledgement_has_no_answer(client: RawClient, topic: str) -> None:
    client.send(produce_request(topic, make_batch([b"a", b"b"]), acks=0), 9)
    answer = client.call(fetch_request(topic, 0), FetchResponse, 11)
    assert answer.responses[0].partitions[0].high_watermark == 2


def test_failed_produce_without_acknowledgement_closes_the_connection(client: RawClient, topic: str) -> None:
    client.send(produce_request(topic, b"no batch", acks=0), 9)
    assert client.is_closed_by_broker()


# -- fetch -------------------------------------------------------------------------------------------------------------


def test_waiting_fetch_is_answered_by_another_clients_produce(
    client: RawClient, embedded_broker: EmbeddedBroker, topic: str
) -> None:
    client.send(fetch_request(topic, 0, max_wait_ms=30_000), 11)
    with RawClient(embedded_broker.bootstrap_servers) as producer:
        produce(producer, topic, make_batch([b"news"]))
    records = client.receive(FetchResponse, 11)[1].responses[0].partitions[0].records
    assert records is not None
    assert b"news" in bytes(records)


def test_waiting_fetch_is_answered_empty_when_its_time_is_over(client: RawClient, topic: str) -> None:
    waited = Stopwatch()
    answer = client.call(fetch_request(topic, 0, max_wait_ms=200), FetchResponse, 11)
    assert waited.ms >= 200
    assert not answer.responses[0].partitions[0].records


def test_many_megabytes_come_back_byte_for_byte(client: RawClient, embedded_broker: EmbeddedBroker, topic: str) -> None:
    batches = [bytes(make_batch([random.Random(n).randbytes(900_000)])) for n in range(24)]
    for batch in batches:
        produce(client, topic, batch)
    before = resident_bytes(embedded_broker)
    answer = client.call(fetch_request(topic, 0), FetchResponse, 12).responses[0].partitions[0]
    assert answer.records is not None
    fetched = bytes(answer.records)
    position = 0
    for batch in batches:
        assert fetched[position + 61 : position + len(batch)] == batch[61:]
        position += len(batch)
    assert (answer.high_watermark, position) == (24, len(fetched))
    assert resident_bytes(embedded_broker) - before < 4 << 20


# -- resources ---------------------------------------------------------------------------------------------------------


def test_clients_that_never_read_their_answers_hold_no_memory(
    client: RawClient, embedded_broker: EmbeddedBroker, topic: str
) -> None:
    for number in range(20):
        produce(client, topic, bytes(make_batch([random.Random(number).randbytes(900_000)])))
    before = resident_bytes(embedded_broker)
    idlers = [RawClient(embedded_broker.bootstrap_servers) for _ in range(20)]
    try:
        for idler in idlers:
            for _ in range(5):
                idler.send(fetch_request(topic, 0), 11)
        started_s = time.monotonic()
        for _ in range(50):
            client.call(ListOffsetsRequest(replica_id=-1), ListOffsetsResponse, 5)
        assert time.monotonic() - started_s < 20
        assert resident_bytes(embedded_broker) - before < 32 << 20
    finally:
        for idler in idlers:
            idler.close()


def test_announced_but_unsent_bytes_take_no_memory(embedded_broker: EmbeddedBroker) -> None:
    before = resident_bytes(embedded_broker)
    clients = [RawClient(embedded_broker.bootstrap_servers) for _ in range(100)]
    try:
        for client in clients:
            client.socket.sendall(struct.pack(">i", 100 << 20) + b"x" * 1000)
        assert_serves(embedded_broker)
        assert resident_bytes(embedded_broker) - before < 16 << 20
    finally:
        for client in clients:
            client.close()


def test_connections_that_come_and_go_leave_no_descriptor(embedded_broker: EmbeddedBroker) -> None:
    def descriptor_count() -> int:
        return len(list(Path(f"/proc/{embedded_broker.pid}/fd").iterdir()))

    assert_serves(embedded_broker)
    before = descriptor_count()
    for number in range(300):
        with RawClient(embedded_broker.bootstrap_servers) as client:
            if number % 3 == 0:
                client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            if number % 2 == 0:
                client.socket.sendall(frame_of(MetadataRequest(topics=None), 1)[: number % 20])

    def is_back() -> bool:
        assert_serves(embedded_broker)
        return descriptor_count() <= before + 2

    wait_until(is_back, "descriptors of closed connections")


def test_listener_is_on_the_loopback_interface_only(embedded_broker: EmbeddedBroker) -> None:
    host, port = embedded_broker.bootstrap_servers.split(":")
    assert host == "127.0.0.1"
    inodes = [line.split()[1] for line in Path("/proc/net/tcp").read_text().splitlines()[1:] if line.split()[3] == "0A"]
    listening = [address for address in inodes if int(address.split(":")[1], 16) == int(port)]
    assert listening == [f"0100007F:{int(port):04X}"]
    assert Path(embedded_broker.data_dir).stat().st_mode & 0o777 == 0o700


def test_member_whose_connection_closes_while_it_joins_is_dropped(embedded_broker: EmbeddedBroker) -> None:
    def join(client: RawClient, member_id: str, name: str) -> JoinGroupRequest:
        return JoinGroupRequest(
            group_id="group of clients that go",
            session_timeout_ms=1_800_000,
            rebalance_timeout_ms=1_800_000,
            member_id=member_id,
            group_instance_id=name,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"m")],
        )

    def members() -> list[str | None]:
        groups = admin.call(DescribeGroupsRequest(groups=["group of clients that go"]), DescribeGroupsResponse, 5)
        return [member.group_instance_id for member in groups.groups[0].members]

    with RawClient(embedded_broker.bootstrap_servers) as admin, RawClient(embedded_broker.bootstrap_servers) as first:
        joined = first.call(join(first, "", "first"), JoinGroupResponse, 7)
        second = RawClient(embedded_broker.bootstrap_servers)
        second.send(join(second, "", "second"), 7)  # waits for the first member to join again
        wait_until(lambda: members() == ["first", "second"], "the second member joins")
        second.close()
        wait_until(lambda: members() == ["first"], "the second member is dropped")
        leave = LeaveGroupRequest(
            group_id="group of clients that go", members=[MemberIdentity(member_id=joined.member_id)]
        )
        assert first.call(leave, LeaveGroupResponse, 5).error_code == 0


@pytest.mark.parametrize("api", NOT_THERE, ids=NOT_THERE.get)
def test_share_and_streams_groups_are_not_announced_and_close_the_connection(client: RawClient, api: int) -> None:
    announced = client.call(ApiVersionsRequest(), ApiVersionsResponse, 0)
    assert api not in {entry.api_key for entry in announced.api_keys}
    client.socket.sendall(struct.pack(">ihhih", 10, api, 1, 1, -1))
    assert client.is_closed_by_broker()
