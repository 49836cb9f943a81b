"""The user's view of every record and every outcome. A failing interceptor is logged, counted and never breaks a send.

`on_send` runs on the caller's thread before serialization, `on_acknowledgement` on the sender thread (or on the
caller's, if the record was refused there). Source: org.apache.kafka.clients.producer.internals.ProducerInterceptors.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple, Protocol

from kafkaprod._core.queues.record_hooks import InterceptorCalls
from kafkaprod.structs import RecordMetadata


class ProducerRecord(NamedTuple):
    """A record as given to send(), before serialization. `_replace` makes a changed one.

    `partition` is None if the producer is to choose, `timestamp_ms` None for the time of sending.
    """

    topic: str
    value: Any = None
    key: Any = None
    headers: Any = None
    partition: int | None = None
    timestamp_ms: int | None = None


class Interceptor(Protocol):
    """What an interceptor may have; one of the two methods is enough. Must be thread-safe."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """See a record before it is serialized; return it, or another one to send in its place."""
        ...

    def on_acknowledgement(self, metadata: RecordMetadata, error: BaseException | None) -> None:
        """See an outcome. On error the offset is -1, and so is the partition if none was chosen."""
        ...


class InterceptorChain(InterceptorCalls):
    """Interceptors in their order. Thread-safe if they are.

    Attributes:
        failure_count: How often one raised or returned something that is not a record.
    """

    __slots__ = ()

    def __init__(self, interceptors: Iterable[Any]) -> None:
        super().__init__(interceptors, ProducerRecord)
