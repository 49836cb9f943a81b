"""kcat as a real client of the embedded broker: produce, consume, a group that rebalances, commit and resume."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from tests.support.broker.fixtures_broker import wait_until
from tests.support.programs import program

pytestmark = pytest.mark.external

TIMEOUT_S = 60


@pytest.fixture(scope="module")
def kcat() -> str:
    """Path of the program; without it the tests are skipped, or fail where Kafka is required."""
    return program("kcat")


class Member:
    """A `kcat -G` process; it prints `partition offset value` a record, commits at its end, and logs its share."""

    def __init__(self, kcat: str, broker: EmbeddedBroker, topic: str, directory: Path) -> None:
        self._out, self._log = directory / "out", directory / "log"
        directory.mkdir()
        options = ["-X", "auto.offset.reset=earliest", "-X", "heartbeat.interval.ms=300", "-f", "%p %o %s\n", "-u"]
        with self._out.open("wb") as out, self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [kcat, "-b", broker.bootstrap_servers, *options, "-G", f"group-of-{topic}", topic],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=log,
            )

    def share(self) -> set[int]:
        """Partitions of the last assignment it was told; empty while it has none."""
        for line in reversed(self._log.read_text().splitlines()):
            if "rebalanced" in line:
                assigned = line.partition("assigned: ")[2]
                return {int(place[place.index("[") + 1 : place.index("]")]) for place in assigned.split(", ") if place}
        return set()

    def records(self) -> list[tuple[int, int, int]]:
        """(partition, offset, value) of each record it has read."""
        lines = self._out.read_text().split("\n")[:-1]  # what follows the last newline is half written
        return [(int(partition), int(offset), int(value)) for partition, offset, value in map(str.split, lines)]

    def close(self) -> None:
        """Commit and leave the group. Idempotent."""
        self._process.terminate()
        self._process.wait(TIMEOUT_S)


OpenMember = Callable[[], Member]


@pytest.fixture
def open_member(kcat: str, embedded_broker: EmbeddedBroker, topic_name: str, tmp_path: Path) -> Iterator[OpenMember]:
    """Open members of one group; all are closed at the end."""
    members: list[Member] = []

    def open_one() -> Member:
        members.append(Member(kcat, embedded_broker, topic_name, tmp_path / str(len(members))))
        return members[-1]

    yield open_one
    for member in members:
        member.close()


def run(kcat: str, broker: EmbeddedBroker, *arguments: str, text: str = "") -> str:
    command = [kcat, "-b", broker.bootstrap_servers, *arguments]
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def produce(kcat: str, broker: EmbeddedBroker, topic: str, values: range) -> None:
    """Value v goes to partition v % 3."""
    for partition in range(3):
        lines = "".join(f"{value}\n" for value in values if value % 3 == partition)
        run(kcat, broker, "-P", "-t", topic, "-p", str(partition), text=lines)


def pause() -> bool:
    """Let the members work, between two looks at what they have done."""
    return threading.Event().wait(0.05)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_kcat_reads_back_what_it_wrote(kcat: str, embedded_broker: EmbeddedBroker, topic_name: str, codec: str) -> None:
    lines = "".join(f"key-{value}:value-{value}\n" for value in range(100))
    run(kcat, embedded_broker, "-P", "-t", topic_name, "-p", "1", "-K:", "-z", codec, "-H", "a=b", text=lines)
    read = ["-C", "-t", topic_name, "-p", "1", "-o", "beginning", "-e", "-q"]
    assert run(kcat, embedded_broker, *read, "-f", "%k:%s\n") == lines
    assert run(kcat, embedded_broker, *read, "-f", "%o %h\n") == "".join(f"{offset} a=b\n" for offset in range(100))
    assert f'topic "{topic_name}" with 3 partitions' in run(kcat, embedded_broker, "-L", "-t", topic_name)
    assert run(kcat, embedded_broker, "-Q", "-t", f"{topic_name}:1:-1").split() == [topic_name, "[1]", "offset", "100"]


def test_three_kcat_members_share_the_partitions_rebalance_and_resume(
    kcat: str, embedded_broker: EmbeddedBroker, topic_name: str, open_member: OpenMember
) -> None:
    produce(kcat, embedded_broker, topic_name, range(300))
    members = [open_member() for _ in range(3)]
    wait_until(
        lambda: pause() or sorted(map(Member.share, members), key=min_or_none) == [{0}, {1}, {2}], "a share each"
    )

    produce(kcat, embedded_broker, topic_name, range(300, 600))
    everything = {(value % 3, value // 3, value) for value in range(600)}

    def all_is_read() -> bool:
        pause()
        return {record for member in members for record in member.records()} == everything

    wait_until(all_is_read, "every record, each by the owner of its partition")
    for member in members:
        (partition,) = member.share()
        assert {record for record in member.records() if record[2] >= 300} == {
            (partition, value // 3, value) for value in range(300, 600) if value % 3 == partition
        }

    members.pop().close()
    wait_until(lambda: pause() or sorted(len(member.share()) for member in members) == [1, 2], "two take over")
    for member in members:
        member.close()

    produce(kcat, embedded_broker, topic_name, range(600, 630))
    resumed = open_member()
    wait_until(lambda: pause() or len(resumed.records()) >= 30, "the records produced since the commit")
    assert set(resumed.records()) == {(value % 3, value // 3, value) for value in range(600, 630)}


def min_or_none(share: set[int]) -> int:
    """Order of shares; an empty one first."""
    return min(share, default=-1)


def test_kcat_lists_all_topics(kcat: str, embedded_broker: EmbeddedBroker, topic_name: str) -> None:
    run = [kcat, "-b", embedded_broker.bootstrap_servers]
    subprocess.run([*run, "-P", "-t", topic_name, "-p", "0"], input=b"a\n", check=True, timeout=TIMEOUT_S)

    listed = subprocess.run([*run, "-L"], check=True, timeout=TIMEOUT_S, capture_output=True, text=True).stdout

    assert f'topic "{topic_name}" with 3 partitions' in listed
