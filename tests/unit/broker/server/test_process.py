"""What a process does for itself before it runs a broker."""

from __future__ import annotations

import platform
import resource
import subprocess
import sys

import pytest

from kafkaprod.broker.server.process import raise_descriptor_limit

FREE_ALL_BUT_THE_LAST = """
import sys
from kafkaprod.broker.server.process import give_back_large_blocks

def resident_mib():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) >> 8

if sys.argv[1] == "prepared":
    give_back_large_blocks()
freed = bytearray(30 << 20)
del freed
before_mib = resident_mib()
blocks = [bytearray(8 << 20) for _ in range(10)]
del blocks[:-1]
print(resident_mib() - before_mib)
"""

TAKE_AND_FREE_ONE_REQUEST = """
import resource
from kafkaprod.broker.server.process import give_back_large_blocks

give_back_large_blocks()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(100):
    request = b"x" * (256 << 10)
    del request
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""

COLLECT_MANY = """
import gc
from kafkaprod.broker.server.process import keep_collections_short

keep_collections_short()
partitions = [[{}] for _ in range(1_000_000)]
gc.collect()
print(gc.get_freeze_count(), gc.get_threshold()[0])
"""

ROOM_FOR_DESCRIPTORS = """
from kafkaprod.broker.server.process import grow_descriptor_table

grow_descriptor_table()
with open("/proc/self/status") as file:
    print(next(line for line in file if line.startswith("FDSize:")).split()[1])
"""


@pytest.mark.parametrize(
    ("soft", "hard", "most", "expected"),
    [
        (1024, 524_288, 524_288, 524_288),
        (256, resource.RLIM_INFINITY, 61_440, 24_576),  # macOS: kern.maxfilesperproc
        (256, resource.RLIM_INFINITY, 10_240, 10_240),
        (256, 4_096, 4_096, 4_096),
        (256, 20_000, 12_000, 10_240),
        (4_096, 4_096, 0, 4_096),
        (50_000, resource.RLIM_INFINITY, 10_240, 50_000),
    ],
)
def test_as_many_files_may_be_open_as_the_system_takes(
    soft: int, hard: int, most: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = [soft, hard]

    def set_limits(_: int, wanted: tuple[int, int]) -> None:
        assert wanted[1] == hard
        if wanted[0] == resource.RLIM_INFINITY or wanted[0] > most:
            raise ValueError("Invalid argument")
        limits[0] = wanted[0]

    monkeypatch.setattr(resource, "getrlimit", lambda _: tuple(limits))
    monkeypatch.setattr(resource, "setrlimit", set_limits)
    raise_descriptor_limit()
    assert limits == [expected, hard]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux shows the size of the table")
def test_table_of_descriptors_has_room_before_threads_are_started() -> None:
    done = subprocess.run([sys.executable, "-c", ROOM_FOR_DESCRIPTORS], capture_output=True, text=True, check=True)

    assert int(done.stdout) >= 1024


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library has other rules")
def test_large_blocks_that_are_freed_are_given_back() -> None:
    assert kept_mib("prepared") < 20
    assert kept_mib("as it is") > 60


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library has other rules")
def test_memory_of_one_request_is_kept_for_the_next() -> None:
    command = [sys.executable, "-c", TAKE_AND_FREE_ONE_REQUEST]
    page_faults = int(subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True, timeout=60).stdout)
    assert page_faults < 10 * 64, "a request of 256 KiB has 64 pages"


def test_what_a_long_collection_left_is_not_looked_at_again() -> None:
    command = [sys.executable, "-c", COLLECT_MANY]
    printed = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True, timeout=60).stdout
    left_out, young = map(int, printed.split())
    assert young == 10_000
    assert left_out > 500_000, "the last collection is short if an earlier one left most of the million lists out"


def kept_mib(how: str) -> int:
    """Return how much a process of its own keeps when 72 of 80 MiB are freed."""
    command = [sys.executable, "-c", FREE_ALL_BUT_THE_LAST, how]
    return int(subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True, timeout=60).stdout)
