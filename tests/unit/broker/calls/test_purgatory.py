"""Waiting requests: completed by what they wait for, or by time, exactly once."""

from __future__ import annotations

import random
import weakref

from kafkaprod.broker.calls.purgatory import Purgatory
from kafkaprod.structs import TopicPartition

A = TopicPartition("orders", 0)
B = TopicPartition("orders", 1)


class Waiting:
    """An operation that completes when told so; `calls` holds what it was called with."""

    def __init__(self) -> None:
        self.is_due = False
        self.calls: list[bool] = []

    def __call__(self, is_expired: bool) -> bool:
        self.calls.append(is_expired)
        return self.is_due


def purgatory() -> Purgatory:
    return Purgatory(wakeup=lambda: None)


def test_operation_is_tried_again_after_it_was_put_on_the_lists() -> None:
    waiting = Waiting()
    waiting.is_due = True
    room = purgatory()
    assert room.watch([A], 100, waiting).is_done
    assert (waiting.calls, len(room)) == ([False], 0)


def test_notification_of_any_key_tries_the_operation_once() -> None:
    waiting = Waiting()
    room = purgatory()
    room.watch([A, B], 100, waiting)
    room.notify(B)
    room.notify(B)
    room.notify(A)
    room.run(0)
    assert waiting.calls[1:] == [False]
    waiting.is_due = True
    room.notify(A)
    room.run(0)
    room.notify(B)
    room.run(1000)
    assert len(waiting.calls) == 3
    assert room.next_deadline_ms() is None


def test_notification_of_another_key_wakes_nobody() -> None:
    woken: list[None] = []
    room = Purgatory(wakeup=lambda: woken.append(None))
    room.watch([A], 100, Waiting())
    room.notify(B)
    assert woken == []
    room.notify(A)
    assert woken == [None]


def test_operation_is_completed_by_time_at_the_latest() -> None:
    waiting = Waiting()
    room = purgatory()
    room.watch([A], 100, waiting)
    room.run(99)
    assert room.next_deadline_ms() == 100
    room.run(100)
    assert waiting.calls == [False, True]
    assert len(room) == 0


def test_cancelled_operation_is_never_tried_again() -> None:
    waiting = Waiting()
    room = purgatory()
    operation = room.watch([A], 100, waiting)
    room.cancel(operation)
    room.cancel(operation)
    room.notify(A)
    room.run(1000)
    assert waiting.calls == [False]


def test_thousands_of_completed_operations_leave_nothing_behind() -> None:
    dice = random.Random(1)
    room = purgatory()
    pending = []
    for number in range(5000):
        waiting = Waiting()
        pending.append(waiting)
        room.watch([A if dice.random() < 0.5 else B], 10_000 + number, waiting)
        if len(pending) > 10:
            pending.pop(dice.randrange(len(pending))).is_due = True
            room.notify(A)
            room.notify(B)
            room.run(0)
    assert len(room) == 10
    assert len(room._deadlines) < 200
    for waiting in pending:
        waiting.is_due = True
    room.notify(A)
    room.notify(B)
    room.run(0)
    assert (len(room), room._watched, room.next_deadline_ms()) == (0, {}, None)


def test_operation_that_is_over_keeps_nothing_of_its_request() -> None:
    room = purgatory()
    waiting = Waiting()
    kept = weakref.ref(waiting)
    room.cancel(room.watch([A], 100, waiting))  # its deadline stays until it is the next one
    del waiting
    assert kept() is None
