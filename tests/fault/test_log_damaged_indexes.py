"""Indexes, snapshots and checkpoints damaged between two runs: every answer is the one a rebuilt file gives."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafkaprod.broker.storage.errors import RecordsRefusedError
from kafkaprod.broker.storage.format.control_batch import EndTransactionMarker
from kafkaprod.broker.storage.format.log_config import LogConfig
from kafkaprod.broker.storage.log.partition_log import PartitionLog
from tests.support.broker.fixtures_log import NOW_MS, flip_bit, make_batch, open_log, read_all

CONFIG = LogConfig(segment_bytes=2500, index_interval_bytes=200)
PRODUCERS = (1, 2)


def fill(log: PartitionLog) -> None:
    """Six segments with plain, idempotent, committed and aborted batches."""
    rng = random.Random(5)
    sequences = dict.fromkeys(PRODUCERS, 0)
    for index in range(110):
        producer = PRODUCERS[index // 7 % 2]
        stamps = [NOW_MS + index + rng.randrange(-20, 20)]
        if index % 7 == 6:
            log.append_marker(producer, 0, EndTransactionMarker(index % 2 == 0, 0), index // 40)
            continue
        batch = make_batch(
            [b"v" * rng.randrange(60)],
            timestamps=stamps,
            producer_id=producer,
            epoch=0,
            sequence=sequences[producer],
            is_transactional=True,
        )
        sequences[producer] += 1
        log.append(batch, index // 40)


def answers(log: PartitionLog) -> dict[str, Any]:
    """Everything a client can learn from the log."""
    end = log.log_end_offset
    return {
        "batches": read_all(log),
        "reads": [log.read(offset, 1).first_offset for offset in range(0, end, 3)],
        "timestamps": [log.find_timestamp(NOW_MS + delta) for delta in range(-25, 140, 4)],
        "newest": log.find_max_timestamp(),
        "aborted": [sorted(log.aborted_transactions(low, low + 9)) for low in range(0, end, 5)],
        "stable": log.last_stable_offset,
        "epochs": [log.end_offset_for_epoch(epoch) for epoch in range(4)],
        "transactions": [log.has_open_transaction(producer, 0) for producer in PRODUCERS],
    }


def windows(log: PartitionLog) -> list[tuple[int, bool]]:
    """For each producer the offsets at which its batches are known as duplicates."""
    found = []
    for batch in read_all(log):
        if int.from_bytes(batch.data[43:51], "big") in PRODUCERS and not batch.data[22] & 0x20:
            again = bytearray(batch.data)
            again[:8] = bytes(8)
            found.append(again)
    known = []
    for again in found:
        try:
            result = log.append(again, 9)
        except RecordsRefusedError:  # 45: out of the window
            continue
        known.append((result.base_offset, result.is_duplicate))
    return known


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any], list[tuple[int, bool]]]:
    """A cleanly closed directory, its answers, and the window of duplicates it had before it was closed."""
    path = tmp_path_factory.mktemp("pristine")
    log = open_log(path, CONFIG)
    fill(log)
    expected, window = answers(log), windows(log)
    assert len(window) == 10
    assert all(is_duplicate for _, is_duplicate in window)
    assert log.close()
    assert len(list(path.glob("*.log"))) > 4
    return path, expected, window


def mutations(content: bytes, rng: random.Random) -> dict[str, bytes | None]:
    """Every kind of damage a file can come back with."""
    bit = rng.randrange(8 * len(content)) if content else 0
    return {
        "missing": None,
        "empty": b"",
        "zeros": bytes(len(content)),
        "random": rng.randbytes(max(len(content), 12)),
        "too long, zeros": content + bytes(240),
        "too long, random": content + rng.randbytes(33),
        "half": content[: len(content) // 2],
        "last byte gone": content[:-1],
        "last 8 bytes gone": content[:-8],
        "last 12 bytes gone": content[:-12],
        "first 8 bytes gone": content[8:],
        "first 12 bytes gone": content[12:],
        "repeated": content + content,
        "bit flipped": flip_bit(content, bit) if content else b"\1",
    }


def check(path: Path, copy: Path, damage: Callable[[Path], None], expected: dict[str, Any], *, is_clean: bool) -> None:
    shutil.copytree(path, copy)
    damage(copy)
    log = open_log(copy, CONFIG, is_clean=is_clean)
    assert answers(log) == expected
    log.abandon()
    shutil.rmtree(copy)


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".txnindex", ".snapshot", "-checkpoint"])
def test_damaged_file_changes_no_answer(
    pristine: tuple[Path, dict[str, Any], list[tuple[int, bool]]], tmp_path: Path, suffix: str, is_clean: bool
) -> None:
    path, expected, _ = pristine
    rng = random.Random(suffix)
    names = sorted(entry.name for entry in path.iterdir() if entry.name.endswith(suffix))
    assert names
    for name in names:
        for kind, content in mutations((path / name).read_bytes(), rng).items():

            def damage(copy: Path, name: str = name, content: bytes | None = content) -> None:
                if content is None:
                    (copy / name).unlink()
                else:
                    (copy / name).write_bytes(content)

            if name == "leader-epoch-checkpoint" and kind == "bit flipped":
                continue  # Kafka's text format has no checksum: a flipped digit is another epoch
            check(path, tmp_path / "copy", damage, expected, is_clean=is_clean)


def test_several_files_damaged_at_once_change_no_answer(
    pristine: tuple[Path, dict[str, Any], list[tuple[int, bool]]], tmp_path: Path
) -> None:
    path, expected, _ = pristine
    rounds = int(os.environ.get("KAFKAPROD_INDEX_MUTATIONS", "60"))
    for seed in range(rounds):
        rng = random.Random(seed)
        derived = sorted(
            entry.name for entry in path.iterdir() if entry.suffix in (".index", ".timeindex", ".txnindex", ".snapshot")
        )

        def damage(copy: Path, rng: random.Random = rng, derived: list[str] = derived) -> None:
            for name in rng.sample(derived, rng.randint(1, len(derived))):
                content = rng.choice(list(mutations((copy / name).read_bytes(), rng).values()))
                if content is None:
                    (copy / name).unlink()
                else:
                    (copy / name).write_bytes(content)

        check(path, tmp_path / "copy", damage, expected, is_clean=seed % 2 == 0)


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("damage", ["none", "last missing", "all missing", "all torn", "from the future"])
def test_duplicates_are_known_after_a_restart_as_before(
    pristine: tuple[Path, dict[str, Any], list[tuple[int, bool]]], tmp_path: Path, damage: str, is_clean: bool
) -> None:
    path, _, window = pristine
    copy = tmp_path / "copy"
    shutil.copytree(path, copy)
    snapshots = sorted(copy.glob("*.snapshot"))
    if damage == "last missing":
        snapshots[-1].unlink()
    elif damage == "from the future":
        snapshots[0].rename(copy / f"{10**6:020d}.snapshot")
    for snapshot in snapshots if damage.startswith("all") else ():
        if damage == "all missing":
            snapshot.unlink()
        else:
            snapshot.write_bytes(snapshot.read_bytes()[:-1])
    log = open_log(copy, CONFIG, is_clean=is_clean)
    assert windows(log) == window
    log.abandon()


def test_snapshot_cut_at_every_byte_is_rebuilt(
    pristine: tuple[Path, dict[str, Any], list[tuple[int, bool]]], tmp_path: Path
) -> None:
    path, _, window = pristine
    copy = tmp_path / "copy"
    shutil.copytree(path, copy)
    last = max(copy.glob("*.snapshot"))
    content = last.read_bytes()
    saved = {entry.name: entry.read_bytes() for entry in copy.iterdir() if entry.suffix != ".log"}
    for size in range(0, len(content), 7):
        last.write_bytes(content[:size])
        log = open_log(copy, CONFIG)
        assert windows(log) == window, size
        log.abandon()
        for name, original in saved.items():
            (copy / name).write_bytes(original)
