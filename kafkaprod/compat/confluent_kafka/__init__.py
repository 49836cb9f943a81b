"""confluent-kafka's producer interface: `from kafkaprod.compat.confluent_kafka import Producer`.

Everything else that confluent-kafka has, consumers and admin clients say, is taken from it if it is installed.

admin                 confluent-kafka's `confluent_kafka.admin`: metadata classes; the rest is taken from the original
schema_registry       `confluent_kafka.schema_registry`, taken from that package
aio                   confluent-kafka's `confluent_kafka.aio`: AIOProducer over `kafkaprod.AsyncProducer`
serializing_producer  confluent-kafka's SerializingProducer
producer              confluent-kafka's Producer over `kafkaprod.Producer`
arguments             keys, values, headers, timeouts as confluent-kafka takes them
metadata              what list_topics() returns: confluent-kafka's ClusterMetadata and its parts
observers             stats_cb and error_cb: made of the producer's metrics when poll() is called
serialization         `confluent_kafka.serialization`: the serializers
statistics            the JSON of stats_cb, by the names of librdkafka's STATISTICS.md
options               librdkafka's options and what becomes of each
partitioners          librdkafka's partitioners: the partition of a key, by their names
reports               what waits for poll(): delivery reports and other events
message               confluent-kafka's Message, as delivery callbacks get it
error                 confluent-kafka's errors, and what each error of kafkaprod is there
standins              KafkaError and KafkaException where confluent-kafka is not installed
codes                 the constants of confluent-kafka's KafkaError
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
