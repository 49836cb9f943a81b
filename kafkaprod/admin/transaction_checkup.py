"""Find what will keep a transactional producer from working: on the cluster, and in its configuration."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from kafkaprod.admin.checkup import Finding, Level
from kafkaprod.admin.client import ClusterClient
from kafkaprod.admin.groups import STABLE_VERSION, group_operations
from kafkaprod.admin.topics import TopicInfo, broker_options, find_topic, topic_options
from kafkaprod.admin.transactions import ProducerInfo, TransactionInfo, describe_transaction, find_hanging
from kafkaprod.clock import SystemClock
from kafkaprod.config import ProducerConfig
from kafkaprod.errors import AuthorizationError, BrokerError, KafkaError, UnsupportedVersionError
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.describe_cluster import NOT_REQUESTED, DescribeClusterRequest
from kafkaprod.text import counted

STATE_TOPIC: Final = "__transaction_state"
FEATURE: Final = "transaction.version"
READ, IDEMPOTENT_WRITE = 3, 12  # Kafka's AclOperation codes

_REQUIRED: Final = (
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.END_TXN,
    ApiKey.TXN_OFFSET_COMMIT,
)
_MAX_TIMEOUT: Final = "transaction.max.timeout.ms"
_DEFAULT_MAX_TIMEOUT_MS: Final = 900_000

VersionRanges = Mapping[int, tuple[int, int]]
Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class TransactionFacts:
    """What a cluster answered.

    Attributes:
        versions: Node -> API -> (lowest, highest version).
        level: Finalized level of the feature transaction.version; 0 where there is no such feature.
        options: The options of a broker; None: this user may not see them.
        state_topic: None: not made yet, or this user may not see it.
        least_in_sync: min.insync.replicas of that topic; None: unknown.
        own: The state of the producer's id; None: the coordinator does not know it.
        refusal: Why the coordinator does not show it.
        hanging: Transactions of the topic that no coordinator will end.
        cluster_operations: What this user may do with the cluster, as Kafka's bit field; None: unknown.
        group: Whose offsets the transactions commit; "" for none.
        group_operations: What this user may do with it; None: unknown.
        group_refusal: Why the coordinator does not show it.
    """

    versions: Mapping[int, VersionRanges]
    level: int = 0
    options: Mapping[str, str | None] | None = None
    state_topic: TopicInfo | None = None
    least_in_sync: int | None = None
    own: TransactionInfo | None = None
    refusal: KafkaError | None = None
    hanging: tuple[ProducerInfo, ...] = ()
    cluster_operations: int | None = None
    group: str = ""
    group_operations: int | None = None
    group_refusal: KafkaError | None = None


def examine_transactions(config: ProducerConfig, facts: TransactionFacts, now_ms: int) -> list[Finding]:
    """Return all findings about transactions.

    Args:
        config: The configuration of the producer.
        facts: About the cluster.
        now_ms: ms since the epoch.
    """
    return [
        *_versions(facts),
        *_level(facts),
        *_state_topic(facts),
        *_timeout(config, facts),
        *_rights(config, facts),
        *_group(facts),
        *_open(facts, now_ms),
    ]


def _lowest(facts: TransactionFacts, api: ApiKey) -> int:
    """Return the highest version that every node has; -1: a node lacks the API."""
    return min((versions.get(api, (0, -1))[1] for versions in facts.versions.values()), default=-1)


def _versions(facts: TransactionFacts) -> Iterator[Finding]:
    subject = "transactions: versions"
    lacking = {
        node: [api.name for api in _REQUIRED if api not in versions]
        for node, versions in sorted(facts.versions.items())
    }
    for node, names in lacking.items():
        if names:
            yield Finding(
                Level.PROBLEM,
                subject,
                f"node {node} does not offer {', '.join(names)}: it has no transactions",
                "Kafka has them from 0.11 on; a proxy or another product may leave them out",
            )
    if any(lacking.values()):
        return
    if _lowest(facts, ApiKey.INIT_PRODUCER_ID) < 3:
        yield Finding(
            Level.WARNING,
            subject,
            "brokers before Kafka 2.5 cannot raise the epoch of a running producer: a record without an answer ends it",
            "update the brokers",
        )
    elif _lowest(facts, ApiKey.ADD_PARTITIONS_TO_TXN) < 4:
        yield Finding(
            Level.WARNING,
            subject,
            "brokers before Kafka 3.6 do not check that a transaction is open when records arrive late: such records "
            "can block readers of committed data until the transaction is aborted by hand",
            "update the brokers; `kafkaprod transactions find-hanging` shows such transactions",
        )
    else:
        yield Finding(Level.OK, subject, f"{counted(len(facts.versions), 'broker')} with all requests of transactions")
    if facts.group and _lowest(facts, ApiKey.OFFSET_FETCH) < STABLE_VERSION:
        yield Finding(
            Level.PROBLEM,
            subject,
            "brokers before Kafka 2.5 show offsets while their transaction is being applied: a repetition could not "
            "know what is written",
            "update the brokers, or write at least once",
        )


def _level(facts: TransactionFacts) -> Iterator[Finding]:
    subject = f"transactions: {FEATURE}"
    if facts.level >= 2:
        yield Finding(Level.OK, subject, f"level {facts.level}: each transaction has an epoch of its own (KIP-890)")
    elif _lowest(facts, ApiKey.END_TXN) >= 5:
        yield Finding(
            Level.WARNING,
            subject,
            f"level {facts.level}, although all brokers know level 2: a transaction that took too long ends its "
            "producer, as if it were fenced",
            f"kafka-features.sh --bootstrap-server ... upgrade --feature {FEATURE}=2",
        )


def _state_topic(facts: TransactionFacts) -> Iterator[Finding]:
    subject = f"transactions: {STATE_TOPIC}"
    topic = facts.state_topic
    if topic is None:
        yield from _future_state_topic(facts, subject)
        return
    least = facts.least_in_sync or 1
    factor = min((len(partition.replicas) for partition in topic.partitions), default=0)
    short = [p.number for p in topic.partitions if p.leader < 0 or len(p.in_sync) < least]
    if short:
        yield Finding(
            Level.PROBLEM,
            subject,
            f"partitions {short} have no leader or fewer than min.insync.replicas={least} in sync: transactional ids "
            "that belong to them wait until they time out",
            "bring the missing brokers back",
        )
    elif factor < 3 or least < 2:
        yield Finding(
            Level.WARNING,
            subject,
            f"{counted(factor, 'replica')}, min.insync.replicas={least}: the loss of a broker can lose the state of "
            "transactions, or stop them",
            "three replicas and min.insync.replicas=2 survive the loss of a broker",
        )
    else:
        yield Finding(Level.OK, subject, f"{counted(factor, 'replica')}, min.insync.replicas={least}")


def _future_state_topic(facts: TransactionFacts, subject: str) -> Iterator[Finding]:
    """The topic is made for the first transactional producer, by the brokers' options."""
    factor = int((facts.options or {}).get("transaction.state.log.replication.factor") or 0)
    count = len(facts.versions)
    if factor > count:
        yield Finding(
            Level.PROBLEM,
            subject,
            f"it does not exist, and transaction.state.log.replication.factor={factor} needs more than the "
            f"{counted(count, 'broker')} there are: init_transactions() waits until it times out",
            f"start {factor - count} more, or lower the option on the brokers",
        )
    elif 0 < factor < 3:
        yield Finding(
            Level.WARNING,
            subject,
            f"it will be made with transaction.state.log.replication.factor={factor}: the loss of a broker can stop "
            "transactions",
            "set the brokers' option to 3 before the first transactional producer starts",
        )
    else:
        yield Finding(Level.OK, subject, "not seen: it is made for the first transactional producer")


def _timeout(config: ProducerConfig, facts: TransactionFacts) -> Iterator[Finding]:
    subject = "transactions: timeout"
    if facts.options is None or not facts.options.get(_MAX_TIMEOUT):
        return
    limit, ours = int(facts.options[_MAX_TIMEOUT] or 0), config.transaction_timeout_ms
    if ours > limit:
        yield Finding(
            Level.PROBLEM,
            subject,
            f"transaction_timeout_ms={ours} is over the brokers' {_MAX_TIMEOUT}={limit}: init_transactions() raises "
            "ConfigError",
            f"lower transaction_timeout_ms to {limit}, or raise the brokers' option",
        )
    else:
        yield Finding(Level.OK, subject, f"transaction_timeout_ms={ours} is within {_MAX_TIMEOUT}={limit}")


def _rights(config: ProducerConfig, facts: TransactionFacts) -> Iterator[Finding]:
    subject = "transactions: rights"
    name = config.transactional_id
    if isinstance(facts.refusal, AuthorizationError):
        yield Finding(
            Level.PROBLEM,
            subject,
            f"this user may not use the transactional id {name!r}: {facts.refusal}",
            "give it the WRITE operation on the transactional id",
        )
    elif facts.refusal is not None:
        yield Finding(
            Level.PROBLEM,
            subject,
            f"the coordinator of {name!r} does not answer as it should: {facts.refusal}",
            f"look at {STATE_TOPIC} and at the brokers' logs",
        )
    else:
        yield Finding(
            Level.OK, subject, f"this user sees the transactional id {name!r}; WRITE on it shows when it is used"
        )
    operations = facts.cluster_operations
    if operations is not None and _lowest(facts, ApiKey.PRODUCE) < 9:  # Kafka 2.8 needs no right of its own
        has_right = operations >> IDEMPOTENT_WRITE & 1
        if not has_right:
            yield Finding(
                Level.WARNING,
                subject,
                "this user has no IDEMPOTENT_WRITE on the cluster: brokers before Kafka 2.8 then refuse idempotent "
                "producers without a transactional id",
                "give it IDEMPOTENT_WRITE on the cluster",
            )


def _group(facts: TransactionFacts) -> Iterator[Finding]:
    if not facts.group:
        return
    subject = "transactions: group"
    operations = facts.group_operations
    if facts.group_refusal is not None or (operations is not None and not operations >> READ & 1):
        why = "" if facts.group_refusal is None else f": {facts.group_refusal}"
        yield Finding(
            Level.PROBLEM,
            subject,
            f"this user may not commit offsets of group {facts.group!r}{why}",
            "give it the READ operation on the group",
        )
    else:
        yield Finding(Level.OK, subject, f"this user may commit offsets of group {facts.group!r}")


def _open(facts: TransactionFacts, now_ms: int) -> Iterator[Finding]:
    own = facts.own
    if own is not None and own.start_ms >= 0 and own.partitions:
        seconds = max(now_ms - own.start_ms, 0) // 1000
        yield Finding(
            Level.WARNING,
            "transactions: open",
            f"{own.transactional_id!r} has a transaction in state {own.state} since {counted(seconds, 'second')} in "
            f"{counted(len(own.partitions), 'partition')}: a new producer with this id ends it and fences its owner",
            "use one id for each running producer",
        )
    for producer in facts.hanging:
        topic, partition = producer.partition
        yield Finding(
            Level.PROBLEM,
            "transactions: hanging",
            f"producer {producer.producer_id} has a transaction in {topic}-{partition} from offset "
            f"{producer.transaction_start} on that no coordinator will end: readers of committed data stop there",
            f"kafkaprod transactions abort {topic} -p {partition} --start-offset {producer.transaction_start}",
        )


def query_transactions(
    client: ClusterClient, config: ProducerConfig, topic: str | None = None, group: str = ""
) -> TransactionFacts:
    """Ask the cluster for all that `examine_transactions` looks at; what is refused stays unknown.

    Args:
        client: A client of the cluster.
        config: The configuration of a producer with a transactional id.
        topic: Where to look for hanging transactions; None: nowhere.
        group: Whose offsets the transactions commit; "" for none.

    Raises:
        KafkaError: No broker can be used.
    """
    nodes = [broker.node_id for broker in client.metadata([]).brokers]
    for node in nodes:
        client.connect(node)
    announced = client.broker_versions()
    newest = max(announced.values(), key=lambda versions: versions.finalized_features_epoch, default=None)
    options = _unless_refused(lambda: broker_options(client, nodes[0]))
    state_topic = _unless_refused(lambda: find_topic(client, STATE_TOPIC))
    own, refusal = _own(client, str(config.transactional_id))
    found_operations: int | None = None
    group_refusal: KafkaError | None = None
    if group:
        try:
            found_operations = group_operations(client, group)
        except KafkaError as error:
            group_refusal = error
    return TransactionFacts(
        versions={node: versions.ranges for node, versions in announced.items()},
        level=0 if newest is None else newest.finalized_features.get(FEATURE, 0),
        options=options,
        state_topic=state_topic,
        least_in_sync=_least_in_sync(client) if state_topic is not None else None,
        own=own,
        refusal=refusal,
        hanging=tuple(_hanging(client, topic, options or {})),
        cluster_operations=_unless_refused(lambda: _cluster_operations(client)),
        group=group,
        group_operations=found_operations,
        group_refusal=group_refusal,
    )


def _own(client: ClusterClient, name: str) -> tuple[TransactionInfo | None, KafkaError | None]:
    try:
        return describe_transaction(client, name), None
    except BrokerError as error:
        return None, None if error.code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND else error
    except KafkaError as error:
        return None, error


def _least_in_sync(client: ClusterClient) -> int | None:
    options = _unless_refused(lambda: topic_options(client, STATE_TOPIC))
    return None if options is None else int(options.get("min.insync.replicas") or 1)


def _hanging(client: ClusterClient, topic: str | None, options: Mapping[str, str | None]) -> list[ProducerInfo]:
    if topic is None:
        return []
    limit_ms = int(options.get(_MAX_TIMEOUT) or _DEFAULT_MAX_TIMEOUT_MS)
    return _unless_refused(lambda: find_hanging(client, [topic], limit_ms, SystemClock().wall_ms())) or []


def _cluster_operations(client: ClusterClient) -> int | None:
    answer = client.ask(DescribeClusterRequest(include_cluster_authorized_operations=True))
    operations = int(answer.cluster_authorized_operations)
    return None if answer.error_code or operations == NOT_REQUESTED else operations


def _unless_refused(query: Callable[[], Answer]) -> Answer | None:
    """Return the answer; None: the broker refuses it, or is too old for the request."""
    try:
        return query()
    except (BrokerError, AuthorizationError, UnsupportedVersionError):
        return None
