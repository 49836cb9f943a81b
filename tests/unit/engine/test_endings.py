"""A request above the limit of a broker ends the connection, again and again: what is sent then, and its error."""

from __future__ import annotations

from kafkaprod.engine.endings import ALONE_MS, MOST_ENDINGS
from kafkaprod.errors import ConnectionLostError, RequestTimedOutError
from tests.support.producer.sender_rig import TOPIC, Rig

PARTITIONS = 4
VALUE = b"v" * 30_000


def ended(rig: Rig, times: int = MOST_ENDINGS, error: Exception | None = None) -> None:
    """Send a record to each partition in one request, and let the connection end with it."""
    for partition in range(PARTITIONS):
        rig.send(VALUE, partition)
    for _ in range(times):
        rig.turn(advance_ms=2000)
        for sent in rig.produce_requests:
            rig.complete(sent, error=error or ConnectionLostError("reset"), is_possibly_persisted=True)
        rig.turn()


def make() -> Rig:
    return Rig(
        topics={TOPIC: (1,) * PARTITIONS}, batch_size=65_536, delivery_timeout_ms=120_000, enable_idempotence=True
    )


def batches_of_requests(rig: Rig) -> list[int]:
    rig.turn(advance_ms=2000)
    return [len(list(sent.produce.refs())) for sent in rig.produce_requests]


def test_after_the_third_end_each_batch_has_a_request_of_its_own() -> None:
    rig = make()
    ended(rig)
    assert batches_of_requests(rig) == [1] * PARTITIONS


def test_before_it_and_after_time_outs_batches_go_together() -> None:
    rig = make()
    ended(rig, MOST_ENDINGS - 1)
    assert batches_of_requests(rig) == [PARTITIONS]
    rig = make()
    ended(rig, error=RequestTimedOutError("late"))
    assert batches_of_requests(rig) == [PARTITIONS]


def test_an_answer_between_begins_again() -> None:
    rig = make()
    ended(rig, MOST_ENDINGS - 1)
    rig.turn(advance_ms=2000)
    for sent in rig.produce_requests:
        rig.answer(sent)
    rig.turn()
    ended(rig, 1)
    assert batches_of_requests(rig) == [PARTITIONS]


def test_small_requests_are_not_taken_for_too_large() -> None:
    rig = make()
    for partition in range(PARTITIONS):
        rig.send(b"small", partition)
    for _ in range(MOST_ENDINGS):
        rig.turn(advance_ms=2000)
        (sent,) = rig.produce_requests
        rig.complete(sent, error=ConnectionLostError("reset"), is_possibly_persisted=True)
        rig.turn()
    assert batches_of_requests(rig) == [PARTITIONS]


def test_larger_requests_are_tried_again_after_a_while() -> None:
    rig = make()
    ended(rig)
    for _ in range(PARTITIONS):
        rig.turn(advance_ms=100)
        for sent in rig.produce_requests:
            rig.answer(sent)
        rig.turn()
    rig.turn(advance_ms=ALONE_MS)
    for partition in range(PARTITIONS):
        rig.send(VALUE, partition)
    assert batches_of_requests(rig) == [PARTITIONS]


def test_the_error_names_the_size_that_ended_the_connection() -> None:
    rig = Rig(topics={TOPIC: (1,)}, batch_size=200_000, delivery_timeout_ms=20_000)
    future = rig.send(b"x" * 150_000)
    while not future.done():
        rig.turn(advance_ms=1000)
        for sent in rig.produce_requests:
            rig.complete(sent, error=ConnectionLostError("reset"), is_possibly_persisted=True)
    text = str(future.exception(0))
    assert "each request of 150" in text
    assert "ended the connection" in text
    assert "socket.request.max.bytes" in text
