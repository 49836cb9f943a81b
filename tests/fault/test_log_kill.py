"""A writing process killed in the middle of its work: the page cache survives, so nothing acknowledged is lost."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.broker.fixtures_log import make_environment, open_log, read_all

WORKER = """
import sys
from kafkaprod.broker.storage.format.log_config import LogConfig
from tests.support.broker.fixtures_log import make_batch, make_environment, open_log
log = open_log(sys.argv[1], LogConfig(segment_bytes=3000, index_interval_bytes=300), is_clean=False)
sequence = log.log_end_offset
while True:
    result = log.append(make_batch([b"%d" % sequence * 9], producer_id=1, epoch=0, sequence=sequence), 0)
    sequence += 1
    print(result.base_offset, flush=True)
"""


def kill_once(directory: Path, after: int) -> int:
    """Run a writer, kill it after it acknowledged `after` records; return the last offset it acknowledged."""
    process = subprocess.Popen([sys.executable, "-c", WORKER, str(directory)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    last = -1
    for _ in range(after):
        last = int(process.stdout.readline())
    os.kill(process.pid, signal.SIGKILL)
    rest = process.stdout.read().split("\n")
    process.stdout.close()
    process.wait()
    return int(rest[-2]) if len(rest) > 1 else last  # the last line may be cut


def check_kills(directory: Path, count: int, seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(count):
        last = kill_once(directory, rng.randint(1, 60))
        log = open_log(directory, environment=make_environment(), is_clean=False)
        assert log.damage is None
        assert [batch.base_offset for batch in read_all(log)] == list(range(log.log_end_offset))
        assert log.log_end_offset > last
        log.abandon()


def test_killed_writer_loses_nothing_it_acknowledged(tmp_path: Path) -> None:
    check_kills(tmp_path, 5, seed=1)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_thousand_killed_writers_lose_nothing_they_acknowledged(tmp_path: Path) -> None:
    check_kills(tmp_path, int(os.environ.get("KAFKAPROD_KILLS", "1000")), seed=2)
