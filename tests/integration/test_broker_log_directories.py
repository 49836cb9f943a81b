"""An embedded broker with several log directories: moves under load, killed in the middle, and with a disk gone."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkaprod import Producer
from kafkaprod.broker import EmbeddedBroker
from kafkaprod.errors import ConfigError
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from kafkaprod.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from kafkaprod.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from kafkaprod.protocol.messages.produce import ProduceResponse
from tests.support.broker.broker_requests import produce_request
from tests.support.broker.fixtures_broker import wait_until
from tests.support.broker.fixtures_log import make_batch
from tests.support.net.raw_client import RawClient

RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
TOPIC = "orders"


def replicas(client: RawClient) -> dict[str, list[DescribeLogDirsPartition]]:
    """What each directory has of the topic, by its name."""
    answer = client.call(DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse, 4)
    return {
        Path(found.log_dir).name: [each for topic in found.topics if topic.name == TOPIC for each in topic.partitions]
        for found in answer.results
    }


def move(client: RawClient, path: Path) -> None:
    named = AlterReplicaLogDir(path=str(path), topics=[AlterReplicaLogDirTopic(name=TOPIC, partitions=[0])])
    answer = client.call(AlterReplicaLogDirsRequest(dirs=[named]), AlterReplicaLogDirsResponse, 2)
    assert answer.results[0].partitions[0].error_code == ErrorCode.NONE


def set_rate(client: RawClient, rate: int) -> None:
    change = AlterableConfig(name=RATE, config_operation=0, value=str(rate))
    resource = AlterConfigsResource(resource_type=4, resource_name="0", configs=[change])
    answer = client.call(IncrementalAlterConfigsRequest(resources=[resource]), IncrementalAlterConfigsResponse, 1)
    assert answer.responses[0].error_code == ErrorCode.NONE


def send(broker: EmbeddedBroker, values: list[bytes], partitions: int = 1) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers, batch_size=2_000) as producer:
        for number, value in enumerate(values):
            producer.send(TOPIC, value, partition=number % partitions)
        producer.flush()


def find_places(broker: EmbeddedBroker, path: Path) -> tuple[str, Path]:
    """Name the directory where the partition is, and the other one."""
    with RawClient(broker.bootstrap_servers) as client:
        (source,) = (name for name, found in replicas(client).items() if found)
    return source, path / ("b" if source == "a" else "a")


def await_growth(broker: EmbeddedBroker, target: str) -> None:
    """Wait until the copy has grown."""
    with RawClient(broker.bootstrap_servers) as client:
        (before,) = replicas(client)[target]
        assert before.is_future_key
        wait_until(lambda: replicas(client)[target][0].offset_lag < before.offset_lag, "the copy to grow")


def test_broker_killed_while_a_partition_moves_has_each_record_once(tmp_path: Path) -> None:
    values = [b"%06d" % number * 20 for number in range(3_000)]
    directories = {"data_dir": tmp_path / "a", "log_dirs": [tmp_path / "b"]}
    broker = EmbeddedBroker(**directories, topics={TOPIC: 1}, options={RATE: 10_000})  # type: ignore[arg-type]
    with broker:
        send(broker, values[:2_000])
        source, target = find_places(broker, tmp_path)
        with RawClient(broker.bootstrap_servers) as client:
            move(client, target)
        for end in (broker.kill, broker.kill, broker.stop):
            await_growth(broker, target.name)
            end()
            broker.start()
        with RawClient(broker.bootstrap_servers) as client:
            (copy,) = replicas(client)[target.name]
            assert copy.is_future_key
            assert copy.offset_lag > 0
            send(broker, values[2_000:2_500])
            set_rate(client, 1 << 40)
            send(broker, values[2_500:])
            wait_until(lambda: not replicas(client)[source], "the move to end")
            assert [each.is_future_key for each in replicas(client)[target.name]] == [False]
        broker.check_records(TOPIC, *values)
        broker.kill()
        broker.start()
        broker.check_records(TOPIC, *values)


def test_broker_starts_without_a_disk_and_has_its_records_again_with_it(tmp_path: Path) -> None:
    other = tmp_path / "b"
    with EmbeddedBroker(data_dir=tmp_path / "a", log_dirs=[other], topics={TOPIC: 2}) as broker:
        send(broker, [b"%d" % number for number in range(10)], 2)
        expected = broker.records(TOPIC)
        broker.stop()
        other.rename(tmp_path / "away")
        other.write_text("no directory")
        broker.start()
        (hidden,) = {0, 1} - {record.partition for record in broker.records(TOPIC)}
        with RawClient(broker.bootstrap_servers) as client:
            answers = [
                client.call(produce_request(make_batch((b"more",)), partition=number), ProduceResponse, 9)
                for number in (hidden, 1 - hidden)
            ]
        codes = [answer.responses[0].partition_responses[0].error_code for answer in answers]
        assert codes == [ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NONE]
        broker.stop()
        other.unlink()
        (tmp_path / "away").rename(other)
        broker.start()
        found = [record for record in broker.records(TOPIC) if record.value != b"more"]
        assert found == expected


def test_further_directories_need_one_that_is_kept(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="log_dirs needs data_dir"):
        EmbeddedBroker(log_dirs=[tmp_path])
    with pytest.raises(ConfigError, match="log_dirs='b' is not a list"):
        EmbeddedBroker(data_dir=tmp_path, log_dirs="b")
    with pytest.raises(ConfigError, match="data_dir and log_dirs"):
        EmbeddedBroker(data_dir=tmp_path, options={"log.dirs": "b"})
