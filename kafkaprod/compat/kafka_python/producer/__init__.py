"""kafka-python's `kafka.producer`.

kafka   kafka-python's KafkaProducer over `kafkaprod.Producer`
future  kafka-python's `kafka.producer.future`: the outcome of one record
sender  what programs look up below `KafkaProducer._sender`
"""

from __future__ import annotations

from kafkaprod.compat.kafka_python.producer.kafka import KafkaProducer

__all__ = ["KafkaProducer"]
