"""A writer that has ended well makes the next write; no two writes have one at the same time."""

from __future__ import annotations

import gc
from types import SimpleNamespace
from typing import Any

from kafkaprod.config import ProducerConfig
from kafkaprod.marks.writers import MOST_KEPT, KeptWriter, Writers, close_all

CONFIG = ProducerConfig.from_options(bootstrap_servers="localhost:1")


class Sending:
    """What the rest of a producer is to a writer."""

    def __init__(self, config: ProducerConfig) -> None:
        self.names = [config.transactional_id]
        self.closed = 0
        self.producer = self.transactions = self

    def take_name(self, transactional_id: str) -> None:
        self.names.append(transactional_id)

    def close(self, timeout: float) -> None:
        self.closed += 1


def writers(kept: list[KeptWriter], config: ProducerConfig = CONFIG, *, is_closed: bool = False) -> Writers:
    make: Any = Sending
    host: Any = SimpleNamespace(is_closed=is_closed)
    return Writers(config, make, kept, host)


def test_a_writer_that_comes_back_to_a_closed_producer_is_closed() -> None:
    kept: list[KeptWriter] = []
    writer = writers(kept).take()
    sending: Any = writer.start("w-1")
    writers(kept, is_closed=True).give_back(writer)
    assert (kept, sending.closed) == ([], 1)


def test_a_kept_producer_takes_the_name_of_the_next_write() -> None:
    kept: list[KeptWriter] = []
    first = writers(kept).take()
    sending: Any = first.start("w-1")
    writers(kept).give_back(first)
    again = writers(kept).take()
    assert again is first
    same: Any = again.start("w-2")
    assert same is sending
    assert sending.names == ["w-1", "w-2"]
    other = writers(kept).take()
    assert other is not first
    other.close()
    again.close()
    assert sending.closed == 1


def test_writers_with_a_former_password_or_beyond_the_limit_are_closed() -> None:
    kept: list[KeptWriter] = []
    former = writers(kept).take()
    sending: Any = former.start("w")
    writers(kept).give_back(former)
    now = writers(kept, ProducerConfig.from_options(CONFIG, client_id="other"))
    taken = [now.take() for _ in range(MOST_KEPT + 1)]
    assert former not in taken
    assert sending.closed == 1
    for writer in taken:
        now.give_back(writer)
    assert len(kept) == MOST_KEPT
    close_all(kept)
    assert kept == []


def test_a_writer_that_is_dropped_closes_its_connections() -> None:
    writer = writers([]).take()
    finalizer = writer._finalizer
    del writer
    gc.collect()
    assert not finalizer.alive
