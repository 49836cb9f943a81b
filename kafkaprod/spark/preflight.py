"""Checks on the driver before any task starts: the cluster can be reached, and the topic exists."""

from __future__ import annotations

from typing import Final

from kafkaprod.config import ProducerConfig
from kafkaprod.errors import BrokerError, KafkaError, MetadataTimeoutError
from kafkaprod.producer import Producer
from kafkaprod.spark.options import SinkOptions

PATIENCE_MS: Final = 15_000  # a topic that was just made may take a moment; max.block.ms if that is less


def check_topic(options: SinkOptions) -> None:
    """Look up the topic of all rows, if the options name one; the brokers create it if they are configured to.

    Raises:
        KafkaError: It does not exist, may not be written to, or no broker can be used: of the class that says which.
    """
    if options.topic is None or not options.is_preflighted:
        return
    config = dict(options.kafka)
    patience_ms = min(PATIENCE_MS, ProducerConfig.from_options(config).max_block_ms)
    config.pop("max.block.ms", None)
    producer = Producer(config, max_block_ms=patience_ms)
    try:
        producer.partitions_for(options.topic)
    except MetadataTimeoutError as error:
        raise MetadataTimeoutError(
            f"Topic {options.topic} not present in metadata after {patience_ms} ms: {error}", topic=options.topic
        ) from error
    except BrokerError as error:
        raise KafkaError(f"Topic {options.topic} cannot be written to: {error}") from error
    finally:
        producer.close(0)
