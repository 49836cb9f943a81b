"""kafka-python's `kafka.producer`."""

from __future__ import annotations

from kafkaprod.compat.kafka_python.producer.kafka import KafkaProducer

__all__ = ["KafkaProducer"]
