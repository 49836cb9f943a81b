"""The controller's queue: order, timers, and how long events waited."""

from kafkaprod.broker.controller.event_queue import EventQueue


def test_events_come_in_order_and_due_timers_first() -> None:
    queue: EventQueue[str] = EventQueue()
    queue.put("a", 0)
    queue.put("b", 1)
    queue.at(5, "k", "timer")
    assert [queue.take(4), queue.take(5), queue.take(5), queue.take(5)] == ["a", "timer", "b", None]
    assert (queue.times.event_count, queue.times.longest_ms) == (3, 4)


def test_a_timer_is_replaced_by_its_key_and_can_be_cancelled() -> None:
    queue: EventQueue[str] = EventQueue()
    queue.at(5, "k", "old")
    queue.at(9, "k", "new")
    assert (queue.take(6), queue.next_deadline_ms(), queue.take(9)) == (None, 9, "new")
    queue.at(20, "k", "never")
    queue.cancel("k")
    assert (queue.take(99), queue.next_deadline_ms()) == (None, None)
