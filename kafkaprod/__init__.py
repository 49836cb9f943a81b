"""kafkaprod: a compiled, high-throughput Apache Kafka producer for Python."""

import logging

__version__ = "0.1.0"

from kafkaprod._core.columns import Column, Headers
from kafkaprod.aio import AsyncProducer
from kafkaprod.completion import BlockResult, DeliveryFuture
from kafkaprod.config import ProducerConfig
from kafkaprod.errors import KafkaError
from kafkaprod.producer import Producer
from kafkaprod.structs import RecordMetadata, TopicPartition

__all__ = [
    "AsyncProducer",
    "BlockResult",
    "Column",
    "DeliveryFuture",
    "Headers",
    "KafkaError",
    "Producer",
    "ProducerConfig",
    "RecordMetadata",
    "TopicPartition",
    "__version__",
]

logging.getLogger("kafkaprod").addHandler(logging.NullHandler())
