"""Power cuts between any two system calls, with legal reorderings of what was not synced (the model of ALICE).

The disk keeps for each file what is durable and what was written since, and for the directory which names are durable.
A crash leaves each log with a prefix of its unsynced writes, the last one torn anywhere; each derived file with any of
its versions, torn or zeroed; and a prefix of the unsynced names. `KAFKAPROD_POWER_CUTS` sets the images of the slow
test.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import pytest

from kafkaprod.broker.storage.format.control_batch import EndTransactionMarker
from kafkaprod.broker.storage.format.log_config import LogConfig
from kafkaprod.broker.storage.log.group_commit import each
from kafkaprod.broker.storage.log.partition_log import PartitionLog
from kafkaprod.storage.disk import Disk, LogFile, replace_file_durably
from kafkaprod.structs import BytesLike
from tests.campaigns.images_log import MemoryImage
from tests.support.broker.fixtures_log import (
    NOW_MS,
    LoggedBatch,
    make_batch,
    make_environment,
    open_log,
    read_all,
    split_batches,
)

CONFIG = LogConfig(segment_bytes=900, index_interval_bytes=150, segment_index_bytes=480)


@dataclass
class TrackedFile:
    """One file: its durable bytes and all versions since."""

    durable: bytes = b""
    versions: list[bytes] = field(default_factory=list)

    @property
    def current(self) -> bytes:
        return self.versions[-1] if self.versions else self.durable


class PowerCutDisk(Disk):
    """A disk that remembers what a power cut could leave."""

    def __init__(self) -> None:
        self.files: dict[str, TrackedFile] = {}
        self.durable_names: dict[str, TrackedFile] = {}
        self.name_versions: list[dict[str, TrackedFile]] = []
        self.on_call: Callable[[], None] = lambda: None

    def create(self, path: str) -> LogFile:
        name = os.path.basename(path)
        if name not in self.files:
            self.files[name] = TrackedFile()
            self._note_names()
        self.on_call()
        return super().create(path)

    def pwrite(self, file: LogFile, data: BytesLike, position: int) -> int:
        tracked = self._tracked(file)
        content = tracked.current.ljust(position, b"\0")
        tracked.versions.append(content[:position] + bytes(data) + content[position + len(data) :])
        self.on_call()
        return super().pwrite(file, data, position)

    def truncate(self, file: LogFile, size: int) -> None:
        tracked = self._tracked(file)
        tracked.versions.append(tracked.current[:size].ljust(size, b"\0"))
        self.on_call()
        super().truncate(file, size)

    def fdatasync(self, file: LogFile) -> None:
        tracked = self._tracked(file)
        tracked.durable, tracked.versions = tracked.current, []
        self.on_call()

    def sync_dir(self, path: str) -> None:
        self.durable_names, self.name_versions = dict(self.files), []
        self.on_call()

    def rename(self, source: str, target: str) -> None:
        self.files[os.path.basename(target)] = self.files.pop(os.path.basename(source))
        self._note_names()
        super().rename(source, target)

    def unlink(self, path: str) -> None:
        if self.files.pop(os.path.basename(path), None) is not None:
            self._note_names()
        super().unlink(path)

    def crash_image(self, rng: random.Random) -> dict[str, bytes]:
        """The directory as it may be found after a power cut now."""
        names = rng.choice([self.durable_names, *self.name_versions])
        return {name: self._surviving(name, tracked, rng) for name, tracked in names.items()}

    def _surviving(self, name: str, tracked: TrackedFile, rng: random.Random) -> bytes:
        versions = [tracked.durable, *tracked.versions]
        index = rng.randrange(len(versions))
        content = versions[index]
        if name.endswith(".log"):
            if index and len(content) > len(versions[index - 1]):  # tear the last write
                return content[: rng.randint(len(versions[index - 1]), len(content))]
            return content
        damage = rng.random()
        if damage < 0.1 and tracked.versions:
            return bytes(len(content))
        if damage < 0.2 and tracked.versions:
            return content[: rng.randint(0, len(content))]
        return content

    def _tracked(self, file: LogFile) -> TrackedFile:
        return self.files[os.path.basename(file.path)]

    def _note_names(self) -> None:
        self.name_versions.append(dict(self.files))
        self.on_call()


class Workload:
    """Random appends, commits, rolls and truncations; what was acknowledged and must survive."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.disk = PowerCutDisk()
        self.rng = random.Random(seed)
        self.log: PartitionLog = open_log(directory, CONFIG, make_environment(self.disk, each()), is_clean=False)
        self.acknowledged: list[LoggedBatch] = []
        self.pending: list[LoggedBatch] = []
        self.recovery_point = 0
        self.image_count = 0

    def cut_power_between_calls(self, share: float) -> None:
        """From now on, check a crash after this share of all system calls."""

        def maybe_check() -> None:
            if self.rng.random() < share:
                self.check_crash()

        self.disk.on_call = maybe_check

    def step(self) -> None:
        choice = self.rng.random()
        if choice < 0.75:
            self._append()
        elif choice < 0.97:
            self._commit()
        else:
            self.recovery_point = self.log.recovery_point  # as the checkpoint file would have it
        if self.rng.random() < 0.01:
            self._truncate()

    def _append(self) -> None:
        producer = self.rng.randint(1, 3)
        if self.rng.random() < 0.2:
            result = self.log.append_marker(producer, 0, EndTransactionMarker(self.rng.random() < 0.5, 0), 0)
            data = split_batches(self.log.read(result.base_offset, 1, result.base_offset + 1).records.read())[0].data  # type: ignore[union-attr]
        else:
            stamp = NOW_MS + self.rng.randrange(100)
            batch = make_batch([b"v" * self.rng.randrange(80)], codec=self.rng.randrange(5), timestamps=[stamp])
            result = self.log.append(batch, 0)
            data = bytes(batch)
        self.pending.append(LoggedBatch(result.base_offset, result.last_offset, data))

    def _commit(self) -> None:
        self.log.commit(self.log.log_end_offset)
        self.acknowledged += self.pending
        self.pending = []

    def _truncate(self) -> None:
        self._commit()
        offset = self.rng.randint(max(self.log.log_end_offset - 6, 0), self.log.log_end_offset)
        self.recovery_point = min(self.recovery_point, offset)  # the checkpoint is lowered first
        kept = [batch for batch in self.acknowledged if batch.last_offset < offset]
        self.acknowledged, self.pending = kept, self.acknowledged[len(kept) :]
        self.log.truncate_to(offset)
        self.pending = []

    def check_crash(self) -> None:
        """Cut the power now: everything acknowledged is there, nothing invented, and a second recovery agrees."""
        image = MemoryImage(self.disk.crash_image(self.rng))
        point = self.rng.choice((0, self.recovery_point))
        found = image.recover(CONFIG, recovery_point=point)
        assert found.damage is None, found.damage
        image.apply(found)
        names = [f"{segment.base_offset:020d}.log" for segment in found.segments]
        data = b"".join(bytes(image.files[name]) for name in names)
        batches = split_batches(data)
        written = self.acknowledged + self.pending
        self.image_count += 1
        assert sum(len(batch.data) for batch in batches) == len(data)
        assert len(batches) >= len(self.acknowledged)
        assert batches[: len(written)] == written[: len(batches)]
        assert len(batches) <= len(written) + 1  # the append under way may be in the log already
        assert found.log_end_offset == (batches[-1].last_offset + 1 if batches else 0)
        again = image.recover(CONFIG, recovery_point=point)
        assert (again.log_end_offset, again.truncations, again.damage) == (found.log_end_offset, {}, None)
        assert again.producers.snapshot() == found.producers.snapshot()


def run_power_cuts(directory: Path, seed: int, steps: int, share: float) -> int:
    """One workload with crashes after a share of its system calls; the number of images checked."""
    workload = Workload(directory, seed)
    workload.cut_power_between_calls(share)
    for _ in range(steps):
        workload.step()
    workload.disk.on_call = lambda: None
    workload.log.abandon()
    return workload.image_count


@pytest.mark.parametrize("seed", range(4))
def test_acknowledged_records_survive_a_power_cut_at_any_moment(tmp_path: Path, seed: int) -> None:
    assert run_power_cuts(tmp_path, seed, steps=150, share=1) > 300


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_acknowledged_records_survive_power_cuts_in_many_runs(tmp_path: Path) -> None:
    wanted, count, seed = int(os.environ.get("KAFKAPROD_POWER_CUTS", "200000")), 0, 1000
    while count < wanted:
        directory = tmp_path / str(seed)
        directory.mkdir()
        count += run_power_cuts(directory, seed, steps=250, share=1)
        seed += 1


def test_image_of_a_power_cut_opens_and_answers_like_the_log_it_was(tmp_path: Path) -> None:
    for seed in range(25):
        directory = tmp_path / f"run-{seed}"
        directory.mkdir()
        workload = Workload(directory, 100 + seed)
        for _ in range(60):
            workload.step()
        copy = tmp_path / f"copy-{seed}"
        copy.mkdir()
        for name, content in workload.disk.crash_image(workload.rng).items():
            (copy / name).write_bytes(content)
        log = open_log(copy, CONFIG, is_clean=False, recovery_point=workload.recovery_point)
        batches = read_all(log)
        assert batches == (workload.acknowledged + workload.pending)[: len(batches)]
        assert len(batches) >= len(workload.acknowledged)
        for batch in batches:
            stamp = int.from_bytes(batch.data[35:43], "big")
            found = log.find_timestamp(stamp)
            assert found is not None
            assert found.offset <= batch.base_offset
        log.abandon()
        workload.log.abandon()


def test_checkpoint_is_the_old_or_the_new_one_after_a_power_cut_at_any_step(tmp_path: Path) -> None:
    disk, rng, path = PowerCutDisk(), random.Random(3), str(tmp_path / "recovery-point-offset-checkpoint")
    contents = [f"0\n1\norders 0 {10**index}\n".encode() for index in range(8)]
    replace_file_durably(disk, path, contents[0])
    for old, new in pairwise(contents):
        seen: set[bytes] = set()

        def look(seen: set[bytes] = seen) -> None:
            for _ in range(20):
                seen.add(disk.crash_image(rng)[os.path.basename(path)])

        disk.on_call = look
        replace_file_durably(disk, path, new)
        disk.on_call = lambda: None
        assert seen == {old, new}
        assert disk.crash_image(rng) == {os.path.basename(path): new}
