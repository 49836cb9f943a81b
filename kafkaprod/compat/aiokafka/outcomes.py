"""asyncio futures for the outcomes of records. The event loop is woken once for many of them."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from typing import cast

from kafkaprod import BlockResult, DeliveryFuture
from kafkaprod.compat.aiokafka.errors import translate
from kafkaprod.compat.aiokafka.structs import RecordMetadata, TopicPartition
from kafkaprod.structs import RecordMetadata as OurMetadata

Made = asyncio.Future[RecordMetadata]  # its value is None with acks=0


class Outcomes:
    """Makes futures and settles them in the event loop.

    Args:
        loop: Where the futures are awaited.
        is_unacknowledged: Whether brokers send no answers (acks=0): futures get None then, as there.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, *, is_unacknowledged: bool) -> None:
        self._loop = loop
        self._is_unacknowledged = is_unacknowledged
        self._ready: deque[tuple[Made, Callable[[], RecordMetadata]]] = deque()
        self._is_scheduled = False

    def future_of(self, delivery: DeliveryFuture) -> Made:
        """Return a future for a record's outcome; cancelling it does not stop the record."""
        future: Made = self._loop.create_future()
        delivery.add_done_callback(lambda _: self._add(future, lambda: _metadata(delivery.result(0))))
        return future

    def future_of_batch(self, result: BlockResult, place: TopicPartition, timestamps_ms: list[int]) -> Made:
        """Return a future for the outcome of a batch: the metadata of its first record."""
        future: Made = self._loop.create_future()
        result.add_done_callback(lambda _: self._add(future, lambda: _first(result, place, timestamps_ms)))
        return future

    def _add(self, future: Made, outcome: Callable[[], RecordMetadata]) -> None:
        """Have a future settled soon. On the sender thread, or in the loop if the outcome was there."""
        self._ready.append((future, outcome))
        if not self._is_scheduled:
            self._is_scheduled = True
            with contextlib.suppress(RuntimeError):  # the loop was closed: nothing waits any more
                self._loop.call_soon_threadsafe(self.settle)

    def settle(self) -> None:
        """Settle all futures whose outcome is there. In the loop."""
        self._is_scheduled = False  # before the look: what comes later schedules again
        while self._ready:
            future, outcome = self._ready.popleft()
            if future.done():  # the program has cancelled it
                continue
            try:
                found = outcome()
                future.set_result(cast(RecordMetadata, None) if self._is_unacknowledged else found)
            except Exception as error:
                future.set_exception(translate(error))


def _metadata(known: OurMetadata) -> RecordMetadata:
    return RecordMetadata(known.topic, known.partition, known.topic_partition, known.offset, known.timestamp, 0, None)


def _first(result: BlockResult, place: TopicPartition, timestamps_ms: list[int]) -> RecordMetadata:
    error = result.first_error()
    if error is not None:
        raise error
    if not len(result):
        return RecordMetadata(*place, place, -1, None, 0, None)
    appended_ms = int(result.timestamps[0])  # -1: the records keep their own
    is_appended = appended_ms >= 0
    timestamp_ms = appended_ms if is_appended else timestamps_ms[0]
    return RecordMetadata(*place, place, int(result.offsets[0]), timestamp_ms, int(is_appended), None)
