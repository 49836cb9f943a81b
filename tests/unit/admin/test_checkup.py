"""What `kafkaprod doctor` finds: a rule each, with the remedy a person is told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafkaprod.admin.checkup import WRITE, ClusterFacts, Finding, Level, examine
from kafkaprod.admin.topics import PartitionInfo, TopicInfo
from kafkaprod.config import ProducerConfig

GOOD_OPTIONS = {
    "max.message.bytes": "1048588",
    "min.insync.replicas": "2",
    "message.timestamp.type": "CreateTime",
    "cleanup.policy": "delete",
    "compression.type": "producer",
}


def topic(partitions: int = 3, replicas: int = 3, in_sync: int = 3, leader: int = 0) -> TopicInfo:
    copies, alive = tuple(range(replicas)), tuple(range(in_sync))
    return TopicInfo(
        "t", None, False, tuple(PartitionInfo(i, leader, copies, alive) for i in range(partitions)), 1 << WRITE
    )


GOOD = ClusterFacts(3, (0, 13), topic(), GOOD_OPTIONS)


def find(subject: str, facts: ClusterFacts = GOOD, **options: object) -> list[Finding]:
    """What is said about a subject."""
    config = ProducerConfig.from_options({"bootstrap_servers": "localhost", **options})
    return [finding for finding in examine(config, facts) if finding.subject == subject]


def with_options(**changes: str) -> ClusterFacts:
    return replace(GOOD, options=GOOD_OPTIONS | {name.replace("_", "."): value for name, value in changes.items()})


def test_nothing_is_wrong_with_a_good_topic() -> None:
    findings = examine(ProducerConfig.from_options({"bootstrap_servers": "localhost"}), GOOD)
    assert {finding.subject for finding in findings} >= {"versions", "rights", "partitions", "memory", "replicas"}
    assert [finding for finding in findings if finding.level is not Level.OK] == []


# subject, facts, options of the producer, level, what the finding says, what the remedy says
RULES = [
    ("versions", replace(GOOD, produce_versions=(0, 2)), {}, Level.PROBLEM, "versions 0 to 2", "older than Kafka 0.11"),
    ("versions", replace(GOOD, produce_versions=(0, 8)), {}, Level.WARNING, "versions 0 to 8", "update"),
    ("rights", replace(GOOD, refusals=["no answer"]), {}, Level.WARNING, "no answer", "could not be checked"),
    ("rights", replace(GOOD, topic=replace(topic(), operations=0)), {}, Level.PROBLEM, "may not write", "WRITE"),
    ("partitions", replace(GOOD, topic=topic(leader=-1)), {}, Level.PROBLEM, "[0, 1, 2] have no leader", "brokers"),
    ("memory", replace(GOOD, topic=topic(100)), {"buffer_memory": 1 << 20, "batch_size": 4096}, Level.PROBLEM,
     "100 partitions need 1638400 bytes", "buffer_memory to 3276800"),
    ("memory", replace(GOOD, topic=topic(100)), {"buffer_memory": 8 << 20, "batch_size": 131_072}, Level.WARNING,
     "100 x batch_size=131072", "buffer_memory to 13107200"),
    ("replicas", GOOD, {"acks": 1, "enable_idempotence": False}, Level.WARNING, "acks=1", "acks=all"),
    ("replicas", replace(GOOD, topic=topic(replicas=1, in_sync=1)), {}, Level.PROBLEM,
     "min.insync.replicas=2, but the topic has 1", "lower min.insync.replicas"),
    ("replicas", replace(GOOD, topic=topic(in_sync=1)), {}, Level.PROBLEM, "[0, 1, 2] have fewer", "bring"),
    ("replicas", with_options(min_insync_replicas="1"), {}, Level.WARNING, "one copy", "min.insync.replicas=2"),
    ("sizes", with_options(max_message_bytes="500000"), {}, Level.WARNING, "max.message.bytes=500000", "to 500000"),
    ("sizes", with_options(max_message_bytes="500000"), {"max_request_size": 400_000, "max_batch_size": 600_000},
     Level.WARNING, "max_batch_size=600000", "max_batch_size to 500000"),
    ("sizes", with_options(max_message_bytes="100000"), {"max_request_size": 90_000, "batch_size": 200_000},
     Level.WARNING, "batch_size=200000 is over", "below 100000"),
    ("timestamps", with_options(message_timestamp_type="LogAppendTime"), {}, Level.WARNING, "its own time",
     "CreateTime"),
    ("cleanup", with_options(cleanup_policy="compact"), {}, Level.WARNING, "without a key is refused", "a key"),
    ("compression", with_options(compression_type="zstd"), {}, Level.WARNING, "compresses each one again", "zstd"),
    ("compression", with_options(compression_type="uncompressed"), {"compression_type": "lz4"}, Level.WARNING,
     "compresses each one again", "compression_type=none"),
]  # fmt: skip


@pytest.mark.parametrize(("subject", "facts", "options", "level", "text", "remedy"), RULES)
def test_what_will_go_wrong_is_said_with_what_to_change(
    subject: str, facts: ClusterFacts, options: dict[str, object], level: Level, text: str, remedy: str
) -> None:
    found = [finding for finding in find(subject, facts, **options) if finding.level is level]
    assert len(found) == 1, found
    assert text in found[0].text
    assert remedy in found[0].remedy
