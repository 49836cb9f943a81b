"""What a broker keeps of connections that have ended: nothing, without the help of Python's collector of cycles.

A cycle that holds a request, an exception with the frames it went through say, keeps it until the collector comes to
the oldest generation. By then the next requests of 100 MiB have come.
"""

from __future__ import annotations

import gc
import struct
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from kafkaprod.broker.config import BrokerConfig
from kafkaprod.broker.server.server import BrokerServer
from kafkaprod.broker.server.session import Session
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.frames import encode_request
from kafkaprod.protocol.messages.api_versions import ApiVersionsRequest
from kafkaprod.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kafkaprod.protocol.messages.find_coordinator import FindCoordinatorRequest
from kafkaprod.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkaprod.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from kafkaprod.protocol.messages.sasl_handshake import SaslHandshakeRequest
from kafkaprod.protocol.schema import Request
from tests.campaigns.hostile_clients import large_group_metadata, raw_frame, zstd_bomb
from tests.support.broker.fixtures_broker import wait_until
from tests.support.broker.fixtures_log import make_batch
from tests.support.net.raw_client import RawClient

MIB = 1 << 20
REPEATS = 3
Ending = Callable[[RawClient], None]


def frame_of(request: Request, version: int) -> bytes:
    return b"".join(map(bytes, encode_request(request, version, 1, "c")))


def produce(records: bytes) -> bytes:
    data = [TopicProduceData(name="orders", partition_data=[PartitionProduceData(index=0, records=records)])]
    return frame_of(ProduceRequest(acks=-1, timeout_ms=1, topic_data=data), 9)


def fetch(max_wait_ms: int = 60_000) -> bytes:
    place = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=MIB)
    topics = [FetchTopic(topic="orders", partitions=[place])]
    return frame_of(FetchRequest(max_wait_ms=max_wait_ms, min_bytes=2**31 - 1, topics=topics), 11)


def refused(frame: bytes) -> Ending:
    """Send a frame; the broker answers, or closes the connection."""

    def end(client: RawClient) -> None:
        with suppress(ConnectionError):
            client.socket.sendall(frame)
            client.receive_frame()

    return end


def left(frame: bytes) -> Ending:
    """Send bytes and go, without the answer."""

    def end(client: RawClient) -> None:
        client.socket.sendall(frame)

    return end


ENDINGS: dict[str, Ending] = {
    "unknown API": refused(struct.pack(">i", 8 * MIB) + b"\x7f" * 8 * MIB),
    "version that is not announced": refused(raw_frame(ApiKey.METADATA, 99, bytes(7 * MIB))),
    "frame above the limit": refused(struct.pack(">i", 2**31 - 1) + bytes(MIB)),
    "header that ends early": refused(struct.pack(">ihhih", 10, ApiKey.METADATA, 1, 1, 500) + bytes(MIB)),
    "half a request": left(struct.pack(">i", 16 * MIB) + bytes(8 * MIB)),
    "body that is damaged": refused(raw_frame(ApiKey.METADATA, 1, struct.pack(">i", 2**30) + bytes(7 * MIB))),
    "too many elements": refused(raw_frame(ApiKey.METADATA, 1, struct.pack(">i", 2**20) + b"\0\x04none" * 2**20)),
    "records that are damaged": refused(produce(b"\xff" * 8 * MIB)),
    "records that expand": refused(zstd_bomb()),
    "large metadata of a group member": refused(large_group_metadata(7 * MIB)),
    "fetch that waits": left(fetch()),
    "request on the control thread": left(frame_of(FindCoordinatorRequest(key="g"), 1)),
    "requests behind others": left(fetch(300) + produce(bytes(make_batch())) * 100),
    "mechanism that is not offered": refused(frame_of(SaslHandshakeRequest(mechanism="x" * 30_000), 1)),
    "login where there is none": refused(frame_of(SaslAuthenticateRequest(auth_bytes=bytes(MIB)), 1)),
}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[BrokerServer]:
    server = BrokerServer(BrokerConfig(data_dir=str(tmp_path / "data"), port=0, topics={"orders": 1}))
    thread = threading.Thread(target=server.run)
    thread.start()
    yield server
    server.stop()
    thread.join()


@pytest.fixture
def without_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("without_collector")
@pytest.mark.parametrize("name", ENDINGS)
def test_connections_that_end_leave_nothing(name: str, server: BrokerServer) -> None:
    address = "{}:{}".format(*server.broker.endpoint)
    ready = frame_of(ApiVersionsRequest(), 0)
    tracemalloc.start()
    try:
        for number in range(REPEATS + 1):
            with RawClient(address) as client:
                refused(ready)(client)
                ENDINGS[name](client)
            wait_until(lambda: not len(server._admission), "the connection to be gone")
            if number == 0:  # what is made once
                before_bytes = tracemalloc.get_traced_memory()[0]
        wait_until(lambda: not sessions(), "the sessions to be freed")
        assert server._budget.held_bytes == 0
        assert tracemalloc.get_traced_memory()[0] - before_bytes < MIB
    finally:
        tracemalloc.stop()


def sessions() -> list[Session]:
    return [found for found in gc.get_objects() if isinstance(found, Session)]
