"""Writers, readers, retention and deletion at the same time: offsets dense, no torn read, no descriptor left."""

from __future__ import annotations

import gc
import os
import threading
from contextlib import suppress
from pathlib import Path

from kafkaprod.broker.storage.errors import OffsetOutOfRangeError
from kafkaprod.broker.storage.format.log_config import LogConfig
from kafkaprod.broker.storage.log.group_commit import each
from kafkaprod.broker.storage.log.partition_log import PartitionLog
from kafkaprod.storage.batch_checks import valid_batch_at
from tests.support.broker.fixtures_log import make_batch, make_environment, open_log, split_batches

WRITERS = READERS = 8
BATCHES = 60
CONFIG = LogConfig(segment_bytes=4096, index_interval_bytes=300, retention_bytes=20_000)


class Run:
    """Threads on one log, with the first error any of them met."""

    def __init__(self, log: PartitionLog) -> None:
        self.log = log
        self.offsets: list[int] = []
        self.errors: list[BaseException] = []
        self.is_over = threading.Event()

    def write(self) -> None:
        for index in range(BATCHES):
            result = self.log.append(make_batch([b"%d" % index * 30, b"x"]), 0)
            self.log.commit(result.last_offset + 1)
            assert self.log.high_watermark > result.last_offset
            self.offsets.append(result.base_offset)

    def read(self) -> None:
        offset = 0
        while not self.is_over.is_set() or offset < self.log.high_watermark:
            try:
                records = self.log.read(offset, 2000).records
            except OffsetOutOfRangeError:
                offset = self.log.log_start_offset
                continue
            if records is None:
                self.is_over.wait(0.001)
                continue
            for batch in split_batches(records.read()):  # outside the lock, maybe after the file is deleted
                header = valid_batch_at(memoryview(batch.data), 0, 0)
                assert header is not None
                assert batch.base_offset <= offset <= batch.last_offset
                offset = batch.last_offset + 1

    def retain(self) -> None:
        while not self.is_over.is_set():
            self.log.delete_old_segments()
            self.is_over.wait(0.002)

    def guarded(self, work: str) -> threading.Thread:
        def run() -> None:
            try:
                getattr(self, work)()
            except BaseException as error:
                self.errors.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        return thread


def open_files(directory: Path) -> list[str]:
    """Return the open files below a directory, deleted ones too: other tests' descriptors do not count."""
    found = []
    for descriptor in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # the one that the list was read by
            found.append(os.readlink(f"/proc/self/fd/{descriptor}"))
    return [name for name in found if name.startswith(f"{directory}/")]


def test_eight_writers_and_eight_readers_under_retention(tmp_path: Path) -> None:
    run = Run(open_log(tmp_path, CONFIG, make_environment(policy=each())))
    others = [run.guarded("read") for _ in range(READERS)] + [run.guarded("retain")]
    writers = [run.guarded("write") for _ in range(WRITERS)]
    for thread in writers:
        thread.join(120)
    run.is_over.set()
    for thread in others:
        thread.join(120)
    assert run.errors == []
    assert sorted(run.offsets) == list(range(0, 2 * WRITERS * BATCHES, 2))
    assert run.log.log_start_offset > 0
    assert run.log.close()
    del run
    gc.collect()
    assert open_files(tmp_path) == []
