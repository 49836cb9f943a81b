"""A core engine without a sender: what the micro benchmarks fill and empty."""

import time
from collections.abc import Callable

from kafkaprod._core.queues.accumulator import Accumulator
from kafkaprod._core.queues.buffer_pool import BufferPool
from kafkaprod._core.queues.completion import DeliveryFuture
from kafkaprod._core.queues.send_path import RecordSender
from kafkaprod._core.queues.topic_queues import TopicQueues
from kafkaprod._core.requests.drain import Drain
from kafkaprod.compression import Codec

TOPIC = "bench"


class Core:
    """Accumulator, drain and send path over one topic with all partitions on one node."""

    def __init__(self, partitions: int = 6, codec: Codec | None = None, batch_size: int = 262_144) -> None:
        self.pool = BufferPool(1 << 30)
        self.accumulator = Accumulator(self.pool, batch_size, 1 << 20)
        self.drain = Drain(self.accumulator, 5, 1 << 20, codec=codec)
        self.topic: TopicQueues = self.accumulator.set_topic(TOPIC, [0] * partitions)
        self.drain.update_leaders()
        self.sender = RecordSender(self.accumulator, _refuse)

    def empty(self) -> None:
        """Drain and complete everything, so that the next round finds warm memory."""
        while (request := self.drain.drain(0, 10)) is not None:
            for ref in request.refs():
                ref.succeed(0)
            request.finish()


def _refuse(*record: object) -> DeliveryFuture:
    raise AssertionError("the general path is not measured here")


def best_s(function: Callable[[], object], after: Callable[[], object] | None = None, rounds: int = 40) -> float:
    """Seconds of the fastest of `rounds` calls: on a shared machine the least disturbed one is the truest."""
    best = float("inf")
    for _ in range(rounds):
        started = time.perf_counter()
        function()
        best = min(best, time.perf_counter() - started)
        if after is not None:
            after()
    return best
