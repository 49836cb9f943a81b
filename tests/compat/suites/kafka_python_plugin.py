"""Puts kafkaprod.compat.kafka_python in place of kafka-python's producer, and our broker in place of Apache Kafka."""

from __future__ import annotations

import sys

import kafka
import kafka.consumer
import kafka.producer

import tests.foreign.plugins.kafka_python_plugin  # noqa: F401  (starts our broker for their fixtures)
from kafkaprod.compat import kafka_python
from kafkaprod.compat.kafka_python import future, serializer

assert kafka_python.KafkaConsumer is kafka.KafkaConsumer  # which takes our serializers from here on
kafka.KafkaProducer = kafka.producer.KafkaProducer = kafka_python.KafkaProducer  # type: ignore[misc]
sys.modules["kafka.future"] = future  # only for what is imported from now on: the tests
sys.modules["kafka.serializer"] = serializer
