"""aiokafka's `aiokafka.structs`: what a producer needs; the rest is taken from aiokafka."""

from __future__ import annotations

from typing import Any, NamedTuple

from kafkaprod.compat.originals import original
from kafkaprod.structs import TopicPartition as TopicPartition


class RecordMetadata(NamedTuple):
    """Where a record is.

    `timestamp` is in ms; `timestamp_type` is always 0 (the broker's answer does not say which); `log_start_offset` is
    always None.
    """

    topic: str
    partition: int
    topic_partition: TopicPartition
    offset: int
    timestamp: int | None
    timestamp_type: int
    log_start_offset: int | None


def __getattr__(name: str) -> Any:
    return original("aiokafka.structs", name, __name__)
