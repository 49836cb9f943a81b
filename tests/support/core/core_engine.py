"""The core put together for tests: pool, accumulator and drain under a hand-turned clock, without any socket."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Any

from kafkaprod._core.queues.accumulator import Accumulator, memory_holders
from kafkaprod._core.queues.buffer_pool import BufferPool
from kafkaprod._core.queues.completion import BatchResult, DeliveryFuture
from kafkaprod._core.queues.placement import Placement
from kafkaprod._core.queues.topic_queues import TopicQueues
from kafkaprod._core.requests.drain import Drain
from kafkaprod._core.requests.produce_request import ProduceRequest
from kafkaprod._core.requests.settlement import BatchRef
from kafkaprod.compression import Codec
from tests.support.clock import ManualClock
from tests.support.core.core_model import ModelRecord, decode_batch, decode_produce_body, records_of

TIMESTAMP = 1_700_000_000_000
TOPIC = "orders"


class CountingResult(BatchResult):
    """A result object that counts how often it was told its outcome, and never waits."""

    def __init__(self, topic: str, partition: int) -> None:
        super().__init__(topic, partition)
        self.told_count = 0
        self.add_listener(self._count)

    def _count(self) -> None:
        self.told_count += 1

    def wait(self, timeout: float | None) -> bool:
        return False


class Engine:
    """An accumulator with one drain; every result object that was made is in `results`."""

    def __init__(
        self,
        leaders: list[int] | None = None,
        *,
        pool_bytes: int = 1 << 24,
        batch_size: int = 16384,
        max_batch_size: int | None = None,
        max_record_bytes: int = 1 << 20,
        linger_ms: int = 5,
        max_request_bytes: int = 1 << 20,
        is_idempotent: bool = False,
        mutes: bool = False,
        codec: Codec | None = None,
        workers: Executor | None = None,
        is_adaptive: bool = True,
        first_limit: int = 0,
        topic_codecs: Sequence[Codec | None] = (),
        make_result: Callable[[str, int], BatchResult] | None = None,
        seed: int = 7,
    ) -> None:
        self.clock = ManualClock(now_ms=1_000)
        self.results: list[CountingResult] = []
        self.wakeups = 0
        self.pool = BufferPool(pool_bytes)
        self.accumulator = Accumulator(
            self.pool, batch_size, max_record_bytes, make_result or self._make_result, self._wake, max_batch_size
        )
        self.accumulator.seed = seed  # what is drawn does not change from run to run
        self.drain = Drain(
            self.accumulator,
            linger_ms,
            max_request_bytes,
            is_idempotent,
            mutes,
            codec,
            workers=workers,
            first_limit=first_limit,
            topic_codecs=topic_codecs,
        )
        self.placement = Placement(self.accumulator, is_adaptive)
        if is_idempotent:
            self.drain.set_producer(4000, 1)
        self.lead(leaders if leaders is not None else [1])

    def _make_result(self, topic: str, partition: int) -> CountingResult:
        result = CountingResult(topic, partition)
        self.results.append(result)
        return result

    def _wake(self) -> None:
        self.wakeups += 1

    def lead(
        self,
        leaders: list[int],
        topic: str = TOPIC,
        epochs: list[int] | None = None,
        topic_id: bytes | None = None,
    ) -> TopicQueues:
        """Say who leads the topic's partitions."""
        queues = self.accumulator.set_topic(topic, leaders, epochs, topic_id)
        self.drain.update_leaders()
        self.placement.update_leaders()
        return queues

    @property
    def now_ms(self) -> int:
        return self.clock.now_ms()

    @property
    def now_us(self) -> int:
        return self.clock.now_us()

    def append(self, value: bytes | None, partition: int = 0, topic: str = TOPIC, **more: Any) -> DeliveryFuture:
        """Append a record that must find room."""
        future = self.try_append(value, partition, topic, **more)
        assert future is not None
        return future

    def try_append(
        self, value: bytes | None, partition: int = 0, topic: str = TOPIC, **more: Any
    ) -> DeliveryFuture | None:
        """Append a record; None if the pool is full."""
        more.setdefault("key", None)
        more.setdefault("timestamp", TIMESTAMP)
        return self.accumulator.append(
            self.accumulator.topics[topic], value=value, partition=partition, now_ms=self.now_ms, **more
        )

    def append_record(self, record: ModelRecord, partition: int = 0) -> DeliveryFuture:
        """Append a model record."""
        return self.append(
            record.value, partition, key=record.key, headers=list(record.headers), timestamp=record.timestamp
        )

    def introduce(self, partition: int = 0) -> None:
        """Have one record of a partition acknowledged: from then on an idempotent producer pipelines its batches."""
        self.append(b"first", partition)
        succeed(self.take())

    def ready_nodes(self) -> list[int]:
        """Ids of the nodes that have something sendable now."""
        return self.drain.ready(self.now_us)[0]

    def take(self, node_id: int = 1) -> ProduceRequest:
        """Drain a node that must have something."""
        request = self.drain.drain(node_id, self.now_ms)
        assert request is not None
        return request

    def take_all(self, node_id: int = 1) -> list[ProduceRequest]:
        """Drain a node until nothing is left."""
        requests = []
        while (request := self.drain.drain(node_id, self.now_ms)) is not None:
            requests.append(request)
        return requests


def body_of(request: ProduceRequest, version: int = 7, **more: Any) -> bytes:
    """The request's body as one bytes object."""
    body = request.body(version, more.pop("acks", -1), more.pop("timeout_ms", 30_000), **more)
    joined = b"".join(bytes(memoryview(buffer)) for buffer in body.from_byte(0))
    assert len(joined) == body.nbytes
    return joined


def batches_of(request: ProduceRequest) -> list[bytes]:
    """The sealed batches of a request, by topic and partition."""
    return [batch for _, _, batch in decode_produce_body(7, body_of(request)).batches]


def partitions_of(request: ProduceRequest) -> list[int]:
    """Partition numbers in a request, ascending."""
    return [ref.partition for ref in request.refs()]


def values_of(request: ProduceRequest) -> list[bytes | None]:
    """Values of all records of a request, in order."""
    return [record.value for record in records_of(batches_of(request))]


def succeed(request: ProduceRequest, base_offset: int = 0) -> None:
    """Answer a request: every batch was written."""
    for ref in request.refs():
        ref.succeed(base_offset)
    request.finish()


def requeue(request: ProduceRequest, now_ms: int, backoff_ms: int = 100, maybe_persisted: bool = False) -> None:
    """Answer a request with a retriable error for every batch."""
    for ref in request.refs():
        ref.requeue(now_ms, backoff_ms, maybe_persisted)
    request.finish()


def only_ref(request: ProduceRequest) -> BatchRef:
    """The one batch of a request."""
    (ref,) = request.refs()
    return ref


def snapshot(engine: Engine) -> tuple[Any, ...]:
    """All that an append may change and a refused one may not."""
    accumulator = engine.accumulator
    return (
        engine.pool.in_use,
        engine.pool.waiter_count,
        accumulator.incomplete_batch_count,
        accumulator.oldest_serial,
        memory_holders(accumulator, 1000),
        len(engine.results),
        {name: queues.partition_count for name, queues in accumulator.topics.items()},
    )


def sent_records(engine: Engine) -> list[Any]:
    """Take all that is queued as written; return its records."""
    records: list[Any] = []
    for request in engine.take_all():
        for batch in batches_of(request):
            records += decode_batch(batch).records
        succeed(request)
    return records
