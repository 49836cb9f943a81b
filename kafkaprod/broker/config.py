"""The broker's options, under Kafka's names where Kafka has them. Immutable; checked when made.

Defaults are for one machine: loopback only. Times in ms, sizes in bytes.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field

from kafkaprod.broker.cluster_config import ClusterConfig
from kafkaprod.broker.coordinator.consumer_group_config import ConsumerGroupConfig
from kafkaprod.broker.coordinator.member import GroupConfig
from kafkaprod.broker.coordinator.transaction_coordinator import TransactionConfig
from kafkaprod.broker.listeners import Endpoint, Listener, parse_advertised
from kafkaprod.broker.metadata.tokens import TokenConfig
from kafkaprod.broker.storage.format.log_config import LogConfig
from kafkaprod.broker.storage.log.group_commit import FlushPolicy, interval
from kafkaprod.errors import ConfigError
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.storage.disk import Disk
from kafkaprod.structs import INT32_MAX

DEFAULT_HOST = "127.0.0.1"
MAX_PARTITIONS_OF_TOPIC = 10_000  # each takes a directory, four files and a descriptor
MAX_LOG_DIRS = 16  # with data_dir
MAX_PARTITIONS_OF_REQUEST = 10_000  # Kafka: ReplicationControlManager.MAX_PARTITIONS_PER_BATCH


@dataclass(frozen=True, slots=True)
class Limits:
    """What clients can make the broker hold.

    Attributes:
        max_connections: max.connections; see `server.admission` for who has to go when all places are taken.
        max_connections_per_ip: max.connections.per.ip; further ones from one address are closed at once.
        max_connections_per_s: max.connection.creation.rate; see `server.connection_rates`.
        max_request_bytes: socket.request.max.bytes; a larger frame closes the connection before it is read.
        max_other_request_bytes: The same for all requests but Produce: what is made of one takes several times as much.
        max_queued_bytes: queued.max.request.bytes; what all connections together may hold of requests that are not
            handled yet. Connections wait when it is used up.
        max_unauthenticated_bytes: The same, until the client has logged in.
        max_request_elements: Most elements of all arrays in one request; more close the connection. A partition costs
            about 15 us in Fetch, and no other client is served meanwhile.
        max_fetch_bytes: fetch.max.bytes; most records in one response, but for the first batch.
        max_idle_ms: connections.max.idle.ms.
    """

    max_connections: int = 1_000
    max_connections_per_ip: int = INT32_MAX
    max_connections_per_s: int = INT32_MAX
    max_request_bytes: int = 100 * 1024 * 1024
    max_other_request_bytes: int = 8 * 1024 * 1024
    max_queued_bytes: int = 200 * 1024 * 1024
    max_unauthenticated_bytes: int = 512 * 1024
    max_request_elements: int = 25_000
    max_fetch_bytes: int = 55 * 1024 * 1024
    max_idle_ms: int = 600_000


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """All options of a broker.

    Attributes:
        data_dir: Made with mode 0700 and locked.
        log_dirs: Further directories for partitions; with `data_dir`, the first one, they are Kafka's log.dirs. They
            must be on the broker's own machine, as `data_dir`.
        log_dir_move_bytes_per_s: replica.alter.log.dirs.io.max.bytes.per.second; of partitions that move between them.
        host: Address to listen on.
        listeners: Several sockets in place of `host` and `port`, see `broker.listeners`.
        port: 0 takes a free one.
        advertised_host: The host that clients get to connect to; None for `host`.
        advertised: The addresses that clients get, by listener; see `broker.listeners.parse_advertised`.
        node_id: This broker's id.
        cluster_id: None for the data directory's own.
        auto_create_topics: auto.create.topics.enable; topics are made when clients first name them.
        num_partitions: The number of partitions of topics made without a count.
        flush_policy: When appended data is synced to the disk.
        log: Defaults of the topics' options.
        groups: Options of groups of the classic protocol.
        consumer_groups: Options of groups of the consumer protocol.
        transactions: Options of the transaction coordinator.
        tokens: Options of delegation tokens.
        limits: What clients can make the broker hold.
        metadata_snapshot_bytes: metadata.log.max.record.bytes.between.snapshots; the log of the metadata grows by so
            much before a snapshot, and by four times the last one.
        log_cleaner_enable: Compact topics with cleanup.policy=compact.
        log_cleaner_backoff_ms: How often the cleaner looks for one that is due.
        log_retention_check_ms: How often retention is applied to logs.
        offsets_retention_check_ms: How often it is applied to offsets of groups.
        offsets_retention_ms: How long a group without members keeps its offsets.
        topics: Name -> partition count; made at start if missing.
        tls: The TLS context of listeners with TLS. Without `listeners` its presence makes the one listener speak TLS.
        sasl_users: User name -> password, for listeners with a login. Without `listeners` clients must log in if there
            are any.
        sasl_oauthbearer: Clients may log in with tokens without a signature (OAUTHBEARER): for tests.
        super_users: super.users; principals that ACLs do not bind, "User:admin;User:root".
        allow_everyone_if_no_acl_found: allow.everyone.if.no.acl.found; what has no ACLs is open to all.
        options: Further options under Kafka's names; `cluster.broker_options.with_options` checks and applies them.
        client_metrics: Take the metrics that clients push (KIP-714), for tests.
        max_versions: API -> highest version to announce and to take, as an older broker does.
        cluster: The cluster of a broker that is one of several; None for one alone.
        disk: All changes of files go through it.
    """

    data_dir: str
    log_dirs: tuple[str, ...] = ()
    log_dir_move_bytes_per_s: int = 2**63 - 1
    host: str = DEFAULT_HOST
    port: int = 9092
    listeners: tuple[Listener, ...] = ()
    advertised_host: str | None = None
    advertised: str = ""
    node_id: int = 0
    cluster_id: str | None = None
    auto_create_topics: bool = True
    num_partitions: int = 1
    flush_policy: FlushPolicy = field(default_factory=lambda: interval(1_000))
    log: LogConfig = field(default_factory=LogConfig)
    groups: GroupConfig = field(default_factory=GroupConfig)
    consumer_groups: ConsumerGroupConfig = field(default_factory=ConsumerGroupConfig)
    transactions: TransactionConfig = field(default_factory=TransactionConfig)
    tokens: TokenConfig = field(default_factory=TokenConfig)
    limits: Limits = field(default_factory=Limits)
    metadata_snapshot_bytes: int = 1024 * 1024
    log_cleaner_enable: bool = True
    log_cleaner_backoff_ms: int = 15_000
    log_retention_check_ms: int = 300_000
    offsets_retention_check_ms: int = 600_000
    offsets_retention_ms: int = 7 * 24 * 3_600_000
    topics: Mapping[str, int] = field(default_factory=dict)
    tls: ssl.SSLContext | None = None
    sasl_users: Mapping[str, str] = field(default_factory=dict, repr=False)
    sasl_oauthbearer: bool = False
    super_users: str = ""
    allow_everyone_if_no_acl_found: bool = True
    options: Mapping[str, str] = field(default_factory=dict)
    client_metrics: bool = False
    max_versions: Mapping[ApiKey, int] = field(default_factory=dict)
    cluster: ClusterConfig | None = None
    disk: Disk = field(default_factory=Disk)

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65_535:
            raise ConfigError(f"port={self.port} is not in 0..65535")
        if not 1 <= self.num_partitions <= MAX_PARTITIONS_OF_TOPIC:
            raise ConfigError(f"num_partitions={self.num_partitions} is not in 1..{MAX_PARTITIONS_OF_TOPIC}")
        if len(self.log_dirs) >= MAX_LOG_DIRS:
            raise ConfigError(f"log_dirs has {len(self.log_dirs)} directories, the limit is {MAX_LOG_DIRS - 1}")
        if self.node_id < 0:
            raise ConfigError(f"node_id={self.node_id} must not be negative")
        for listener in self.listeners:
            if listener.has_tls and self.tls is None:
                raise ConfigError(f"listener {listener.name} needs a certificate and a key")
            if listener.has_login and not self.has_logins:
                raise ConfigError(f"listener {listener.name} needs users who can log in")
        parse_advertised(self.advertised, [listener.name for listener in self.all_listeners])

    @property
    def has_logins(self) -> bool:
        """Whether clients can log in."""
        return bool(self.sasl_users) or self.sasl_oauthbearer

    @property
    def all_listeners(self) -> tuple[Listener, ...]:
        """The sockets to listen on, at least one."""
        encryption = "PLAINTEXT" if self.tls is None else "SSL"
        protocol = f"SASL_{encryption}" if self.has_logins else encryption
        return self.listeners or (Listener(protocol, self.host, self.port),)

    @property
    def protocols(self) -> dict[str, str]:
        """The security protocol of each listener, by name."""
        return {listener.name: listener.protocol for listener in self.all_listeners}

    def advertised_as(self, listener: Listener, bound_port: int) -> Endpoint:
        """Return the address that clients of a listener get.

        Args:
            listener: One of `all_listeners`.
            bound_port: The port of its socket.
        """
        given = parse_advertised(self.advertised, [each.name for each in self.all_listeners])
        return given.get(listener.name) or Endpoint(self.advertised_host or listener.host, bound_port)
