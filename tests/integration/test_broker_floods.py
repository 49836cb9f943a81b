"""Many and large: requests of thousands of partitions, frames at the limit, thousands of idle connections.

The slow version holds 10,000 connections and prints what they cost.
"""

from __future__ import annotations

import os
import resource
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kafkaprod.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from kafkaprod.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from kafkaprod.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.support.broker.fixtures_broker import wait_until
from tests.support.broker.fixtures_log import make_batch
from tests.support.net.raw_client import RawClient

MANY_PARTITIONS = 10_000
MAX_FRAME_BYTES = 100 << 20
MAX_MESSAGE_BYTES = 1_048_588  # Kafka's default of max.message.bytes; a batch with its header
IDLE_BYTES = 64 << 10
"""What a connection that does nothing may cost the broker."""


def resident_bytes(pid: int) -> int:
    """Memory of a process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS:")).split()[1]) * 1024


@pytest.fixture
def client(embedded_broker: EmbeddedBroker) -> Iterator[RawClient]:
    with RawClient(embedded_broker.bootstrap_servers) as client:
        yield client


@pytest.fixture
def topic(client: RawClient, topic_name: str) -> str:
    """A topic with 3 partitions."""
    client.call(MetadataRequest(topics=[MetadataRequestTopic(name=topic_name)]), MetadataResponse, 4)
    return topic_name


def produce_request(topic: str, batches: dict[int, bytes]) -> ProduceRequest:
    data = [PartitionProduceData(index=index, records=batch) for index, batch in batches.items()]
    return ProduceRequest(acks=-1, timeout_ms=1, topic_data=[TopicProduceData(name=topic, partition_data=data)])


def produce(client: RawClient, topic: str, batch: bytes) -> int:
    """The error code."""
    answer = client.call(produce_request(topic, {0: batch}), ProduceResponse, 9)
    return answer.responses[0].partition_responses[0].error_code


# -- large requests ----------------------------------------------------------------------------------------------------


def test_request_with_ten_thousand_partitions_is_answered_for_each(
    embedded_broker: EmbeddedBroker, client: RawClient, topic: str
) -> None:
    batch = bytes(make_batch())
    before_bytes = resident_bytes(embedded_broker.pid)
    answer = client.call(produce_request(topic, dict.fromkeys(range(MANY_PARTITIONS), batch)), ProduceResponse, 9)
    codes = [outcome.error_code for outcome in answer.responses[0].partition_responses]
    assert codes == [0] * 3 + [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * (MANY_PARTITIONS - 3)

    wanted = [
        FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20) for index in range(MANY_PARTITIONS)
    ]
    request = FetchRequest(max_wait_ms=0, min_bytes=1, topics=[FetchTopic(topic=topic, partitions=wanted)])
    fetched = client.call(request, FetchResponse, 11).responses[0].partitions
    assert [data.error_code for data in fetched] == codes
    assert all(bytes(data.records or b"")[61:] == batch[61:] for data in fetched[:3])
    assert resident_bytes(embedded_broker.pid) - before_bytes < 64 << 20


@pytest.mark.parametrize(("size", "expected"), [(0, 0), (MAX_MESSAGE_BYTES, 0), (MAX_MESSAGE_BYTES + 1, 10)])
def test_batches_are_taken_up_to_the_limit_and_not_beyond(
    client: RawClient, topic: str, size: int, expected: int
) -> None:
    value_bytes = max(0, size - len(make_batch([bytes(1 << 19)])) + (1 << 19))  # both lengths take three bytes
    batch = bytes(make_batch([bytes(value_bytes)]))
    assert len(batch) == size or not size
    assert produce(client, topic, batch) == expected


def test_frame_at_the_limit_is_taken_and_its_memory_given_back(
    embedded_broker: EmbeddedBroker, client: RawClient, topic: str
) -> None:
    before_bytes = resident_bytes(embedded_broker.pid)
    room = MAX_FRAME_BYTES - 200
    assert produce(client, topic, bytes(make_batch()).ljust(room, b"\0")) != 0
    wait_until(lambda: resident_bytes(embedded_broker.pid) - before_bytes < 16 << 20, "memory given back")
    assert produce(client, topic, bytes(make_batch())) == 0
    with RawClient(embedded_broker.bootstrap_servers) as other:
        other.socket.sendall(struct.pack(">i", MAX_FRAME_BYTES + 1))
        assert other.is_closed_by_broker()


# -- many connections --------------------------------------------------------------------------------------------------

_SERVE = """
import logging
import sys
from kafkaprod.broker.config import BrokerConfig, Limits
from kafkaprod.broker.server.server import BrokerServer
logging.disable()  # a line a refused connection; the command has a filter for them
limits = Limits(max_connections=int(sys.argv[2]))
server = BrokerServer(BrokerConfig(data_dir=sys.argv[1], port=0, topics={"orders": 1}, limits=limits))
print("{}:{}".format(*server.broker.endpoint), flush=True)
server.run()
"""


@contextmanager
def broker_process(directory: Path, max_connections: int) -> Iterator[tuple[str, int]]:
    """A broker for that many connections; yields its address and process id."""
    process = subprocess.Popen(
        [sys.executable, "-c", _SERVE, str(directory / "data"), str(max_connections)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip(), process.pid
    finally:
        process.kill()
        process.communicate()


@contextmanager
def descriptors(count: int) -> Iterator[None]:
    """Let this process and its children open that many files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < count:
        resource.setrlimit(
            resource.RLIMIT_NOFILE, (min(count, hard) if hard != resource.RLIM_INFINITY else count, hard)
        )
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def round_trips(client: RawClient, seconds: float) -> float:
    """Produced batches a second."""
    batch, count, started_s = bytes(make_batch()), 0, time.monotonic()
    while (passed_s := time.monotonic() - started_s) < seconds:
        assert produce(client, "orders", batch) == 0
        count += 1
    return count / passed_s


def check_idle_connections(directory: Path, count: int) -> str:
    """Connections that stay silent, or send half a frame, next to a client that works; what they cost."""
    with descriptors(count + 200), broker_process(directory, count + 100) as (address, pid), RawClient(address) as good:
        alone = round_trips(good, 0.3)
        before_bytes = resident_bytes(pid)
        idlers = []
        try:
            for number in range(count):
                idlers.append(RawClient(address))
                if number % 2:
                    idlers[-1].socket.sendall(struct.pack(">i", MAX_FRAME_BYTES) + bytes(100))
            # They are accepted in order: the last one is served when all the others are held.
            assert idlers[-2].call(ApiVersionsRequest(), ApiVersionsResponse, 0).error_code == 0
            held = len(os.listdir(f"/proc/{pid}/fd"))
            assert held >= count
            each_bytes = (resident_bytes(pid) - before_bytes) / count
            assert each_bytes < IDLE_BYTES
            beside = round_trips(good, 0.3)
        finally:
            for idler in idlers:
                idler.close()
        wait_until(lambda: round_trips(good, 0.01) and len(os.listdir(f"/proc/{pid}/fd")) < 100, "all closed")
    return (
        f"{count} idle connections: {each_bytes:.0f} B each, {beside:.0f} round trips/s beside them, {alone:.0f} alone"
    )


def test_idle_connections_cost_little_and_disturb_nobody(tmp_path: Path) -> None:
    check_idle_connections(tmp_path, 800)


@pytest.mark.slow
def test_ten_thousand_idle_connections_cost_little_and_disturb_nobody(tmp_path: Path) -> None:
    print(check_idle_connections(tmp_path, 10_000))


def test_flood_of_connections_above_the_limit_is_turned_away(tmp_path: Path) -> None:
    with broker_process(tmp_path, 50) as (address, pid), RawClient(address) as good:
        assert produce(good, "orders", bytes(make_batch())) == 0
        before_bytes = resident_bytes(pid)
        held = [RawClient(address) for _ in range(49)]
        for client in held:  # one that asks for nothing would have to make room
            assert client.call(ApiVersionsRequest(), ApiVersionsResponse, 0).error_code == 0
        for _ in range(1_000):
            with RawClient(address) as refused:
                assert refused.is_closed_by_broker()
        assert produce(good, "orders", bytes(make_batch())) == 0
        assert resident_bytes(pid) - before_bytes < 16 << 20
        for client in held:
            client.close()
