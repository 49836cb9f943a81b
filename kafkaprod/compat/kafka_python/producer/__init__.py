"""kafka-python's `kafka.producer`.

kafka   kafka-python's KafkaProducer over `kafkaprod.Producer`
future  kafka-python's `kafka.producer.future`: the outcome of one record
"""

from __future__ import annotations

from kafkaprod.compat.kafka_python.producer.kafka import KafkaProducer

__all__ = ["KafkaProducer"]
