"""A broker alone, after a power cut at any moment: what was answered is there, and what was deleted is gone."""

from __future__ import annotations

import gc
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkaprod.broker.storage.log.group_commit import each
from kafkaprod.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from kafkaprod.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from kafkaprod.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from kafkaprod.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kafkaprod.storage.disk import Disk
from tests.support.broker.broker_requests import produce
from tests.support.broker.broker_without_sockets import BrokerWithoutSockets
from tests.support.broker.fixtures_log import make_batch, read_all
from tests.support.power_cuts import Image, power_cuts, restore

INDEXES = (".index", ".timeindex")
MEMORY = Path("/dev/shm")


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A directory in memory, where there is one: each test starts a dozen brokers."""
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as path:
        yield Path(path)


def start(path: Path) -> BrokerWithoutSockets:
    return BrokerWithoutSockets(path, disk=Disk(), flush_policy=each())


def restart(image: Image, tmp_path: Path) -> BrokerWithoutSockets:
    """Start a broker with what a power cut left of another one's data directory."""
    gc.collect()  # the lock of the directory
    after = tmp_path / "after"
    after.mkdir(exist_ok=True)
    restore(image, after / "data")
    return BrokerWithoutSockets(after)


def create(box: BrokerWithoutSockets, **topics: int) -> None:
    wanted = [CreatableTopic(name=name, num_partitions=count, replication_factor=1) for name, count in topics.items()]
    response = box.ask(CreateTopicsRequest(topics=wanted), CreateTopicsResponse, 5)
    assert [topic.error_code for topic in response.topics] == [0] * len(topics)


def grow(box: BrokerWithoutSockets, name: str, count: int) -> None:
    wanted = [CreatePartitionsTopic(name=name, count=count)]
    response = box.ask(CreatePartitionsRequest(topics=wanted), CreatePartitionsResponse, 2)
    assert [result.error_code for result in response.results] == [0]


def delete(box: BrokerWithoutSockets, *names: str) -> None:
    response = box.ask(DeleteTopicsRequest(topic_names=list(names)), DeleteTopicsResponse, 4)
    assert [result.error_code for result in response.responses] == [0] * len(names)


def end_offsets(box: BrokerWithoutSockets) -> dict[str, list[int]]:
    return {
        topic.name: [len(read_all(partition.log)) for partition in topic.partitions]  # type: ignore[arg-type]
        for topic in box.broker.topics.all()
        if not topic.is_internal
    }


@pytest.mark.parametrize("topics", [{"a": 1}, {"a": 3}, {"a": 2, "b": 1, "c": 4}])
def test_topics_that_were_created_have_the_records_that_were_acknowledged(
    tmp_path: Path, topics: dict[str, int]
) -> None:
    box = start(tmp_path)
    with power_cuts(tmp_path / "data", lost=INDEXES) as cuts:
        create(box, **topics)
        for name, count in topics.items():
            for partition in range(count):
                assert produce(box, make_batch([b"v"]), topic=name, partition=partition).error_code == 0
    box.broker.close()
    for image in cuts.last_images:
        again = restart(image, tmp_path)
        assert end_offsets(again) == {name: [1] * count for name, count in topics.items()}
        again.broker.close()


@pytest.mark.parametrize("counts", [(1, 2), (2, 5), (1, 2, 3)])
def test_partitions_that_were_added_have_the_records_that_were_acknowledged(
    tmp_path: Path, counts: tuple[int, ...]
) -> None:
    box = start(tmp_path)
    create(box, a=counts[0])
    with power_cuts(tmp_path / "data", lost=INDEXES) as cuts:
        for count in counts[1:]:
            grow(box, "a", count)
            for partition in range(count):
                assert produce(box, make_batch([b"v"]), topic="a", partition=partition).error_code == 0
    expected = end_offsets(box)
    box.broker.close()
    for image in cuts.last_images:
        again = restart(image, tmp_path)
        assert end_offsets(again) == expected
        again.broker.close()


def test_topics_that_were_deleted_do_not_come_back_nor_do_their_records(tmp_path: Path) -> None:
    box = start(tmp_path)
    create(box, a=2, b=1)
    for partition in range(2):
        produce(box, make_batch([b"v"]), topic="a", partition=partition)
    with power_cuts(tmp_path / "data", lost=INDEXES) as cuts:
        delete(box, "a")
    for image in cuts.last_images:
        again = restart(image, tmp_path)
        assert end_offsets(again) == {"b": [0]}
        again.broker.close()
    with power_cuts(tmp_path / "data", lost=INDEXES) as cuts:
        create(box, a=2)
    box.broker.close()
    for image in cuts.last_images:
        again = restart(image, tmp_path)
        assert end_offsets(again) == {"a": [0, 0], "b": [0]}
        again.broker.close()


@pytest.mark.parametrize("count", [1, 2, 5])
def test_producer_ids_are_given_out_once(tmp_path: Path, count: int) -> None:
    box = start(tmp_path)
    with power_cuts(tmp_path / "data", lost=INDEXES) as cuts:
        given = {box.ask(InitProducerIdRequest(), InitProducerIdResponse, 4).producer_id for _ in range(count)}
    box.broker.close()
    assert len(given) == count
    for image in cuts.last_images:
        again = restart(image, tmp_path)
        assert again.ask(InitProducerIdRequest(), InitProducerIdResponse, 4).producer_id not in given
        again.broker.close()
