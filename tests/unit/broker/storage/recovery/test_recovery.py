"""Recovery as a function of a directory image."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kafkaprod.broker.storage.format.log_config import LogConfig
from kafkaprod.broker.storage.format.log_files import file_name
from kafkaprod.broker.storage.recovery.recovery import Recovery, recover
from tests.campaigns.images_log import MemoryImage, make_mixed_log, place
from tests.support.broker.fixtures_log import FaultyDisk, make_batch, make_environment, open_log, read_all

SMALL = LogConfig(segment_bytes=600, index_interval_bytes=100)


def make_directory(path: Path, count: int = 30, *, is_closed: bool = True, config: LogConfig = SMALL) -> None:
    """A log of several segments with an idempotent producer."""
    log = open_log(path, config)
    for sequence in range(count):
        log.append(make_batch([b"v" * 60], producer_id=5, epoch=0, sequence=sequence), sequence // 10)
    if is_closed:
        assert log.close()


def image_of(path: Path) -> MemoryImage:
    return MemoryImage({entry.name: entry.read_bytes() for entry in path.iterdir()})


def clean(image: MemoryImage, config: LogConfig = SMALL) -> Recovery:
    return recover(image, config, is_clean=True, recovery_point=0, log_start_offset=0)


def test_clean_start_reads_only_the_last_segment_from_its_last_index_entry(tmp_path: Path) -> None:
    make_directory(tmp_path)
    image = image_of(tmp_path)
    for name in image.files:
        if name.endswith(".log") and name != max(n for n in image.files if n.endswith(".log")):
            image.files[name] = bytes(len(image.files[name]))  # would fail if it were read
    found = recover(image, SMALL, is_clean=True, recovery_point=0, log_start_offset=0)
    assert (found.log_end_offset, found.damage, found.writes, found.truncations) == (30, None, {}, {})
    assert found.producers.producers[5].last_sequence == 29


def test_unclean_start_derives_the_files_that_a_clean_shutdown_wrote(tmp_path: Path) -> None:
    make_directory(tmp_path)
    image = image_of(tmp_path)
    logs = MemoryImage({name: data for name, data in image.files.items() if name.endswith(".log")})
    logs.apply(logs.recover(SMALL))
    for name, data in image.files.items():
        if name.endswith((".index", ".snapshot", "leader-epoch-checkpoint")):
            assert logs.files[name] == data, name
        last = name.startswith(max(image.files))
        if name.endswith(".timeindex") and not last:
            assert bytes(data).startswith(logs.files[name]), name


def test_recovery_point_spares_older_segments(tmp_path: Path) -> None:
    make_directory(tmp_path)
    image = image_of(tmp_path)
    bases = sorted(int(name[:20]) for name in image.files if name.endswith(".log"))
    found = image.recover(SMALL, recovery_point=bases[-2])
    assert found.scanned == [file_name(base, ".log") for base in bases[-2:]]


def test_recovering_twice_changes_nothing(tmp_path: Path) -> None:
    make_directory(tmp_path, is_closed=False)
    image = image_of(tmp_path)
    image.apply(image.recover(SMALL))
    before = dict(image.files)
    image.apply(image.recover(SMALL))
    assert image.files == before


def test_torn_tail_of_the_last_segment_is_cut_off(tmp_path: Path) -> None:
    make_directory(tmp_path, is_closed=False)
    image = image_of(tmp_path)
    last = max(name for name in image.files if name.endswith(".log"))
    image.files[last] = bytes(image.files[last])[:-1]
    found = image.recover(SMALL)
    assert (found.log_end_offset, found.damage) == (29, None)
    assert list(found.truncations) == [last]


@pytest.mark.parametrize("where", ["header", "body"])
def test_damage_before_valid_batches_fences_and_keeps_the_bytes(where: str) -> None:
    log = make_mixed_log(seed=3, batch_count=12)
    start = log.ends[4]
    data = bytearray(log.data)
    data[start + (9 if where == "header" else 70)] ^= 0x40
    image = MemoryImage({file_name(0, ".log"): bytes(data)})
    found = image.recover()
    assert found.damage is not None
    assert (found.damage.position, found.damage.first_offset) == (start, log.next_offsets[4])
    assert found.damage.next_offset == log.next_offsets[5]
    assert (found.log_end_offset, found.truncations) == (log.next_offsets[4], {})
    assert file_name(0, ".log") not in found.deletions


def test_damage_at_the_end_of_a_segment_before_others_fences(tmp_path: Path) -> None:
    make_directory(tmp_path, is_closed=False)
    image = image_of(tmp_path)
    first = min(name for name in image.files if name.endswith(".log"))
    image.files[first] = bytes(image.files[first])[:-30]
    found = image.recover(SMALL)
    assert found.damage is not None
    assert found.damage.next_offset == found.damage.first_offset + 1
    assert not any(name.endswith(".log") for name in found.deletions)


def test_segment_missing_in_the_middle_fences(tmp_path: Path) -> None:
    make_directory(tmp_path, is_closed=False)
    image = image_of(tmp_path)
    names = sorted(name for name in image.files if name.endswith(".log"))
    del image.files[names[1]]
    found = image.recover(SMALL)
    assert found.damage is not None
    assert found.damage.first_offset == int(names[1][:20])


def test_later_segment_without_a_valid_batch_is_dropped_with_the_torn_tail(tmp_path: Path) -> None:
    make_directory(tmp_path, is_closed=False)
    image = image_of(tmp_path)
    names = sorted(name for name in image.files if name.endswith(".log"))
    image.files[names[-2]] = bytes(image.files[names[-2]])[:-1]
    image.files[names[-1]] = bytes(64)
    found = image.recover(SMALL)
    assert found.damage is None
    assert names[-1] in found.deletions
    assert found.segments[-1].base_offset == int(names[-2][:20])


def test_gaps_between_offsets_are_damage_unless_the_log_is_compacted() -> None:
    first, _ = place(make_batch(), 0)
    second, _ = place(make_batch(), 5)
    image = MemoryImage({file_name(0, ".log"): first + second})
    damaged = image.recover()
    assert damaged.damage is not None
    compacted = image.recover(replace(SMALL, cleanup_policy="compact"))
    assert (compacted.damage, compacted.log_end_offset) == (None, 6)


def test_batch_with_a_falling_leader_epoch_is_damage() -> None:
    first, _ = place(make_batch(), 0)
    second, _ = place(make_batch(), 1)
    newer = first[:12] + (3).to_bytes(4, "big") + first[16:]
    found = MemoryImage({file_name(0, ".log"): newer + second}).recover()
    assert found.log_end_offset == 1
    assert found.damage is not None


def test_log_below_the_checkpointed_start_is_dropped(tmp_path: Path) -> None:
    make_directory(tmp_path)
    log = open_log(tmp_path, SMALL, log_start_offset=100)
    assert (log.log_start_offset, log.log_end_offset, read_all(log)) == (100, 100, [])
    assert log.append(make_batch(), 0).base_offset == 100


def test_leftovers_and_orphans_are_removed(tmp_path: Path) -> None:
    make_directory(tmp_path)
    for name in (file_name(999, ".index"), file_name(998, ".snapshot"), file_name(0, ".log") + ".deleted", "x.tmp"):
        (tmp_path / name).write_bytes(b"junk")
    (tmp_path / "partition.metadata").write_bytes(b"keep")
    log = open_log(tmp_path, SMALL)
    assert log.log_end_offset == 30
    names = {entry.name for entry in tmp_path.iterdir()}
    assert not names & {file_name(999, ".index"), file_name(998, ".snapshot"), "x.tmp"}
    assert "partition.metadata" in names


def test_epochs_are_derived_from_the_log_when_their_file_is_missing_or_torn(tmp_path: Path) -> None:
    make_directory(tmp_path)
    expected = (tmp_path / "leader-epoch-checkpoint").read_bytes()
    for content in (None, b"", b"0\n2\n0 0\n", b"junk"):
        image = image_of(tmp_path)
        if content is None:
            del image.files["leader-epoch-checkpoint"]
        else:
            image.files["leader-epoch-checkpoint"] = content
        found = clean(image)
        assert found.writes["leader-epoch-checkpoint"] == expected


@pytest.mark.parametrize("is_closed", [True, False])
@pytest.mark.parametrize(
    ("log_start", "expected"),
    [
        (0, [(0, 0), (1, 10), (2, 20)]),
        (9, [(0, 9), (1, 10), (2, 20)]),
        (10, [(1, 10), (2, 20)]),
        (15, [(1, 15), (2, 20)]),
        (20, [(2, 20)]),
        (29, [(2, 29)]),
        (30, [(2, 30)]),
        (31, []),
    ],
)
def test_leader_epochs_begin_at_the_log_start_that_is_known(
    tmp_path: Path, log_start: int, expected: list[tuple[int, int]], *, is_closed: bool
) -> None:
    make_directory(tmp_path, is_closed=is_closed)
    found = recover(image_of(tmp_path), SMALL, is_clean=is_closed, recovery_point=0, log_start_offset=log_start)
    assert found.epochs.entries == expected


def test_recovered_data_is_synced_before_it_is_served(tmp_path: Path) -> None:
    make_directory(tmp_path, is_closed=False)
    disk = FaultyDisk()
    open_log(tmp_path, SMALL, make_environment(disk), is_clean=False)
    assert set(disk.names("fdatasync")) >= {entry.name for entry in tmp_path.glob("*.log")}
