"""What consumers may see of records that not all in-sync replicas have, or whose transaction is open: nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkaprod.broker.coordinator.transaction_coordinator import TransactionConfig
from kafkaprod.broker.storage.log.partition_log import PartitionLog
from kafkaprod.broker.storage.log.watermark import WatermarkRule
from kafkaprod.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from tests.support.broker.broker_requests import TOPIC, fetch, produce
from tests.support.broker.broker_without_sockets import BrokerWithoutSockets
from tests.support.broker.fixtures_log import NOW_MS, make_batch
from tests.support.broker.transaction_requests import TransactionalClient

LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3
END = 5


@pytest.fixture
def box(tmp_path: Path) -> Iterator[BrokerWithoutSockets]:
    box = BrokerWithoutSockets(tmp_path, topics={TOPIC: 1}, transactions=TransactionConfig(version=2))
    yield box
    box.broker.close()


def log_of(box: BrokerWithoutSockets) -> PartitionLog:
    partition = box.broker.topics.partition(TOPIC, 0)
    assert partition is not None
    return partition.log


def replicate_up_to(box: BrokerWithoutSockets, offset: int) -> None:
    """Let replication move the high watermark from now on, and have it come so far."""
    log_of(box).watermark.rule = WatermarkRule.REPLICATED
    log_of(box).update_high_watermark(offset)


def listed(box: BrokerWithoutSockets, timestamp: int, isolation_level: int) -> int:
    wanted = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    topics = [ListOffsetsTopic(name=TOPIC, partitions=[wanted])]
    request = ListOffsetsRequest(replica_id=-1, isolation_level=isolation_level, topics=topics)
    return box.ask(request, ListOffsetsResponse, 9).topics[0].partitions[0].offset


def ends_of(records: object) -> int:
    """How many records, of one batch each, an answer has."""
    data = bytes(records or b"")  # type: ignore[call-overload]
    count = 0
    while data:
        data = data[12 + int.from_bytes(data[8:12], "big") :]
        count += 1
    return count


@pytest.mark.parametrize("isolation_level", [0, 1])
@pytest.mark.parametrize("version", [4, 11, 12])
@pytest.mark.parametrize("watermark", [0, 3, END])
def test_no_fetch_reads_beyond_the_high_watermark(
    box: BrokerWithoutSockets, watermark: int, version: int, isolation_level: int
) -> None:
    for number in range(END):
        produce(box, make_batch([b"%d" % number]))
    replicate_up_to(box, watermark)
    for offset in range(END + 1):
        data = fetch(box, offset, version, isolation_level=isolation_level)
        assert (data.error_code, data.high_watermark) == (0, watermark)
        assert data.last_stable_offset <= watermark
        assert ends_of(data.records) == max(watermark - offset, 0)


@pytest.mark.parametrize("isolation_level", [0, 1])
@pytest.mark.parametrize("watermark", [0, 3, END])
def test_no_offset_beyond_the_high_watermark_is_listed(
    box: BrokerWithoutSockets, watermark: int, isolation_level: int
) -> None:
    for number in range(END):
        produce(box, make_batch([b"%d" % number], timestamps=[NOW_MS + number]))
    replicate_up_to(box, watermark)
    assert listed(box, LATEST, isolation_level) == watermark
    assert listed(box, EARLIEST, isolation_level) == 0
    for number in range(END):
        assert listed(box, NOW_MS + number, isolation_level) == (number if number < watermark else -1)
    assert listed(box, MAX_TIMESTAMP, isolation_level) == (END - 1 if watermark == END else -1)


def test_a_record_at_the_last_stable_offset_is_not_decided(box: BrokerWithoutSockets) -> None:
    """The first record of an open transaction stands exactly there."""
    produce(box, make_batch([b"plain"], timestamps=[NOW_MS - 1]))
    client = TransactionalClient(box)
    assert client.init() == 0
    assert client.send(b"open") == 0
    produce(box, make_batch([b"behind it"], timestamps=[NOW_MS + 1]))
    assert log_of(box).last_stable_offset == 1
    assert [listed(box, NOW_MS + step, 0) for step in (-1, 0, 1)] == [0, 1, 2]
    assert [listed(box, NOW_MS + step, 1) for step in (-1, 0, 1)] == [0, -1, -1]
    assert (listed(box, LATEST, 0), listed(box, LATEST, 1)) == (3, 1)
    assert (listed(box, MAX_TIMESTAMP, 0), listed(box, MAX_TIMESTAMP, 1)) == (2, -1)
    assert client.commit() == 0
    assert [listed(box, NOW_MS + step, 1) for step in (-1, 0, 1)] == [0, 1, 2]
