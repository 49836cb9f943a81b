"""How far the loop lets a node's path fill, and which requests keep a distance."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.producer.sender_rig import TOPIC, Rig

RTT_MS = 250


def far_rig(**options: Any) -> Rig:
    """A rig whose node has answered once, after RTT_MS."""
    rig = Rig(topics={TOPIC: (1, 1, 1, 1, 1)}, **options)
    _, sent = rig.in_flight(b"x" * 100)
    rig.clock.advance(RTT_MS)
    rig.answer(sent)
    rig.turn()
    return rig


def send_three(rig: Rig) -> int:
    """Send to three partitions, one a turn; return how many requests are in flight then."""
    for partition in range(3):
        rig.send(partition=partition)
        rig.turn()
    return len(rig.produce_requests)


def test_third_request_waits_for_a_fifth_of_the_answer_time() -> None:
    rig = far_rig()
    assert send_three(rig) == 2
    assert rig.pool.poll_timeouts[-1] == RTT_MS // 5
    rig.send(partition=2)  # joins the batch that waits
    rig.turn(RTT_MS // 5 - 1)
    assert len(rig.produce_requests) == 2
    rig.turn(1)
    assert len(rig.produce_requests) == 3
    (ref,) = rig.produce_requests[-1].produce.refs()
    assert ref.record_count == 2


def test_burst_without_linger_leaves_in_steps_after_two() -> None:
    rig = far_rig()
    for partition in range(5):
        rig.send(partition=partition)
        rig.turn()
    assert len(rig.produce_requests) == 2
    rig.turn(RTT_MS // 5)
    assert len(rig.produce_requests) == 3
    assert {ref.partition for ref in rig.produce_requests[-1].produce.refs()} == {2, 3, 4}


def _flush(rig: Rig) -> None:
    rig.accumulator.begin_flush()


def _close(rig: Rig) -> None:
    rig.accumulator.close()


def _end_transaction(rig: Rig) -> None:
    rig.accumulator.set_gate(False)


def _want_memory(rig: Rig) -> None:
    rig.accumulator.pool.enqueue_waiter(1 << 24, lambda: None)


@pytest.mark.parametrize("hurry", [_flush, _close, _end_transaction, _want_memory])
def test_nothing_waits_for_a_distance_if_somebody_is_in_a_hurry(hurry: Callable[[Rig], None]) -> None:
    rig = far_rig()
    assert send_three(rig) == 2
    hurry(rig)
    rig.turn()
    assert len(rig.produce_requests) == 3


def test_batch_that_can_grow_no_more_waits_for_no_distance() -> None:
    rig = far_rig(batch_size=1000)
    send_three(rig)
    assert len(rig.produce_requests) == 2
    for _ in range(2):
        rig.send(b"x" * 500, 2)
    rig.turn()
    assert len(rig.produce_requests) == 3


def test_retried_batch_waits_for_no_distance() -> None:
    rig = far_rig()
    send_three(rig)
    rig.turn(RTT_MS // 5)
    rig.answer(rig.produce_requests[-1], 19)
    rig.turn()
    rig.turn(100)  # the backoff
    assert len(rig.produce_requests) == 3


def test_one_record_at_a_time_never_waits() -> None:
    rig = far_rig()
    for _ in range(10):
        _, sent = rig.in_flight()
        rig.clock.advance(RTT_MS)
        rig.answer(sent)
        rig.turn()
        assert rig.produce_requests == []


def test_without_acknowledgements_nothing_waits() -> None:
    rig = Rig(topics={TOPIC: (1, 1, 1)}, acks=0)
    _, sent = rig.in_flight(b"x" * 900_000)
    rig.send(b"x" * 900_000, 1)
    rig.turn()
    assert len(rig.produce_requests) == 2
    rig.clock.advance(RTT_MS)
    rig.complete(sent)
    rig.turn()
    assert send_three(rig) == 4


def test_request_larger_than_the_window_goes_alone() -> None:
    rig = Rig(topics={TOPIC: (1, 1)})
    _, sent = rig.in_flight(b"x" * 900_000)
    rig.send(partition=1)
    rig.turn()
    assert rig.produce_requests == [sent]
    rig.clock.advance(1)
    rig.answer(sent)
    rig.turn()
    rig.turn()
    assert len(rig.produce_requests) == 1


def test_lost_connection_frees_the_window() -> None:
    rig = Rig(topics={TOPIC: (1, 1)}, retries=0)
    _, sent = rig.in_flight(b"x" * 900_000)
    rig.complete(sent, error=ConnectionError("cut"))
    rig.turn()
    rig.send(partition=1)
    rig.turn()
    assert len(rig.produce_requests) >= 1


class Full(dict[Any, Any]):
    """Takes nothing in."""

    def __setitem__(self, key: object, value: object) -> None:
        raise MemoryError


class Request:
    """What is kept of one."""

    node_id, leaves_more = 1, True


def test_a_request_that_could_not_be_noted_is_not_counted() -> None:
    """Nobody would count it back: the path would be narrower by it for good."""
    request: Any = Request()
    paths = Rig().sender._sending._paths
    paths._flights = Full()
    with pytest.raises(MemoryError):
        paths.on_sent(request, 1000, 1000, 0)
    path = paths.to(1)
    assert path is not None
    assert (path.in_flight_count, path.in_flight_bytes) == (0, 0)
    paths.on_ended(request, 10, is_answered=True)
    assert path.may_send()
