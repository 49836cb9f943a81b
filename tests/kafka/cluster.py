"""A real Apache Kafka cluster on loopback: one JVM per node, KRaft, every node broker and controller.

Nodes are numbered from 1. Besides the listeners the test asks for, each node has an INTERNAL one (plain text, never
behind a proxy) for replication and for the admin calls of this class, and a CONTROLLER one.

A cluster is driven from any thread, but by one call at a time per node. Only processes started here are signalled,
by their process id; they die with the Python process.
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    NewPartitions,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialUpsertion,
)

from tests.kafka.broker_properties import (
    LISTENERS,
    SASL_USERS,
    broker_properties,
    kraft_properties,
    zookeeper_properties,
)
from tests.kafka.certificates import CertificateFiles, make_certificates
from tests.kafka.ports import free_ports
from tests.kafka.process import start_process
from tests.kafka.runtime import (
    BROKER_VERSION,
    FAST_START,
    broker_class_path,
    class_data_archive,
    format_further,
    format_storage,
    java,
)
from tests.kafka.zookeeper import ZooKeeper, needs_zookeeper

START_TIMEOUT_S = 150.0  # a few seconds, but for a machine that runs much else
STOP_TIMEOUT_S = 60.0

_live: "weakref.WeakSet[KafkaCluster]" = weakref.WeakSet()


class KafkaStartError(RuntimeError):
    """A node did not come up; the message holds the end of its output."""


class KafkaCluster:
    """One to a few Kafka nodes.

    Args:
        nodes: how many.
        listeners: client listeners of each node, from LISTENERS.
        version: Kafka release; below 3.3 a ZooKeeper is started with it.
        overrides: broker properties that replace the defaults of `broker_properties`.
        features: feature levels instead of the release's own, such as ``{"transaction.version": 1}``.
        jvm_options: added to the command line.
        plug_ins: a class path behind the broker's own.
        further_log_dirs: how many log directories each node has besides that of its metadata.
        full_speed: leave the JVM's optimizing compiler on (slower start, faster under load): for benchmarks.

    The ports are chosen here, so that proxies can be made between construction and `start`.
    """

    def __init__(
        self,
        nodes: int = 1,
        *,
        listeners: Sequence[str] = ("PLAINTEXT",),
        version: str = BROKER_VERSION,
        overrides: Mapping[str, str | int] | None = None,
        features: Mapping[str, int] | None = None,
        jvm_options: Sequence[str] = (),
        plug_ins: str = "",
        further_log_dirs: int = 0,
        full_speed: bool = False,
    ) -> None:
        unknown = set(listeners) - set(LISTENERS)
        if unknown:
            raise ValueError(f"listeners {sorted(unknown)} are not among {list(LISTENERS)}")
        self.version = version
        self.listeners = tuple(listeners)
        self.node_ids = tuple(range(1, nodes + 1))
        self.directory = Path(tempfile.mkdtemp(prefix="kafka-"))
        self.certificates: CertificateFiles | None = None
        if any("SSL" in name for name in listeners):
            self.certificates = make_certificates(self.directory / "certificates")
        self._overrides = dict(overrides or {})
        self._features = dict(features or {})
        self._plug_ins = plug_ins
        self._further_log_dirs = further_log_dirs
        self._jvm_options = ("-Xmx512m", *(() if full_speed else FAST_START), *jvm_options)
        names = ("INTERNAL", "CONTROLLER", *self.listeners)
        ports = iter(free_ports(nodes * len(names) + 1))
        self._zookeeper: ZooKeeper | None = None
        if needs_zookeeper(version):
            self._zookeeper = ZooKeeper(version, self.directory, next(ports))
        self._ports = {(node_id, name): next(ports) for node_id in self.node_ids for name in names}
        self._advertised: dict[tuple[int, str], tuple[str, int]] = {}
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        _live.add(self)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def log_dirs(self, node_id: int) -> list[Path]:
        """The log directories of a node."""
        numbers = range(1, self._further_log_dirs + 1)
        first = self.directory / f"node-{node_id}"
        return [first, *(self.directory / f"node-{node_id}-{number}" for number in numbers)]

    # -- addresses -----------------------------------------------------------------------------------------------------

    def address(self, node_id: int, listener: str = "PLAINTEXT") -> tuple[str, int]:
        """Host and port the node itself listens on."""
        return "127.0.0.1", self._ports[node_id, listener]

    def advertise(self, node_id: int, host: str, port: int, listener: str = "PLAINTEXT") -> None:
        """Make the node advertise another address (a proxy's) from its next start on."""
        self._advertised[node_id, listener] = (host, port)

    def bootstrap(self, listener: str = "PLAINTEXT") -> str:
        """Advertised addresses of all nodes, as `bootstrap.servers` wants them."""
        return ",".join(_host_port(*self._advertised_address(node_id, listener)) for node_id in self.node_ids)

    def direct_bootstrap(self) -> str:
        """Addresses no proxy is in front of: for readers and admin clients."""
        return ",".join(_host_port(*self.address(node_id, "INTERNAL")) for node_id in self.node_ids)

    def pid(self, node_id: int) -> int:
        """Process id of a running node."""
        return self._running(node_id).pid

    def _advertised_address(self, node_id: int, listener: str) -> tuple[str, int]:
        return self._advertised.get((node_id, listener)) or self.address(node_id, listener)

    # -- life ----------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start every node and return when each one answers and sees all others. Raises KafkaStartError."""
        if self._zookeeper is not None:
            self._zookeeper.start()
        for node_id in self.node_ids:
            self.start_node(node_id)
        self.wait_until_ready()
        if self._zookeeper is not None and any(name.startswith("SASL") for name in self.listeners):
            self._create_scram_users()  # with KRaft they come with the formatted storage; Kafka 2.7 has the request

    def start_node(self, node_id: int) -> None:
        """Start one node without waiting for it."""
        if self.is_running(node_id):
            raise RuntimeError(f"node {node_id} is already running")
        data = self.log_dirs(node_id)[0]
        if self._zookeeper is None and not data.exists():
            format_storage(data, version=self.version, node_id=node_id, scram_users=SASL_USERS, features=self._features)
            for number, further in enumerate(self.log_dirs(node_id)[1:], 1):
                format_further(further, node_id, number)
        command = java(
            os.pathsep.join(filter(None, (broker_class_path(self.version), self._plug_ins))),
            "kafka.Kafka",
            [str(self._write_properties(node_id, data))],
            (*self._jvm_options, self._class_data_option(), "-Xlog:cds=off", "-Xlog:cds+dynamic=off"),
        )
        self._processes[node_id] = start_process(command, self.directory / f"node-{node_id}.out")

    def stop(self, node_id: int) -> None:
        """SIGTERM (controlled shutdown), and wait for the end."""
        process = self._running(node_id)
        process.terminate()
        process.wait(STOP_TIMEOUT_S)

    def kill9(self, node_id: int) -> None:
        """SIGKILL: no shutdown, no flush; the page cache survives."""
        process = self._running(node_id)
        process.kill()
        process.wait(STOP_TIMEOUT_S)

    def sigstop(self, node_id: int) -> None:
        """Freeze the node: its connections stay open and nothing answers."""
        self._running(node_id).send_signal(signal.SIGSTOP)

    def sigcont(self, node_id: int) -> None:
        """Thaw a frozen node."""
        self._running(node_id).send_signal(signal.SIGCONT)

    def restart(self, node_id: int) -> None:
        """Stop the node if it runs, start it on the same data and ports, and wait until it is in the cluster again."""
        if self.is_running(node_id):
            self.stop(node_id)
        self.start_node(node_id)
        self.wait_until_ready()

    def close(self) -> None:
        """Kill what runs and delete the data; may be called twice."""
        self._keep_class_data()
        for process in self._processes.values():
            if process.poll() is None:
                process.kill()
                process.wait(STOP_TIMEOUT_S)
        self._processes.clear()
        if self._zookeeper is not None:
            self._zookeeper.close()
        _live.discard(self)
        shutil.rmtree(self.directory, ignore_errors=True)

    def is_running(self, node_id: int) -> bool:
        """Whether the process of the node lives (frozen counts as living)."""
        process = self._processes.get(node_id)
        return process is not None and process.poll() is None

    def running_nodes(self) -> list[int]:
        """Ids of the nodes whose process lives."""
        return [node_id for node_id in self.node_ids if self.is_running(node_id)]

    def wait_until_ready(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Return when every running node lists all running nodes as brokers. Raises KafkaStartError."""
        deadline = time.monotonic() + timeout_s
        for node_id in self.running_nodes():
            while not self._sees_all(node_id):
                if not self.is_running(node_id):
                    raise KafkaStartError(f"node {node_id} ended while starting:\n{self.output_tail(node_id)}")
                if time.monotonic() > deadline:
                    raise KafkaStartError(
                        f"node {node_id} not ready within {timeout_s} s:\n{self.output_tail(node_id)}"
                    )
                time.sleep(0.02)

    def output_tail(self, node_id: int, lines: int = 60) -> str:
        """The last lines the node printed; the whole is in ``directory/node-N.out`` while the cluster lives."""
        path = self.directory / f"node-{node_id}.out"
        return "\n".join(path.read_text(errors="replace").splitlines()[-lines:]) if path.exists() else "(no output)"

    # -- topics --------------------------------------------------------------------------------------------------------

    def admin(self) -> AdminClient:
        """A new admin client on the INTERNAL listener; keep it until its futures are done."""
        return AdminClient({"bootstrap.servers": self.direct_bootstrap(), "log_level": 0})

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        *,
        replication_factor: int | None = None,
        config: Mapping[str, str | int] | None = None,
    ) -> str:
        """Create a topic and return its name when every running node knows a leader for each partition."""
        factor = replication_factor or min(3, len(self.node_ids))
        settings = {key: str(value) for key, value in (config or {}).items()}
        admin = self.admin()
        topic = NewTopic(name, partitions, factor, config=settings)
        for future in admin.create_topics([topic], operation_timeout=30).values():
            future.result(30)
        self.wait_for_leaders(name, partitions, admin=admin)
        return name

    def add_partitions(self, name: str, total: int) -> None:
        """Grow a topic to ``total`` partitions."""
        admin = self.admin()
        for future in admin.create_partitions([NewPartitions(name, total)]).values():
            future.result(30)
        self.wait_for_leaders(name, total, admin=admin)

    def delete_topic(self, name: str) -> None:
        """Delete a topic."""
        admin = self.admin()
        for future in admin.delete_topics([name], operation_timeout=30).values():
            future.result(30)

    def wait_for_leaders(self, name: str, partitions: int, *, admin: AdminClient | None = None) -> None:
        """Return when ``partitions`` partitions of the topic have a leader that lives; bound 30 s."""
        admin = admin or self.admin()
        wait_until(
            lambda: len(self._leaders(admin, name)) >= partitions,
            30,
            f"{partitions} partitions of {name} with a leader",
        )

    def leader(self, name: str, partition: int = 0) -> int:
        """Node id of the current leader of a partition; -1 if it has none."""
        return self._leaders(self.admin(), name).get(partition, -1)

    def _leaders(self, admin: AdminClient, name: str) -> dict[int, int]:
        # All topics are listed: to ask for one by name would create it.
        topic = admin.list_topics(timeout=10).topics.get(name)
        if topic is None:
            return {}
        running = self.running_nodes()
        return {index: partition.leader for index, partition in topic.partitions.items() if partition.leader in running}

    # -- inside --------------------------------------------------------------------------------------------------------

    def _running(self, node_id: int) -> subprocess.Popen[bytes]:
        if not self.is_running(node_id):
            raise RuntimeError(f"node {node_id} is not running")
        return self._processes[node_id]

    def _write_properties(self, node_id: int, data: Path) -> Path:
        clients = ("INTERNAL", *self.listeners)
        if self._zookeeper is None:
            voters = {peer: self._ports[peer, "CONTROLLER"] for peer in self.node_ids}
            coordination = kraft_properties(node_id, voters)
            names = (*clients, "CONTROLLER")
        else:
            coordination = zookeeper_properties(node_id, self._zookeeper.port)
            names = clients
        properties = broker_properties(
            data,
            coordination=coordination,
            node_count=len(self.node_ids),
            listening={name: self._ports[node_id, name] for name in names},
            advertised={name: self._advertised_address(node_id, name) for name in clients},
            certificates=self.certificates,
        )
        path = self.directory / f"node-{node_id}.properties"
        properties["log.dirs"] = ",".join(map(str, self.log_dirs(node_id)))
        path.write_text("".join(f"{name}={value}\n" for name, value in (properties | self._overrides).items()))
        return path

    def _class_data_option(self) -> str:
        archive = class_data_archive(self.version)
        if archive.exists() or len(self.node_ids) > 1:
            return f"-XX:SharedArchiveFile={archive}"
        if self._plug_ins:  # the archive is for brokers without them
            return "-Xshare:auto"
        return f"-XX:ArchiveClassesAtExit={self.directory / archive.name}"

    def _keep_class_data(self) -> None:
        """Let the first single node ever run here end cleanly: at its exit it writes the class data archive."""
        if self.running_nodes() != [1] or len(self.node_ids) > 1 or self._plug_ins:
            return
        archive = class_data_archive(self.version)
        written = self.directory / archive.name
        if not archive.exists():
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.stop(1)
            if written.exists():
                shutil.copy(written, archive.with_suffix(f".{os.getpid()}"))
                os.replace(archive.with_suffix(f".{os.getpid()}"), archive)

    def _create_scram_users(self) -> None:
        upsertions: list[UserScramCredentialAlteration] = [
            UserScramCredentialUpsertion(user, ScramCredentialInfo(mechanism, 4096), password.encode())
            for user, password in SASL_USERS.items()
            for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)
        ]
        admin = self.admin()
        for future in admin.alter_user_scram_credentials(upsertions).values():
            future.result(30)

    def _sees_all(self, node_id: int) -> bool:
        if not answers_api_versions(self.address(node_id, "INTERNAL")):
            return False
        address = self.address(node_id, "INTERNAL")
        client = AdminClient({"bootstrap.servers": _host_port(*address), "log_level": 0})
        try:
            return set(client.list_topics(timeout=2).brokers) >= set(self.running_nodes())
        except KafkaException:
            return False


def live_clusters() -> list[KafkaCluster]:
    """Clusters that are not closed, for the report of a failed test."""
    return list(_live)


def wait_until(condition: Callable[[], bool], timeout_s: float, what: str) -> None:
    """Poll a condition. Raises TimeoutError naming ``what`` was waited for."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"no {what} within {timeout_s} s")
        time.sleep(0.02)


def _host_port(host: str, port: int) -> str:
    return f"{host}:{port}"


def answers_api_versions(address: tuple[str, int]) -> bool:
    """Whether a broker at the address answers ApiVersions v0 within two seconds."""
    request = bytes.fromhex("0000000a 0012 0000 00000001 0000".replace(" ", ""))
    try:
        with socket.create_connection(address, timeout=2) as connection:
            connection.sendall(request)
            return len(connection.recv(4)) == 4
    except OSError:
        return False
