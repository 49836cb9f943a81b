"""asyncio futures for the outcomes of records. The event loop is woken once for all records of a batch."""

from __future__ import annotations

import asyncio
import contextvars
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
        self._context = contextvars.copy_context()  # one for all: a copy for each record would have no use

    def future_of(self, delivery: DeliveryFuture) -> Made:
        """Return a future for a record's outcome; cancelling it does not stop the record."""
        future: Made = self._loop.create_future()
        delivery.add_done_callback(
            lambda done: self._settle(future, lambda: _metadata(done.result(0))), context=self._context
        )
        return future

    def future_of_batch(self, result: BlockResult, place: TopicPartition, timestamps_ms: list[int]) -> Made:
        """Return a future for the outcome of a batch: the metadata of its first record."""
        future: Made = self._loop.create_future()
        result.add_done_callback(
            lambda done: self._settle(future, lambda: _first(done, place, timestamps_ms)), context=self._context
        )
        return future

    def _settle(self, future: Made, outcome: Callable[[], RecordMetadata]) -> None:
        if future.done():  # the program has cancelled it
            return
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
