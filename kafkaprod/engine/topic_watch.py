"""Lets application threads wait for a topic's metadata, and the sender see which topics are wanted. Thread-safe.

There is no lock: a signal handler that interrupts the lock's holder and waits for a topic would block the sender, which
fetches the topic. Every step that two threads may run at once is one operation of a dict.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from kafkaprod._core.queues.accumulator import Accumulator
from kafkaprod._core.queues.topic_queues import TopicQueues
from kafkaprod.clock import Clock
from kafkaprod.engine.steps import MakeWaiter, Steps
from kafkaprod.errors import BootstrapError, KafkaError, MetadataTimeoutError, copy_to_raise
from kafkaprod.text import counted

POLL_S = 1.0  # longest sleep before the next check that the producer is still usable


class TopicWaiter:
    """A caller that waits for a topic.

    Attributes:
        topic: Its name.
        partition: Must be among its partitions; None: any.
        wake: Called when there is news; must not block.
        contact_deadline_ms: When it gives up if no broker has ever answered, monotonic.
        error: Why the topic will not come; None so far.
        reason: Why it has not come yet.
    """

    __slots__ = ("contact_deadline_ms", "error", "partition", "reason", "topic", "wake")

    def __init__(self, topic: str, partition: int | None, wake: Callable[[], None], contact_deadline_ms: int) -> None:
        self.topic = topic
        self.partition = partition
        self.wake = wake
        self.contact_deadline_ms = contact_deadline_ms
        self.error: KafkaError | None = None
        self.reason: KafkaError | None = None


class TopicWatch:
    """Connects the callers that wait for topics with the sender, which fetches them.

    Args:
        accumulator: Known topics appear in its `topics`.
        clock: Measures deadlines.
        wakeup: Wakes the sender when a topic is wanted.
        max_block_ms: The limit of waits, for messages.
        bootstrap_timeout_ms: The limit of waits as long as no broker has ever answered.
        has_contact: Returns whether a broker has ever answered.
        explain_no_connection: Returns why no broker can be reached; None: nothing is known.

    Attributes:
        is_connected: Whether metadata has arrived.
    """

    def __init__(
        self,
        accumulator: Accumulator,
        clock: Clock,
        wakeup: Callable[[], None],
        max_block_ms: int,
        bootstrap_timeout_ms: int,
        has_contact: Callable[[], bool],
        explain_no_connection: Callable[[], KafkaError | None],
    ) -> None:
        self._explain_no_connection = explain_no_connection
        self.has_contact = has_contact
        self._bootstrap_timeout_ms = bootstrap_timeout_ms
        self._bootstrap_limit = f"bootstrap_timeout_ms={bootstrap_timeout_ms}"
        self._block_limit = f"max_block_ms={max_block_ms}"
        self._accumulator = accumulator
        self._clock = clock
        self._wakeup = wakeup
        self._max_block_ms = max_block_ms
        self._waiters: dict[TopicWaiter, None] = {}
        self._wanted: dict[str, None] = {}
        self._hopeless: KafkaError | None = None  # why no cluster can be reached, if retries cannot help
        self._last_trouble: KafkaError | None = None
        self.is_connected = False

    def wait_for(
        self,
        topic: str,
        partition: int | None,
        deadline_ms: int,
        check_usable: Callable[[], None],
        make_waiter: MakeWaiter,
    ) -> Steps[TopicQueues]:
        """Wait, as steps, for the topic's queues, with `partition` among them unless that is None.

        Raises: as `look`.
        """
        waiter = make_waiter()
        with self.waiter(topic, partition, waiter.wake) as entry:
            while (queues := self.look(entry, deadline_ms, check_usable)) is None:
                yield waiter, self.patience_s(entry, deadline_ms)
        return queues

    @contextmanager
    def waiter(self, topic: str, partition: int | None, wake: Callable[[], None]) -> Iterator[TopicWaiter]:
        """Call `wake` for news of the topic while the block runs."""
        waiter = TopicWaiter(topic, partition, wake, self._clock.now_ms() + self._bootstrap_timeout_ms)
        try:
            self._waiters[waiter] = None
            yield waiter
        finally:
            self.leave(waiter)

    def enter(self, topic: str, partition: int | None, wake: Callable[[], None]) -> TopicWaiter:
        """Call `wake` for news of the topic until `leave` is called."""
        waiter = TopicWaiter(topic, partition, wake, self._clock.now_ms() + self._bootstrap_timeout_ms)
        self._waiters[waiter] = None
        return waiter

    def leave(self, waiter: TopicWaiter) -> None:
        """Call no more for a waiter."""
        self._waiters.pop(waiter, None)

    def look(self, waiter: TopicWaiter, deadline_ms: int, check_usable: Callable[[], None]) -> TopicQueues | None:
        """Return the topic's queues; None if unknown: the topic is requested, call again when woken.

        Raises: the topic's own error; BootstrapError or AuthenticationError if no broker can be used;
            MetadataTimeoutError at `deadline_ms` (monotonic), or after bootstrap_timeout_ms if no broker has ever
            answered; what `check_usable` raises.
        """
        queues = self._accumulator.topics.get(waiter.topic)
        if queues is not None and (waiter.partition is None or waiter.partition < queues.partition_count):
            return queues
        check_usable()
        error = waiter.error or self._hopeless
        if error is not None:
            raise copy_to_raise(error)
        self._wanted[waiter.topic] = None
        self._wakeup()
        now_ms = self._clock.now_ms()
        if now_ms >= self._earliest_deadline_ms(waiter, deadline_ms):
            limit = self._block_limit if now_ms >= deadline_ms else self._bootstrap_limit
            raise self._timed_out(waiter, queues, limit)
        return None

    def patience_s(self, waiter: TopicWaiter, deadline_ms: int) -> float:
        """Return how long to wait for a wake before the next look."""
        return min((self._earliest_deadline_ms(waiter, deadline_ms) - self._clock.now_ms()) / 1000, POLL_S)

    def first_patience_s(self, limit_s: float) -> float:
        """Return how long a call that waits for no topic may wait before it looks at `has_contact`."""
        return limit_s if self.has_contact() else min(limit_s, self._bootstrap_timeout_ms / 1000)

    def why_no_contact(self) -> KafkaError:
        """Return the error of such a call, if no broker has ever answered and its time is over."""
        is_shorter = self._bootstrap_timeout_ms < self._max_block_ms
        limit = self._bootstrap_limit if is_shorter else self._block_limit
        trouble = self._trouble() or BootstrapError("no bootstrap server has answered")
        return _after(trouble, limit)

    def _earliest_deadline_ms(self, waiter: TopicWaiter, deadline_ms: int) -> int:
        return deadline_ms if self.has_contact() else min(deadline_ms, waiter.contact_deadline_ms)

    def _trouble(self) -> KafkaError | None:
        """Return why no broker can be used; None: nothing is known."""
        trouble = self._last_trouble
        if trouble is None or isinstance(trouble, BootstrapError):  # it may not name the servers that are silent
            trouble = self._explain_no_connection() or trouble
        return trouble

    def _timed_out(self, waiter: TopicWaiter, queues: TopicQueues | None, limit: str) -> KafkaError:
        topic, reason = waiter.topic, waiter.reason
        if not self.is_connected:
            trouble = self._trouble()
            if trouble is not None:
                return _after(trouble, limit)
        what = f"topic {topic!r}" if queues is None else f"partition {waiter.partition} of topic {topic!r}"
        known = "" if queues is None else f"; it has {counted(queues.partition_count, 'partition')}"
        trouble = None if reason is not None else self._explain_no_connection() or self._last_trouble
        last = f"; the last answer: {reason}" if reason is not None else "" if trouble is None else f"; {trouble}"
        error = MetadataTimeoutError(f"no metadata of {what} within {limit}{known}{last}", topic=topic)
        error.__cause__ = reason or trouble
        return error

    # -- the sender's side ---------------------------------------------------------------------------------------------

    def take_wanted(self) -> list[str]:
        """Return the topics wanted since the last call."""
        if not self._wanted:
            return []
        wanted = list(self._wanted)
        for topic in wanted:  # not clear(): others may have come meanwhile
            del self._wanted[topic]
        return wanted

    def tell(self, errors: dict[str, KafkaError], missing: dict[str, KafkaError]) -> None:
        """Wake all waiters because metadata has come; those of a topic in `errors` get its error.

        Args:
            errors: The permanent errors of topics.
            missing: Why other topics were not in the answer.
        """
        self.is_connected = True
        self._hopeless = None
        self._last_trouble = None
        for waiter in list(self._waiters):
            waiter.error = errors.get(waiter.topic, waiter.error)
            waiter.reason = missing.get(waiter.topic, waiter.reason)
            waiter.wake()

    def tell_trouble(self, error: KafkaError, *, is_hopeless: bool) -> None:
        """Keep why no broker can be reached, for waits that time out; if hopeless, fail all waits at once."""
        self._last_trouble = error
        if is_hopeless and not self.is_connected:
            self._hopeless = error
            self._wake_all()

    def tell_end(self) -> None:
        """Wake all waiters, which then see that the producer ends."""
        self._wake_all()

    def _wake_all(self) -> None:
        for waiter in list(self._waiters):
            waiter.wake()


def _after(trouble: KafkaError, limit: str) -> KafkaError:
    """Return why a call gave up: `trouble`, which lasted for all of a limit."""
    if not isinstance(trouble, BootstrapError):
        return copy_to_raise(trouble)
    error = BootstrapError(f"{trouble}; gave up after {limit}, the next call tries again", **trouble.context)
    error.__cause__ = trouble.__cause__
    return error
