from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from kafkaprod._core.machine.waking import Waiter
from kafkaprod._core.queues.accumulator import Accumulator
from kafkaprod._core.queues.buffer_pool import BufferPool
from kafkaprod.engine.steps import run
from kafkaprod.engine.topic_watch import TopicWatch
from kafkaprod.errors import AuthorizationError, BootstrapError, KafkaError, MetadataTimeoutError, ProducerClosedError
from tests.support.clock import ManualClock

FAR_MS = 60_000
SOON_MS = 10_000


class Place:
    """A watch, and a thread that waits in it."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.accumulator = Accumulator(BufferPool(1 << 20))
        self.wanted = threading.Semaphore(0)
        self.has_contact = True
        self.watch = TopicWatch(
            self.accumulator, self.clock, self.wanted.release, FAR_MS, SOON_MS, lambda: self.has_contact, lambda: None
        )
        self.outcomes: list[Any] = []
        self.threads: list[threading.Thread] = []

    def wait(self, topic: str = "t", partition: int | None = None, check: Callable[[], None] = lambda: None) -> None:
        """Wait in a thread of its own, and return once it does."""

        def target() -> None:
            try:
                self.outcomes.append(run(self.watch.wait_for(topic, partition, FAR_MS, check, Waiter)))
            except KafkaError as error:
                self.outcomes.append(error)

        self.threads.append(threading.Thread(target=target))
        self.threads[-1].start()
        assert self.wanted.acquire(timeout=10)

    def end(self) -> list[Any]:
        for thread in self.threads:
            thread.join(10)
            assert not thread.is_alive()
        assert not self.watch._waiters
        return self.outcomes


def test_known_topic_is_returned_at_once() -> None:
    place = Place()
    queues = place.accumulator.set_topic("t", [1])
    assert run(place.watch.wait_for("t", None, 0, lambda: None, Waiter)) is queues
    assert place.watch.take_wanted() == []


def test_those_who_wait_get_the_topic_when_it_comes() -> None:
    place = Place()
    place.wait()
    place.wait()
    assert place.watch.take_wanted() == ["t"]
    queues = place.accumulator.set_topic("t", [1])
    place.watch.tell({}, {})
    assert place.end() == [queues, queues]
    assert place.watch.is_connected


def test_partition_that_is_not_there_yet_is_waited_for() -> None:
    place = Place()
    place.accumulator.set_topic("t", [1])
    place.wait(partition=1)
    queues = place.accumulator.set_topic("t", [1, 1])
    place.watch.tell({}, {})
    assert place.end() == [queues]


def test_error_of_a_topic_reaches_all_who_wait_for_it_and_nobody_else() -> None:
    place = Place()
    error = AuthorizationError("no")
    place.wait("t")
    place.wait("t")
    place.wait("other")
    place.watch.tell({"t": error}, {})
    place.accumulator.set_topic("other", [1])
    place.watch.tell({}, {})
    outcomes = place.end()
    assert sum(repr(outcome) == repr(error) for outcome in outcomes) == 2
    assert len(outcomes) == 3


def test_error_of_a_topic_nobody_waits_for_is_not_kept() -> None:
    place = Place()
    place.watch.tell({"t": AuthorizationError("no")}, {})
    with pytest.raises(MetadataTimeoutError):
        run(place.watch.wait_for("t", None, 0, lambda: None, Waiter))


def test_deadline_raises_and_names_topic_and_limit() -> None:
    place = Place()
    place.watch.tell({}, {})
    with pytest.raises(MetadataTimeoutError, match=r"topic 't' within max_block_ms=60000"):
        run(place.watch.wait_for("t", None, 0, lambda: None, Waiter))
    place.accumulator.set_topic("t", [1])
    with pytest.raises(MetadataTimeoutError, match=r"partition 4 of topic 't' .*it has 1 partition"):
        run(place.watch.wait_for("t", 4, 0, lambda: None, Waiter))
    assert place.watch.take_wanted() == ["t"], "it is asked for all the same"


def test_reason_why_a_topic_has_not_come_is_told() -> None:
    place = Place()
    missing = KafkaError("LEADER_NOT_AVAILABLE")
    place.wait()
    place.watch.tell({}, {"t": missing})
    place.clock.advance(FAR_MS)
    place.watch.tell({}, {})
    (error,) = place.end()
    assert isinstance(error, MetadataTimeoutError)
    assert error.__cause__ is missing


def test_bootstrap_trouble_is_the_error_at_the_deadline() -> None:
    place = Place()
    trouble = BootstrapError("h:1 (connect): refused")
    place.watch.tell_trouble(trouble, is_hopeless=False)
    with pytest.raises(BootstrapError, match="gave up after max_block_ms=60000"):
        run(place.watch.wait_for("t", None, 0, lambda: None, Waiter))


def test_hopeless_trouble_ends_the_wait_at_once_until_metadata_comes() -> None:
    place = Place()
    trouble = BootstrapError("h:1 (resolve): no such name")
    place.wait()
    place.watch.tell_trouble(trouble, is_hopeless=True)
    assert repr(place.end()) == repr([trouble])
    place.watch.tell({}, {})
    with pytest.raises(MetadataTimeoutError):
        run(place.watch.wait_for("t", None, 0, lambda: None, Waiter))


def test_first_contact_has_a_limit_of_its_own() -> None:
    place = Place()
    place.has_contact = False
    place.wait()
    place.watch.tell_trouble(BootstrapError("h:1 (connect): refused"), is_hopeless=False)
    place.clock.advance(SOON_MS)
    (error,) = place.end()
    assert isinstance(error, BootstrapError)
    assert str(error) == "h:1 (connect): refused; gave up after bootstrap_timeout_ms=10000, the next call tries again"


def test_first_contact_without_any_attempt_names_its_limit() -> None:
    place = Place()
    place.has_contact = False
    place.wait()
    place.clock.advance(SOON_MS)
    (error,) = place.end()
    assert isinstance(error, MetadataTimeoutError)
    assert "within bootstrap_timeout_ms=10000" in str(error)


def test_after_a_first_contact_the_wait_has_all_its_time() -> None:
    place = Place()
    place.has_contact = False
    with place.watch.waiter("t", None, lambda: None) as entry:
        place.clock.advance(SOON_MS - 1)
        assert place.watch.look(entry, FAR_MS, lambda: None) is None
        assert place.watch.patience_s(entry, FAR_MS) == 0.001
        place.has_contact = True
        place.clock.advance(FAR_MS - SOON_MS)
        assert place.watch.look(entry, FAR_MS, lambda: None) is None
        place.clock.advance(1)
        with pytest.raises(MetadataTimeoutError, match="max_block_ms=60000"):
            place.watch.look(entry, FAR_MS, lambda: None)


def test_trouble_of_a_connected_producer_is_only_the_cause() -> None:
    place = Place()
    place.watch.tell({}, {})
    trouble = BootstrapError("cut")
    place.watch.tell_trouble(trouble, is_hopeless=True)
    with pytest.raises(MetadataTimeoutError) as caught:
        run(place.watch.wait_for("t", None, 0, lambda: None, Waiter))
    assert caught.value.__cause__ is trouble


def test_end_of_the_producer_ends_the_wait() -> None:
    place = Place()
    closed = threading.Event()

    def check() -> None:
        if closed.is_set():
            raise ProducerClosedError("closed")

    place.wait(check=check)
    closed.set()
    place.watch.tell_end()
    (error,) = place.end()
    assert isinstance(error, ProducerClosedError)
