"""confluent-kafka's `confluent_kafka.admin`: metadata classes; the rest is taken from the original package."""

from __future__ import annotations

from typing import Any

from kafkaprod.compat.confluent_kafka.metadata import (
    BrokerMetadata,
    ClusterMetadata,
    PartitionMetadata,
    TopicMetadata,
)
from kafkaprod.compat.originals import original

__all__ = ["BrokerMetadata", "ClusterMetadata", "PartitionMetadata", "TopicMetadata"]


def __getattr__(name: str) -> Any:
    return original("confluent_kafka.admin", name, __name__)
