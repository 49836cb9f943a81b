"""One record on its way into the accumulator, where the compiled path could not take it.

    begin      interceptors
    attempt    topic -> serializers -> partitioner -> checks -> Accumulator.append
    finish     where metadata of the topic (TopicWatch) or memory (BufferPool) was missing

What is missing is waited for in steps (`engine.steps`), so that threads and event loops share them. Any thread;
no locks: a signal handler may use the producer between any two of these steps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

from kafkaprod._core.machine.waking import Waiter
from kafkaprod._core.queues.accumulator import memory_holders
from kafkaprod._core.queues.completion import DeliveryFuture, parked_record, settle_parked
from kafkaprod._core.queues.record_hooks import HookedRecord
from kafkaprod._core.queues.topic_queues import TopicQueues
from kafkaprod.clock import monotonic_ns
from kafkaprod.engine.host import EngineHost
from kafkaprod.engine.steps import MakeWaiter, Steps, run
from kafkaprod.errors import BufferFullError, MetadataTimeoutError, NodeBufferFullError, copy_to_raise
from kafkaprod.hooks.interceptors import ProducerRecord
from kafkaprod.intake.checks import check_topic_name, checked_partition, checked_timestamp, checked_topic
from kafkaprod.intake.drops import Drops
from kafkaprod.structs import NodeHealth
from kafkaprod.text import plain_text

MEMORY_POLL_S: Final = 0.25  # longest sleep between looks at whether the producer is still usable
ISOLATION_POLL_S: Final = 0.05  # and at whether the node that a record waits for is sick
LONGEST_ORDER_WAIT_S: Final = 1.0  # of rows, for earlier records that are parked

T = TypeVar("T")


class SendCall:
    """A record between the interceptors and the accumulator.

    Attributes:
        record: As the interceptors want it sent.
        deadline_ms: When its call gives up, monotonic.
        transaction: Number of the one that it is sent in; 0: none.
        is_prepared: Whether serializers and partitioner have seen it; then these are set:
        append: Appends it, given a memory ticket or 0; None: no memory.
        need: Returns how much memory it needs.
    """

    __slots__ = ("append", "deadline_ms", "is_prepared", "need", "record", "transaction")

    append: Callable[[int], DeliveryFuture | None]
    need: Callable[[], int]

    def __init__(self, record: ProducerRecord, deadline_ms: int, transaction: int) -> None:
        self.record = record if type(record.topic) is str else _with_plain_topic(record)
        self.transaction = transaction
        self.deadline_ms = deadline_ms
        self.is_prepared = False


def _with_plain_topic(record: ProducerRecord) -> ProducerRecord:
    """Return the record with a topic that is no subclass of str; what is no text is left to be refused."""
    return record._replace(topic=plain_text(record.topic)) if isinstance(record.topic, str) else record


def _size(record: ProducerRecord) -> int:
    """Return about how many bytes a record holds; what is given to a serializer counts as little."""
    return 100 + sum(len(data) for data in (record.key, record.value) if isinstance(data, bytes | bytearray | str))


class Intake:
    """Takes records one at a time.

    Args:
        host: The host of the engine; says whether records are still taken.
    """

    def __init__(self, host: EngineHost) -> None:
        engine = host.engine
        self.host = host
        self.accumulator = engine.accumulator
        self._engine = engine
        self._clock = engine.clock
        self._hooks = host.hooks
        self._max_block_ms = engine.config.max_block_ms
        self._can_wait_for_memory = engine.config.buffer_full_policy in ("block", "isolate")
        self.drops = Drops(engine) if engine.config.buffer_full_policy == "drop" else None
        self._isolates = engine.config.buffer_full_policy == "isolate"
        self._poll_s = ISOLATION_POLL_S if self._isolates else MEMORY_POLL_S

    def send_blocking(self, *arguments: Any) -> DeliveryFuture:
        """Take one record (the arguments of `Producer.send`), waiting on this thread."""
        call = self.begin(arguments)
        future = self.attempt(call)
        return run(self.finish(call, Waiter)) if future is None else future

    def send_hooked(self, hooked: HookedRecord) -> DeliveryFuture:
        """Take a record that the user's code has seen, waiting on this thread."""
        call = self.resume(hooked)
        future = self.attempt(call)
        return run(self.finish(call, Waiter)) if future is None else future

    def resume(self, hooked: HookedRecord) -> SendCall:
        """Continue with a record that the compiled path could not take after the interceptors, or all hooks, saw it."""
        try:
            transaction = self.host.check_sending()
        except Exception as error:
            self._hooks.on_refused(hooked.record[0], hooked.record[4], error)
            raise
        call = SendCall(ProducerRecord(*hooked.record), self.deadline_ms(), transaction)
        if hooked.is_prepared:
            call.append, call.need, call.is_prepared = hooked.append, hooked.need, True
        return call

    def begin(self, arguments: tuple[Any, ...]) -> SendCall:
        """Let the interceptors see a record; `arguments` are those of `Producer.send`, in order."""
        transaction = self.host.check_sending()
        deadline_ms = self.deadline_ms()
        return SendCall(self._hooks.on_send(ProducerRecord(*arguments)), deadline_ms, transaction)

    def attempt(self, call: SendCall) -> DeliveryFuture | None:
        """Take the record if nothing is missing; None: `finish` must wait for its topic or for memory.

        Raises: as `Producer.send`; then nothing was queued.
        """
        return None if self._is_behind_parked(call) else self._attempt(call)

    def _attempt(self, call: SendCall) -> DeliveryFuture | None:
        try:
            if not call.is_prepared:
                queues = self.known_queues(call.record.topic, call.record.partition)
                if queues is None:
                    return None
                self._prepare(call, queues)
            future = call.append(0)
        except Exception as error:
            self._hooks.on_refused(call.record.topic, call.record.partition, error)
            raise
        if future is not None:
            self._hooks.watch(future)
        return future

    def finish(self, call: SendCall, make_waiter: MakeWaiter) -> Steps[DeliveryFuture]:
        """Steps of taking a record that `attempt` could not take. Raises: as `attempt`."""
        record = call.record
        try:
            future = None
            if self._may_park(call):
                return self._park_or_drop(call)
            if not call.is_prepared:
                queues = yield from self.queues(record.topic, record.partition, call.deadline_ms, make_waiter)
                self.host.check_still_sending(call.transaction)
                self._prepare(call, queues)
                future = call.append(0)
            if future is None and self.drops is not None:
                return self._drop(self.drops, call)
            if future is None:
                future = yield from self.with_memory(
                    call.append, call.need(), call.deadline_ms, record.topic, call.transaction, make_waiter
                )
        except Exception as error:
            if isinstance(error, BufferFullError):
                self.note_refused(1)
            self._hooks.on_refused(record.topic, record.partition, error)
            raise
        self._hooks.watch(future)
        return future

    def _may_park(self, call: SendCall) -> bool:
        """Whether the caller must not wait, and its record can."""
        return not call.is_prepared and not call.transaction and (self.drops is not None or self.host.is_in_callback)

    def _is_behind_parked(self, call: SendCall) -> bool:
        """Whether earlier records of a caller that must not wait may still be parked: this one must not pass them."""
        topic = call.record.topic
        return type(topic) is str and self._engine.sender.parking.holds(topic) and self._may_park(call)

    def _drop(self, drops: Drops, call: SendCall) -> DeliveryFuture:
        """Return the result of a record that found no memory."""
        record = call.record
        error = drops.error_for(record.topic, lambda: self._buffer_full(record.topic, call.need(), 0))
        self._hooks.on_refused(record.topic, record.partition, copy_to_raise(error))
        return drops.drop(error, record.topic, record.partition)

    def _prepare(self, call: SendCall, queues: TopicQueues) -> None:
        """Run the other hooks and the checks."""
        record = call.record
        headers = record.headers
        key, value = self._hooks.serialize(record)
        partition = self._hooks.choose_partition(record, key, value, queues.leaders)
        chosen = -1 if partition is None else checked_partition(partition)
        timestamp_ms = self._clock.wall_ms() if record.timestamp_ms is None else checked_timestamp(record.timestamp_ms)
        append, memory_need = self.accumulator.append, self.accumulator.memory_need
        call.append = lambda ticket: append(queues, key, value, headers, chosen, timestamp_ms, -1, ticket)
        call.need = lambda: memory_need(key, value, headers)
        call.is_prepared = True

    # -- what may be missing -------------------------------------------------------------------------------------------

    def deadline_ms(self) -> int:
        """When a call that begins now gives up, in monotonic ms."""
        return self._clock.now_ms() + self._max_block_ms

    def partitions_for(self, topic: str, make_waiter: MakeWaiter) -> Steps[set[int]]:
        """Steps of Producer.partitions_for."""
        topic = checked_topic(topic)
        self.host.check_usable()
        queues = yield from self.queues(topic, None, self.deadline_ms(), make_waiter)
        return set(range(queues.partition_count))

    def queues(self, topic: str, partition: Any, deadline_ms: int, make_waiter: MakeWaiter) -> Steps[TopicQueues]:
        """Steps to the topic's queues; waits for its metadata, and for a partition that is not known yet."""
        queues = self.known_queues(topic, partition)
        if queues is None:
            queues = yield from self._wait_for_topic(topic, partition, deadline_ms, make_waiter)
        return queues

    def after_parked(self, topic: str, make_waiter: MakeWaiter) -> Steps[None]:
        """Steps to where rows do not pass earlier records of a caller that must not wait.

        Raises BufferFullError if those are still parked a second later, or if the caller is a delivery callback.
        """
        parking = self._engine.sender.parking
        if not ((self.drops is not None or self.host.is_in_callback) and parking.holds(topic)):
            return
        if self.host.is_in_callback or not (yield from parking.settled(LONGEST_ORDER_WAIT_S, make_waiter, topic)):
            raise BufferFullError(
                f"records that were sent to topic {topic!r} before wait for memory: rows that are taken now would "
                "arrive before them",
                topic=topic,
            )

    def known_queues(self, topic: str, partition: Any) -> TopicQueues | None:
        """The topic's queues if its metadata is here, with the partition. Raises InvalidRecordError for bad names."""
        topic = checked_topic(topic)
        number = None if partition is None else checked_partition(partition)
        queues = self.accumulator.topics.get(topic)
        if queues is not None and (number is None or number < queues.partition_count):
            return queues
        check_topic_name(topic)
        return None

    def _wait_for_topic(
        self, topic: str, partition: Any, deadline_ms: int, make_waiter: MakeWaiter
    ) -> Steps[TopicQueues]:
        if self.host.is_in_callback:
            raise self._not_in_callback(topic)
        number = None if partition is None else checked_partition(partition)
        started_ns = monotonic_ns()
        try:
            return (
                yield from self._engine.topic_watch.wait_for(
                    topic, number, deadline_ms, self.host.check_usable, make_waiter
                )
            )
        finally:
            self._engine.metrics.add_time("metadata-wait", monotonic_ns() - started_ns)

    def _not_in_callback(self, topic: str) -> MetadataTimeoutError:
        """Request a topic that the calling thread, which fetches metadata, must not wait for; return the error."""
        watch = self._engine.topic_watch
        with watch.waiter(topic, None, lambda: None) as entry:
            watch.look(entry, self._clock.now_ms() + self._max_block_ms, self.host.check_usable)
        return MetadataTimeoutError(
            f"no metadata of topic {topic!r} yet, for which a delivery callback cannot wait: it was requested. Single "
            "records outside of transactions are kept by send() until it is there; for anything else call "
            "partitions_for() before, or send from another thread",
            topic=topic,
        )

    def _park_or_drop(self, call: SendCall) -> DeliveryFuture:
        """Park a record of a caller that must not wait, or drop it where those hold too much and nothing may wait."""
        try:
            return self._park(call)
        except BufferFullError as error:
            if self.drops is None:
                raise
            why = error
        dropped = self.drops.error_for(call.record.topic, lambda: why)
        self._hooks.on_refused(call.record.topic, call.record.partition, copy_to_raise(dropped))
        return self.drops.drop(dropped, call.record.topic, call.record.partition)

    def _park(self, call: SendCall) -> DeliveryFuture:
        """Keep a record of a caller that must not wait until the metadata of its topic is there."""
        record = call.record
        future = parked_record(self._engine.results, record.topic, -1 if record.partition is None else record.partition)

        def send() -> bool:
            try:
                sent = self._attempt(call)
            except Exception as error:  # the interceptors know it from attempt()
                settle_parked(future, error)
                return True
            if sent is not None:
                settle_parked(future, sent)
            return sent is not None

        def fail(error: Exception) -> None:
            self._hooks.on_refused(record.topic, record.partition, error)
            settle_parked(future, error)

        number = None if record.partition is None else checked_partition(record.partition)
        self._engine.sender.parking.add(record.topic, number, _size(record), send, fail)
        return future

    def with_memory(
        self,
        attempt: Callable[[int], T | None],
        need: int,
        deadline_ms: int,
        topic: str,
        transaction: int,
        make_waiter: MakeWaiter,
    ) -> Steps[T]:
        """Steps of waiting in line for memory, with `attempt(ticket)` repeated until it does not return None."""
        if not self._can_wait_for_memory or self.host.is_in_callback:
            raise self._buffer_full(topic, need, 0)
        pool = self.accumulator.pool
        started_ns = monotonic_ns()
        waiter = make_waiter()
        ticket = pool.new_ticket()
        try:
            pool.enqueue_waiter(need, waiter.wake, ticket)
            self._engine.sender.wakeup()
            while True:
                outcome = attempt(ticket)
                if outcome is not None:
                    return outcome
                if self._isolates:
                    self._check_isolation(topic, ticket)
                remaining_ms = deadline_ms - self._clock.now_ms()
                if remaining_ms <= 0:
                    raise self._buffer_full(topic, need, self._max_block_ms)
                yield waiter, min(remaining_ms / 1000, self._poll_s)
                self.host.check_still_sending(transaction)
        finally:
            pool.dequeue_waiter(ticket)
            self._engine.metrics.add_memory_wait(monotonic_ns() - started_ns, self._clock.now_ms())

    def note_refused(self, record_count: int) -> None:
        """Count records that found no memory."""
        self._engine.metrics.add_refused_records(record_count, self._clock.now_ms())

    def _check_isolation(self, topic: str, ticket: int) -> None:
        """Raise NodeBufferFullError if what a waiter waits for is the share of a sick node."""
        node_id = self.accumulator.pool.node_in_the_way(ticket)
        if node_id is None:
            return
        if node_id < 0:
            raise NodeBufferFullError(
                f"no memory for a record of topic {topic!r}: records of partitions without a leader hold all that they "
                "may; others are taken. Handle it like a failed delivery, or send it again when the partition has one",
                topic=topic,
            )
        health = self._engine.node_states().get(node_id)
        if health is not None and health.state == "sick":
            limit = self.accumulator.pool.capacity if health.limit_bytes is None else health.limit_bytes
            raise NodeBufferFullError(
                f"no memory for a record of topic {topic!r}: node {node_id} is sick, its records hold "
                f"{health.held_bytes} of the {limit} bytes that they may, and it has not answered for "
                f"{health.silent_ms} ms (usually {health.usual_ms}); records for other nodes are taken. Handle it like "
                "a failed delivery, or send it again when node_states() shows the node as ok",
                topic=topic,
                node=node_id,
                held_bytes=health.held_bytes,
                limit_bytes=limit,
                silent_ms=health.silent_ms,
                usual_ms=health.usual_ms,
            )

    def _buffer_full(self, topic: str, need: int, waited_ms: int) -> BufferFullError:
        pool = self.accumulator.pool
        nodes = self._engine.node_states()
        unwell = "".join(_why_unwell(node_id, health) for node_id, health in nodes.items())
        is_throttled = any(health.state == "throttled" for health in nodes.values())
        slow = "".join(
            f"; node {node} holds {held} of the {limit} bytes that it may: what it delivers in a quarter of "
            "delivery_timeout_ms, and no more than leaves room for other nodes"
            for node, held, limit in pool.shares()
            if limit is not None and held + need > limit
        )
        holders = "; ".join(
            f"{name}[{partition}] {'without a leader' if leader < 0 else f'on node {leader}'}: "
            f"{size} bytes in {batches} batches"
            for name, partition, leader, size, batches in memory_holders(self.accumulator)
        )
        reason = self._engine.sender.why_records_wait()
        limit = f"within max_block_ms={waited_ms}" if waited_ms else "now, and this call does not wait for it"
        if not waited_ms and self._can_wait_for_memory and self.host.is_in_callback:
            limit = "now, for which a delivery callback cannot wait"
        error = BufferFullError(
            f"no memory for a record of topic {topic!r} {limit}: {pool.in_use} of "
            f"buffer_memory={pool.capacity} bytes in use, most by {holders or 'records being sent'}{slow}{unwell}"
            f"{'' if reason is None else f'; the last error: {reason}'}. "
            f"{'Send less' if slow or is_throttled else 'Raise buffer_memory'}, or find out why these partitions are "
            "slow",
            topic=topic,
        )
        error.__cause__ = reason
        return error


def _why_unwell(node_id: int, health: NodeHealth) -> str:
    if health.state == "ok":
        return ""
    if health.state == "throttled":
        return (
            f"; node {node_id} throttles: a quota holds this producer back; its records hold {health.held_bytes} bytes"
        )
    return (
        f"; node {node_id} is {health.state}: it has not answered for {health.silent_ms} ms (usually "
        f"{health.usual_ms}), and its records hold {health.held_bytes} bytes"
    )
