"""confluent-kafka's producer interface: `from kafkaprod.compat.confluent_kafka import Producer`.

Everything else that confluent-kafka has, consumers and admin clients say, is taken from it if it is installed.
"""

from __future__ import annotations

from typing import Any

from kafkaprod.compat.confluent_kafka.error import (
    ConcurrentModificationException,
    IllegalStateException,
    KafkaError,
    KafkaException,
)
from kafkaprod.compat.confluent_kafka.message import (
    OFFSET_INVALID,
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    TIMESTAMP_NOT_AVAILABLE,
    Message,
)
from kafkaprod.compat.confluent_kafka.producer import Producer
from kafkaprod.compat.confluent_kafka.serializing_producer import SerializingProducer
from kafkaprod.compat.originals import original

__all__ = [
    "OFFSET_INVALID",
    "TIMESTAMP_CREATE_TIME",
    "TIMESTAMP_LOG_APPEND_TIME",
    "TIMESTAMP_NOT_AVAILABLE",
    "ConcurrentModificationException",
    "IllegalStateException",
    "KafkaError",
    "KafkaException",
    "Message",
    "Producer",
    "SerializingProducer",
]


def __getattr__(name: str) -> Any:
    return original("confluent_kafka", name, __name__)
