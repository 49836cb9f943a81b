"""Producer ids never repeat, whatever happens to the process."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkaprod.broker.cluster.producer_ids import FILE_NAME, ProducerIds
from kafkaprod.broker.storage.disk import Disk
from kafkaprod.errors import CorruptDataError
from tests.support.broker.fixtures_log import FaultyDisk, failing


def test_ids_grow_across_blocks_without_gaps(tmp_path: Path) -> None:
    ids = ProducerIds(Disk(), str(tmp_path))
    assert [ids.allocate() for _ in range(2500)] == list(range(2500))


def test_restart_after_any_number_of_ids_repeats_none(tmp_path: Path) -> None:
    given: list[int] = []
    for count in (1, 999, 1000, 1001, 0, 5):
        ids = ProducerIds(Disk(), str(tmp_path))
        given.extend(ids.allocate() for _ in range(count))
    assert len(set(given)) == len(given)


def test_block_that_cannot_be_reserved_gives_no_id(tmp_path: Path) -> None:
    ids = ProducerIds(FaultyDisk(failing("fdatasync")), str(tmp_path))
    with pytest.raises(OSError, match="Input/output"):
        ids.allocate()
    assert ProducerIds(Disk(), str(tmp_path)).allocate() == 0


@pytest.mark.parametrize("content", [b"", b"x", b"-5", b"1 2"])
def test_damaged_file_is_not_guessed_at(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILE_NAME).write_bytes(content)
    with pytest.raises(CorruptDataError, match="not a producer id"):
        ProducerIds(Disk(), str(tmp_path))
