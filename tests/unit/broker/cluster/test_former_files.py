"""A data directory of a broker from before the metadata log: topics, settings and producer ids go on."""

from __future__ import annotations

import gc
import json
import shutil
import uuid
from pathlib import Path
from typing import Any

import pytest

from kafkaprod.broker.settings.acls import ACLS, ANY, Acl, AclFilter
from kafkaprod.broker.settings.settings import BROKER_OPTIONS, GROUP_OPTIONS, METRICS_OPTIONS, QUOTAS, SCRAM
from kafkaprod.broker.storage.recovery.checkpoints import encode_uuid
from kafkaprod.errors import BrokerError, CorruptDataError
from kafkaprod.storage.disk import Disk
from tests.support.broker.broker_requests import produce
from tests.support.broker.broker_without_sockets import BrokerWithoutSockets
from tests.support.broker.fixtures_log import FaultyDisk, failing, make_batch
from tests.support.power_cuts import power_cuts, restore

ORDERS_ID, NEW_ID = uuid.UUID(int=71), uuid.UUID(int=72)
FILES = ("topics.json", "settings.json", "producer-id-block")
KEYS = {"salt": "c2FsdA==", "stored_key": "c3RvcmVk", "server_key": "c2VydmVy", "iterations": 4096}
SECTIONS: dict[str, Any] = {
    BROKER_OPTIONS: {"": {"num.partitions": "7"}, "0": {"log.retention.ms": "9000"}},
    GROUP_OPTIONS: {"g": {"consumer.session.timeout.ms": "50000"}},
    METRICS_OPTIONS: {"all": {"interval.ms": "1000"}},
    QUOTAS: [{"entity": {"client-id": None, "user": "ann"}, "values": {"producer_byte_rate": 5.0}}],
    SCRAM: {"ann": {"SCRAM-SHA-256": KEYS, "SCRAM-SHA-512": None}},
    ACLS: [(2, "orders", 3, "User:ann", "*", 3, 3)],
}
TOPICS = {
    "orders": {"id": encode_uuid(ORDERS_ID), "partitions": 2, "properties": {"retention.ms": "5000"}},
    "half-made": {"id": encode_uuid(NEW_ID), "partitions": 3, "properties": {}},
}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The directory of a broker that made `orders` with one record, and was killed while it made another topic."""
    box = BrokerWithoutSockets(tmp_path, topics={"orders": 2, "half-made": 1})
    produce(box, make_batch())
    box.broker.close()
    data = tmp_path / "data"
    shutil.rmtree(data / "__cluster_metadata-0")
    for name, topic_id in (("orders", ORDERS_ID), ("half-made", NEW_ID)):
        for path in data.glob(f"{name}-?/partition.metadata"):
            path.write_text(f"version: 0\ntopic_id: {encode_uuid(topic_id)}")
    (data / FILES[0]).write_text(json.dumps({"version": 0, "topics": TOPICS}))
    (data / FILES[1]).write_text(json.dumps({"version": 0, "sections": SECTIONS}))
    (data / FILES[2]).write_text("5000\n")
    return data


def check(box: BrokerWithoutSockets, *, has_records: bool = True) -> None:
    topics = {topic.name: topic for topic in box.broker.topics.all()}
    assert {name: (topic.topic_id, len(topic.partitions)) for name, topic in topics.items()} == {
        "orders": (ORDERS_ID, 2),
        "half-made": (NEW_ID, 3),
    }
    assert topics["orders"].properties == {"retention.ms": "5000"}
    assert {partition.log.config.retention_ms for partition in topics["orders"].partitions} == {5000}
    assert topics["orders"].partitions[0].log.log_end_offset == 1 or not has_records
    assert box.broker.config.num_partitions == 7
    assert box.broker.config.log.retention_ms == 9000
    for section, content in SECTIONS.items():
        assert box.broker.settings.get(section) == content
    assert box.broker.acls.find(AclFilter(ANY, None, ANY, None, None, ANY, ANY)) == [Acl(*SECTIONS[ACLS][0])]
    assert box.broker.scram.describe() == {"ann": {1: 4096}}


def test_directory_of_the_former_form_goes_on_and_is_read_once(tmp_path: Path, data: Path) -> None:
    box = BrokerWithoutSockets(tmp_path)
    check(box)
    assert [name for name in FILES if (data / name).exists()] == []
    assert box.broker.producer_ids.allocate() == 6000
    box.broker.close()
    again = BrokerWithoutSockets(tmp_path)
    check(again)
    assert again.broker.producer_ids.allocate() == 7000
    again.broker.close()


@pytest.mark.parametrize("written", [0, 1, 3, 5, 7, 9])
def test_crash_on_the_way_is_completed_by_the_next_start(tmp_path: Path, data: Path, written: int) -> None:
    disk = FaultyDisk(failing("pwrite", "00000000000000000000.log", after=written))
    with pytest.raises(BrokerError):
        BrokerWithoutSockets(tmp_path, disk=disk)
    gc.collect()  # the lock of the directory is in the exception's frames
    assert all((data / name).exists() for name in FILES)
    box = BrokerWithoutSockets(tmp_path)
    check(box)
    assert box.broker.producer_ids.allocate() == 6000
    box.broker.close()


def test_a_power_cut_on_the_way_is_completed_by_the_next_start(tmp_path: Path, data: Path) -> None:
    with power_cuts(data, lost=(".index", ".timeindex")) as cuts:
        box = BrokerWithoutSockets(tmp_path, disk=Disk())
    box.broker.close()
    are_left = [all(name in image for name in FILES) for image in cuts.images]
    assert {True, False} == set(are_left)
    first = are_left.index(False)
    for image in [*cuts.images[first - 1 : first + 6], *cuts.last_images]:
        gc.collect()
        restore(image, tmp_path / "after" / "data")
        again = BrokerWithoutSockets(tmp_path / "after")
        check(again, has_records=False)
        assert again.broker.producer_ids.allocate() == 6000
        again.broker.close()


def test_a_count_that_is_text_stops_the_start(tmp_path: Path, data: Path) -> None:
    (data / FILES[0]).write_text(json.dumps({"topics": {"orders": {**TOPICS["orders"], "partitions": "2"}}}))
    with pytest.raises(CorruptDataError, match="not a number"):
        BrokerWithoutSockets(tmp_path)


@pytest.mark.parametrize(
    ("section", "content"),
    [
        (BROKER_OPTIONS, {"": {"num.partitions": 7}}),
        (BROKER_OPTIONS, {"": "text"}),
        (GROUP_OPTIONS, {"g": [1]}),
        (QUOTAS, [{"entity": {"user": "ann"}}]),
        (QUOTAS, [{"entity": {"user": "ann"}, "values": {"producer_byte_rate": "fast"}}]),
        (SCRAM, {"ann": {"SCRAM-SHA-1": KEYS}}),
        (SCRAM, {"ann": {"SCRAM-SHA-256": {**KEYS, "iterations": "many"}}}),
        (SCRAM, {"ann": {"SCRAM-SHA-256": {**KEYS, "salt": "c"}}}),
        (ACLS, [[2, "orders", 3, "User:ann"]]),
        (ACLS, [[2, "orders", 300, "User:ann", "*", 3, 3]]),
        (ACLS, [[2, ["orders"], 3, "User:ann", "*", 3, 3]]),
    ],
)
def test_a_damaged_setting_stops_the_start_before_anything_is_taken_over(
    tmp_path: Path, data: Path, section: str, content: Any
) -> None:
    (data / FILES[1]).write_text(json.dumps({"version": 0, "sections": {**SECTIONS, section: content}}))
    with pytest.raises(CorruptDataError, match=FILES[1]):
        BrokerWithoutSockets(tmp_path)
    gc.collect()  # the lock of the directory is in the exception's frames
    (data / FILES[1]).write_text(json.dumps({"version": 0, "sections": SECTIONS}))
    box = BrokerWithoutSockets(tmp_path)
    check(box)
    box.broker.close()


@pytest.mark.parametrize("name", FILES)
def test_damaged_file_stops_the_start_and_nothing_is_removed(tmp_path: Path, data: Path, name: str) -> None:
    (data / name).write_text('{"version": 0, "sections": {"quotas": {}}}')
    with pytest.raises(CorruptDataError, match=name):
        BrokerWithoutSockets(tmp_path)
    assert all((data / each).exists() for each in FILES)
