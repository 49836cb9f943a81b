"""Find what will go wrong between a producer's configuration and a cluster. Pure: facts in, findings out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from kafkaprod.admin.topics import TopicInfo
from kafkaprod.config import ProducerConfig
from kafkaprod.text import counted

# Kafka's AclOperation codes, bits of authorized operations. Source: org.apache.kafka.common.acl.AclOperation.
WRITE, CREATE, DESCRIBE, DESCRIBE_CONFIGS = 4, 5, 8, 10
RECOMMENDED_PRODUCE = 9  # Kafka 2.8
SLAB_BYTES = 16 << 10


class Level(Enum):
    """The severity of a finding."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "PROBLEM"


@dataclass(frozen=True, slots=True)
class Finding:
    """A subject that was examined, its state, and what to change."""

    level: Level
    subject: str
    text: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """What a cluster answered.

    Attributes:
        produce_versions: Range that the brokers support; None: unknown.
        topic: None: only the cluster is examined.
        options: The options of the topic; None: this user may not see them.
        refusals: Requests that the brokers refused, in words.
    """

    broker_count: int
    produce_versions: tuple[int, int] | None
    topic: TopicInfo | None = None
    options: Mapping[str, str | None] | None = None
    refusals: Sequence[str] = field(default_factory=tuple)


def examine(config: ProducerConfig, facts: ClusterFacts) -> list[Finding]:
    """Return all findings, in the order in which a record would meet them."""
    findings = [*_versions(facts), *_refusals(facts)]
    if facts.topic is not None:
        findings += [*_rights(facts.topic), *_partitions(facts.topic), *_memory(config, facts.topic)]
        findings += _replicas(config, facts.topic, facts.options or {})
        if facts.options is not None:
            findings += [*_sizes(config, facts.options), *_times(facts.options), *_cleanup(facts.options)]
            findings += _compression(config, facts.options)
    return findings


def _versions(facts: ClusterFacts) -> Iterator[Finding]:
    if facts.produce_versions is None:
        return
    lowest, highest = facts.produce_versions
    text = f"{counted(facts.broker_count, 'broker')}; Produce versions {lowest} to {highest}"
    if highest < 3:
        yield Finding(Level.PROBLEM, "versions", text, "these brokers are older than Kafka 0.11: no record can be sent")
    elif highest < RECOMMENDED_PRODUCE:
        yield Finding(Level.WARNING, "versions", text, "brokers before 2.8 have known idempotence bugs: update them")
    else:
        yield Finding(Level.OK, "versions", text)


def _refusals(facts: ClusterFacts) -> Iterator[Finding]:
    for refusal in facts.refusals:
        yield Finding(Level.WARNING, "rights", refusal, "what depends on it could not be checked")


def _rights(topic: TopicInfo) -> Iterator[Finding]:
    if topic.operations is None:
        return
    if topic.operations >> WRITE & 1:
        yield Finding(Level.OK, "rights", f"this user may write to {topic.name}")
    else:
        yield Finding(
            Level.PROBLEM,
            "rights",
            f"this user may not write to {topic.name}: every record will fail with TOPIC_AUTHORIZATION_FAILED",
            "give it the WRITE operation on the topic",
        )


def _partitions(topic: TopicInfo) -> Iterator[Finding]:
    leaderless = [p.number for p in topic.partitions if p.leader < 0]
    if leaderless:
        yield Finding(
            Level.PROBLEM,
            "partitions",
            f"partitions {leaderless} have no leader: their records wait, and fail after delivery_timeout_ms",
            "bring their brokers back",
        )
    else:
        leaders = {p.leader for p in topic.partitions}
        yield Finding(
            Level.OK,
            "partitions",
            f"{counted(len(topic.partitions), 'partition')} on {counted(len(leaders), 'broker')}",
        )


def _memory(config: ProducerConfig, topic: TopicInfo) -> Iterator[Finding]:
    count = len(topic.partitions)
    least = count * SLAB_BYTES
    if least > config.buffer_memory:
        yield Finding(
            Level.PROBLEM,
            "memory",
            f"{counted(count, 'partition')} need {least} bytes for one record each, "
            f"buffer_memory={config.buffer_memory}: sending will block for max_block_ms and raise BufferFullError",
            f"raise buffer_memory to {2 * least} at least",
        )
    elif count * config.batch_size > config.buffer_memory:
        yield Finding(
            Level.WARNING,
            "memory",
            f"full batches of {counted(count, 'partition')} ({count} x batch_size={config.batch_size}) are more than "
            f"buffer_memory={config.buffer_memory}: batches will go out before they are full",
            f"raise buffer_memory to {count * config.batch_size}, or lower batch_size",
        )
    else:
        yield Finding(
            Level.OK,
            "memory",
            f"full batches of {counted(count, 'partition')} fit into buffer_memory={config.buffer_memory}",
        )


def _replicas(config: ProducerConfig, topic: TopicInfo, options: Mapping[str, str | None]) -> Iterator[Finding]:
    least = int(options.get("min.insync.replicas") or 1)
    factor = min((len(p.replicas) for p in topic.partitions), default=0)
    short = [p.number for p in topic.partitions if len(p.in_sync) < least]
    if config.acks != -1:
        yield Finding(
            Level.WARNING,
            "replicas",
            f"acks={config.acks}: acknowledged records are lost when their leader fails",
            "use acks=all where that matters",
        )
    elif least > factor:
        yield Finding(
            Level.PROBLEM,
            "replicas",
            f"min.insync.replicas={least}, but the topic has {counted(factor, 'replica')}: every record is refused",
            "lower min.insync.replicas or add replicas",
        )
    elif short:
        yield Finding(
            Level.PROBLEM,
            "replicas",
            f"partitions {short} have fewer than min.insync.replicas={least} in sync: their records are refused until "
            "replicas are back",
            "bring the missing brokers back",
        )
    elif factor == 1 or least == 1:
        yield Finding(
            Level.WARNING,
            "replicas",
            f"{counted(factor, 'replica')}, min.insync.replicas={least}: acknowledged means one copy",
            "three replicas and min.insync.replicas=2 survive the loss of a broker",
        )
    else:
        yield Finding(Level.OK, "replicas", f"{counted(factor, 'replica')}, min.insync.replicas={least}, acks=all")


def _sizes(config: ProducerConfig, options: Mapping[str, str | None]) -> Iterator[Finding]:
    limit = int(options.get("max.message.bytes") or 0)
    if not limit:
        return
    if config.max_request_size > limit:
        yield Finding(
            Level.WARNING,
            "sizes",
            f"records up to max_request_size={config.max_request_size} are accepted here, but the topic takes "
            f"max.message.bytes={limit}: larger ones are refused by the broker (MESSAGE_TOO_LARGE)",
            f"lower max_request_size to {limit}, or raise the topic's max.message.bytes",
        )
    if config.batch_size > limit:
        yield Finding(
            Level.WARNING,
            "sizes",
            f"batch_size={config.batch_size} is over max.message.bytes={limit}: full batches are refused, cut "
            "in two and sent again",
            f"lower batch_size below {limit}",
        )
    elif config.max_batch_size > limit >= config.max_request_size:
        yield Finding(
            Level.WARNING,
            "sizes",
            f"batches that wait may grow to max_batch_size={config.max_batch_size}, over max.message.bytes={limit}: "
            "the first of them is refused, cut in two and sent again, and the next ones stay smaller",
            f"lower max_batch_size to {limit}",
        )
    if max(config.max_request_size, config.batch_size, config.max_batch_size) <= limit:
        yield Finding(Level.OK, "sizes", f"records and batches fit into max.message.bytes={limit}")


def _times(options: Mapping[str, str | None]) -> Iterator[Finding]:
    kind = options.get("message.timestamp.type")
    if kind == "LogAppendTime":
        yield Finding(
            Level.WARNING,
            "timestamps",
            "message.timestamp.type=LogAppendTime: the broker writes its own time over timestamps you give",
            "set CreateTime if yours matter",
        )
    elif kind is not None:
        yield Finding(Level.OK, "timestamps", f"message.timestamp.type={kind}: records keep the time you give")


def _cleanup(options: Mapping[str, str | None]) -> Iterator[Finding]:
    if "compact" in (options.get("cleanup.policy") or ""):
        yield Finding(
            Level.WARNING,
            "cleanup",
            f"cleanup.policy={options['cleanup.policy']}: a record without a key is refused, and only "
            "the last record of each key stays",
            "give every record a key",
        )


def _compression(config: ProducerConfig, options: Mapping[str, str | None]) -> Iterator[Finding]:
    wanted = options.get("compression.type") or "producer"
    ours = config.compression_type
    if wanted not in ("producer", ours) and not (wanted == "uncompressed" and ours == "none"):
        yield Finding(
            Level.WARNING,
            "compression",
            f"the topic's compression.type={wanted}, batches come with {ours}: the broker compresses each one again",
            f"set compression_type={'none' if wanted == 'uncompressed' else wanted}, or the topic's to producer",
        )
