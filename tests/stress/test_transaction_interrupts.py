"""Ctrl-C anywhere in a transaction call: the call can be made again, and then the producer goes on."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kafkaprod import Producer
from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from kafkaprod.errors import DeliveryFailedError, IllegalStateError
from tests.stress.interruption import RaisingInterruption
from tests.stress.scale import scaled

POINTS = scaled(150, 1500)
OFFSETS = {("t", 0): 7}


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with EmbeddedBroker(topics={"t": 1}) as broker:
        yield broker.bootstrap_servers


def interrupt() -> None:
    raise KeyboardInterrupt


def points(call: Callable[[], Any]) -> range:
    """Where to interrupt the call, which is made once to see how long it is."""
    dry_run = RaisingInterruption()
    dry_run.run(call)
    assert dry_run.count > 5
    return range(0, dry_run.count, -(-dry_run.count // POINTS))


def interrupted(call: Callable[[], Any], at: int) -> bool:
    """Whether the call was interrupted: the way to a line that is behind its end is not always the same."""
    try:
        RaisingInterruption(interrupt, at).run(call)
    except KeyboardInterrupt:
        return True
    return False


def is_over(call: Callable[[], Any], refusal: str) -> bool:
    """Make a call again; return whether it was over, and only its outcome was lost with the exception."""
    try:
        call()
    except IllegalStateError as error:
        if refusal not in str(error):
            raise
        return True
    return False


def send_offsets(producer: Producer) -> None:
    producer.send_offsets_to_transaction(OFFSETS, "readers")


ENDS: dict[str, Callable[[Producer], Any]] = {
    "commit": lambda producer: producer.commit_transaction(),
    "abort": lambda producer: producer.abort_transaction(),
}


@pytest.mark.parametrize("name", ENDS)
def test_an_interrupted_end_of_a_transaction_can_be_repeated(servers: str, name: str) -> None:
    end = ENDS[name]
    with Producer(bootstrap_servers=servers, transactional_id=f"interrupted-{name}") as producer:
        producer.init_transactions()

        def begin() -> None:
            producer.begin_transaction()
            producer.send("t", b"v")

        begin()
        again = 0
        for at in points(lambda: end(producer)):
            begin()
            if not interrupted(lambda: end(producer), at):
                continue
            if is_over(lambda: end(producer), "no transaction is open"):
                with contextlib.suppress(DeliveryFailedError):  # of an abort that did not come to say so
                    producer.flush()
            else:
                again += 1
        assert again > 5


def test_an_interrupted_beginning_leaves_a_transaction_or_none(servers: str) -> None:
    with Producer(bootstrap_servers=servers, transactional_id="interrupted-begin") as producer:
        producer.init_transactions()
        found = points(producer.begin_transaction)
        for at in found:
            producer.abort_transaction()
            if interrupted(producer.begin_transaction, at) and is_over(
                producer.begin_transaction, "end the present one first"
            ):
                assert producer.send("t", b"v").result(20).offset >= 0
        producer.abort_transaction()


def test_interrupted_offsets_can_be_sent_again(servers: str) -> None:
    with Producer(bootstrap_servers=servers, transactional_id="interrupted-offsets") as producer:
        producer.init_transactions()
        with producer.transaction():
            for at in points(lambda: send_offsets(producer)):
                interrupted(lambda: send_offsets(producer), at)
                send_offsets(producer)


def test_an_interrupted_start_can_be_repeated(servers: str) -> None:
    with Producer(bootstrap_servers=servers, transactional_id="interrupted-init") as producer:
        found = points(producer.init_transactions)
    for at in found[:: scaled(4, 1)]:
        with Producer(bootstrap_servers=servers, transactional_id="interrupted-init") as producer:
            if interrupted(producer.init_transactions, at):
                is_over(producer.init_transactions, "is called once")
            with producer.transaction():
                producer.send("t", b"v")
