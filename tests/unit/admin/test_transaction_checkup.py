"""What `kafkaprod doctor` finds about transactions: a rule each, with its remedy."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafkaprod.admin.checkup import Finding, Level
from kafkaprod.admin.topics import PartitionInfo, TopicInfo
from kafkaprod.admin.transaction_checkup import READ, TransactionFacts, examine_transactions
from kafkaprod.admin.transactions import ProducerInfo, TransactionInfo
from kafkaprod.config import ProducerConfig
from kafkaprod.errors import AuthorizationError, KafkaError
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.structs import TopicPartition

KAFKA_4: dict[int, tuple[int, int]] = {
    ApiKey.PRODUCE: (0, 13),
    ApiKey.INIT_PRODUCER_ID: (0, 5),
    ApiKey.ADD_PARTITIONS_TO_TXN: (0, 5),
    ApiKey.ADD_OFFSETS_TO_TXN: (0, 4),
    ApiKey.END_TXN: (0, 5),
    ApiKey.TXN_OFFSET_COMMIT: (0, 5),
    ApiKey.OFFSET_FETCH: (0, 9),
}


def with_version(api: ApiKey, highest: int) -> dict[int, dict[int, tuple[int, int]]]:
    """Three nodes, of which one is older."""
    return {0: KAFKA_4, 1: {**KAFKA_4, api: (0, highest)}, 2: KAFKA_4}


def without(api: ApiKey) -> dict[int, dict[int, tuple[int, int]]]:
    return {0: KAFKA_4, 1: {key: versions for key, versions in KAFKA_4.items() if key != api}}


def state_topic(replicas: int = 3, in_sync: int = 3, leader: int = 0) -> TopicInfo:
    copies, alive = tuple(range(replicas)), tuple(range(in_sync))
    partitions = tuple(PartitionInfo(number, leader, copies, alive) for number in range(50))
    return TopicInfo("__transaction_state", None, True, partitions, None)


GOOD = TransactionFacts(
    versions=dict.fromkeys(range(3), KAFKA_4),
    level=2,
    options={"transaction.max.timeout.ms": "900000", "transaction.state.log.replication.factor": "3"},
    state_topic=state_topic(),
    least_in_sync=2,
)
OPEN = TransactionInfo("tx", 1, 7, 3, "Ongoing", 60_000, 40_000, (TopicPartition("t", 0),))
HANGING = ProducerInfo(TopicPartition("t", 2), 7, 3, 5, 1_000, 0, 1234)


def examine(facts: TransactionFacts, **options: object) -> list[Finding]:
    config = ProducerConfig.from_options({"bootstrap_servers": "localhost", "transactional_id": "tx", **options})
    return examine_transactions(config, facts, now_ms=100_000)


def test_nothing_is_wrong_with_a_good_cluster() -> None:
    findings = examine(replace(GOOD, group="g", group_operations=1 << READ, cluster_operations=0))
    assert [finding for finding in findings if finding.level is not Level.OK] == []
    assert len(findings) == 6


RULES = [
    (replace(GOOD, versions=without(ApiKey.END_TXN)), {}, Level.PROBLEM, "node 1 does not offer END_TXN", "proxy"),
    (replace(GOOD, versions=with_version(ApiKey.INIT_PRODUCER_ID, 2)), {}, Level.WARNING, "before Kafka 2.5", "update"),
    (replace(GOOD, versions=with_version(ApiKey.ADD_PARTITIONS_TO_TXN, 3)), {}, Level.WARNING, "before Kafka 3.6",
     "find-hanging"),
    (replace(GOOD, versions=with_version(ApiKey.OFFSET_FETCH, 6), group="g"), {}, Level.PROBLEM, "before Kafka 2.5",
     "at least once"),
    (replace(GOOD, level=1), {}, Level.WARNING, "level 1, although all brokers know level 2", "transaction.version=2"),
    (replace(GOOD, state_topic=state_topic(in_sync=1)), {}, Level.PROBLEM, "min.insync.replicas=2 in sync", "brokers"),
    (replace(GOOD, state_topic=state_topic(leader=-1)), {}, Level.PROBLEM, "no leader", "brokers back"),
    (replace(GOOD, state_topic=state_topic(1, 1), least_in_sync=1), {}, Level.WARNING, "1 replica, min.insync",
     "three replicas"),
    (replace(GOOD, state_topic=None, versions={0: KAFKA_4}), {}, Level.PROBLEM, "replication.factor=3 needs more than",
     "start 2 more"),
    (replace(GOOD, state_topic=None, options={"transaction.state.log.replication.factor": "1"}), {}, Level.WARNING,
     "replication.factor=1", "to 3"),
    (GOOD, {"transaction_timeout_ms": 900_001}, Level.PROBLEM, "transaction_timeout_ms=900001 is over", "900000"),
    (replace(GOOD, refusal=AuthorizationError("no")), {}, Level.PROBLEM, "may not use the transactional id", "WRITE"),
    (replace(GOOD, refusal=KafkaError("silence")), {}, Level.PROBLEM, "silence", "logs"),
    (replace(GOOD, versions=with_version(ApiKey.PRODUCE, 8), cluster_operations=0), {}, Level.WARNING,
     "no IDEMPOTENT_WRITE", "on the cluster"),
    (replace(GOOD, group="g", group_operations=0), {}, Level.PROBLEM, "may not commit offsets of group 'g'", "READ"),
    (replace(GOOD, group="g", group_refusal=AuthorizationError("no")), {}, Level.PROBLEM, "group 'g': no", "READ"),
    (replace(GOOD, own=OPEN), {}, Level.WARNING, "Ongoing since 60 seconds in 1 partition", "one id"),
    (replace(GOOD, hanging=(HANGING,)), {}, Level.PROBLEM, "t-2 from offset 1234",
     "transactions abort t -p 2 --start-offset 1234"),
]  # fmt: skip


@pytest.mark.parametrize(("facts", "options", "level", "text", "remedy"), RULES)
def test_what_will_go_wrong_is_found(
    facts: TransactionFacts, options: dict[str, object], level: Level, text: str, remedy: str
) -> None:
    found = [finding for finding in examine(facts, **options) if finding.level is not Level.OK]
    assert len(found) == 1, found
    assert found[0].level is level
    assert text in found[0].text
    assert remedy in found[0].remedy
