"""kafka-python's producer interface: `from kafkaprod.compat.kafka_python import KafkaProducer`.

Everything else that kafka-python has, consumers and admin clients say, is taken from it if it is installed.

producer     kafka-python's `kafka.producer`
future       kafka-python's `kafka.future`: a value that comes later, with callbacks
options      kafka-python's options and what becomes of each in kafkaprod
errors       kafka-python's `kafka.errors`, and what each error of kafkaprod is there
partitioner  kafka-python's `kafka.partitioner`, and how its partitioners run in this engine
serializer   kafka-python's `kafka.serializer`
structs      kafka-python's `kafka.structs`: what a producer needs; the rest is taken from kafka-python
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
