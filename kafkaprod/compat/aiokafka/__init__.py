"""aiokafka's producer interface: `from kafkaprod.compat.aiokafka import AIOKafkaProducer`.

Everything else that aiokafka has, consumers say, is taken from it if it is installed.
"""

from __future__ import annotations

from typing import Any

from kafkaprod.compat.aiokafka.producer import AIOKafkaProducer
from kafkaprod.compat.aiokafka.structs import TopicPartition
from kafkaprod.compat.originals import original

__all__ = ["AIOKafkaProducer", "TopicPartition"]


def __getattr__(name: str) -> Any:
    return original("aiokafka", name, __name__)
