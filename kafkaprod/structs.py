"""Small value types, and a bound, that cross module borders. Immutable; safe to share between threads."""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias

from kafkaprod.text import address_text

BytesLike: TypeAlias = bytes | bytearray | memoryview

INT32_MAX: Final = 2**31 - 1
"""The highest number of most of Kafka's fields and options."""


class TopicPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int


class Node(NamedTuple):
    """A broker as the cluster metadata describes it. Bootstrap nodes have negative ids."""

    node_id: int
    host: str
    port: int
    rack: str | None = None

    @property
    def name(self) -> str:
        """Return the broker for messages: a bootstrap server's id is not known yet."""
        place = address_text(self.host, self.port)
        return f"bootstrap server {place}" if self.node_id < 0 else f"node {self.node_id} at {place}"


class NodeHealth(NamedTuple):
    """How a broker is, by what it answers.

    `state`: "ok", "slow", "sick", or "throttled": a quota holds this producer back. `silent_ms`: how long it has not
    answered what was sent to it, or has had no connection while something waits; 0: nothing is expected of it.
    `usual_ms`: in what time nearly all of its answers come; -1: none came. `held_bytes`: what its records hold of
    `buffer_memory`, `limit_bytes` the most that they may (None: all of it). `rate`: bytes a second that it was seen to
    take, 0 if that is not known. `in_flight`: requests without an answer.
    """

    state: str
    silent_ms: int
    usual_ms: int
    held_bytes: int
    limit_bytes: int | None
    rate: int
    in_flight: int


class RecordMetadata(NamedTuple):
    """Where a record was written.

    `offset` is -1 when the broker does not tell it (acks=0, duplicate of an older batch).
    `timestamp` is in ms since the epoch: the broker's append time on LogAppendTime topics, else the record's own.
    Sizes are in bytes, -1 for a null key or value.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    serialized_key_size: int = -1
    serialized_value_size: int = -1

    @property
    def topic_partition(self) -> TopicPartition:
        """The topic and partition as a `TopicPartition`."""
        return TopicPartition(self.topic, self.partition)


class RequestSums(NamedTuple):
    """What a produce request's batches sum up to: bytes before compression (`size_bytes`) and as sent.

    `topics`: (name, records, bytes before compression, bytes as sent) of each.
    `queue_times`: (ms since the first record came, batches), ascending; from
    64 ms on, times that differ by less than 1/32 stand together as their average.
    """

    batch_count: int
    size_bytes: int
    sent_bytes: int
    largest_sent_bytes: int
    largest_mean_record_bytes: float
    topics: list[tuple[str, int, int, int]]
    queue_times: list[tuple[int, int]]


_MURMUR_MASK: Final = 0xFFFFFFFF
_MURMUR_FACTOR: Final = 0x5BD1E995


def murmur2(data: bytes) -> int:
    """Return murmur2 of bytes as Kafka's Java client has it, unsigned."""
    length = len(data)
    value = 0x9747B28C ^ length
    for start in range(0, length & ~3, 4):
        word = int.from_bytes(data[start : start + 4], "little") * _MURMUR_FACTOR & _MURMUR_MASK
        word = (word ^ word >> 24) * _MURMUR_FACTOR & _MURMUR_MASK
        value = (value * _MURMUR_FACTOR & _MURMUR_MASK) ^ word
    rest = data[length & ~3 :]
    if rest:
        value = (value ^ int.from_bytes(rest, "little")) * _MURMUR_FACTOR & _MURMUR_MASK
    value = (value ^ value >> 13) * _MURMUR_FACTOR & _MURMUR_MASK
    return value ^ value >> 15


def partition_of_key(key: bytes, count: int) -> int:
    """Return which of `count` partitions Kafka's producers choose for a key."""
    return (murmur2(key) & 0x7FFFFFFF) % count
