"""The producer of a command: Ctrl-C ends it within INTERRUPTED_S, and a missing topic is an error before the start."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from kafkaprod.admin.topics import demand_topic
from kafkaprod.cli.producer_arguments import open_cluster
from kafkaprod.errors import ConfigError, TopicNotFoundError
from kafkaprod.producer import Producer
from kafkaprod.text import counted

INTERRUPTED_S: Final = 0.4  # for records in flight


@contextmanager
def command_producer(options: Mapping[str, Any]) -> Iterator[Producer]:
    """Yield a producer that is flushed and closed at the end of the block; Ctrl-C gives queued records INTERRUPTED_S.

    Raises:
        DeliveryFailedError: A record was not delivered.
    """
    patience_s: float | None = None
    producer = Producer(options)
    try:
        yield producer
        producer.flush()
    except KeyboardInterrupt:
        patience_s = INTERRUPTED_S
        raise
    finally:
        producer.close(patience_s)


def check_topic(arguments: argparse.Namespace, options: dict[str, Any], topic: str, partition: int = -1) -> None:
    """Raise TopicNotFoundError or ConfigError if a topic or partition is missing and the brokers do not create it."""
    with open_cluster(arguments, options) as client:
        try:
            existing = len(demand_topic(client, topic).partitions)
        except TopicNotFoundError as error:
            raise TopicNotFoundError(
                f"topic {topic!r} does not exist: create it with `kafkaprod topics create {topic}`", topic=topic
            ) from error
    if partition >= existing:
        raise ConfigError(f"topic {topic!r} has {counted(existing, 'partition')}, but no partition {partition}")
