"""The log of one partition on a real directory: append, read, roll, restart."""

from __future__ import annotations

import os
import struct
import time
from pathlib import Path

import pytest

from kafkaprod.broker.storage.errors import LogError, OffsetOutOfRangeError, RecordsRefusedError
from kafkaprod.broker.storage.format.control_batch import EndTransactionMarker
from kafkaprod.broker.storage.format.log_config import LogConfig
from kafkaprod.broker.storage.log.group_commit import each
from kafkaprod.broker.storage.log.watermark import WatermarkRule
from kafkaprod.errors import IllegalStateError
from tests.support.broker.fixtures_log import (
    NOW_MS,
    log_files,
    make_batch,
    make_environment,
    open_log,
    read_all,
    split_batches,
)
from tests.support.clock import ManualClock

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


def test_segments_older_than_retention_go_and_the_active_one_is_replaced(tmp_path: Path) -> None:
    clock = ManualClock(wall_ms=NOW_MS)
    config = LogConfig(segment_bytes=500, retention_ms=1000)
    log = open_log(tmp_path, config, make_environment(clock=clock))
    for index in range(20):
        log.append(make_batch([b"v" * 100], timestamps=[NOW_MS + index * 100]), 0)
    clock.advance(1500)
    assert log.delete_old_segments() > 0
    first = log.log_start_offset
    assert first > 0
    assert NOW_MS + (first - 1) * 100 < NOW_MS + 500 <= NOW_MS + (first + 2) * 100
    clock.advance(10_000)
    log.delete_old_segments()
    assert (log.log_start_offset, log.log_end_offset) == (20, 20)
    assert log_files(tmp_path) == ["00000000000000000020.log"]
    assert log.append(make_batch(timestamps=[clock.wall_ms()]), 0).base_offset == 20
    assert log.close()
    assert open_log(tmp_path, config).log_start_offset == 20


@pytest.mark.parametrize("content", [None, b"", b"garbage!garbage!"])
def test_an_open_transaction_outlives_a_lost_snapshot_and_its_segment(tmp_path: Path, content: bytes | None) -> None:
    log = open_log(tmp_path, SMALL)
    log.append(make_batch([b"v"], producer_id=9, epoch=0, sequence=0, is_transactional=True), 0)
    while len(log_files(tmp_path)) < 2:
        log.append(make_batch([b"v" * 50]), 0)
    log.append(make_batch([b"v"]), 0)
    first = int(log_files(tmp_path)[1].removesuffix(".log"))
    snapshot = tmp_path / f"{first:020}.snapshot"
    if content is None:
        snapshot.unlink()
    else:
        snapshot.write_bytes(content)
    assert log.delete_records(first) == first
    assert log.delete_old_segments() == 1
    log.truncate_to(log.log_end_offset - 1)  # reads the state of the producers again
    assert log.last_stable_offset == first
    log.append_marker(9, 0, EndTransactionMarker(False, 0), 0)
    assert log.last_stable_offset == log.log_end_offset


def test_file_time_decides_retention_where_records_have_no_timestamps(tmp_path: Path) -> None:
    clock = ManualClock(wall_ms=int(time.time() * 1000))
    log = open_log(tmp_path, LogConfig(segment_bytes=200, retention_ms=3_600_000), make_environment(clock=clock))
    for _ in range(5):
        log.append(make_batch([b"v" * 100], timestamps=[-1]), 0)
    assert log.delete_old_segments() == 0
    clock.advance(7_200_000)
    assert log.delete_old_segments() > 0


def test_records_above_the_high_watermark_are_never_retired(tmp_path: Path) -> None:
    log = open_log(tmp_path, LogConfig(segment_bytes=200, retention_bytes=0))
    log.watermark.rule = WatermarkRule.REPLICATED
    for _ in range(10):
        log.append(make_batch([b"v" * 100]), 0)
    log.update_high_watermark(4)
    log.delete_old_segments()
    assert log.log_start_offset <= 4
    assert log.log_end_offset == 10


def test_compacted_log_loses_no_segment_to_age_or_size(tmp_path: Path) -> None:
    log = open_log(tmp_path, LogConfig(segment_bytes=200, retention_bytes=0, cleanup_policy="compact"))
    for _ in range(10):
        log.append(make_batch([b"v" * 100]), 0)
    assert log.delete_old_segments() == 0


def test_truncated_log_forgets_records_epochs_and_sequences(tmp_path: Path) -> None:
    log = open_log(tmp_path, SMALL)
    for sequence in range(20):
        log.append(make_batch([b"v" * 60], producer_id=3, epoch=0, sequence=sequence), sequence // 5)
    log.truncate_to(7)
    assert (log.log_end_offset, log.high_watermark, log.latest_epoch) == (7, 7, 1)
    assert log.end_offset_for_epoch(1) == (1, 7)
    assert log.append(make_batch([b"v"], producer_id=3, epoch=0, sequence=7), 4).base_offset == 7
    assert log.close()
    assert [batch.base_offset for batch in read_all(open_log(tmp_path, SMALL))] == list(range(8))


def test_log_restarted_at_an_offset_is_empty_there(tmp_path: Path) -> None:
    log = open_log(tmp_path, SMALL)
    for _ in range(20):
        log.append(make_batch([b"v" * 60]), 0)
    log.restart_at(1000)
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (1000, 1000, 1000)
    assert log.append(make_batch(), 0).base_offset == 1000
    assert log.close()
    assert [batch.base_offset for batch in read_all(open_log(tmp_path, SMALL))] == [1000]


def test_replica_takes_the_leaders_batches_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "leader").mkdir()
    (tmp_path / "follower").mkdir()
    leader, follower = open_log(tmp_path / "leader", SMALL), open_log(tmp_path / "follower", SMALL)
    follower.watermark.rule = WatermarkRule.REPLICATED
    leader.append(make_batch(producer_id=3, epoch=0, sequence=0, is_transactional=True), 0)
    leader.append_marker(3, 0, EndTransactionMarker(False, 0), 0)
    leader.append(make_batch([b"a", b"b"]), 2)
    data = b"".join(batch.data for batch in read_all(leader))
    assert follower.append_replicated(data[:-1]) == 2  # the cut batch comes again
    assert follower.append_replicated(data[len(data) - len(read_all(leader)[-1].data) :]) == 4
    assert (follower.high_watermark, follower.latest_epoch) == (0, 2)
    follower.update_high_watermark(4)
    assert read_all(follower) == read_all(leader)
    assert follower.aborted_transactions(0, 4) == leader.aborted_transactions(0, 4) != []
    with pytest.raises(RecordsRefusedError, match="below the log end"):
        follower.append_replicated(data)
    damaged = bytearray(make_batch(base_offset=4))
    damaged[-1] ^= 1
    with pytest.raises(RecordsRefusedError) as caught:
        follower.append_replicated(damaged)
    assert caught.value.code == 2


def test_read_committed_bound_waits_for_the_marker(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.append(make_batch(), 0)
    log.append(make_batch([b"a", b"b"], producer_id=3, epoch=0, sequence=0, is_transactional=True), 0)
    log.append(make_batch(), 0)
    assert log.last_stable_offset == 1
    assert log.has_open_transaction(3, 0)
    log.append_marker(3, 0, EndTransactionMarker(False, 0), 0)
    assert log.last_stable_offset == log.log_end_offset == 5
    (aborted,) = log.aborted_transactions(0, 5)
    assert (aborted.producer_id, aborted.first_offset, aborted.last_offset) == (3, 1, 4)
    assert log.aborted_transactions(0, 1) == []


def test_open_transaction_survives_a_restart_of_either_kind(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.append(make_batch(producer_id=3, epoch=0, sequence=0, is_transactional=True), 0)
    assert log.close()
    for is_clean in (True, False):
        log = open_log(tmp_path, is_clean=is_clean)
        assert log.last_stable_offset == 0
        assert log.has_open_transaction(3, 0)
        assert log.close()


def test_coordinators_batch_needs_no_sequence_but_a_current_epoch(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.append_internal(make_batch(producer_id=3, epoch=2, is_transactional=True), 0)
    with pytest.raises(RecordsRefusedError) as caught:
        log.append_internal(make_batch(producer_id=3, epoch=1, is_transactional=True), 0)
    assert caught.value.code == 47
    assert log.last_stable_offset == 0


def test_older_leader_epoch_is_a_programming_error(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.append(make_batch(), 3)
    with pytest.raises(IllegalStateError, match="below 3"):
        log.append(make_batch(), 2)
    assert log.log_end_offset == 1


def test_damage_met_by_a_read_is_told_and_fences_and_spares_the_rest(tmp_path: Path) -> None:
    log = open_log(tmp_path, SMALL)
    for _ in range(12):
        log.append(make_batch([b"v" * 100]), 0)
    assert log.close()
    path = tmp_path / log_files(tmp_path)[1]
    data = bytearray(path.read_bytes())
    data[80] ^= 1
    path.write_bytes(data)
    log = open_log(tmp_path, SMALL)  # clean: nothing is read yet
    damaged_offset = int(path.name[:20])
    assert log.fence_reason is None
    with pytest.raises(LogError) as caught:
        log.read(damaged_offset, 1000)
    assert caught.value.code == 2
    assert log.read(damaged_offset + 1, 1000).first_offset == damaged_offset + 1
    assert log.read(0, 1000).first_offset == 0
    with pytest.raises(LogError) as caught:
        log.append(make_batch(), 0)
    assert caught.value.code == 56
    assert log.recovery_point == 0
    assert not log.close()
    log = open_log(tmp_path, SMALL, is_clean=False)  # now it is found at the start
    assert log.damage is not None
    assert log.damage.first_offset == damaged_offset
    assert log.fence_reason is not None
    assert [batch.base_offset for batch in read_all(log)] == list(range(damaged_offset))
    assert path.read_bytes() == data  # nothing was thrown away
    assert len(log_files(tmp_path)) == 6


def test_unreadable_file_is_an_error_of_the_read_only(tmp_path: Path) -> None:
    log = open_log(tmp_path, SMALL)
    for _ in range(12):
        log.append(make_batch([b"v" * 100]), 0)
    os.rename(tmp_path / log_files(tmp_path)[0], tmp_path / "moved")
    with pytest.raises(LogError) as caught:
        log.read(0, 1000)
    assert caught.value.code == 56
    assert log.fence_reason is None
    assert log.read(log.log_end_offset - 1, 1000).records is not None
    os.rename(tmp_path / "moved", tmp_path / "00000000000000000000.log")
    assert log.read(0, 1000).records is not None
