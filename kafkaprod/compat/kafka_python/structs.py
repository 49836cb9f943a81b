"""kafka-python's `kafka.structs`: what a producer needs; the rest is taken from kafka-python."""

from __future__ import annotations

from typing import Any

from kafkaprod.compat.originals import original
from kafkaprod.structs import TopicPartition as TopicPartition


def __getattr__(name: str) -> Any:
    return original("kafka.structs", name, __name__)
