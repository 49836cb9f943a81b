"""Partitioners written in Python, for records that name no partition.

The built-in choice (murmur2 of the key, adaptive sticky without one) is in the compiled core and does not come here.
A partitioner runs on the caller's thread, after serialization, and must be thread-safe if several threads send.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from kafkaprod._core.queues.record_hooks import PartitionerCall
from kafkaprod.structs import BytesLike

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
            topic: The topic of the record.
            key: Serialized; None for null.
            value: Serialized; None for null.
            partition_count: All partitions of the topic.
            available: Those that have a leader now, ascending; may be empty.
        """
        ...


class CheckedPartitioner(PartitionerCall):
    """A partitioner whose answers are checked. As thread-safe as the user's."""

    __slots__ = ("_partition_many",)

    def __init__(self, partitioner: Partitioner) -> None:
        super().__init__(partitioner)
        self._partition_many = getattr(partitioner, "partition_many", None)

    def choose_many(
        self, topic: str, keys: Sequence[Any] | None, values: Sequence[Any], leaders: Sequence[int]
    ) -> NDArray[np.int32]:
        """Return the partitions of a block of records, in their order.

        Args:
            topic: The topic of the records.
            keys: Serialized, as many as `values`; None if no record has one.
            values: Serialized.
            leaders: As in `choose`.

        Raises:
            InvalidRecordError: As `choose`; says which record.
        """
        import numpy as np  # late: only blocks of records need it

        count = len(leaders)
        if self._partition_many is None:
            chosen = np.empty(len(values), np.int32)
            self.choose_rows(topic, keys, values, leaders, chosen)
            return chosen
        try:
            answer = np.asarray(self._partition_many(topic, keys, values, count, self.available_of(topic, leaders)))
            if answer.shape != (len(values),) or answer.dtype.kind not in "iu":
                raise TypeError(f"expected {len(values)} integers, got {answer.dtype} of shape {answer.shape}")
        except Exception as error:
            raise self.failed(topic, error) from error
        wrong = np.flatnonzero((answer < 0) | (answer >= count))
        if len(wrong):
            raise self.out_of_range(topic, int(answer[wrong[0]]), count, f" for record {wrong[0]} of the block")
        return answer.astype(np.int32, copy=False)


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
        option: `ProducerConfig.partitioner`: None, `round_robin`, an object with `partition`, or a function with the
            arguments of that.
    """
    if option is None:
        return None
    if callable(option) and not hasattr(option, "partition"):
        name = getattr(option, "__qualname__", type(option).__qualname__)  # for messages
        option = type(name, (), {"partition": staticmethod(option)})()
    return CheckedPartitioner(RoundRobinPartitioner() if option == "round_robin" else option)
