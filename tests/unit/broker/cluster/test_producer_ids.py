"""Producer ids never repeat, whatever happens to the process."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkaprod.broker.cluster.former_files import PRODUCER_IDS_FILE
from kafkaprod.errors import CorruptDataError
from tests.support.broker.broker_without_sockets import BrokerWithoutSockets
from tests.support.broker.fixtures_log import FaultyDisk, failing


def test_ids_grow_across_blocks_without_gaps(tmp_path: Path) -> None:
    ids = BrokerWithoutSockets(tmp_path).broker.producer_ids
    assert [ids.allocate() for _ in range(2500)] == list(range(2500))


def test_restart_after_any_number_of_ids_repeats_none(tmp_path: Path) -> None:
    given: list[int] = []
    for count in (1, 999, 1000, 1001, 0, 5):
        broker = BrokerWithoutSockets(tmp_path).broker
        given.extend(broker.producer_ids.allocate() for _ in range(count))
        broker.close()
    assert len(set(given)) == len(given) == 3006


def test_block_that_cannot_be_written_down_gives_no_id(tmp_path: Path) -> None:
    disk = FaultyDisk()
    broker = BrokerWithoutSockets(tmp_path, disk=disk).broker
    disk.fail = failing("pwrite")
    with pytest.raises(OSError, match="metadata"):
        broker.producer_ids.allocate()
    disk.fail = None
    assert broker.producer_ids.allocate() == 0


def test_block_that_cannot_be_synced_gives_no_id_and_is_not_given_out_again(tmp_path: Path) -> None:
    disk = FaultyDisk()
    broker = BrokerWithoutSockets(tmp_path, disk=disk).broker
    disk.fail = failing("fdatasync")
    for _ in range(2):
        with pytest.raises(OSError, match="metadata"):
            broker.producer_ids.allocate()
        disk.fail = None
    broker.close()
    assert BrokerWithoutSockets(tmp_path).broker.producer_ids.allocate() in (0, 1000)


@pytest.mark.parametrize("content", [b"", b"x", b"-5", b"1 2"])
def test_damaged_former_file_is_not_guessed_at(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "data").mkdir(mode=0o700)
    (tmp_path / "data" / PRODUCER_IDS_FILE).write_bytes(content)
    with pytest.raises(CorruptDataError, match="not a producer id"):
        BrokerWithoutSockets(tmp_path)
