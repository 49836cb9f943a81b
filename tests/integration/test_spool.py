"""A producer with a spool: what a killed process leaves is in the topic once, in order, whatever the brokers did."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafkaprod import AsyncProducer, Producer
from kafkaprod.admin.client import ClusterClient
from kafkaprod.admin.topics import delete_topic
from kafkaprod.broker import EmbeddedBroker
from kafkaprod.broker.embedding.arrivals import ArrivedRecord
from kafkaprod.broker.embedding.faults import close_after_handling, drop_reply, hold, reply_with
from kafkaprod.config import ProducerConfig
from kafkaprod.errors import BufferFullError, ConfigError, DeliveryDelayedError, DeliveryFailedError, PurgedError
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.storage.disk import Disk, LogFile
from tests.support.broker.fixtures_broker import wait_until

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


@pytest.mark.parametrize("sync", ["each", "interval:100", "never"])
def test_an_outage_longer_than_memory_goes_to_the_disk_and_comes_back_in_order(tmp_path: Path, sync: str) -> None:
    memory, body, count = 1 << 20, b"x" * 10_000, 1_050
    options: dict[str, object] = {"spool_dir": tmp_path / "spool", "spool_sync": sync, "buffer_memory": memory}
    outcomes: list[int] = []
    with EmbeddedBroker(topics={"orders": PARTITIONS}) as broker:
        with Producer(options, bootstrap_servers=broker.bootstrap_servers, linger_ms=1) as producer:
            producer.send("orders", b"0 ", partition=0).result(LIMIT_S)
            broker.kill()
            for number in range(1, count):
                future = producer.send("orders", b"%d %s" % (number, body), partition=number % PARTITIONS)
                future.add_done_callback(lambda done, number=number: outcomes.append(number))  # type: ignore[misc]
            producer.sync(LIMIT_S)
            assert producer.engine.accumulator.pool.in_use <= memory
            assert sum(path.stat().st_size for path in (tmp_path / "spool").rglob("*.log")) > 10 * memory
            broker.restore()
            last = producer.send("orders", b"%d %s" % (count, body), partition=count % PARTITIONS)
            producer.flush(LIMIT_S)
            assert last.result(LIMIT_S).offset == count // PARTITIONS
        found: dict[int, list[int]] = {partition: [] for partition in range(PARTITIONS)}
        for record in broker.records("orders"):
            text, _, rest = (record.value or b"").partition(b" ")
            assert rest in (body, b"")
            found[record.partition].append(int(text))
        assert found == expected(count + 1)
        assert sorted(outcomes) == list(range(1, count))


def test_a_future_says_when_its_record_is_in_the_spool_and_metrics_count_it(tmp_path: Path) -> None:
    with EmbeddedBroker(topics={"orders": PARTITIONS}) as broker:
        options: dict[str, object] = {"bootstrap_servers": broker.bootstrap_servers, "spool_dir": tmp_path / "spool"}
        producer = Producer(options, linger_ms=30_000)
        first = producer.send("orders", b"0", partition=0)
        assert not first.spooled(0)  # it lingers
        producer.sync(LIMIT_S)
        assert first.spooled(0)
        producer.flush(LIMIT_S)
        broker.kill()
        late = producer.send("orders", b"3", partition=0)
        rows = producer.send_many("orders", [b"6", b"9"], partition=0)
        assert not late.spooled(0.01)
        wait = threading.Thread(target=producer.sync)
        wait.start()
        assert late.spooled(LIMIT_S)
        assert rows.spooled(LIMIT_S)
        wait.join()
        assert not late.done()
        metrics = producer.metrics()["producer-metrics"]
        assert (metrics["spool-records"], metrics["spool-state"], metrics["spool-replayed-total"]) == (3, 0, 0)
        assert metrics["spool-bytes"] == sum(path.stat().st_size for path in (tmp_path / "spool").rglob("*.log"))
        assert metrics["spool-sync-total"] >= 2
        assert metrics["spool-sync-time-ns-total"] > 0
        producer.close(0)
        assert late.spooled(0)  # its error says that a later process sends it
        with Producer(options) as successor:
            metrics = successor.metrics()["producer-metrics"]
            assert (metrics["spool-records"], metrics["spool-replayed-total"], metrics["spool-state"]) == (3, 3, 1)
            assert metrics["spool-oldest-age"] > 0
            broker.restore()
            successor.flush(LIMIT_S)
            successor.sync(LIMIT_S)
            metrics = successor.metrics()["producer-metrics"]
            assert (metrics["spool-records"], metrics["spool-state"], metrics["spool-oldest-age"]) == (0, 0, 0)


def test_a_record_of_a_producer_without_a_spool_is_never_in_one() -> None:
    with (
        EmbeddedBroker(topics={"orders": PARTITIONS}) as broker,
        Producer(bootstrap_servers=broker.bootstrap_servers) as producer,
    ):
        assert not producer.send("orders", b"0", partition=0).spooled(LIMIT_S)
        assert not any(name.startswith("spool") for name in producer.metrics()["producer-metrics"])


def test_a_batch_that_cannot_be_read_back_fails_alone_and_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    options: dict[str, object] = {"spool_dir": tmp_path / "spool", "buffer_memory": 1 << 20, "batch_size": 1}
    with EmbeddedBroker(topics={"orders": PARTITIONS}) as broker:
        with Producer(options, bootstrap_servers=broker.bootstrap_servers) as producer:
            producer.send("orders", b"0 ", partition=0).result(LIMIT_S)
            broker.kill()
            futures = [producer.send("orders", b"%d %s" % (i, b"x" * 10_000), partition=0) for i in range(1, 300)]
            producer.sync(LIMIT_S)
            (path,) = (tmp_path / "spool").rglob("*.log")
            data = path.read_bytes()
            with path.open("r+b") as file:
                file.seek(data.index(b"100 x"))
                file.write(b"666")
            broker.restore()
            with pytest.raises(DeliveryFailedError, match="cannot be read from the spool"):
                producer.flush(LIMIT_S)
            assert [i + 1 for i, future in enumerate(futures) if future.exception(LIMIT_S) is not None] == [100]
        assert "1 record for orders[0] were in the spool" in caplog.text
        values = [int((record.value or b"").split()[0]) for record in broker.records("orders")]
        assert values == [number for number in range(300) if number != 100]


def test_records_behind_those_that_were_purged_keep_numbers_that_the_next_process_knows(tmp_path: Path) -> None:
    with EmbeddedBroker(topics={"orders": PARTITIONS}) as broker:
        producer = Producer(bootstrap_servers=broker.bootstrap_servers, spool_dir=tmp_path / "spool", linger_ms=0)
        producer.send("orders", b"0", partition=0).result(LIMIT_S)
        broker.kill()
        producer.send("orders", b"1", partition=0)
        producer.sync(LIMIT_S)  # it is in the journal, and has no sequence yet
        assert producer.purge() == 1
        broker.restore()
        rule = broker.faults.on("PRODUCE", close_after_handling())  # it is in the log, and nobody says so
        producer.send("orders", b"3", partition=0)
        rule.wait()
        producer.close(0)
        broker.faults.clear()
        with Producer(bootstrap_servers=broker.bootstrap_servers, spool_dir=tmp_path / "spool") as successor:
            successor.flush(LIMIT_S)
            assert successor.engine.spool is not None
            assert (successor.engine.spool.restored_count, successor.engine.spool.doubtful_count) == (1, 0)
        assert [record.value for record in broker.records("orders")] == [b"0", b"3"]


def test_records_are_purged_behind_those_in_flight_and_the_rest_is_sent_in_order(tmp_path: Path) -> None:
    with (
        EmbeddedBroker(topics={"orders": PARTITIONS}) as broker,
        Producer(bootstrap_servers=broker.bootstrap_servers, spool_dir=tmp_path / "spool", linger_ms=0) as producer,
    ):
        producer.send("orders", b"0", partition=0).result(LIMIT_S)
        rule = broker.faults.on("PRODUCE", hold())
        for number in range(1, 6):  # as many as may be on their way
            producer.send("orders", b"%d" % number, partition=0)
            producer.sync(LIMIT_S)
        rule.wait()
        purged = producer.send("orders", b"6", partition=0)
        producer.sync(LIMIT_S)
        assert producer.purge(in_flight=False) == 1
        assert isinstance(purged.exception(LIMIT_S), PurgedError)
        producer.send("orders", b"7", partition=0)
        broker.faults.clear()
        rule.release()
        producer.flush(LIMIT_S)
        assert [record.value for record in broker.records("orders")] == [b"%d" % number for number in (*range(6), 7)]


class SpoiledDisk:
    """Refuses calls of a kind for files of spools while it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.errors: dict[str, int] = {}
        self.refusals = 0
        for name in ("pwrite", "fdatasync"):
            monkeypatch.setattr(Disk, name, self._refusing(name, getattr(Disk, name)))

    def _refusing(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def refuse_or_call(disk: Disk, file: LogFile, *arguments: Any) -> Any:
            if name in self.errors and "slot-" in file.path:
                self.refusals += 1
                raise OSError(self.errors[name], os.strerror(self.errors[name]), file.path)
            return call(disk, file, *arguments)

        return refuse_or_call


def test_a_disk_that_is_full_ten_times_costs_no_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = SpoiledDisk(monkeypatch)
    options: dict[str, object] = {"spool_dir": tmp_path / "spool", "linger_ms": 0, "batch_size": 500}
    with EmbeddedBroker(topics={"orders": PARTITIONS}) as broker:
        with Producer(options, bootstrap_servers=broker.bootstrap_servers) as producer:
            count = 0
            for _ in range(10):
                for _ in range(2):
                    for number in range(count, count + 60):
                        producer.send("orders", b"%d" % number, partition=number % PARTITIONS)
                    count += 60
                    if disk.errors:
                        wait_until(lambda: disk.refusals, "a refused write")
                        with pytest.raises(TimeoutError):
                            producer.sync(0.05)
                        disk.errors.clear()
                    else:
                        disk.errors["pwrite"], disk.refusals = errno.ENOSPC, 0
            producer.flush(LIMIT_S)
        assert numbers_by_partition(broker.records("orders")) == expected(count)


def test_no_more_is_sent_than_the_next_process_can_tell_while_outcomes_find_no_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = SpoiledDisk(monkeypatch)
    with EmbeddedBroker(topics={"orders": PARTITIONS}) as broker:
        options: dict[str, object] = {"bootstrap_servers": broker.bootstrap_servers, "spool_dir": tmp_path / "spool"}
        producer = Producer(options, linger_ms=0, batch_size=0)
        producer.send("orders", b"0", partition=0).result(LIMIT_S)
        producer.sync(LIMIT_S)
        broker.kill()
        for number in range(3, 120, PARTITIONS):
            producer.send("orders", b"%d" % number, partition=0)
        producer.sync(LIMIT_S)
        disk.errors["pwrite"] = errno.ENOSPC
        broker.restore()
        wait_until(lambda: len(broker.records("orders")) > 1, "some of them")
        with pytest.raises(TimeoutError):
            producer.flush(1.0)
        producer.close(0)
        disk.errors.clear()
        with Producer(options) as successor:
            successor.flush(LIMIT_S)
            assert successor.engine.spool is not None
            assert successor.engine.spool.doubtful_count == 0
        assert numbers_by_partition(broker.records("orders"))[0] == expected(120)[0]


def test_after_a_refused_sync_records_are_stored_in_a_new_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    disk = SpoiledDisk(monkeypatch)
    with EmbeddedBroker(topics={"orders": PARTITIONS}) as broker:
        options: dict[str, object] = {"bootstrap_servers": broker.bootstrap_servers, "spool_dir": tmp_path / "spool"}
        producer = Producer(options, linger_ms=0, spool_sync="interval:10")
        for number in range(3):
            producer.send("orders", b"%d" % number, partition=number)
        producer.flush(LIMIT_S)
        producer.sync(LIMIT_S)
        broker.kill()
        disk.errors["fdatasync"] = errno.EIO
        for number in range(3, 30):
            producer.send("orders", b"%d" % number, partition=number % PARTITIONS)
        wait_until(lambda: disk.refusals >= 2, "a new file that the disk refuses, too")
        assert producer.metrics()["producer-metrics"]["spool-state"] == 3
        disk.errors.clear()
        monkeypatch.setattr(producer.engine.spool, "_begin_again_ms", 0)  # else in ten seconds
        for number in range(30, 60):
            producer.send("orders", b"%d" % number, partition=number % PARTITIONS)
        wait_until(lambda: producer.metrics()["producer-metrics"]["spool-state"] != 3, "a new file")
        producer.sync(LIMIT_S)
        assert "continues in a new file after a failure of its disk" in caplog.text
        producer.close(0)
        broker.restore()
        assert finish(broker.bootstrap_servers, tmp_path / "spool", 60, 3) == 57
        assert numbers_by_partition(broker.records("orders")) == expected(63)


def test_producers_of_one_directory_have_a_slot_each(tmp_path: Path) -> None:
    with EmbeddedBroker(topics={"orders": PARTITIONS}) as broker:
        programs = [Program(broker.bootstrap_servers, tmp_path / "spool", 30 * i, 30) for i in range(2)]
        assert sorted(os.listdir(tmp_path / "spool")) == ["slot-00", "slot-01"]
        for program in programs:
            program.kill()
        Program(broker.bootstrap_servers, tmp_path / "spool", 60, 30).kill()
        assert sorted(os.listdir(tmp_path / "spool")) == ["slot-00", "slot-01"]


def leave_an_outage(broker: EmbeddedBroker, directory: Path) -> None:
    """Send 60 numbers, of which the spool has at least the last 30."""
    Program(broker.bootstrap_servers, directory, 0, 30).kill()
    broker.kill()
    Program(broker.bootstrap_servers, directory, 30, 30).kill()
    broker.restore()


def failure_of_flush(broker: EmbeddedBroker, directory: Path) -> str:
    """Deliver what is in the spool; return the error's text."""
    producer = Producer(bootstrap_servers=broker.bootstrap_servers, spool_dir=directory)
    with pytest.raises(DeliveryFailedError) as caught:
        producer.flush(LIMIT_S)
    producer.close(LIMIT_S)
    return str(caught.value)


def test_records_whose_numbers_a_broker_does_not_know_are_sent_again_counted_and_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with EmbeddedBroker(topics={"orders": PARTITIONS}) as broker:
        rule = broker.faults.on("PRODUCE", close_after_handling())  # they are in the log, and nobody says so
        program = Program(broker.bootstrap_servers, tmp_path / "spool", 0, 300)
        rule.wait()
        program.kill()
        broker.faults.clear()
        # Five may have been sent, and the first of them is tried twice.
        broker.faults.on("PRODUCE", reply_with(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER), partition=0, times=6)
        with Producer(bootstrap_servers=broker.bootstrap_servers, spool_dir=tmp_path / "spool") as producer:
            producer.flush(LIMIT_S)
            spool = producer.engine.spool
            assert spool is not None
            doubtful = spool.doubtful_count
        found = numbers_by_partition(broker.records("orders"))
        twice = sum(map(len, found.values())) - 300
        assert 0 < twice <= doubtful
        assert "may be there twice: OUT_OF_ORDER_SEQUENCE_NUMBER" in caplog.text
        assert {partition: sorted(set(numbers)) for partition, numbers in found.items()} == expected(300)


def test_a_broker_that_remembers_the_last_batch_alone_has_all_before_it(tmp_path: Path) -> None:
    with EmbeddedBroker(topics={"orders": PARTITIONS}) as broker:
        options: dict[str, object] = {"bootstrap_servers": broker.bootstrap_servers, "spool_dir": tmp_path / "spool"}
        producer = Producer(options, linger_ms=0)
        producer.send("orders", b"0", partition=0).result(LIMIT_S)
        rule = broker.faults.on("PRODUCE", drop_reply())
        for number in range(3, 18, PARTITIONS):
            producer.send("orders", b"%d" % number, partition=0)
            producer.sync(LIMIT_S)
        rule.wait()  # the first of them is in the log
        producer.close(0)
        broker.faults.clear()
        unknown = reply_with(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
        rule = broker.faults.on("PRODUCE", unknown, times=1)  # and it takes the second
        with Producer(options, retry_backoff_ms=2000, retry_backoff_max_ms=2000) as successor:
            rule.wait()
            wait_until(lambda: len(broker.records("orders")) == 6, "all behind the first")
            again = broker.faults.on("PRODUCE", unknown, times=1)
            again.wait()
            successor.send("orders", b"18", partition=0)
            successor.flush(LIMIT_S)
            assert successor.engine.spool is not None
            assert (successor.engine.spool.restored_count, successor.engine.spool.doubtful_count) == (5, 0)
        assert numbers_by_partition(broker.records("orders"))[0] == expected(19)[0]


def test_records_of_an_earlier_process_that_are_refused_are_named_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with EmbeddedBroker(topics={"orders": PARTITIONS}) as broker:
        leave_an_outage(broker, tmp_path / "spool")
        broker.faults.on("PRODUCE", reply_with(ErrorCode.INVALID_RECORD), partition=1)
        assert "INVALID_RECORD" in failure_of_flush(broker, tmp_path / "spool")
        assert "for orders[1] of an earlier process are not delivered and leave the spool" in caplog.text
        assert "for orders[0] of an earlier process are not" not in caplog.text
        broker.faults.clear()
        assert finish(broker.bootstrap_servers, tmp_path / "spool", 60, 0) == 0  # they are not sent for ever
        found = numbers_by_partition(broker.records("orders"))
        assert (found[0], found[2]) == (expected(60)[0], expected(60)[2])


def test_records_for_a_partition_that_is_gone_are_named_and_hold_nothing_up(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with EmbeddedBroker(topics={"orders": PARTITIONS}) as broker:
        leave_an_outage(broker, tmp_path / "spool")
        with ClusterClient(ProducerConfig.from_options(bootstrap_servers=broker.bootstrap_servers)) as client:
            delete_topic(client, "orders")
        broker.create_topic("orders", 1)
        assert "created again with fewer partitions" in failure_of_flush(broker, tmp_path / "spool")
        assert "for orders[2] of an earlier process are not delivered" in caplog.text
        assert {record.partition for record in broker.records("orders")} == {0}
        assert finish(broker.bootstrap_servers, tmp_path / "spool", 60, 0) == 0


def test_a_full_spool_takes_records_again_when_some_were_delivered(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="kafkaprod.spool")
    limit = 16 << 20
    options: dict[str, object] = {"spool_dir": tmp_path / "spool", "spool_max_bytes": limit, "max_block_ms": 500}
    with EmbeddedBroker(topics={"orders": PARTITIONS}) as broker:
        with Producer(options, bootstrap_servers=broker.bootstrap_servers, buffer_memory=limit * 2) as producer:
            producer.send("orders", b"0", partition=0).result(LIMIT_S)
            broker.kill()
            sent = 1
            with contextlib.suppress(BufferFullError):
                for sent in range(1, 1000):
                    producer.send("orders", b"%d %s" % (sent, b"x" * 100_000), partition=0)
            assert sent < 999
            assert sum(path.stat().st_size for path in (tmp_path / "spool").rglob("*.log")) <= limit
            assert "is full, records wait in memory" in caplog.text
            with pytest.raises(TimeoutError, match="not all records are on the disk"):
                producer.sync(0.2)
            broker.restore()
            producer.flush(LIMIT_S)
            producer.sync(LIMIT_S)
        assert "takes records again" in caplog.text
        values = [record.value or b"" for record in broker.records("orders")]
        assert [int(value.split()[0]) for value in values] == list(range(sent))


def test_a_producer_that_could_not_be_made_leaves_its_slot_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="new thread") as caught:  # held, with all that its frames hold
            Producer(bootstrap_servers="localhost:9", spool_dir=tmp_path / "spool")
    tls = {"security_protocol": "SSL", "ssl_cafile": "/none"}
    with pytest.raises(ConfigError, match="ssl_cafile") as refused:
        Producer(tls, bootstrap_servers="localhost:9", spool_dir=tmp_path / "spool")
    Producer(bootstrap_servers="localhost:9", spool_dir=tmp_path / "spool").close(0)
    assert os.listdir(tmp_path / "spool") == ["slot-00"]
    del caught, refused


def test_a_producer_that_is_closed_at_once_leaves_what_still_lingers(tmp_path: Path) -> None:
    with EmbeddedBroker(topics={"orders": PARTITIONS}) as broker:
        options: dict[str, object] = {"bootstrap_servers": broker.bootstrap_servers, "spool_dir": tmp_path / "spool"}
        producer = Producer(options, linger_ms=30_000)
        producer.send("orders", b"0", partition=0)
        producer.flush(LIMIT_S)
        broker.kill()
        late = producer.send("orders", b"3", partition=0)
        producer.close(0)
        with pytest.raises(DeliveryDelayedError):
            late.result(LIMIT_S)
        broker.restore()
        assert finish(broker.bootstrap_servers, tmp_path / "spool", 6, 0) == 1
        assert numbers_by_partition(broker.records("orders"))[0] == [0, 3]


async def test_a_task_waits_for_the_disk(tmp_path: Path) -> None:
    with EmbeddedBroker(topics={"orders": PARTITIONS}) as broker:
        async with AsyncProducer(bootstrap_servers=broker.bootstrap_servers, spool_dir=tmp_path / "spool") as producer:
            await (await producer.send("orders", b"0", partition=0))
            broker.kill()
            await producer.send("orders", b"3", partition=0)
            await producer.sync(LIMIT_S)
            await producer.close(0)
        broker.restore()
        assert finish(broker.bootstrap_servers, tmp_path / "spool", 6, 0) == 1
        assert numbers_by_partition(broker.records("orders"))[0] == [0, 3]


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
