"""The user's view of every record and every outcome. A failing interceptor is logged, counted and never breaks a send.

`on_send` runs on the caller's thread before serialization, `on_acknowledgement` on the sender thread (or on the
caller's, if the record was refused there). Source: org.apache.kafka.clients.producer.internals.ProducerInterceptors.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterable
from typing import Any, NamedTuple, Protocol

from kafkaprod.structs import RecordMetadata

_log = logging.getLogger("kafkaprod.hooks.interceptors")


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


class InterceptorChain:
    """Interceptors in their order. Thread-safe if they are.

    Attributes:
        failure_count: How often one raised or returned something that is not a record.
    """

    def __init__(self, interceptors: Iterable[Any]) -> None:
        interceptors = tuple(interceptors)
        self._on_send = [each for each in interceptors if callable(getattr(each, "on_send", None))]
        self._on_acknowledgement = [
            each for each in interceptors if callable(getattr(each, "on_acknowledgement", None))
        ]
        self._failures = itertools.count(1)
        self.failure_count = 0

    def __bool__(self) -> bool:
        """Whether there is anything to call."""
        return bool(self._on_send or self._on_acknowledgement)

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Return the record after all interceptors; skip one that fails."""
        for interceptor in self._on_send:
            try:
                answer = interceptor.on_send(record)
                if not isinstance(answer, ProducerRecord):
                    raise TypeError(f"on_send returned a {type(answer).__name__}, expected a ProducerRecord")
                record = answer
            except Exception as error:
                self._count_failure(interceptor, "on_send", error)
        return record

    def on_acknowledgement(self, metadata: RecordMetadata, error: BaseException | None = None) -> None:
        """Pass an outcome to all interceptors."""
        for interceptor in self._on_acknowledgement:
            try:
                interceptor.on_acknowledgement(metadata, error)
            except Exception as failure:
                self._count_failure(interceptor, "on_acknowledgement", failure)

    def on_refused(self, topic: str, partition: int | None, error: BaseException) -> None:
        """Pass a record that was not even queued to all interceptors."""
        self.on_acknowledgement(RecordMetadata(topic, -1 if partition is None else partition, -1, -1), error)

    def _count_failure(self, interceptor: Any, method: str, error: Exception) -> None:
        self.failure_count = count = next(self._failures)  # no lock: signal handlers send records, too
        if count & (count - 1) == 0:  # 1, 2, 4, 8 ...: a broken interceptor must not flood the log
            name = type(interceptor).__qualname__
            _log.error("interceptor %s.%s failed; %d failures so far", name, method, count, exc_info=error)
