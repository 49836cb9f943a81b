"""What programs look up below kafka-python's `KafkaProducer._sender`: whether it lives, and its client."""

from __future__ import annotations

from typing import Final

from kafkaprod import Producer
from kafkaprod.compat.kafka_python.errors import translate
from kafkaprod.compat.known_cluster import KnownCluster
from kafkaprod.errors import KafkaError

_LEAST: Final = (0, 11)  # older brokers have no record format 2, and are refused
_CHECK_S: Final = 10.0


class Client:
    """The part of kafka-python's KafkaClient that start-up scripts use. Thread-safe.

    Args:
        producer: Whose cluster it is.
    """

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self.cluster = KnownCluster(producer)

    def bootstrap_connected(self) -> bool:
        """Whether a broker has answered."""
        return self._producer.bootstrap_connected()

    def check_version(self) -> tuple[int, ...]:
        """Return the least version that a cluster which can be reached has. Raises NoBrokersAvailable and others."""
        try:
            self._producer.check(_CHECK_S)
        except (KafkaError, TimeoutError) as error:
            raise translate(error) from error
        return _LEAST


class Sender:
    """The sender thread. Thread-safe.

    Args:
        producer: Whose thread it is.
    """

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self._client = Client(producer)

    def is_alive(self) -> bool:
        """Whether records are still sent."""
        return not self._producer._has_ended

    def wakeup(self) -> None:
        """Do nothing: the thread sleeps only while it has nothing to do."""
