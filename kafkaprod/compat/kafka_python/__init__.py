"""kafka-python's producer interface: `from kafkaprod.compat.kafka_python import KafkaProducer`.

Everything else that kafka-python has, consumers and admin clients say, is taken from it if it is installed.
"""

from __future__ import annotations

from typing import Any

from kafkaprod.compat.kafka_python.producer import KafkaProducer
from kafkaprod.compat.kafka_python.serializer import DefaultSerializer, Deserializer, JsonSerializer, Serializer
from kafkaprod.compat.kafka_python.structs import TopicPartition
from kafkaprod.compat.originals import original

__all__ = ["DefaultSerializer", "Deserializer", "JsonSerializer", "KafkaProducer", "Serializer", "TopicPartition"]


def __getattr__(name: str) -> Any:
    found = original("kafka", name, __name__)
    _make_known("Serializer", Serializer)
    _make_known("Deserializer", Deserializer)
    return found


def _make_known(name: str, ours: type) -> None:
    """Let kafka-python's consumer take serializers of this package for its own."""
    theirs = getattr(original("kafka.serializer", name, __name__), "register", None)
    if theirs is not None:
        theirs(ours)
