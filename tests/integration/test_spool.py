"""A producer with a spool: what a killed process leaves is in the topic once, in order, whatever the brokers did."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kafkaprod import Producer
from kafkaprod.broker import EmbeddedBroker
from kafkaprod.broker.embedding.arrivals import ArrivedRecord
from kafkaprod.broker.embedding.faults import close_after_handling
from kafkaprod.errors import ConfigError, DeliveryDelayedError

LIMIT_S = 60
PARTITIONS = 3
SENDS_AND_DIES = """
import os, signal, sys
from kafkaprod import Producer
place, directory, first, count = *sys.argv[1:3], *map(int, sys.argv[3:])
producer = Producer(bootstrap_servers=place, spool_dir=directory, linger_ms=1, batch_size=500)
for number in range(first, first + count):
    producer.send("orders", b"%d" % number, partition=number % 3)
producer.sync()
print("spooled", flush=True)
sys.stdin.readline()
os.kill(os.getpid(), signal.SIGKILL)
"""


class Program:
    """A process that sends numbers, waits until they are on the disk, and is killed when told."""

    def __init__(self, place: str, directory: Path, first: int, count: int) -> None:
        arguments = [sys.executable, "-c", SENDS_AND_DIES, place, str(directory), str(first), str(count)]
        self._process = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "spooled\n"

    def kill(self) -> None:
        self._process.communicate("\n", timeout=LIMIT_S)
        assert self._process.returncode == -signal.SIGKILL


def numbers_by_partition(records: list[ArrivedRecord]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {partition: [] for partition in range(PARTITIONS)}
    for record in records:
        assert record.value is not None
        found[record.partition].append(int(record.value))
    return found


def expected(count: int) -> dict[int, list[int]]:
    return {partition: list(range(partition, count, PARTITIONS)) for partition in range(PARTITIONS)}


def finish(place: str, directory: Path, first: int, count: int) -> int:
    """Send some more records in this process and deliver all; return how many an earlier one had left."""
    with Producer(bootstrap_servers=place, spool_dir=directory) as producer:
        for number in range(first, first + count):
            producer.send("orders", b"%d" % number, partition=number % PARTITIONS)
        producer.flush(LIMIT_S)
        assert producer.engine.spool is not None
        return producer.engine.spool.restored_count


def test_records_whose_answers_a_killed_process_never_got_are_in_the_topic_once(tmp_path: Path) -> None:
    with EmbeddedBroker(topics={"orders": PARTITIONS}) as broker:
        place = broker.bootstrap_servers
        rule = broker.faults.on("PRODUCE", close_after_handling())  # they are in the log, and nobody says so
        program = Program(place, tmp_path / "spool", 0, 300)
        rule.wait()
        program.kill()
        assert broker.records("orders")
        broker.faults.clear()
        assert finish(place, tmp_path / "spool", 300, 60) > 0
        assert numbers_by_partition(broker.records("orders")) == expected(360)


def test_records_of_an_outage_are_sent_by_the_process_that_sees_its_end(tmp_path: Path) -> None:
    with EmbeddedBroker(topics={"orders": PARTITIONS}) as broker:
        place = broker.bootstrap_servers
        Program(place, tmp_path / "spool", 0, 30).kill()
        broker.kill()
        for first in (30, 60, 90):  # it needs no cluster to know the topic
            Program(place, tmp_path / "spool", first, 30).kill()
        broker.restore()
        assert finish(place, tmp_path / "spool", 120, 30) >= 90
        assert numbers_by_partition(broker.records("orders")) == expected(150)
        assert finish(place, tmp_path / "spool", 150, 0) == 0


def test_producers_of_one_directory_have_a_slot_each(tmp_path: Path) -> None:
    with EmbeddedBroker(topics={"orders": PARTITIONS}) as broker:
        programs = [Program(broker.bootstrap_servers, tmp_path / "spool", 30 * i, 30) for i in range(2)]
        assert sorted(os.listdir(tmp_path / "spool")) == ["slot-00", "slot-01"]
        for program in programs:
            program.kill()
        Program(broker.bootstrap_servers, tmp_path / "spool", 60, 30).kill()
        assert sorted(os.listdir(tmp_path / "spool")) == ["slot-00", "slot-01"]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"transactional_id": "t"}, "a transaction is decided within"),
        ({"acks": 1, "enable_idempotence": False}, "needs acks=all"),
        ({"spool_max_bytes": 1000}, "expected"),
        ({"spool_sync": "sometimes"}, "each, never or interval:MS"),
    ],
)
def test_what_cannot_be_kept_is_refused(tmp_path: Path, options: dict[str, object], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        Producer({"bootstrap_servers": "localhost:9", "spool_dir": tmp_path / "spool", **options})
    assert not (tmp_path / "spool").exists()


def test_what_a_closed_producer_has_not_delivered_stays_in_the_spool(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="kafkaprod")
    with EmbeddedBroker(topics={"orders": PARTITIONS}) as broker:
        place = broker.bootstrap_servers
        options: dict[str, object] = {"bootstrap_servers": place, "spool_dir": tmp_path / "spool"}
        producer = Producer(options, delivery_timeout_ms=400, request_timeout_ms=300, linger_ms=1)
        producer.send("orders", b"0", partition=0).result(LIMIT_S)
        broker.kill()
        late = producer.send("orders", b"3", partition=0)
        with pytest.raises(DeliveryDelayedError, match="will be sent, do not send them again"):
            producer.flush()
        assert not late.done()  # it does not expire
        producer.close(0)
        with pytest.raises(DeliveryDelayedError, match="a later process with this spool_dir sends what is left"):
            late.result(LIMIT_S)
        assert "1 record left in the spool" in caplog.text
        assert "not delivered" not in caplog.text  # of records that failed and were not looked at
        broker.restore()
        assert finish(place, tmp_path / "spool", 6, 0) == 1
        assert numbers_by_partition(broker.records("orders"))[0] == [0, 3]
