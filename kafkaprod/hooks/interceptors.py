"""The user's view of every record and every outcome. A failing interceptor is logged, counted and never breaks a send.

`on_send` runs on the caller's thread before serialization, `on_acknowledgement` on the sender thread (or on the
caller's, if the record was refused there). Source: org.apache.kafka.clients.producer.internals.ProducerInterceptors.

Records of `send_many`, `send_columns` and `send_table` are seen as blocks: a call per block, not per record.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple, Protocol

from kafkaprod._core.columns.columns import Headers
from kafkaprod._core.queues.record_hooks import InterceptorCalls
from kafkaprod.structs import RecordMetadata


class ProducerRecord(NamedTuple):
    """A record as given to send(), before serialization. `_replace` makes a changed one.

    `partition` is None if the producer chooses, `timestamp_ms` None for the time of sending.
    """

    topic: str
    value: Any = None
    key: Any = None
    headers: Any = None
    partition: int | None = None
    timestamp_ms: int | None = None


class RecordBlock:
    """The records of one `send_many` or `send_columns` call, or of one topic's part of a table's batch.

    The same object goes to `on_block` and to `on_block_acknowledgement`; it can be a key of a dictionary.

    Attributes:
        topic: Where the records go.
        record_count: How many they are.
        added: The headers that interceptors have added.
    """

    __slots__ = ("added", "record_count", "topic")

    def __init__(self, topic: str, record_count: int) -> None:
        self.topic = topic
        self.record_count = record_count
        self.added: list[tuple[str, bytes | None]] = []

    def add_header(self, name: str, value: bytes | None) -> None:
        """Add a header to every record of the block, after the records' own. Only during `on_block`.

        Raises:
            InvalidRecordError: The name is not a str, or the value neither bytes nor None.
        """
        pair = (name, None if value is None else bytes(memoryview(value)))
        Headers.from_python([pair])
        self.added.append(pair)


class Interceptor(Protocol):
    """What an interceptor may have; one of these methods is enough. Must be thread-safe."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """See a record before it is serialized; return it, or another one to send in its place."""
        ...

    def on_acknowledgement(self, metadata: RecordMetadata, error: BaseException | None) -> None:
        """See an outcome. On error the offset is -1, and so is the partition if none was chosen."""
        ...

    def on_block(self, block: RecordBlock) -> None:
        """See a block before its records are queued, on the caller's thread; may add headers to all of them."""
        return

    def on_block_acknowledgement(self, block: RecordBlock, failed_count: int, error: BaseException | None) -> None:
        """See how a block ended, once the outcome of each of its records is known.

        `failed_count` of its records failed, and `error` is that of one of them; 0 and None if all were delivered.
        """
        return


class InterceptorChain(InterceptorCalls):
    """Interceptors in their order. Thread-safe if they are.

    Attributes:
        failure_count: How often one raised or returned something that is not a record.
    """

    __slots__ = ("_on_block", "_on_block_acknowledgement")

    def __init__(self, interceptors: Iterable[Any]) -> None:
        each_one = tuple(interceptors)
        super().__init__(each_one, ProducerRecord)
        self._on_block = _that_have(each_one, "on_block")
        self._on_block_acknowledgement = _that_have(each_one, "on_block_acknowledgement")

    def __bool__(self) -> bool:
        """Whether there is anything to call."""
        return super().__bool__() or self.sees_blocks

    @property
    def sees_blocks(self) -> bool:
        """Whether there is anything to call for blocks."""
        return bool(self._on_block or self._on_block_acknowledgement)

    def on_block(self, block: RecordBlock) -> None:
        """Show a block to all interceptors."""
        for interceptor in self._on_block:
            added = len(block.added)
            try:
                interceptor.on_block(block)
            except Exception as error:
                del block.added[added:]  # what it would have added is not known to be whole
                self.note_failure(interceptor, "on_block", error)

    def on_block_acknowledgement(self, block: RecordBlock, failed_count: int, error: BaseException | None) -> None:
        """Show a block's end to all interceptors."""
        for interceptor in self._on_block_acknowledgement:
            try:
                interceptor.on_block_acknowledgement(block, failed_count, error)
            except Exception as failure:
                self.note_failure(interceptor, "on_block_acknowledgement", failure)


def _that_have(interceptors: Iterable[Any], method: str) -> list[Any]:
    return [each for each in interceptors if callable(getattr(each, method, None))]
