"""What an embedded cluster is made of: its arguments, checked, and the options of its processes as plain values."""

from __future__ import annotations

import base64
import os
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from kafkaprod.broker.config import DEFAULT_HOST, MAX_LOG_DIRS
from kafkaprod.broker.embedding import arguments
from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from kafkaprod.broker.embedding.window import checked_port
from kafkaprod.broker.listeners import following, listeners_text, parse_listeners
from kafkaprod.broker.peers.rules import CONTROLLER
from kafkaprod.broker.storage.log.directory_files import cluster_id_of
from kafkaprod.errors import ConfigError
from kafkaprod.structs import INT32_MAX

_REPLICATION_FACTOR: Final = 3
_LAST_PORT: Final = 65_535
CONTROLLERS_OPTIONS: Final = ("delegation.token.", "metadata.log.")
"""How the names of the options begin that the controller has, too."""
ARGUMENTS: Final = {
    "advertised.listeners": "advertised",
    "broker.id": "brokers, whose ids are 1, 2, ...",
    "broker.rack": "racks",
    "broker.session.timeout.ms": "session_timeout_ms",
    "default.replication.factor": "replication_factor",
    "listeners": "listeners",
    "log.dir": "data_dir",
    "log.dirs": "data_dir and log_dirs",
    "min.insync.replicas": "min_insync_replicas",
    "node.id": "brokers, whose ids are 1, 2, ...",
    "port": "ports",
    "replica.lag.time.max.ms": "replica_lag_ms",
    "unclean.leader.election.enable": "unclean_elections",
}
"""Options of Kafka's brokers that arguments of `EmbeddedCluster` set."""


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """The arguments of `EmbeddedCluster`, which has their meaning.

    Raises:
        ConfigError: An argument has a wrong type or value, or they do not fit together.
    """

    brokers: int
    racks: Sequence[str]
    topics: Mapping[str, int] | None
    replication_factor: int | None
    min_insync_replicas: int
    unclean_elections: bool
    detection: str
    session_timeout_ms: int
    replica_lag_ms: int
    seed: int
    ports: Sequence[int]
    listeners: str | None
    advertised: Sequence[str]
    data_dir: str | os.PathLike[str] | None
    log_dirs: int
    auto_create_topics: bool
    num_partitions: int
    sasl_users: Mapping[str, str] | None = field(repr=False)
    sasl_oauthbearer: bool
    tls_files: Sequence[str | os.PathLike[str]] | None
    options: Mapping[str, str | int | bool] | None
    ui: bool | int
    record_requests: bool

    def __post_init__(self) -> None:
        arguments.whole("brokers", self.brokers, 1)
        if self.data_dir is not None:
            arguments.path("data_dir", self.data_dir)
        arguments.whole("log_dirs", self.log_dirs, 1, MAX_LOG_DIRS)
        for rack in self._of_each_broker("racks", self.racks, '["a", "b", "c"]'):
            arguments.text("racks", rack)
        ports = self._of_each_broker("ports", self.ports, "[9092, 9093, 9094]")
        for port in ports:
            arguments.whole("ports", port, 0, 65_535)
        for address in self._of_each_broker("advertised", self.advertised, '["127.0.0.1:39091", ...]'):
            arguments.text("advertised", address)
        given = [port for port in ports if port]
        if len(set(given)) < len(given):
            raise ConfigError(f"ports={ports} has a port twice")
        self._check_listeners()
        arguments.topics(self.topics or {})
        if self.replication_factor is not None:
            arguments.whole("replication_factor", self.replication_factor, 1)
            if self.replication_factor > self.brokers:
                raise ConfigError(
                    f"replication_factor={self.replication_factor} needs as many brokers: there are {self.brokers}"
                )
        arguments.whole("min_insync_replicas", self.min_insync_replicas, 1, INT32_MAX)
        arguments.flag("unclean_elections", self.unclean_elections)
        arguments.choice("detection", self.detection, ("immediate", "session"))
        arguments.milliseconds("session_timeout_ms", self.session_timeout_ms, 1)
        arguments.milliseconds("replica_lag_ms", self.replica_lag_ms, 1)
        arguments.whole("seed", self.seed, -arguments.INT64_MAX)
        arguments.options(self.options or {}, ARGUMENTS)
        checked_port(self.ui)

    def _of_each_broker(self, name: str, value: object, example: str) -> list[Any]:
        found = arguments.elements(name, value, example)
        if found and len(found) != self.brokers:
            raise ConfigError(f"{name} has {len(found)} elements for {self.brokers} brokers")
        return found

    def _check_listeners(self) -> None:
        if self.listeners is None:
            return
        if self.ports:
            raise ConfigError("ports and listeners exclude each other: write the first broker's ports into listeners")
        ports = [port for number in range(self.brokers) for port in self._ports_of(number)]
        if len(set(ports)) < len(ports) or max(ports, default=0) > _LAST_PORT:
            raise ConfigError(
                f"listeners={self.listeners!r}: the ports of {self.brokers} brokers, which follow those of the first "
                f"one, meet or end above {_LAST_PORT}; leave room between them, or write 0 for free ones"
            )

    def _ports_of(self, number: int) -> list[int]:
        listeners = parse_listeners(arguments.text("listeners", self.listeners), DEFAULT_HOST)
        return [each.port for each in following(listeners, number) if each.port]

    def _listeners_of(self, number: int) -> str:
        """Return the listeners of a broker, by its id."""
        if self.listeners is None:
            return ""
        return listeners_text(following(parse_listeners(self.listeners, DEFAULT_HOST), number - 1))

    @property
    def factor(self) -> int:
        """The replication factor of topics that name none."""
        return self.replication_factor or min(_REPLICATION_FACTOR, self.brokers)

    def of_host(self, directory: str, data_dir: str) -> dict[str, Any]:
        """Return the options of the host's process.

        Args:
            directory: Temporary, for sockets and journals; the host removes it if the test's process ends without
                closing the cluster.
            data_dir: What the processes keep.
        """
        cluster_id = cluster_id_of(os.path.join(data_dir, CONTROLLER)) or _new_cluster_id(directory)
        own = EmbeddedBroker(
            data_dir,
            auto_create_topics=self.auto_create_topics,
            num_partitions=self.num_partitions,
            sasl_users=self.sasl_users,
            sasl_oauthbearer=self.sasl_oauthbearer,
            tls_files=self.tls_files,
            options=self.options,
            record_requests=self.record_requests or self.ui is not False,
        ).child_options()
        return {
            "is_immediate": self.detection == "immediate",
            "temporary": directory,
            "keeps_data": self.data_dir is not None,
            "controller": {
                "directory": directory,
                "data_dir": os.path.join(data_dir, CONTROLLER),
                "cluster_id": cluster_id,
                "session_timeout_ms": self.session_timeout_ms,
                "seed": self.seed,
                "min_insync_replicas": self.min_insync_replicas,
                "unclean_elections": self.unclean_elections,
                "flush_policy": "interval:1000",
                "options": {
                    name: text for name, text in own["options"].items() if name.startswith(CONTROLLERS_OPTIONS)
                },
            },
            "brokers": {
                str(number): {
                    **own,
                    **directories_of(data_dir, number, self.log_dirs),
                    "journal": os.path.join(directory, f"synced-{number}"),
                    "control": None if checked_port(self.ui) is None else control_path(directory, number),
                    "port": self.ports[number - 1] if self.ports else 0,
                    "listeners": self._listeners_of(number),
                    "advertised": self.advertised[number - 1] if self.advertised else "",
                    "node_id": number,
                    "cluster_id": cluster_id,
                    "cluster": {
                        "directory": directory,
                        "cluster_id": cluster_id,
                        "rack": self.racks[number - 1] if self.racks else None,
                        "replication_factor": self.factor,
                        "min_insync_replicas": self.min_insync_replicas,
                        "heartbeat_ms": max(self.session_timeout_ms // 6, 10),
                        "replica_lag_ms": self.replica_lag_ms,
                    },
                }
                for number in range(1, self.brokers + 1)
            },
        }


def _new_cluster_id(directory: str) -> str:
    return base64.urlsafe_b64encode(uuid.uuid5(uuid.NAMESPACE_OID, directory).bytes).decode()[:22]


def control_path(directory: str, broker_id: int) -> str:
    """Return where a broker's control socket is, in the temporary directory of its cluster."""
    return os.path.join(directory, f"control-{broker_id}")


def directories_of(data_dir: str, broker_id: int, count: int) -> dict[str, Any]:
    """Return a broker's options that name its log directories.

    Args:
        data_dir: What the processes of the cluster keep.
        broker_id: The broker's id.
        count: How many it has.
    """
    first = os.path.join(data_dir, f"broker-{broker_id}")
    return {"data_dir": first, "log_dirs": [f"{first}-dir-{number}" for number in range(2, count + 1)]}
