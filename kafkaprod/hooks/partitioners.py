"""Partitioners written in Python, for records that name no partition.

The built-in choice (murmur2 of the key, adaptive sticky without one) is in the compiled core and does not come here.
A partitioner runs on the caller's thread, after serialization, and must be thread-safe if several threads send.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from kafkaprod.errors import InvalidRecordError
from kafkaprod.hooks.serializers import BytesLike

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Partitioner(Protocol):
    """What a partitioner has.

    It may also have `partition_many(topic, keys, values, partition_count, available)`, which takes sequences of equal
    length (`keys` may be None) and returns an array of partitions; blocks of records then cost one call.
    """

    def partition(
        self,
        topic: str,
        key: BytesLike | None,
        value: BytesLike | None,
        partition_count: int,
        available: Sequence[int],
    ) -> int:
        """The partition of one record, in [0, partition_count).

        Args:
            topic: Of the record.
            key: Serialized; None for null.
            value: Serialized; None for null.
            partition_count: All partitions of the topic.
            available: Those that have a leader now, ascending; may be empty.
        """
        ...


class CheckedPartitioner:
    """A partitioner whose answers are checked. As thread-safe as the user's."""

    def __init__(self, partitioner: Partitioner) -> None:
        self._partitioner = partitioner
        self._name = type(partitioner).__qualname__
        self._partition_many = getattr(partitioner, "partition_many", None)
        self._available: dict[str, tuple[Sequence[int], tuple[int, ...]]] = {}  # topic -> leaders, what follows of them

    def choose(self, topic: str, key: BytesLike | None, value: BytesLike | None, leaders: Sequence[int]) -> int:
        """Return the partition of one record.

        Args:
            topic: Of the record.
            key: Serialized; None for null.
            value: Serialized; None for null.
            leaders: Of all partitions, -1 where there is none; the tuple of a cluster snapshot.

        Raises:
            InvalidRecordError: The partitioner raised (its error is the cause) or named no partition of the topic.
        """
        count = len(leaders)
        try:
            answer = self._partitioner.partition(topic, key, value, count, self._available_of(topic, leaders))
            partition = operator.index(answer)
        except Exception as error:
            raise self._failed(topic, error) from error
        if not 0 <= partition < count:
            raise self._out_of_range(topic, partition, count)
        return partition

    def choose_many(
        self, topic: str, keys: Sequence[Any] | None, values: Sequence[Any], leaders: Sequence[int]
    ) -> NDArray[np.int32]:
        """Return the partitions of a block of records, in their order.

        Args:
            topic: Of the records.
            keys: Serialized, as many as `values`; None if no record has one.
            values: Serialized.
            leaders: As in `choose`.

        Raises:
            InvalidRecordError: As `choose`; says which record.
        """
        import numpy as np  # late: only blocks of records need it

        count = len(leaders)
        if self._partition_many is None:
            rows = zip(itertools.repeat(None) if keys is None else keys, values, strict=keys is not None)
            return np.fromiter(
                (self.choose(topic, key, value, leaders) for key, value in rows), dtype=np.int32, count=len(values)
            )
        try:
            answer = np.asarray(self._partition_many(topic, keys, values, count, self._available_of(topic, leaders)))
            if answer.shape != (len(values),) or answer.dtype.kind not in "iu":
                raise TypeError(f"expected {len(values)} integers, got {answer.dtype} of shape {answer.shape}")
        except Exception as error:
            raise self._failed(topic, error) from error
        wrong = np.flatnonzero((answer < 0) | (answer >= count))
        if len(wrong):
            raise self._out_of_range(topic, int(answer[wrong[0]]), count, f" for record {wrong[0]} of the block")
        return answer.astype(np.int32, copy=False)

    def _available_of(self, topic: str, leaders: Sequence[int]) -> tuple[int, ...]:
        known = self._available.get(topic)
        if known is None or known[0] is not leaders:  # snapshots replace the tuple when a leader changes
            available = tuple(partition for partition, leader in enumerate(leaders) if leader >= 0)
            known = self._available[topic] = (leaders, available)
        return known[1]

    def _failed(self, topic: str, error: Exception) -> InvalidRecordError:
        what = f"partitioner {self._name} failed for topic {topic!r}: {type(error).__name__}: {error}"
        return InvalidRecordError(what, topic=topic)

    def _out_of_range(self, topic: str, partition: int, count: int, which: str = "") -> InvalidRecordError:
        what = f"partitioner {self._name} chose partition {partition} of topic {topic!r}{which}, which has {count}"
        return InvalidRecordError(what, topic=topic, partition=partition)


class RoundRobinPartitioner:
    """Each record of a topic to the next partition that has a leader, whatever its key. Thread-safe.

    Source: org.apache.kafka.clients.producer.RoundRobinPartitioner. Expect small batches: the built-in choice stays
    with a partition until a batch is full.
    """

    def __init__(self) -> None:
        self._turns: dict[str, Iterator[int]] = {}

    def partition(
        self,
        topic: str,
        key: BytesLike | None,
        value: BytesLike | None,
        partition_count: int,
        available: Sequence[int],
    ) -> int:
        """Return the next one in turn; among all if none has a leader."""
        turns = self._turns.get(topic)
        if turns is None:
            turns = self._turns.setdefault(topic, itertools.count())  # one winner if two threads come first
        turn = next(turns)
        return available[turn % len(available)] if available else turn % partition_count

    def partition_many(
        self,
        topic: str,
        keys: Sequence[Any] | None,
        values: Sequence[Any],
        partition_count: int,
        available: Sequence[int],
    ) -> list[int]:
        """Return the next ones in turn."""
        return [self.partition(topic, None, None, partition_count, available) for _ in range(len(values))]


def make_partitioner(option: Any) -> CheckedPartitioner | None:
    """Return the partitioner that an option names; None for the built-in choice of the core.

    Args:
        option: `ProducerConfig.partitioner`: None, `round_robin`, or an object with `partition`.
    """
    if option is None:
        return None
    return CheckedPartitioner(RoundRobinPartitioner() if option == "round_robin" else option)
