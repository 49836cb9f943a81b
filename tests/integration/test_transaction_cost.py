"""What a transaction costs beside a flush, in a measure that no other load changes: calls of Python functions.

On one connection a call costs 2 to 5 us there: the data of the records has just displaced its code from every cache.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType

import pytest

from kafkaprod import Producer
from kafkaprod.broker.embedding.embedded import EmbeddedBroker

ROUNDS = 30
MOST_CALLS = 60  # in the sender thread, besides those of a flush; 37 when this was written
MOST_POLLS = (
    1  # of the sender thread, besides those of a flush: it waits for the answer of EndTxn, and for nothing else
)
MOST_CALLER_CALLS = 20  # in the thread that begins and commits; 10


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(topics={"t": 1}, transaction_version=2) as broker:
        yield broker


class Calls:
    """Counts the calls of this package's functions, by thread."""

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}

    def profile(self, frame: FrameType, event: str, _arg: object) -> None:
        if event == "call" and "kafkaprod" in frame.f_code.co_filename:
            thread_id = threading.get_ident()
            self.counts[thread_id] = self.counts.get(thread_id, 0) + 1


def count_calls(
    broker: EmbeddedBroker, transactional_id: str | None, end: Callable[[Producer], None]
) -> tuple[int, int]:
    """Return the usual number of calls a round in the sender thread, and the least in this one."""
    calls = Calls()
    before = threading.getprofile()
    threading.setprofile(calls.profile)
    try:
        producer = Producer(bootstrap_servers=broker.bootstrap_servers, transactional_id=transactional_id)
    finally:
        threading.setprofile(before)
    rounds: list[tuple[int, int]] = []
    with producer:
        if transactional_id is not None:
            producer.init_transactions()
        own_before = sys.getprofile()
        own, sender = threading.get_ident(), producer._host._thread.ident
        assert sender is not None
        sys.setprofile(calls.profile)
        try:
            for _ in range(ROUNDS):
                started = calls.counts.get(sender, 0), calls.counts.get(own, 0)
                if transactional_id is not None:
                    producer.begin_transaction()
                producer.send_many("t", [b"value"] * 100)
                end(producer)
                rounds.append((calls.counts[sender] - started[0], calls.counts[own] - started[1]))
        finally:
            sys.setprofile(own_before)
    return sorted(count for count, _ in rounds)[ROUNDS // 2], min(count for _, count in rounds)


def test_a_transaction_takes_few_calls_more_than_a_flush(broker: EmbeddedBroker) -> None:
    flush_calls, flush_caller_calls = count_calls(broker, None, Producer.flush)
    calls, caller_calls = count_calls(broker, "few-calls", Producer.commit_transaction)
    assert calls - flush_calls <= MOST_CALLS
    assert caller_calls - flush_caller_calls <= MOST_CALLER_CALLS


def usual_polls(broker: EmbeddedBroker, transactional_id: str | None, end: Callable[[Producer], None]) -> int:
    """Return how often the sender usually waits in a round. Batches linger longer than a round takes."""
    polls: list[int] = []
    with Producer(
        bootstrap_servers=broker.bootstrap_servers, transactional_id=transactional_id, linger_ms=1000
    ) as producer:
        if transactional_id is not None:
            producer.init_transactions()
        pool = producer._engine.node_pool
        for _ in range(ROUNDS):
            before = pool.poll_count
            if transactional_id is not None:
                producer.begin_transaction()
            producer.send_many("t", [b"value"] * 100)
            end(producer)
            polls.append(pool.poll_count - before)
    return sorted(polls)[ROUNDS // 2]


def test_a_commit_wakes_the_sender_once(broker: EmbeddedBroker) -> None:
    flush_polls = usual_polls(broker, None, Producer.flush)
    assert usual_polls(broker, "few-polls", Producer.commit_transaction) - flush_polls <= MOST_POLLS
