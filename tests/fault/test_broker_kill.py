"""The broker killed with SIGKILL while clients produce to it: each acknowledged record is where it was said to be.

The page cache survives a killed process, so this holds for every flush policy; power cuts are in `test_log_power_cut`.
"""

from __future__ import annotations

import os
import random
import threading
from functools import partial
from pathlib import Path

import pytest

from kafkaprod import Producer
from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from kafkaprod.broker.storage.format.records import iterate_records
from tests.support.broker.fixtures_broker import wait_until
from tests.support.broker.fixtures_log import open_log, read_all

TOPIC = "orders"
PARTITIONS = 3
RECORDS_AT_ONCE = 50


def has_loaded(writers: list[Writer], enough: int) -> bool:
    return pause() or total(writers) >= enough


class Writer(threading.Thread):
    """Produces to one partition and notes what was acknowledged, until told to stop."""

    def __init__(self, producer: Producer, partition: int) -> None:
        super().__init__()
        self.acknowledged: list[tuple[int, bytes]] = []  # offset, value
        self.is_stopping = False
        self._producer = producer
        self._partition = partition

    def run(self) -> None:
        count = 0
        while not self.is_stopping:
            values = [b"%d-%d" % (self._partition, count + index) for index in range(RECORDS_AT_ONCE)]
            sent = [self._producer.send(TOPIC, value, partition=self._partition) for value in values]
            self.acknowledged += [(result.result(60).offset, value) for result, value in zip(sent, values, strict=True)]
            count += RECORDS_AT_ONCE


def check_kills(directory: Path, kills: int, seed: int) -> int:
    """Kill and start again under load; return how many records were acknowledged."""
    rng = random.Random(seed)
    with (
        EmbeddedBroker(directory, topics={TOPIC: PARTITIONS}) as broker,
        Producer(bootstrap_servers=broker.bootstrap_servers, delivery_timeout_ms=120_000) as producer,
    ):
        writers = [Writer(producer, partition) for partition in range(PARTITIONS)]
        for writer in writers:
            writer.start()
        try:
            for kill in range(kills):
                enough = total(writers) + rng.randint(1, 1000)
                wait_until(partial(has_loaded, writers, enough), f"load before kill {kill}")
                broker.kill()
                broker.start()
        finally:
            for writer in writers:
                writer.is_stopping = True
            for writer in writers:
                writer.join()
    for partition, writer in enumerate(writers):
        values = read_values(directory / f"{TOPIC}-{partition}")
        assert [values[offset] for offset, _ in writer.acknowledged] == [value for _, value in writer.acknowledged]
        assert len(values) == len(set(values)) == len(writer.acknowledged)  # idempotent: nothing twice either
    return total(writers)


def read_values(directory: Path) -> list[bytes]:
    """The values of a partition, in the order of their offsets, which are dense."""
    log = open_log(directory)
    data = [memoryview(batch.data) for batch in read_all(log)]
    log.abandon()
    return [record.value or b"" for batch in data for record in iterate_records(batch)]


def total(writers: list[Writer]) -> int:
    return sum(len(writer.acknowledged) for writer in writers)


def pause() -> bool:
    """Let the writers work, between two looks at what they have done."""
    return threading.Event().wait(0.002)


def test_killed_broker_loses_nothing_it_acknowledged(tmp_path: Path) -> None:
    assert check_kills(tmp_path / "data", 3, seed=1) > 0


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_broker_killed_200_times_loses_nothing_it_acknowledged(tmp_path: Path) -> None:
    kills = int(os.environ.get("KAFKAPROD_KILLS", "200"))
    print(f"{check_kills(tmp_path / 'data', kills, seed=2)} records acknowledged over {kills} kills")
