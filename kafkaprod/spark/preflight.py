"""Checks on the driver before any task starts: cluster, topic, and what transactions need."""

from __future__ import annotations

from typing import Final

from kafkaprod.admin.checkup import Level
from kafkaprod.admin.client import ClusterClient
from kafkaprod.admin.topics import demand_topic, find_topic
from kafkaprod.admin.transaction_checkup import READ, examine_transactions, query_transactions
from kafkaprod.clock import SystemClock
from kafkaprod.config import ProducerConfig
from kafkaprod.errors import BrokerError, ConfigError, KafkaError, MetadataTimeoutError
from kafkaprod.producer import Producer
from kafkaprod.spark.options import SinkOptions
from kafkaprod.spark.pool import transactional_options
from kafkaprod.spark.write_marks import MarkPlace

PATIENCE_MS: Final = 15_000  # a topic that was just made may take a moment; max.block.ms if that is less

_topics_seen: set[tuple[str | None, tuple[tuple[str, str], ...]]] = set()  # of streams, with their options


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


def check_topic_of_stream(options: SinkOptions) -> None:
    """Do as `check_topic`, but only once in a process: Spark requests a stream's writer for each batch."""
    config = sorted((name, str(value)) for name, value in options.kafka.items())
    key = (options.topic, tuple(config))
    if key not in _topics_seen:
        check_topic(options)
        _topics_seen.add(key)


def check_transactions(options: SinkOptions) -> None:
    """Look at what the transactions of tasks need: versions, timeouts, rights, the topic of marks.

    Does nothing without delivery=transactional.

    Raises:
        ConfigError: They would fail; the message has every reason.
        KafkaError: No broker can be used, or marker.topic does not exist.
    """
    transactions = options.transactions
    if transactions is None or not options.is_preflighted:
        return
    place = MarkPlace.of(transactions, options.write_id or "preflight", 0)
    config = ProducerConfig.from_options(transactional_options(options, place.name))
    with ClusterClient(config) as client:
        if config.allow_auto_create_topics:
            demand_topic(client, transactions.mark_topic)
        mark_topic = find_topic(client, transactions.mark_topic, operations=True)
        facts = query_transactions(client, config, group=place.name)
    findings = examine_transactions(config, facts, SystemClock().wall_ms())
    problems = [
        f"{finding.subject}: {finding.text} -> {finding.remedy}"
        for finding in findings
        if finding.level is Level.PROBLEM
    ]
    if mark_topic.operations is not None and not mark_topic.operations >> READ & 1:
        problems.append(
            f"this user may not commit offsets for marker.topic={mark_topic.name} -> give it the READ operation"
        )
    if problems:
        raise ConfigError("delivery=transactional cannot work: " + "; ".join(problems))
