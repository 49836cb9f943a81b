"""Where application threads wait for a topic's metadata, and the sender hears which topics are wanted. Thread-safe.

There is no lock: a signal handler that interrupted its holder and waits for a topic would keep the sender from bringing
it. Every step that two threads could take at once is one operation of a dict.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from kafkaprod._core.queues.accumulator import Accumulator, TopicQueues
from kafkaprod.clock import Clock
from kafkaprod.engine.steps import MakeWaiter, Steps
from kafkaprod.errors import BootstrapError, KafkaError, MetadataTimeoutError
from kafkaprod.text import counted

POLL_S = 1.0  # longest sleep between looks at whether the producer is still usable


class TopicWaiter:
    """Somebody who waits for a topic.

    Attributes:
        topic: Its name.
        partition: Must be among its partitions; None: any will do.
        wake: Called when there is news; must not block.
        error: What came instead.
        reason: Why it has not come yet.
    """

    __slots__ = ("error", "partition", "reason", "topic", "wake")

    def __init__(self, topic: str, partition: int | None, wake: Callable[[], None]) -> None:
        self.topic = topic
        self.partition = partition
        self.wake = wake
        self.error: KafkaError | None = None
        self.reason: KafkaError | None = None


class TopicWatch:
    """The meeting point of those who want topics and the sender, which gets them.

    Args:
        accumulator: Known topics appear in its `topics`.
        clock: For deadlines.
        wakeup: Tells the sender that a topic is wanted.
        max_block_ms: What deadlines are made of, for messages.
        explain_no_connection: Returns why no broker has answered yet; None: nothing is known.
    """

    def __init__(
        self,
        accumulator: Accumulator,
        clock: Clock,
        wakeup: Callable[[], None],
        max_block_ms: int,
        explain_no_connection: Callable[[], KafkaError | None],
    ) -> None:
        self._explain_no_connection = explain_no_connection
        self._accumulator = accumulator
        self._clock = clock
        self._wakeup = wakeup
        self._max_block_ms = max_block_ms
        self._waiters: dict[TopicWaiter, None] = {}
        self._wanted: dict[str, None] = {}
        self._hopeless: KafkaError | None = None  # why no cluster can be reached, if that is not going to heal
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
        """Steps to the topic's queues, with `partition` among them unless that is None.

        Raises: as `look`.
        """
        waiter = make_waiter()
        with self.waiter(topic, partition, waiter.wake) as entry:
            while (queues := self.look(entry, deadline_ms, check_usable)) is None:
                yield waiter, self.patience_s(deadline_ms)
        return queues

    @contextmanager
    def waiter(self, topic: str, partition: int | None, wake: Callable[[], None]) -> Iterator[TopicWaiter]:
        """While the block runs, `wake` is called when there is news of the topic."""
        waiter = TopicWaiter(topic, partition, wake)
        try:
            self._waiters[waiter] = None
            yield waiter
        finally:
            self._waiters.pop(waiter, None)

    def look(self, waiter: TopicWaiter, deadline_ms: int, check_usable: Callable[[], None]) -> TopicQueues | None:
        """The topic's queues if they are known, else None: it is asked for, look again when woken.

        Raises: the topic's own error; BootstrapError or AuthenticationError if no broker can be used;
            MetadataTimeoutError at `deadline_ms` (monotonic); what `check_usable` raises.
        """
        queues = self._accumulator.topics.get(waiter.topic)
        if queues is not None and (waiter.partition is None or waiter.partition < queues.partition_count):
            return queues
        check_usable()
        error = waiter.error or self._hopeless
        if error is not None:
            raise error.with_traceback(None)  # shared: it must not collect the frames of all who raise it
        self._wanted[waiter.topic] = None
        self._wakeup()
        if self._clock.now_ms() >= deadline_ms:
            raise self._timed_out(waiter, queues)
        return None

    def patience_s(self, deadline_ms: int) -> float:
        """How long to wait for a wake before looking again."""
        return min((deadline_ms - self._clock.now_ms()) / 1000, POLL_S)

    def _timed_out(self, waiter: TopicWaiter, queues: TopicQueues | None) -> KafkaError:
        topic, reason = waiter.topic, waiter.reason
        if not self.is_connected:
            trouble = self._last_trouble
            if trouble is None or isinstance(trouble, BootstrapError):  # it may not name the servers that are silent
                trouble = self._explain_no_connection() or trouble
            if trouble is not None:
                return trouble
        what = f"topic {topic!r}" if queues is None else f"partition {waiter.partition} of topic {topic!r}"
        known = "" if queues is None else f"; it has {counted(queues.partition_count, 'partition')}"
        said = "" if reason is None else f"; the last answer: {reason}"
        error = MetadataTimeoutError(
            f"no metadata of {what} within max_block_ms={self._max_block_ms}{known}{said}", topic=topic
        )
        error.__cause__ = reason or self._last_trouble
        return error

    # --- the sender's side -----------------------------------------------------------------------------------------

    def take_wanted(self) -> list[str]:
        """Topics wanted since the last call."""
        if not self._wanted:
            return []
        wanted = list(self._wanted)
        for topic in wanted:  # not clear(): others may have come meanwhile
            del self._wanted[topic]
        return wanted

    def tell(self, errors: dict[str, KafkaError], missing: dict[str, KafkaError]) -> None:
        """Metadata has come: wake everybody; those who wait for a topic in `errors` get its error.

        Args:
            errors: Of topics that no retry brings.
            missing: Why other topics did not come with it.
        """
        self.is_connected = True
        self._hopeless = None
        self._last_trouble = None
        for waiter in list(self._waiters):
            waiter.error = errors.get(waiter.topic, waiter.error)
            waiter.reason = missing.get(waiter.topic, waiter.reason)
            waiter.wake()

    def tell_trouble(self, error: KafkaError, *, is_hopeless: bool) -> None:
        """No broker could be reached: the reason for those whose time runs out, or, if hopeless, for all at once."""
        self._last_trouble = error
        if is_hopeless and not self.is_connected:
            self._hopeless = error
            self._wake_all()

    def tell_end(self) -> None:
        """The producer ends: wake everybody to find that out."""
        self._wake_all()

    def _wake_all(self) -> None:
        for waiter in list(self._waiters):
            waiter.wake()
