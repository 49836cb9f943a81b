"""The producer of a command at a terminal, where Ctrl-C brings the prompt back and a missing topic is told at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from kafkaprod.admin.client import ClusterClient
from kafkaprod.admin.topics import demand_topic
from kafkaprod.cli.producer_arguments import make_config
from kafkaprod.errors import ConfigError, TopicNotFoundError
from kafkaprod.producer import Producer

INTERRUPTED_S: Final = 0.4  # for what is on its way


@contextmanager
def command_producer(options: Mapping[str, Any]) -> Iterator[Producer]:
    """A producer that is flushed and closed at the end of the block; Ctrl-C gives what is queued INTERRUPTED_S.

    Raises:
        DeliveryFailedError: A record was not delivered. And what ends the block.
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


def check_topic(options: dict[str, Any], topic: str, partition: int = -1) -> None:
    """Raises TopicNotFoundError, ConfigError if there is no such topic or partition, and nobody makes it."""
    with ClusterClient(make_config(options)) as client:
        try:
            count = len(demand_topic(client, topic).partitions)
        except TopicNotFoundError as error:
            raise TopicNotFoundError(
                f"topic {topic!r} does not exist: make it with `kafkaprod topics create {topic}`", topic=topic
            ) from error
    if partition >= count:
        raise ConfigError(f"topic {topic!r} has {count} partitions, none with number {partition}")
