"""Tests of other projects that fail against the embedded broker, each with its reason."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_FIRST_USE = "a topic that is made on first use has its partitions in the first answer, here; Kafka sends error 3 first"
_REPLICAS = "replication factor 3 is refused (38): there is one broker"

KAFKA_GO: Final[Mapping[str, str]] = {
    **dict.fromkeys(("TestConn/test_delete_topics", "TestConn/test_delete_topics_with_an_invalid_topic"), _FIRST_USE),
    "TestConn": "the two above",
    "TestReaderReadCompactedMessage": "segment.bytes=200 is refused (40), as by Apache Kafka 4.4: 1 MiB at least",
    "TestReaderConsumerGroup/consumer_group_rebalance": (
        "fails against Apache Kafka 4.4, too: two readers want 12 records each of 24 in 3 partitions"
    ),
    "TestReaderConsumerGroup": "the one above",
}

CONFLUENT_KAFKA: Final[Mapping[str, str]] = {
    "tests.integration.admin.test_incremental_alter_configs.test_incremental_alter_configs": (
        "eligible leader replicas (KIP-966) are not announced: min.insync.replicas is a default, not of the cluster"
    ),
}

AIOKAFKA: Final[Mapping[str, str]] = dict.fromkeys(
    (
        "tests.test_sasl.TestKafkaSASL.test_sasl_plaintext_gssapi",
        "tests.test_sasl.TestKafkaSASL.test_admin_client_sasl_plaintext_gssapi",
    ),
    "GSSAPI is refused (33)",
)

LIBRDKAFKA: Final[Mapping[str, str]] = {
    "0103_transactions": _REPLICAS,
}

KAFKA_TOOLS: Final[Mapping[str, str]] = {
    "configs --alter --entity-type broker-loggers --entity-name 0 --add-config kafka=DEBUG": (
        "levels of loggers are refused (42)"
    ),
    "delegation-tokens --create --max-life-time-period -1 --command-config {empty}": (
        "delegation tokens need a login, and this broker has none"
    ),
}

SARAMA: Final[Mapping[str, str]] = {}
