"""The broker as the handlers see it: topics, groups, offsets, ids. No socket in here; `server` brings the requests.

Which thread: `topics` may be read by all, and is changed by the control thread; `groups`, `offsets`, `transactions`
and `producer_ids` belong to the control thread; `purgatory` to the event loop. Logs are thread-safe.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from kafkaprod.broker.calls.faults import Faults
from kafkaprod.broker.calls.login import Credentials
from kafkaprod.broker.calls.meters import Meters, TokenBucket
from kafkaprod.broker.calls.purgatory import Purgatory
from kafkaprod.broker.calls.request_log import RequestLog
from kafkaprod.broker.calls.steps import RunControl
from kafkaprod.broker.cluster.alone import Alone
from kafkaprod.broker.cluster.producer_ids import ProducerIds
from kafkaprod.broker.cluster.standing import Standing
from kafkaprod.broker.cluster.topics import Topic
from kafkaprod.broker.config import BrokerConfig
from kafkaprod.broker.controller.disk_log import check_metadata_is_first
from kafkaprod.broker.coordinator.consumer_group_config import ConsumerGroupConfig
from kafkaprod.broker.coordinator.consumer_groups import ConsumerGroups
from kafkaprod.broker.coordinator.group_coordinator import GroupCoordinator
from kafkaprod.broker.coordinator.internal_log import CoordinatorLog
from kafkaprod.broker.coordinator.markers import MarkerSink, MarkerWriter
from kafkaprod.broker.coordinator.offset_log import OFFSETS_TOPIC, OffsetLog
from kafkaprod.broker.coordinator.regex_subscriptions import SubscribableTopic, Topics
from kafkaprod.broker.coordinator.saved_groups import SavedGroups
from kafkaprod.broker.coordinator.transaction_coordinator import RunOnControl, TransactionCoordinator
from kafkaprod.broker.coordinator.transaction_log import TRANSACTIONS_TOPIC, TransactionLog
from kafkaprod.broker.listeners import Endpoint
from kafkaprod.broker.metadata.features import TRANSACTION_VERSION
from kafkaprod.broker.settings import broker_options
from kafkaprod.broker.settings.acls import Acls
from kafkaprod.broker.settings.client_metrics import ClientMetrics
from kafkaprod.broker.settings.quotas import Quotas
from kafkaprod.broker.settings.replicated_settings import ReplicatedSettings
from kafkaprod.broker.settings.scram_store import ScramStore
from kafkaprod.broker.settings.settings import BROKER_OPTIONS, GROUP_OPTIONS
from kafkaprod.broker.settings.tokens import Tokens
from kafkaprod.broker.storage.log.log_dirs import LogDirs
from kafkaprod.broker.storage.log.log_store import LogEnvironment
from kafkaprod.broker.storage.log.opening import open_log_dirs
from kafkaprod.broker.storage.log.partition_log import PartitionLog
from kafkaprod.broker.storage.log.segments import OpenHandles
from kafkaprod.clock import Clock
from kafkaprod.errors import ConfigError
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.storage.internal_records import KeyValue
from kafkaprod.structs import TopicPartition
from kafkaprod.text import address_text

if TYPE_CHECKING:
    from kafkaprod.broker.metadata.image import ClusterImage

logger = logging.getLogger(__name__)

RunBlocking = Callable[[Callable[[], None], Callable[[], None]], None]
"""Run the first call on another thread, then the second one in the event loop."""


class Broker:
    """See the module docstring.

    Attributes:
        endpoint: The endpoint of the first listener; set when its socket is bound.
        endpoints: Name of a listener -> address that its clients get.
        bound_ports: Name of a listener -> port of its socket; set by the server.
        api_versions: What ApiVersions announces; set by the router.
        peer_api_versions: What it announces to other processes of the cluster.
        post: Has a call made by the event loop, from any thread; set by the server.
        on_options: Called on the control thread after clients have changed options.
        request_log: What clients have asked, for a test that wants to know; None without.
        standing: What it does by itself, and what with the others of its cluster.
    """

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        purgatory: Purgatory,
        run_blocking: RunBlocking,
        run_control: RunControl,
        run_long: RunBlocking,
        endpoints: Mapping[str, Endpoint] | None = None,
        make_standing: Callable[[Broker], Standing] = Alone,
    ) -> None:
        """Take the data directory over and read what is in it.

        Args:
            config: All options.
            clock: Measures all times.
            purgatory: Holds requests that wait for data.
            run_blocking: Runs a call on a thread that may block.
            run_control: Runs a call on the control thread, after those before it.
            run_long: Runs a call on the thread for long calculations, after those before it.
            endpoints: Name -> address, of the listeners that are open; None for what the options say.
            make_standing: Makes its standing in its cluster.

        Raises:
            DirectoryLockedError: Another broker uses the directory.
            ConfigError: It belongs to another broker or cluster.
            CorruptDataError: One of its small files is damaged.
            OSError: It cannot be read or written.
        """
        self.config = self._given_config = config
        self.clock = clock
        self.purgatory = purgatory
        self.run_blocking = run_blocking
        self.run_control = run_control
        self.run_long = run_long
        self.faults = Faults()
        self.request_log: RequestLog | None = None
        self.credentials = Credentials(config.sasl_users)
        self.tokens = Tokens(config.tokens, lambda: self.image)
        self.credentials.find_token = self.tokens.find_login
        self.endpoints = endpoints or {
            listener.name: config.advertised_as(listener, listener.port) for listener in config.all_listeners
        }
        self.bound_ports = {listener.name: listener.port for listener in config.all_listeners}
        self.endpoint = next(iter(self.endpoints.values()))
        self.api_versions: Mapping[ApiKey, tuple[int, int]] = {}
        self.peer_api_versions: Mapping[ApiKey, tuple[int, int]] = {}
        self.on_options: Callable[[], None] = lambda: None
        self.post: Callable[[Callable[[], None]], None] = lambda call: call()
        self.standing = make_standing(self)
        self.settings = ReplicatedSettings()
        self.log_dirs = self._open_log_dirs()
        try:
            self.acls = Acls(
                self.settings,
                filter(None, config.super_users.split(";")),
                allows_if_none=config.allow_everyone_if_no_acl_found,
            )
            self.client_metrics = ClientMetrics(self.settings)
            self.quotas = Quotas(self.settings)
            self.mutation_meters = Meters(TokenBucket)
            self.scram = ScramStore(self.settings, self.credentials)
            self.config = config = self._effective_config(self.settings.get(BROKER_OPTIONS))
            self.topics = self.standing.open_topics()
            self.producer_ids = ProducerIds(self.standing.reserve_producer_ids)
            self._topics_of_groups: tuple[Mapping[str, Topic], Topics] = ({}, {})
            offsets_partition = self.topics.partition(OFFSETS_TOPIC, 0)
            self._load_groups(None if offsets_partition is None else offsets_partition.log)
            transactions_topic = self.topics.get(TRANSACTIONS_TOPIC)
            parts = () if transactions_topic is None else transactions_topic.partitions
            self.transactions = self.make_transactions(
                [partition.log for partition in parts], self.markers, lambda call: self.run_control(call)
            )
            self.standing.recover()
        except BaseException:
            self.log_dirs.close()
            raise

    @property
    def cluster_id(self) -> str:
        """The cluster's id, 22 characters of base64."""
        return self.log_dirs.identity.cluster_id

    @property
    def image(self) -> ClusterImage:
        """The metadata."""
        return self.topics.image

    def level_of(self, feature: str) -> int:
        """Return the level of a feature of the cluster, 0 for one that it has not. Thread-safe."""
        return self.image.features.get(feature, 0)

    def describe_options(self) -> dict[str, str]:
        """Return the broker's options under Kafka's names."""
        config = self.config
        advertised = [
            f"{name}://{address_text(endpoint.host, endpoint.port)}" for name, endpoint in self.endpoints.items()
        ]
        bound = [
            f"{listener.name}://{address_text(listener.host, self.bound_ports[listener.name])}"
            for listener in config.all_listeners
        ]
        return {
            **broker_options.describe(config),
            "advertised.listeners": ",".join(advertised),
            "listener.security.protocol.map": ",".join(f"{name}:{kind}" for name, kind in config.protocols.items()),
            "listeners": ",".join(bound),
            "log.dirs": ",".join(self.log_dirs.paths),
        }

    def set_options(self, options: Mapping[str, Mapping[str, str]], *, validate_only: bool) -> None:
        """Replace the options that clients have set, by node id, "" for all brokers; on the control thread.

        Raises:
            ConfigError: An option is unknown or has a wrong value; nothing was changed.
            RequestRefusedError: KAFKA_STORAGE_ERROR, the disk refused; nothing was changed.
        """
        config = self._effective_config(options)
        if validate_only:
            return
        self.settings.put(BROKER_OPTIONS, {name: dict(values) for name, values in options.items()})
        self._apply(config)

    def follow_settings(self) -> None:
        """Take over what clients have set through other brokers of the cluster; on the control thread."""
        self.scram.follow()
        try:
            config = self._effective_config(self.settings.get(BROKER_OPTIONS))
        except ConfigError as error:
            logger.error("options of the cluster do not fit this broker, which keeps those it has: %s", error)
        else:
            self._apply(config)

    def _apply(self, config: BrokerConfig) -> None:
        if config != self.config:
            self.config = config
            self.topics.set_defaults(config.log)
            self.groups.set_config(config.groups)
            self.on_options()

    def _effective_config(self, options: Mapping[str, Mapping[str, str]]) -> BrokerConfig:
        own = options.get(str(self._given_config.node_id), {})
        return broker_options.with_options(self._given_config, {**options.get("", {}), **own})

    def close(self) -> bool:
        """Close the logs; return whether the shutdown was clean."""
        self.standing.finish()
        return self.log_dirs.close()

    def _open_log_dirs(self) -> LogDirs:
        config = self.config
        paths = [config.data_dir, *config.log_dirs]
        check_metadata_is_first(paths)
        return open_log_dirs(
            paths,
            LogEnvironment(config.disk, self.clock, config.flush_policy, OpenHandles()),
            node_id=config.node_id,
            cluster_id=config.cluster_id,
            defaults=config.log,
            find_topics=self.standing.find_topics,
        )

    def _find_log(self, topic_partition: TopicPartition) -> PartitionLog | None:
        partition = self.topics.partition(*topic_partition)
        return None if partition is None else partition.log

    def coordinators(self) -> tuple[GroupCoordinator, TransactionCoordinator]:
        """Return the coordinators of now, for the control thread's timers."""
        return self.groups, self.transactions

    def open_groups(self, log: CoordinatorLog | None) -> None:
        """Read the groups and their offsets from a log, None for an empty one; those known so far are forgotten.

        Members that wait for an answer get NOT_COORDINATOR, as another broker is the coordinator now.

        Raises:
            LogError: CORRUPT_MESSAGE, the log is damaged.
            CorruptDataError: A record of it is.
        """
        self.groups.dismiss()
        self._load_groups(log)

    def _load_groups(self, log: CoordinatorLog | None) -> None:
        self.offsets = OffsetLog(log, partial(self.standing.make_internal_log, OFFSETS_TOPIC))
        self.markers = MarkerWriter(self._find_log, self.offsets)
        write, now_ms = self._write_groups, self.clock.now_ms()
        consumers = ConsumerGroups(
            self._consumer_group_config, self._subscribable_topics, self.offsets.group_records, write, now_ms
        )
        saved = SavedGroups(self.offsets.classic_groups, write, self.clock.wall_ms)
        self.groups = GroupCoordinator(
            self.config.groups, self.offsets.table.has_group, consumers, saved, self.clock.now_ms()
        )

    def _write_groups(self, records: Sequence[KeyValue]) -> None:
        self.offsets.write_group_records(records, self.clock.wall_ms())

    def _consumer_group_config(self, group_id: str) -> ConsumerGroupConfig:
        return self.config.consumer_groups.with_own(self.settings.get(GROUP_OPTIONS).get(group_id, {}))

    def _subscribable_topics(self) -> Topics:
        """All topics as consumer groups see them; the same object as long as the table is the same."""
        table = self.topics.table()
        if table is not self._topics_of_groups[0]:
            found = {name: SubscribableTopic(topic.topic_id, len(topic.partitions)) for name, topic in table.items()}
            self._topics_of_groups = (table, found)
        return self._topics_of_groups[1]

    def make_transactions(
        self, logs: Sequence[CoordinatorLog], markers: MarkerSink, run_later: RunOnControl
    ) -> TransactionCoordinator:
        """Return a coordinator of the transactions in a log.

        Args:
            logs: The log, or nothing for one that is made at the first record.
            markers: Takes the markers of transactions that end.
            run_later: Runs a call once the records of the log that come before it are safe.

        Raises:
            LogError: CORRUPT_MESSAGE, the log is damaged.
            CorruptDataError: A record of it is.
        """
        make_log = partial(self.standing.make_internal_log, TRANSACTIONS_TOPIC)
        log = TransactionLog(logs, make_log, lambda: self.level_of(TRANSACTION_VERSION))
        return TransactionCoordinator(self.config.transactions, log, self.producer_ids.allocate, markers, run_later)
