"""The metadata log on disk: what was appended is read again, by the next controller too."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from kafkaprod.broker.controller.disk_log import DiskMetadataLog
from kafkaprod.broker.metadata.log import MetadataBatch
from kafkaprod.broker.metadata.records import NoOpRecord, PartitionRecord, TopicRecord, encode
from kafkaprod.broker.storage.disk import Disk
from kafkaprod.broker.storage.log.group_commit import interval
from kafkaprod.errors import CorruptDataError
from tests.support.clock import ManualClock

CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAA"
TOPIC_ID = uuid.UUID(int=5)
BATCHES = [
    MetadataBatch(0, 0, (NoOpRecord(),)),
    MetadataBatch(
        1,
        0,
        (
            TopicRecord(name="t", topic_id=TOPIC_ID),
            PartitionRecord(topic_id=TOPIC_ID, replicas=[1, 2], isr=[1, 2], leader=1, leader_epoch=0),
        ),
    ),
    MetadataBatch(3, 1, (NoOpRecord(),)),
]


def open_log(path: Path) -> DiskMetadataLog:
    return DiskMetadataLog(str(path), CLUSTER_ID, interval(1_000), Disk(), ManualClock())


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_log_is_read_as_it_was_written(tmp_path: Path, is_clean: bool) -> None:
    log = open_log(tmp_path / "c")
    for batch in BATCHES:
        assert log.append(batch) == [encode(record) for record in batch.records]
    assert list(log.batches()) == BATCHES
    if is_clean:
        log.close()
    del log
    assert list(open_log(tmp_path / "c").batches()) == BATCHES


def test_a_batch_must_follow_the_end(tmp_path: Path) -> None:
    log = open_log(tmp_path / "c")
    with pytest.raises(CorruptDataError, match="batch at 1 does not follow the end 0"):
        log.append(BATCHES[1])
