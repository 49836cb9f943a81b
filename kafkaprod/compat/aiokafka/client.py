"""`AIOKafkaProducer.client`: what frameworks and instrumentation look up there, and requests of their own.

The producer does not need it. Addresses, client id and metadata are the engine's; what a framework sends itself, as
Faust does its CreateTopics, goes through aiokafka's own client, which connects when it is first used.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from kafkaprod import AsyncProducer
from kafkaprod.admin.cluster import describe_cluster
from kafkaprod.admin.topics import TopicInfo
from kafkaprod.compat.known_cluster import KnownCluster
from kafkaprod.compat.originals import original

_OPTIONS: Final = (
    *("bootstrap_servers", "metadata_max_age_ms", "request_timeout_ms", "retry_backoff_ms", "security_protocol"),
    *("ssl_context", "connections_max_idle_ms", "sasl_mechanism", "sasl_plain_username", "sasl_plain_password"),
    "sasl_oauth_token_provider",
)
_REQUESTS: Final = ("bootstrap", "send", "ready", "fetch_all_metadata", "coordinator_lookup", "add_topic", "set_topics")


class Cluster(KnownCluster):
    """Brokers and topics, with the methods of aiokafka's ClusterMetadata.

    Topics that the producer has sent to are as it knows them now. Others are as aiokafka's own client knows them once
    that is connected, and until then as the cluster described them when the first of them was looked up.

    Attributes:
        theirs: The metadata of aiokafka's own client; None: it is not connected.
    """

    theirs: Any = None

    def __init__(self, producer: AsyncProducer) -> None:
        super().__init__(producer)
        self._config = producer.config

    @functools.cached_property
    def _described(self) -> Mapping[str, TopicInfo]:
        return describe_cluster(self._config, None).topics

    def topics(self) -> set[str]:
        """Return the names."""
        return super().topics() | set(self._described if self.theirs is None else self.theirs.topics())

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """Return the partitions; None: there is no such topic."""
        known = super().partitions_for_topic(topic)
        if known is None and self.theirs is not None:
            others: set[int] | None = self.theirs.partitions_for_topic(topic)
            return others
        info = self._described.get(topic) if known is None else None
        return known if info is None else {partition.number for partition in info.partitions}

    def available_partitions_for_topic(self, topic: str) -> set[int] | None:
        """Return those with a leader; None: there is no such topic."""
        known = super().available_partitions_for_topic(topic)
        if known is None and self.theirs is not None:
            others: set[int] | None = self.theirs.available_partitions_for_topic(topic)
            return others
        info = self._described.get(topic) if known is None else None
        return known if info is None else {each.number for each in info.partitions if each.leader >= 0}

    def __getattr__(self, name: str) -> Any:
        if self.theirs is None or name.startswith("__"):
            raise AttributeError(f"the cluster of kafkaprod.compat.aiokafka has no attribute {name!r}")
        return getattr(self.theirs, name)


class Client:
    """The part of aiokafka's AIOKafkaClient that FastStream, Faust, OpenTelemetry and ddtrace use, by its names.

    It takes further attributes, as theirs does: ddtrace keeps some there. In one event loop, as the producer.

    Args:
        given: The producer's arguments, with aiokafka's names.
        partitions_for: Waits for a topic's metadata and returns its partitions.
    """

    api_version = (2, 3, 0)  # what aiokafka's calls the newest brokers

    def __init__(self, given: Mapping[str, Any], partitions_for: Callable[[str], Awaitable[set[int]]]) -> None:
        self._bootstrap_servers = given["bootstrap_servers"]
        self._client_id = given["client_id"] or "kafkaprod"
        self._partitions_for = partitions_for
        self._given = given
        self._producer: AsyncProducer | None = None
        self._cluster: Cluster | None = None
        self._original: Any = None  # aiokafka's client, connected

    def use(self, producer: AsyncProducer) -> None:
        """Take the started producer."""
        self._producer = producer

    async def stop(self) -> None:
        """Close what was opened."""
        theirs, self._original = self._original, None
        if theirs is not None:
            await theirs.close()

    async def _wait_on_metadata(self, topic: str) -> set[int]:
        """Wait until a topic is known; return its partitions. Raises aiokafka's errors."""
        return await self._partitions_for(topic)

    @property
    def hosts(self) -> list[tuple[str, int]]:
        """The bootstrap servers."""
        assert self._producer is not None, "the producer is not started"
        return list(self._producer.config.bootstrap_servers)

    def get_random_node(self) -> int | None:
        """Return the node id of a broker; None: none is known. Health checks then ask whether it is ready()."""
        nodes = [broker.nodeId for broker in self.cluster.brokers()]
        return random.choice(nodes) if nodes else None

    @property
    def cluster(self) -> Any:
        """The cluster's metadata; the first look at a topic that was not sent to waits, and so does the event loop."""
        if self._cluster is None:
            assert self._producer is not None, "the producer is not started"
            self._cluster = Cluster(self._producer)
        self._cluster.theirs = None if self._original is None else self._original.cluster
        return self._cluster

    async def force_metadata_update(self) -> bool:
        """Have the metadata read again."""
        theirs = await self._connected()
        return bool(await theirs.force_metadata_update())

    def __getattr__(self, name: str) -> Any:
        if name not in _REQUESTS:
            raise AttributeError(f"the client of kafkaprod.compat.aiokafka has no attribute {name!r}")

        async def request(*arguments: Any, **options: Any) -> Any:
            return await getattr(await self._connected(), name)(*arguments, **options)

        return request

    async def _connected(self) -> Any:
        """Return aiokafka's client. Raises AttributeError: aiokafka is not installed."""
        if self._original is None:
            kind = original("aiokafka.client", "AIOKafkaClient", "kafkaprod.compat.aiokafka.client")
            theirs = kind(client_id=self._client_id, **{name: self._given[name] for name in _OPTIONS})
            await theirs.bootstrap()
            self._original = theirs
        return self._original
