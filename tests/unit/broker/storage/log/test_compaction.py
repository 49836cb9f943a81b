"""Compaction: what stays, against a model; tombstones, transactions, producers; crashes between any two steps."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kafkaprod._core.records.batch_reader import Record
from kafkaprod.broker.storage.errors import RecordsRefusedError
from kafkaprod.broker.storage.format.control_batch import EndTransactionMarker
from kafkaprod.broker.storage.format.log_config import LogConfig
from kafkaprod.broker.storage.format.records import iterate_records
from kafkaprod.broker.storage.log import compaction
from kafkaprod.broker.storage.log.partition_log import PartitionLog
from kafkaprod.storage.batch_header import HAS_DELETE_HORIZON, parse_header
from tests.support.broker.fixtures_log import (
    NOW_MS,
    FaultyDisk,
    UnsyncedDisk,
    failing,
    make_batch,
    make_environment,
    open_log,
    read_all,
)
from tests.support.clock import ManualClock

CONFIG = LogConfig(cleanup_policy="compact", segment_bytes=600, index_interval_bytes=100, delete_retention_ms=1_000)


def append(log: PartitionLog, *pairs: tuple[str, str | None], codec: int = 0, **options: object) -> int:
    """Append one batch; return its first offset."""
    batch = make_batch(
        [None if value is None else value.encode() for _, value in pairs],
        keys=[key.encode() for key, _ in pairs],
        codec=codec,
        **options,  # type: ignore[arg-type]
    )
    return log.append(batch, 0).base_offset


def roll(log: PartitionLog) -> None:
    """Close the active segment: it is not compacted."""
    log._store.roll(log.log_end_offset)
    append(log, ("last", "x"))


def records(log: PartitionLog) -> Iterator[Record]:
    for batch in read_all(log):
        if not parse_header(batch.data).is_control:
            yield from iterate_records(batch.data)


def content(log: PartitionLog) -> list[tuple[int, str, str | None]]:
    return [
        (each.offset, (each.key or b"").decode(), None if each.value is None else each.value.decode())
        for each in records(log)
    ]


def test_last_record_of_each_key_stays_with_its_offset(tmp_path: Path) -> None:
    log = open_log(tmp_path, CONFIG)
    for number in range(100):
        append(log, (f"k{number % 7}", f"v{number}"))
    roll(log)
    assert log.compact(is_forced=True)
    assert content(log) == [*[(n, f"k{n % 7}", f"v{n}") for n in range(93, 100)], (100, "last", "x")]
    assert log.log_start_offset == 0
    assert [log.read(offset, 1 << 20).first_offset for offset in (93, 99)] == [93, 99]
    roll(log)
    assert log.compact(is_forced=True)
    assert len(list(tmp_path.glob("*.log"))) <= 5  # small neighbours have become one
    expected = content(log)
    assert expected[:7] == [(n, f"k{n % 7}", f"v{n}") for n in range(93, 100)]
    assert log.close()
    assert content(open_log(tmp_path, CONFIG)) == expected


@pytest.mark.parametrize("codec", range(5))
def test_batch_keeps_its_fields_and_loses_records(tmp_path: Path, codec: int) -> None:
    log = open_log(tmp_path, CONFIG)
    long_key = "k" * 100
    append(log, ("a", "1"), (long_key, "2"), ("c", "3"), ("a", "4"), codec=codec, producer_id=7, epoch=2, sequence=5)
    append(log, (long_key, "5"))
    before = parse_header(read_all(log)[0].data)
    roll(log)
    assert log.compact(is_forced=True)
    assert content(log) == [(2, "c", "3"), (3, "a", "4"), (4, long_key, "5"), (5, "last", "x")]
    after = parse_header(read_all(log)[0].data)
    assert after._replace(batch_length=0, crc=0, record_count=0) == before._replace(
        batch_length=0, crc=0, record_count=0
    )
    assert after.record_count == 2


def test_log_is_compacted_when_it_is_dirty_or_old_enough(tmp_path: Path) -> None:
    clock = ManualClock(wall_ms=NOW_MS)
    log = open_log(tmp_path, replace(CONFIG, max_compaction_lag_ms=10_000), make_environment(clock=clock))
    for number in range(40):
        append(log, (f"k{number % 30}", "v" * 20))
    roll(log)
    assert log.compact()
    append(log, ("k1", "w"))
    roll(log)
    assert not log.compact()  # too little is dirty
    clock.advance(10_001)
    assert log.compact()
    assert not log.compact()


def test_young_records_are_left_alone(tmp_path: Path) -> None:
    clock = ManualClock(wall_ms=NOW_MS)
    log = open_log(tmp_path, replace(CONFIG, min_compaction_lag_ms=5_000), make_environment(clock=clock))
    for number in range(20):
        append(log, ("k", f"v{number}"))
    roll(log)
    assert not log.compact(is_forced=True)
    clock.advance(5_001)
    assert log.compact(is_forced=True)
    assert content(log) == [(19, "k", "v19"), (20, "last", "x")]


def test_tombstone_stays_for_delete_retention_and_then_goes(tmp_path: Path) -> None:
    clock = ManualClock(wall_ms=NOW_MS)
    log = open_log(tmp_path, CONFIG, make_environment(clock=clock))
    append(log, ("a", "1"), ("b", "1"), timestamps=[NOW_MS - 7, NOW_MS - 5])
    append(log, ("a", None), ("c", "2"), timestamps=[NOW_MS - 3, NOW_MS - 2])
    roll(log)
    assert log.compact(is_forced=True)
    assert content(log) == [(1, "b", "1"), (2, "a", None), (3, "c", "2"), (4, "last", "x")]
    header = parse_header(read_all(log)[1].data)
    assert header.attributes & HAS_DELETE_HORIZON
    assert header.base_timestamp == NOW_MS + CONFIG.delete_retention_ms
    assert [each.timestamp for each in records(log)][:3] == [NOW_MS - 5, NOW_MS - 3, NOW_MS - 2]
    roll(log)
    clock.advance(CONFIG.delete_retention_ms - 1)
    log.compact(is_forced=True)
    assert (2, "a", None) in content(log)
    roll(log)
    clock.advance(1)
    assert log.compact(is_forced=True)
    assert content(log)[:2] == [(1, "b", "1"), (3, "c", "2")]


def test_records_of_an_aborted_transaction_go_and_hide_nothing(tmp_path: Path) -> None:
    log = open_log(tmp_path, CONFIG)
    append(log, ("a", "committed"))
    append(log, ("a", "aborted"), producer_id=1, epoch=0, sequence=0, is_transactional=True)
    log.append_marker(1, 0, EndTransactionMarker(False, 0), 0)
    append(log, ("b", "open"), producer_id=2, epoch=0, sequence=0, is_transactional=True)
    log.append_marker(2, 0, EndTransactionMarker(True, 0), 0)
    roll(log)
    assert log.compact(is_forced=True)
    assert content(log) == [(0, "a", "committed"), (3, "b", "open"), (5, "last", "x")]
    assert sum(parse_header(batch.data).is_control for batch in read_all(log)) == 2
    assert [each.first_offset for each in log.aborted_transactions(0, 100)] == [1]


def test_open_transaction_ends_what_is_compacted(tmp_path: Path) -> None:
    log = open_log(tmp_path, CONFIG)
    for number in range(30):
        append(log, ("k", f"v{number}"))
    roll(log)
    append(log, ("k", "open"), producer_id=2, epoch=0, sequence=0, is_transactional=True)
    for number in range(30):
        append(log, ("k", f"w{number}"))
    roll(log)
    assert log.compact(is_forced=True)
    assert (31, "k", "open") in content(log)
    assert (29, "k", "v29") in content(log)


def test_last_batch_of_a_producer_stays_without_its_records(tmp_path: Path) -> None:
    log = open_log(tmp_path, CONFIG)
    append(log, ("a", "1"), producer_id=7, epoch=0, sequence=0)
    append(log, ("a", "2"), producer_id=7, epoch=0, sequence=1)
    append(log, ("a", "3"))
    roll(log)
    assert log.compact(is_forced=True)
    headers = [parse_header(batch.data) for batch in read_all(log)]
    assert [(each.base_offset, each.record_count) for each in headers] == [(1, 0), (2, 1), (3, 1)]
    log.close()
    for file in (*tmp_path.glob("*.snapshot"), tmp_path / "leader-epoch-checkpoint"):
        file.unlink()
    log = open_log(tmp_path, CONFIG, is_clean=False)
    assert log.append(make_batch([b"2"], producer_id=7, epoch=0, sequence=1), 0).is_duplicate
    with pytest.raises(RecordsRefusedError):
        append(log, ("a", "4"), producer_id=7, epoch=0, sequence=3)


def test_more_keys_than_memory_take_several_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "MAX_KEYS", 10)
    log = open_log(tmp_path, CONFIG)
    for number in range(120):
        append(log, (f"k{number % 25}", f"v{number}"), (f"k{(number + 3) % 25}", f"w{number}"))
    roll(log)
    expected = latest(content(log))
    passes = 0
    while log.compact(is_forced=True):
        passes += 1
        assert latest(content(log)) == expected
    assert passes > 5
    assert len(content(log)) == 26


def latest(found: list[tuple[int, str, str | None]]) -> dict[str, tuple[int, str | None]]:
    return {key: (offset, value) for offset, key, value in found}


def test_policy_may_change_after_compaction_without_the_gaps_being_damage(tmp_path: Path) -> None:
    log = open_log(tmp_path, CONFIG)
    for number in range(50):
        append(log, (f"k{number % 3}", f"v{number}"))
    roll(log)
    assert log.compact(is_forced=True)
    expected = content(log)
    log.close()
    log = open_log(tmp_path, replace(CONFIG, cleanup_policy="delete"), is_clean=False)
    assert log.fence_reason is None
    assert content(log) == expected


def test_records_in_the_place_of_those_that_were_cut_are_compacted(tmp_path: Path) -> None:
    log = open_log(tmp_path, CONFIG)
    for number in range(40):
        append(log, (f"k{number % 3}", f"v{number}"))
    roll(log)
    assert log.compact(is_forced=True)
    log.truncate_to(10)
    end = log.log_end_offset
    for number in range(20):
        append(log, ("new", f"w{number}"))
    roll(log)
    assert log.compact(is_forced=True)
    found = content(log)
    assert found[-2:] == [(end + 19, "new", "w19"), (end + 20, "last", "x")]
    assert sum(key == "new" for _, key, _ in found) == 1


def test_log_that_is_cut_while_it_is_compacted_stays_as_it_was_cut(tmp_path: Path) -> None:
    log = open_log(tmp_path, CONFIG)
    for number in range(40):
        append(log, (f"k{number % 3}", f"v{number}"))
    roll(log)
    batches = 0

    def cut() -> bool:
        nonlocal batches
        batches += 1
        if batches == 70:  # the last offsets are known, segments are being rewritten
            log.truncate_to(5)
        return False

    log.compact(cut, is_forced=True)
    assert batches >= 70
    assert log.log_end_offset <= 5
    append(log, ("after", "x"))
    assert content(log)[-1] == (log.log_end_offset - 1, "after", "x")
    assert (log._store.cleaned_to or 0) <= 5
    end = log.log_end_offset
    assert log.close()
    assert open_log(tmp_path, CONFIG).log_end_offset == end


def test_compaction_stops_when_asked_and_leaves_the_log_as_it_was(tmp_path: Path) -> None:
    log = open_log(tmp_path, CONFIG)
    for number in range(50):
        append(log, ("k", f"v{number}"))
    roll(log)
    before = content(log)
    assert log.compact(lambda: True, is_forced=True) == 0
    assert content(log) == before
    assert log.close()
    assert not list(tmp_path.glob("*.swap"))
    open_log(tmp_path, CONFIG)
    assert not list(tmp_path.glob("*.cleaned"))


# -- against a model ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_random_log_keeps_what_the_model_keeps(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    clock = ManualClock(wall_ms=NOW_MS)
    log = open_log(
        tmp_path, replace(CONFIG, segment_bytes=draw.choice([300, 600, 2_000])), make_environment(clock=clock)
    )
    written: list[tuple[int, str, str | None]] = []
    for number in range(300):
        pairs = []
        for _ in range(draw.randrange(1, 5)):
            key = f"key {draw.randrange(20)}"
            pairs.append((key, None if draw.random() < 0.1 else f"value {number}"))
        offset = append(log, *pairs, codec=draw.randrange(5))
        written += [(offset + index, key, value) for index, (key, value) in enumerate(pairs)]
        if draw.random() < 0.05:
            log.compact(is_forced=True)
            check_model(log, written)
        if draw.random() < 0.03:
            log.close()
            log = open_log(tmp_path, log.config, make_environment(clock=clock), is_clean=draw.random() < 0.5)
        clock.advance(draw.randrange(50))
    roll(log)
    log.compact(is_forced=True)
    check_model(log, written)


def check_model(log: PartitionLog, written: list[tuple[int, str, str | None]]) -> None:
    """Only what a later record of its key replaces, or a tombstone, may be missing; nothing else may be there."""
    found = content(log)
    assert found == sorted(found)
    assert set(found) <= {*written, *[each for each in found if each[1] == "last"]}
    active_from = log._store.segments.active.base_offset
    last = latest(written)
    for offset, key, value in written:
        is_last = last[key][0] == offset
        if offset >= active_from or (is_last and value is not None):
            assert (offset, key, value) in found
    cleaned_to = log._store.cleaned_to or 0
    newest = latest([each for each in written if each[0] < cleaned_to])
    stale = [each for each in found if each[0] < cleaned_to and each[1] != "last" and newest[each[1]][0] != each[0]]
    assert stale == []


# -- crashes -----------------------------------------------------------------------------------------------------------


class CrashingDisk(UnsyncedDisk):
    """Stops at the call number `stop_at` that changes names, as a kill does."""

    def __init__(self, stop_at: int) -> None:
        self.calls, self.stop_at = 0, stop_at

    def _count(self) -> None:
        self.calls += 1
        if self.calls == self.stop_at:
            raise KeyboardInterrupt

    def rename(self, source: str, target: str) -> None:
        self._count()
        super().rename(source, target)

    def unlink(self, path: str) -> None:
        self._count()
        super().unlink(path)


def test_crash_between_any_two_steps_loses_nothing(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    log = open_log(source, CONFIG)
    for number in range(30):
        append(log, (f"k{number % 5}", f"v{number}"))
    roll(log)
    expected = latest(content(log))
    log.close()
    for stop_at in range(1, 200):
        path = tmp_path / str(stop_at)
        shutil.copytree(source, path)
        disk = CrashingDisk(10**9)
        log = open_log(path, CONFIG, make_environment(disk=disk))
        disk.calls, disk.stop_at = 0, stop_at
        try:
            log.compact(is_forced=True)
            is_over = True
        except KeyboardInterrupt:
            is_over = False
        log.abandon()
        for again in (False, False, True):
            log = open_log(path, CONFIG, is_clean=again)
            assert log.fence_reason is None, stop_at
            assert latest(content(log)) == expected, stop_at
            assert not [name for name in os.listdir(path) if name.endswith((".swap", ".cleaned"))]
            log.close()
        log = open_log(path, CONFIG)
        log.compact(is_forced=True)
        assert content(log)[:-1] == [(n, f"k{n % 5}", f"v{n}") for n in range(25, 30)]
        log.close()
        shutil.rmtree(path)
        if is_over:
            assert stop_at > 10
            return
    pytest.fail("compaction never came to its end")


def test_full_disk_leaves_the_log_as_it_was(tmp_path: Path) -> None:
    disk = FaultyDisk()
    log = open_log(tmp_path, CONFIG, make_environment(disk=disk))
    for number in range(30):
        append(log, (f"k{number % 5}", f"v{number}"))
    roll(log)
    before = content(log)
    disk.fail = failing("pwrite", ".cleaned")
    with pytest.raises(Exception, match=r"disk|read"):
        log.compact(is_forced=True)
    disk.fail = None
    assert content(log) == before
    assert log.fence_reason is None
    assert log.compact(is_forced=True)
