"""A broker on a disk that is really full: a small tmpfs, mounted for it alone in a mount namespace of its own.

Where the machine refuses to mount, as containers do, the tests are skipped with its reason; test_log_disk_errors has
the same errors from a disk that is only pretended.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkaprod.broker.storage.log.log_dir import CLEAN_SHUTDOWN
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from kafkaprod.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.support.broker.fixtures_log import make_batch, split_batches
from tests.support.net.raw_client import RawClient

TOPIC = "orders"
REFUSED_COUNT = 200
TIMEOUT_S = 60


class SmallDisk:
    """A tmpfs that only processes started through it see, and its directory."""

    def __init__(self, directory: Path, size_kib: int) -> None:
        """Mount it.

        Raises:
            OSError: the machine refuses; the message says why.
        """
        directory.mkdir()
        self._user = [] if os.geteuid() == 0 else ["--user"]
        mapped = ["--map-root-user"] if self._user else []
        script = 'mount -t tmpfs -o "size=$1k" tmpfs "$0" && echo mounted && exec cat'
        self._holder = subprocess.Popen(
            ["unshare", "--mount", *self._user, *mapped, "sh", "-c", script, str(directory), str(size_kib)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._holder.stdout is not None
        if self._holder.stdout.readline() != "mounted\n":
            raise OSError(f"cannot mount a tmpfs: {self._holder.communicate(timeout=TIMEOUT_S)[1].strip()}")
        self.directory = directory
        self.outside = Path(f"/proc/{self._holder.pid}/root") / directory.relative_to("/")
        """The same directory, as this process sees it."""

    def command(self, *command: str) -> list[str]:
        """A command line that runs where the disk is."""
        keep = ["--preserve-credentials"] if self._user else []
        return ["nsenter", "--target", str(self._holder.pid), "--mount", *self._user, *keep, "--", *command]

    def resize(self, size_kib: int) -> None:
        """Give it another size."""
        options = f"remount,size={size_kib}k"
        subprocess.run(self.command("mount", "-o", options, str(self.directory)), check=True, timeout=TIMEOUT_S)

    def close(self) -> None:
        """Unmount it, with the last process that sees it."""
        self._holder.communicate(timeout=TIMEOUT_S)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[SmallDisk]:
    """3 MiB."""
    try:
        disk = SmallDisk(tmp_path / "small", 3 * 1024)
    except OSError as error:
        pytest.skip(str(error))
    yield disk
    disk.close()


class Broker:
    """`kafkaprod broker` with its data on the disk."""

    def __init__(self, disk: SmallDisk, flush: str) -> None:
        options = ["--data-dir", str(disk.directory / "data"), "--port", "0", "--topic", TOPIC, "--flush", flush]
        self.process = subprocess.Popen(
            disk.command(sys.executable, "-m", "kafkaprod", "broker", *options),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
        )
        assert self.process.stdout is not None
        self.bootstrap_servers = self.process.stdout.readline().split()[2].rstrip(",")

    def end(self, number: signal.Signals) -> str:
        """Send a signal, wait for the end, return what standard error has after the hint of the start."""
        self.process.send_signal(number)
        hint, _, rest = self.process.communicate(timeout=TIMEOUT_S)[1].partition("\n")
        assert hint.startswith("`kill")
        return rest

    def resident_bytes(self) -> int:
        """Its memory."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("VmRSS:")).split()[1]) * 1024


def produce(client: RawClient, value: bytes) -> PartitionProduceResponse:
    data = [PartitionProduceData(index=0, records=bytes(make_batch([value])))]
    request = ProduceRequest(acks=-1, timeout_ms=1, topic_data=[TopicProduceData(name=TOPIC, partition_data=data)])
    return client.call(request, ProduceResponse, 9).responses[0].partition_responses[0]


def read_batches(client: RawClient) -> list[bytes]:
    """The batches, each with one record, by offset."""
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=64 << 20)
    request = FetchRequest(max_wait_ms=0, min_bytes=1, topics=[FetchTopic(topic=TOPIC, partitions=[wanted])])
    data = client.call(request, FetchResponse, 11).responses[0].partitions[0]
    assert data.error_code == ErrorCode.NONE
    return [batch.data for batch in split_batches(bytes(data.records or b""))]


def fill(client: RawClient) -> list[bytes]:
    """Produce until the disk is full; the values that were acknowledged, by offset."""
    rng = random.Random(1)
    acknowledged: list[bytes] = []
    while True:
        value = rng.randbytes(100_000)
        answer = produce(client, value)
        if answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR:
            return acknowledged
        assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, len(acknowledged))
        acknowledged.append(value)


def check_all_there(client: RawClient, acknowledged: list[bytes]) -> None:
    batches = read_batches(client)
    assert len(batches) == len(acknowledged)
    assert all(value in batch for batch, value in zip(batches, acknowledged, strict=True))


@pytest.mark.parametrize(("flush", "end"), [("each", signal.SIGTERM), ("interval:1000", signal.SIGKILL)])
def test_full_disk_refuses_what_it_cannot_keep_and_goes_on_when_there_is_room(
    small_disk: SmallDisk, flush: str, end: signal.Signals
) -> None:
    broker = Broker(small_disk, flush)
    with RawClient(broker.bootstrap_servers) as client:
        acknowledged = fill(client)
        assert 10 < len(acknowledged) < 40
        before_bytes = broker.resident_bytes()
        for _ in range(REFUSED_COUNT):
            assert produce(client, b"x" * 100_000).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert broker.resident_bytes() - before_bytes < 8 << 20
        check_all_there(client, acknowledged)  # readers go on

        small_disk.resize(16 * 1024)
        for value in (b"after" * 1000, b"the flood" * 1000):
            assert produce(client, value).base_offset == len(acknowledged)
            acknowledged.append(value)
        check_all_there(client, acknowledged)
    broker.end(end)
    assert not (small_disk.outside / "data" / CLEAN_SHUTDOWN).exists()  # the next start checks the log

    again = Broker(small_disk, flush)
    with RawClient(again.bootstrap_servers) as client:
        check_all_there(client, acknowledged)
        assert produce(client, b"more").base_offset == len(acknowledged)
    assert again.end(signal.SIGTERM) == ""
    assert (small_disk.outside / "data" / CLEAN_SHUTDOWN).exists()


def test_broker_killed_on_a_full_disk_starts_again_when_there_is_room(small_disk: SmallDisk) -> None:
    broker = Broker(small_disk, "each")
    with RawClient(broker.bootstrap_servers) as client:
        acknowledged = fill(client)
    broker.end(signal.SIGKILL)
    small_disk.resize(16 * 1024)
    again = Broker(small_disk, "each")
    with RawClient(again.bootstrap_servers) as client:
        check_all_there(client, acknowledged)
        assert produce(client, b"more").base_offset == len(acknowledged)
    again.end(signal.SIGTERM)
