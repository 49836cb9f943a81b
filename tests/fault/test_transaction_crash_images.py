"""The broker's directory as a crash leaves it after each append of a transactional history, and inside each of them.

Every transaction is then seen whole or not at all, in all partitions and in the offsets of its group; what a client
was answered to be committed is there; nothing stays open.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kafkaprod.broker.coordinator.transaction_coordinator import TransactionConfig
from kafkaprod.broker.storage.log.partition_log import PartitionLog
from tests.support.broker.broker_requests import TOPIC
from tests.support.broker.broker_without_sockets import BrokerWithoutSockets
from tests.support.broker.transaction_requests import (
    TV1,
    TV2,
    TransactionalClient,
    end_offset,
    read,
    stable_offset,
)

PARTITIONS = (0, 1)
TIMEOUT_MS = 10_000
CHECK_MS = 100
CUTS = 2  # a torn append is cut at each of these parts of its length


class Transaction(NamedTuple):
    """What one transaction wrote, and from which image on it must be there (None: never)."""

    number: int
    answered_at: int | None


class Recorder:
    """Keeps a copy of the directory after each append; the name of the partition appended to with it."""

    def __init__(self, images: Path) -> None:
        self.images = images
        self.appended_to: list[str] = []
        self.source: Path | None = None

    def record(self, log: PartitionLog) -> None:
        assert self.source is not None
        shutil.copytree(self.source, self.image(len(self.appended_to)))
        self.appended_to.append(f"{log.topic_partition.topic}-{log.topic_partition.partition}")

    def image(self, number: int) -> Path:
        return self.images / str(number) / "data"


@pytest.fixture
def recorder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Recorder:
    recorder = Recorder(tmp_path / "images")
    for name in ("fsync", "fdatasync"):  # the images are made by hand: no disk need be waited for
        monkeypatch.setattr(os, name, lambda descriptor: None)

    def record_after(append: Callable[..., Any]) -> Callable[..., Any]:
        def appended(log: PartitionLog, *arguments: Any) -> Any:
            result = append(log, *arguments)
            if recorder.source is not None:
                recorder.record(log)
            return result

        return appended

    for name in ("append", "append_internal", "append_marker"):
        monkeypatch.setattr(PartitionLog, name, record_after(getattr(PartitionLog, name)))
    return recorder


def config_of(level: int) -> TransactionConfig:
    return TransactionConfig(version=level, timeout_check_ms=CHECK_MS)


def write_history(box: BrokerWithoutSockets, recorder: Recorder, level: int) -> list[Transaction]:
    """Transactions in both partitions and a group: committed, aborted, fenced, committed again, timed out."""
    history: list[Transaction] = []

    def write(client: TransactionalClient) -> int:
        number = len(history)
        for partition in PARTITIONS:
            assert client.send(b"%d" % number, partition=partition) == 0
        assert client.send_offset(number) == 0
        return number

    def finish(client: TransactionalClient, is_commit: bool) -> None:
        number = write(client)
        assert client.end(is_commit) == 0
        history.append(Transaction(number, len(recorder.appended_to) if is_commit else None))

    versions = TV2 if level == 2 else TV1
    client = TransactionalClient(box, versions)
    assert client.init(timeout_ms=TIMEOUT_MS) == 0
    for is_commit in (True, False):
        finish(client, is_commit)
    history.append(Transaction(write(client), None))
    successor = TransactionalClient(box, versions)
    assert successor.init(timeout_ms=TIMEOUT_MS) == 51
    assert successor.init(timeout_ms=TIMEOUT_MS) == 0
    finish(successor, True)
    history.append(Transaction(write(successor), None))
    let_time_out(box)
    return history


def let_time_out(box: BrokerWithoutSockets) -> None:
    box.broker.transactions.next_deadline_ms(box.clock.now_ms())
    for ms in (TIMEOUT_MS + 1, CHECK_MS, CHECK_MS):
        box.advance(ms)


def check(image: Path, level: int, history: list[Transaction], appends: int, now_ms: int) -> None:
    """Open an image that holds `appends` whole appends, and read it when all that is open has timed out."""
    box = BrokerWithoutSockets(image.parent, transactions=config_of(level))
    try:
        box.clock.advance(now_ms)
        let_time_out(box)
        values = [set(read(box, partition)) for partition in PARTITIONS]
        assert values[0] == values[1]
        seen = {int(value) for value in values[0]}
        assert seen <= {number for number, answered_at in history if answered_at is not None}
        assert seen >= {number for number, answered_at in history if answered_at is not None and answered_at <= appends}
        assert stable_offset(box) == (max(seen, default=-1), 0)
        for partition in PARTITIONS:
            assert end_offset(box, partition, is_committed=True) == end_offset(box, partition)
        successor = TransactionalClient(box, TV2 if level == 2 else TV1)
        assert successor.init() == 0
        assert (successor.send(b"99"), successor.send_offset(99), successor.commit()) == (0, 0, 0)
        assert set(read(box, 0)) == values[0] | {b"99"}
        assert stable_offset(box) == (99, 0)
    finally:
        box.broker.close()


@pytest.mark.parametrize("level", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_crash_after_each_append_and_inside_it(
    tmp_path: Path, recorder: Recorder, level: int, caplog: pytest.LogCaptureFixture
) -> None:
    box = BrokerWithoutSockets(tmp_path, topics={TOPIC: len(PARTITIONS)}, transactions=config_of(level))
    recorder.source = Path(box.broker.log_dirs.first.path)
    history = write_history(box, recorder, level)
    recorder.source = None
    now_ms = box.clock.now_ms()
    box.broker.close()
    assert len(recorder.appended_to) > 30
    assert {"__transaction_state-0", "__consumer_offsets-0", f"{TOPIC}-0"} <= set(recorder.appended_to)
    for number, partition in enumerate(recorder.appended_to):
        if number and partition == "__transaction_state-0":
            check_torn(recorder, number, partition, level, history, now_ms)
        check(recorder.image(number), level, history, number + 1, now_ms)

    # A crash loses no append, so each open transaction has an id, and no marker is written twice.
    assert [record.message for record in caplog.records if record.levelname in ("WARNING", "CRITICAL")] == []


def check_torn(
    recorder: Recorder, number: int, partition: str, level: int, history: list[Transaction], now_ms: int
) -> None:
    """The crash was while this append was written: a part of it is in the file."""
    name = f"{partition}/{0:020d}.log"
    whole = (recorder.image(number) / name).read_bytes()
    before_path = recorder.image(number - 1) / name
    size_before = before_path.stat().st_size if before_path.exists() else 0
    for cut in range(1, CUTS):
        torn = recorder.images / f"{number}-{cut}" / "data"
        shutil.copytree(recorder.image(number), torn)
        (torn / name).write_bytes(whole[: size_before + (len(whole) - size_before) * cut // CUTS])
        check(torn, level, history, number, now_ms)
        shutil.rmtree(torn.parent)
