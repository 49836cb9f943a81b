"""What a broker still knows after it was stopped or killed."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkaprod import Producer
from kafkaprod.broker.embedding.embedded import EmbeddedBroker, EmbeddedBrokerError
from kafkaprod.errors import IllegalStateError
from kafkaprod.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from kafkaprod.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from kafkaprod.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kafkaprod.protocol.messages.metadata import MetadataRequest, MetadataResponse
from kafkaprod.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from kafkaprod.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic, OffsetFetchResponse
from kafkaprod.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.support.broker.fixtures_log import make_batch
from tests.support.cluster.group_members import MEMBERS
from tests.support.net.raw_client import RawClient

TOPIC = "orders"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(tmp_path / "data", topics={TOPIC: 1}) as broker:
        yield broker


def produce(broker: EmbeddedBroker, *values: bytes) -> int:
    data = [PartitionProduceData(index=0, records=make_batch(list(values)))]
    request = ProduceRequest(acks=-1, timeout_ms=1, topic_data=[TopicProduceData(name=TOPIC, partition_data=data)])
    with RawClient(broker.bootstrap_servers) as client:
        answer = client.call(request, ProduceResponse, 9).responses[0].partition_responses[0]
    assert answer.error_code == 0
    return answer.base_offset


def fetch(broker: EmbeddedBroker) -> bytes:
    wanted = [FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)]
    with RawClient(broker.bootstrap_servers) as client:
        answer = client.call(FetchRequest(topics=[FetchTopic(topic=TOPIC, partitions=wanted)]), FetchResponse, 11)
    return bytes(answer.responses[0].partitions[0].records or b"")


def commit(broker: EmbeddedBroker, offset: int) -> None:
    wanted = [OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)]
    request = OffsetCommitRequest(group_id="g", topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=wanted)])
    with RawClient(broker.bootstrap_servers) as client:
        assert client.call(request, OffsetCommitResponse, 7).topics[0].partitions[0].error_code == 0


def committed(broker: EmbeddedBroker) -> int:
    wanted = [OffsetFetchRequestTopic(name=TOPIC, partition_indexes=[0])]
    with RawClient(broker.bootstrap_servers) as client:
        answer = client.call(OffsetFetchRequest(group_id="g", topics=wanted), OffsetFetchResponse, 5)
    return answer.topics[0].partitions[0].committed_offset


def metadata(broker: EmbeddedBroker) -> MetadataResponse:
    with RawClient(broker.bootstrap_servers) as client:
        return client.call(MetadataRequest(topics=None), MetadataResponse, 12)


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_records_offsets_topics_and_ids_survive(broker: EmbeddedBroker, end: str) -> None:
    produce(broker, b"before")
    commit(broker, 1)
    with RawClient(broker.bootstrap_servers) as client:
        created = client.call(
            CreateTopicsRequest(
                topics=[
                    CreatableTopic(
                        name="second",
                        num_partitions=3,
                        replication_factor=1,
                        configs=[CreatableTopicConfig(name="retention.ms", value="86400000")],
                    )
                ]
            ),
            CreateTopicsResponse,
            7,
        )
        first_id = client.call(InitProducerIdRequest(transaction_timeout_ms=1), InitProducerIdResponse, 4).producer_id
    before = metadata(broker)
    address = broker.bootstrap_servers
    getattr(broker, end)()
    broker.start()
    assert broker.bootstrap_servers == address
    assert metadata(broker) == before
    assert created.topics[0].topic_id in {topic.topic_id for topic in before.topics}
    assert committed(broker) == 1
    assert produce(broker, b"after") == 1
    records = fetch(broker)
    assert b"before" in records
    assert b"after" in records
    with RawClient(broker.bootstrap_servers) as client:
        again = client.call(InitProducerIdRequest(transaction_timeout_ms=1), InitProducerIdResponse, 4)
    assert again.producer_id > first_id


@pytest.mark.parametrize("restarts", [4, pytest.param(50, marks=pytest.mark.slow)])
def test_all_records_and_committed_offsets_survive_restarts(broker: EmbeddedBroker, restarts: int) -> None:
    """Clean stops and kills in turn; after each one everything from before is still there."""
    for turn in range(restarts):
        assert produce(broker, *[b"turn-%d-%d" % (turn, i) for i in range(10)]) == 10 * turn
        commit(broker, 10 * turn + 5)
        if turn % 2:
            broker.kill()
        else:
            broker.stop()
        broker.start()
        assert committed(broker) == 10 * turn + 5
    records = fetch(broker)
    assert all(b"turn-%d-%d" % (turn, i) in records for turn in range(restarts) for i in range(10))
    assert metadata(broker).topics[0].error_code == 0


@pytest.mark.parametrize("client", MEMBERS)
@pytest.mark.parametrize("end", ["stop", "kill"])
def test_consumers_stay_in_their_group(broker: EmbeddedBroker, end: str, client: str) -> None:
    """They go on with their partitions: no member joins again."""
    produce(broker, b"before")
    with contextlib.closing(MEMBERS[client](broker.bootstrap_servers, "billing", TOPIC)) as member:
        assert member.read(1) == [b"before"]
        joined = member.assigned_count  # kafka-python joins before it knows the topic, and again
        getattr(broker, end)()
        broker.start()
        produce(broker, b"after")
        assert member.read(1) == [b"after"]
        assert (member.assigned_count, member.revoked_count) == (joined, 0)


def test_clean_stop_leaves_the_marker_and_a_kill_does_not(broker: EmbeddedBroker) -> None:
    marker = Path(broker.data_dir) / ".kafka_cleanshutdown"
    produce(broker, b"x")
    assert not marker.exists()
    broker.kill()
    assert not marker.exists()
    broker.start()
    broker.stop()
    assert marker.exists()


def test_second_broker_on_the_same_directory_is_refused(broker: EmbeddedBroker) -> None:
    with pytest.raises(EmbeddedBrokerError, match="is in use by another broker"):
        EmbeddedBroker(broker.data_dir).start()
    assert produce(broker, b"still alive") == 0


def test_broker_knows_whether_it_runs(tmp_path: Path) -> None:
    broker = EmbeddedBroker(tmp_path / "data")
    with pytest.raises(IllegalStateError, match="not started"):
        _ = broker.bootstrap_servers
    with pytest.raises(IllegalStateError, match="does not run"):
        _ = broker.pid
    broker.start()
    with pytest.raises(IllegalStateError, match="runs already"):
        broker.start()
    broker.close()
    broker.close()


def test_temporary_directory_goes_with_the_broker() -> None:
    with EmbeddedBroker() as broker:
        data_dir = Path(broker.data_dir)
        assert data_dir.is_dir()
    assert not data_dir.parent.exists()


def test_bad_options_are_reported_by_the_parent(tmp_path: Path) -> None:
    with pytest.raises(EmbeddedBrokerError, match="flush policy 'sometimes'"):
        EmbeddedBroker(tmp_path / "data", flush_policy="sometimes").start()
    with pytest.raises(EmbeddedBrokerError, match="Topic name"):
        EmbeddedBroker(tmp_path / "data", topics={"no/name": 1}).start()


def loopbacks() -> list[str]:
    """The addresses of this machine alone, as listeners name them."""
    found = ["127.0.0.1"]
    with contextlib.suppress(OSError), socket.create_server(("::1", 0), family=socket.AF_INET6):
        found.append("[::1]")
    return found


@pytest.mark.parametrize("host", loopbacks())
def test_listeners_have_the_same_addresses_after_a_restart(host: str) -> None:
    with EmbeddedBroker(listeners=f"PLAINTEXT://{host}:0", topics={"orders": 1}) as broker:
        before = broker.bootstrap_servers
        assert before == broker.listeners["PLAINTEXT"]
        for offset in (0, 1):
            with Producer(bootstrap_servers=before) as producer:
                assert producer.send("orders", b"x").result(20).offset == offset
            broker.stop()
            broker.start()
            assert broker.bootstrap_servers == before
