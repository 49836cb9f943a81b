"""Real power cuts: a log on a loop-mounted ext4 that is shut down under it without writing its journal out.

    unshare --mount python -m tests.campaigns.power_cuts DIRECTORY [cycles] [seed]        as root; needs a loop device

`EXT4_IOC_SHUTDOWN` with NOLOGFLUSH drops all that was not synced, as a power cut does. Each cycle appends with the
flush policy `each` until the cut comes at a random moment, mounts again, recovers, and looks for every acknowledged
batch.
The mount namespace keeps the mounts from the rest of the machine, and ends them with the process.
"""

from __future__ import annotations

import fcntl
import gc
import os
import random
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

from kafkaprod.broker.storage.errors import LogError
from kafkaprod.broker.storage.format.log_config import LogConfig
from kafkaprod.broker.storage.log.group_commit import each
from kafkaprod.broker.storage.log.partition_log import PartitionLog
from kafkaprod.storage.disk import Disk
from tests.support.broker.fixtures_log import make_batch, make_environment, open_log, read_all

EXT4_IOC_SHUTDOWN = 0x8004587D  # _IOR('X', 125, __u32)
NOLOGFLUSH = struct.pack("I", 2)
IMAGE_BYTES = 24 << 20
CONFIG = LogConfig(segment_bytes=20_000, index_interval_bytes=500, segment_index_bytes=4096)


class Volume:
    """An ext4 in a file."""

    def __init__(self, directory: Path) -> None:
        self._image = directory / "image"
        self.mount_point = directory / "mounted"
        self.mount_point.mkdir()
        with self._image.open("wb") as image:
            image.truncate(IMAGE_BYTES)
        subprocess.run(["mkfs.ext4", "-q", "-F", str(self._image)], check=True)

    def mount(self) -> None:
        """Also replays the journal."""
        subprocess.run(["mount", "-o", "loop", str(self._image), str(self.mount_point)], check=True)

    def unmount(self) -> None:
        """Nothing in it may be open."""
        gc.collect()  # logs are in cycles with their environment
        subprocess.run(["umount", str(self.mount_point)], check=True)

    def cut_power(self) -> None:
        """From now on nothing reaches the disk, and all calls fail."""
        directory = os.open(self.mount_point, os.O_RDONLY)
        try:
            fcntl.ioctl(directory, EXT4_IOC_SHUTDOWN, NOLOGFLUSH)
        finally:
            os.close(directory)


class Writer(threading.Thread):
    """Appends and commits until the disk is gone; `acknowledged` maps offsets to values."""

    def __init__(self, log: PartitionLog, rng: random.Random, acknowledged: dict[int, bytes]) -> None:
        super().__init__()
        self._log, self._rng, self._acknowledged = log, rng, acknowledged

    def run(self) -> None:
        while True:
            value = self._rng.randbytes(self._rng.randrange(1, 3000))
            try:
                result = self._log.append(make_batch([value]), 0)
                self._log.commit(result.last_offset + 1)
            except LogError:
                return
            self._acknowledged[result.last_offset] = value


def run_cycle(volume: Volume, rng: random.Random) -> int:
    """One cut; returns how many batches were acknowledged before it. AssertionError if one is lost."""
    volume.mount()
    directory = volume.mount_point / f"orders-{rng.getrandbits(60)}"
    directory.mkdir()
    Disk().sync_dir(os.fspath(volume.mount_point))
    log = open_log(directory, CONFIG, make_environment(Disk(), each()))
    acknowledged: dict[int, bytes] = {}
    writers = [Writer(log, random.Random(rng.getrandbits(60)), acknowledged) for _ in range(2)]
    for writer in writers:
        writer.start()
    time.sleep(rng.random() * 0.05)  # a cut comes at any time
    promised = acknowledged.copy()
    # A sync that began before the cut may end well after it, for ext4 gives up its journal some ms later; but then
    # nobody is there to hear of it.
    volume.cut_power()
    for writer in writers:
        writer.join()
    log.abandon()
    del log, writers, writer
    volume.unmount()

    volume.mount()
    log = open_log(directory, CONFIG, is_clean=False)
    batches = read_all(log)
    assert [batch.base_offset for batch in batches] == list(range(len(batches)))
    for offset, value in promised.items():
        assert value in batches[offset].data, f"offset {offset} of {len(promised)} acknowledged ones is lost"
    assert log.append(make_batch(), 0).base_offset == len(batches)
    log.abandon()
    del log
    subprocess.run(["rm", "-r", str(directory)], check=True)
    volume.unmount()
    return len(promised)


def main() -> None:
    """Run the campaign from the command line."""
    cycles = int(sys.argv[2]) if len(sys.argv) > 2 else 1000
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else 1
    rng, volume, total = random.Random(seed), Volume(Path(sys.argv[1])), 0
    for _ in range(cycles):
        total += run_cycle(volume, rng)
    print(f"{cycles} power cuts, {total} batches acknowledged, none lost")


if __name__ == "__main__":
    main()
