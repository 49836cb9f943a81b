"""The log of one partition on a real directory: append, read, roll, restart."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from kafkaprod.broker.storage.errors import LogError, OffsetOutOfRangeError, RecordsRefusedError
from kafkaprod.broker.storage.group_commit import each
from kafkaprod.broker.storage.log_config import LogConfig
from kafkaprod.broker.storage.watermark import WatermarkRule
from tests.fixtures_log import NOW_MS, log_files, make_batch, make_environment, open_log, read_all, split_batches

SMALL = LogConfig(segment_bytes=500, index_interval_bytes=100)


def test_appended_batch_gets_offset_and_epoch_in_place(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.append(make_batch([b"a", b"b"]), 7)
    batch = make_batch([b"c"])
    result = log.append(batch, 7)
    assert (result.base_offset, result.last_offset, result.log_append_time_ms) == (2, 2, -1)
    assert struct.unpack_from(">q", batch, 0) == (2,)
    assert struct.unpack_from(">i", batch, 12) == (7,)
    assert [found.data for found in read_all(log)][1] == bytes(batch)


@pytest.mark.parametrize("codec", range(5))
def test_batch_of_each_codec_is_stored_byte_for_byte(tmp_path: Path, codec: int) -> None:
    log = open_log(tmp_path)
    batch = make_batch([b"x" * 300, b"y"], codec=codec)
    log.append(batch, 0)
    assert read_all(log)[0].data == bytes(batch)


def test_read_returns_the_batch_that_contains_the_offset(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for _ in range(3):
        log.append(make_batch([b"a", b"b", b"c"]), 0)
    result = log.read(4, 1)
    assert result.first_offset == 3
    assert result.records is not None
    assert [found.base_offset for found in split_batches(result.records.read())] == [3]


def test_read_without_min_one_batch_obeys_max_bytes(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.append(make_batch([b"a" * 100]), 0)
    records = log.read(0, 50, min_one_batch=False).records
    assert records is not None
    assert records.length == 50


def test_read_at_log_end_is_empty_and_beyond_it_out_of_range(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.append(make_batch(), 0)
    assert log.read(1, 100).records is None
    for offset in (2, -1):
        with pytest.raises(OffsetOutOfRangeError):
            log.read(offset, 100)


def test_read_stops_below_the_upper_bound(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for _ in range(5):
        log.append(make_batch(), 0)
    assert [found.base_offset for found in read_all(log, upper_bound=3)] == [0, 1, 2]


def test_full_segment_rolls_and_reads_cross_segments(tmp_path: Path) -> None:
    log = open_log(tmp_path, SMALL)
    for index in range(40):
        log.append(make_batch([b"%d" % index * 20]), 0)
    assert len(log_files(tmp_path)) > 5
    assert [found.base_offset for found in read_all(log)] == list(range(40))
    assert all(log.read(offset, 1).first_offset == offset for offset in range(40))


def test_log_append_time_rewrites_timestamp_and_checksum(tmp_path: Path) -> None:
    environment = make_environment()
    log = open_log(tmp_path, LogConfig(message_timestamp_type="LogAppendTime"), environment)
    result = log.append(make_batch(timestamps=[5]), 0)
    assert result.log_append_time_ms == NOW_MS
    found = log.find_timestamp(NOW_MS)
    assert found is not None
    assert (found.offset, found.timestamp) == (0, NOW_MS)
    assert log.close()
    log = open_log(tmp_path, is_clean=False)  # checks the CRC
    assert log.log_end_offset == 1


def test_wrong_max_timestamp_of_a_producer_is_corrected(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    section = bytes(make_batch([b"a", b"b"], timestamps=[NOW_MS, NOW_MS + 9])[61:])
    batch = make_batch([b"a", b"b"], timestamps=[NOW_MS, NOW_MS], section=section)
    log.append(batch, 0)
    assert struct.unpack_from(">q", batch, 35) == (NOW_MS + 9,)
    assert log.close()
    assert open_log(tmp_path, is_clean=False).log_end_offset == 2


def test_high_watermark_waits_for_the_sync_under_policy_each(tmp_path: Path) -> None:
    log = open_log(tmp_path, environment=make_environment(policy=each()))
    log.append(make_batch(), 0)
    assert (log.log_end_offset, log.high_watermark) == (1, 0)
    assert log.read(0, 100).records is None
    log.commit(1)
    assert log.high_watermark == 1
    assert log.recovery_point == 1


def test_replicated_watermark_moves_only_when_told(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.watermark.rule = WatermarkRule.REPLICATED
    seen: list[int] = []
    log.watermark.listeners.append(seen.append)
    log.append(make_batch([b"a", b"b"]), 0)
    assert log.high_watermark == 0
    assert log.update_high_watermark(99) == 2
    assert seen == [2]


def test_delete_records_hides_them_and_later_frees_their_segments(tmp_path: Path) -> None:
    log = open_log(tmp_path, SMALL)
    for _ in range(20):
        log.append(make_batch([b"v" * 100]), 0)
    before = len(log_files(tmp_path))
    assert log.delete_records(15) == 15
    with pytest.raises(OffsetOutOfRangeError):
        log.read(14, 100)
    assert log.delete_old_segments() > 0
    assert len(log_files(tmp_path)) < before
    assert log.log_start_offset == 15
    assert [found.base_offset for found in read_all(log)][-1] == 19
    with pytest.raises(OffsetOutOfRangeError):
        log.delete_records(21)
    assert log.delete_records(-1) == 20


def test_duplicate_batch_is_answered_from_the_cache_and_not_written(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    first = log.append(make_batch([b"a", b"b"], producer_id=9, epoch=0, sequence=0), 0)
    again = log.append(make_batch([b"a", b"b"], producer_id=9, epoch=0, sequence=0), 0)
    assert again.is_duplicate
    assert (again.base_offset, again.last_offset) == (first.base_offset, first.last_offset)
    assert log.log_end_offset == 2


def test_refused_batch_changes_nothing(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.append(make_batch(producer_id=9, epoch=0, sequence=0), 0)
    batch = make_batch(producer_id=9, epoch=0, sequence=5)
    copy = bytes(batch)
    with pytest.raises(RecordsRefusedError) as caught:
        log.append(batch, 0)
    assert caught.value.code == 45
    assert bytes(batch) == copy
    assert log.log_end_offset == 1


def test_closed_log_refuses_appends(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    assert log.close()
    with pytest.raises(LogError) as caught:
        log.append(make_batch(), 0)
    assert caught.value.code == 56
