"""Several brokers and their controller as processes of this machine, for tests of what happens when brokers fail.

    with EmbeddedCluster(brokers=3, topics={"orders": 6}) as cluster:
        leader = cluster.leader("orders", 0)
        leader.kill()                                               # SIGKILL
        cluster.wait_for(lambda view: view.leader("orders", 0) not in (None, leader.id))
        leader.start()
        cluster.wait_until_in_sync()

Replication, ISRs and elections are Kafka's; times are scaled down, and the end of a process is noticed at once unless
`detection="session"`. It listens on the loopback interface and ends with the process that made it.
"""

from __future__ import annotations

import base64
import os
import tempfile
import time
import uuid
import weakref
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, Self

from kafkaprod.broker.embedding.child_process import EmbeddedBrokerError, remove_of_owner
from kafkaprod.broker.embedding.cluster_faults import ClusterFaults
from kafkaprod.broker.embedding.cluster_processes import ClusterBroker, ClusterProcess
from kafkaprod.broker.embedding.cluster_view import ClusterView
from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from kafkaprod.broker.embedding.host_process import HostProcess
from kafkaprod.broker.peers.rules import CONTROLLER
from kafkaprod.errors import IllegalStateError

_WAIT_S = 30.0
_POLL_S = 0.005
_HISTORY_LINES = 50
_MEMORY = "/dev/shm"
_MEMORY_BYTES = 2 * 1024 * 1024 * 1024
_clusters: weakref.WeakSet[EmbeddedCluster] = weakref.WeakSet()


class EmbeddedCluster(ClusterFaults):
    """See the module docstring. Not thread-safe, except that several threads may wait and take views.

    Attributes:
        brokers: All of them, by id from 1.
        controller: The controller's process.
    """

    def __init__(
        self,
        brokers: int = 3,
        *,
        racks: Sequence[str] = (),
        topics: Mapping[str, int] | None = None,
        replication_factor: int | None = None,
        min_insync_replicas: int = 1,
        unclean_elections: bool = False,
        detection: Literal["immediate", "session"] = "immediate",
        session_timeout_ms: int = 3_000,
        replica_lag_ms: int = 2_000,
        seed: int = 0,
        ports: Sequence[int] = (),
        data_dir: str | os.PathLike[str] | None = None,
        auto_create_topics: bool = True,
        num_partitions: int = 1,
        options: Mapping[str, str | int | bool] | None = None,
    ) -> None:
        """Describe what to run; `start` or a `with` statement runs it.

        Args:
            brokers: How many.
            racks: One for each broker; replicas are spread over them.
            topics: Name -> partition count, made at the start if missing.
            replication_factor: Of topics that do not say; None for 3, or all brokers if there are fewer.
            min_insync_replicas: Of topics that do not set it.
            unclean_elections: Whether a replica outside of the ISR may lead if no other can.
            detection: "immediate": the end of a broker's process counts at once; "session": once its session ends.
            session_timeout_ms: A broker that does not answer for this time is fenced.
            replica_lag_ms: A follower that is behind for this time leaves the ISR.
            seed: Of the placement of replicas.
            ports: One for each broker; 0, as none, takes a free one.
            data_dir: Kept; None for a temporary one that goes with the cluster: in memory (/dev/shm) where that has
                2 GiB free and TMPDIR is not set, because a busy disk makes restarts slow.
            auto_create_topics: Make topics that clients name and that do not exist.
            num_partitions: Of topics made without a count.
            options: Further options of all brokers under Kafka's names.

        Raises:
            ValueError: `racks` or `ports` are not as many as the brokers, or there is no broker.
        """
        super().__init__()
        for name, values in (("racks", racks), ("ports", ports)):
            if values and len(values) != brokers:
                raise ValueError(f"{name} has {len(values)} elements for {brokers} brokers")
        if brokers < 1:
            raise ValueError(f"brokers={brokers} is not at least 1")
        self._owner_pid = os.getpid()
        # Short, as the path of a Unix socket has at most 107 bytes.
        self._directory = tempfile.mkdtemp(prefix="kafkaprod-", dir=_temporary_root())
        self._remove = weakref.finalize(self, remove_of_owner, self._directory, self._owner_pid)
        self.data_dir = os.path.join(self._directory, "data") if data_dir is None else os.fspath(data_dir)
        self._topics = dict(topics or {})
        self._factor = replication_factor or min(3, brokers)
        self._host: HostProcess | None = None
        self.controller = ClusterProcess(self, CONTROLLER)
        self.brokers = [
            ClusterBroker(
                self,
                number,
                racks[number - 1] if racks else None,
                os.path.join(self.data_dir, f"broker-{number}"),
                os.path.join(self._directory, f"synced-{number}"),
            )
            for number in range(1, brokers + 1)
        ]
        cluster_id = base64.urlsafe_b64encode(uuid.uuid5(uuid.NAMESPACE_OID, self._directory).bytes).decode()[:22]
        own = EmbeddedBroker(
            self.data_dir, auto_create_topics=auto_create_topics, num_partitions=num_partitions, options=options
        )
        self._host_options: dict[str, Any] = {
            "is_immediate": detection == "immediate",
            "controller": {
                "directory": self._directory,
                "data_dir": os.path.join(self.data_dir, CONTROLLER),
                "cluster_id": cluster_id,
                "session_timeout_ms": session_timeout_ms,
                "seed": seed,
                "min_insync_replicas": min_insync_replicas,
                "unclean_elections": unclean_elections,
                "flush_policy": "interval:1000",
            },
            "brokers": {
                str(broker.id): {
                    **own.child_options(),
                    "data_dir": os.path.join(self.data_dir, f"broker-{broker.id}"),
                    "journal": os.path.join(self._directory, f"synced-{broker.id}"),
                    "port": ports[broker.id - 1] if ports else 0,
                    "node_id": broker.id,
                    "cluster_id": cluster_id,
                    "cluster": {
                        "directory": self._directory,
                        "cluster_id": cluster_id,
                        "rack": broker.rack,
                        "replication_factor": self._factor,
                        "min_insync_replicas": min_insync_replicas,
                        "heartbeat_ms": max(session_timeout_ms // 6, 10),
                        "replica_lag_ms": replica_lag_ms,
                    },
                }
                for broker in self.brokers
            },
        }
        _clusters.add(self)

    # -- life ----------------------------------------------------------------------------------------------------

    def start(self) -> Self:
        """Start controller and brokers, and make the topics; return when all is in sync.

        Raises:
            EmbeddedBrokerError: A process could not start.
            IllegalStateError: It runs already.
        """
        if self._host is not None:
            raise IllegalStateError("the embedded cluster runs already")
        self._host = HostProcess(self._host_options)
        try:
            for broker in self.brokers:
                broker.port = self._host.first_answer["ports"][str(broker.id)]
                self._host_options["brokers"][str(broker.id)]["port"] = broker.port
            names = [CONTROLLER, *(str(broker.id) for broker in self.brokers)]
            self.ask({"command": "start_all", "names": names})
            self.wait_for(lambda view: len(view.active_brokers) == len(self.brokers))
            known = self.view().topics
            for name, partitions in self._topics.items():
                if name not in known:
                    self.create_topic(name, partitions)
            self.wait_until_in_sync()
            self.wait_until_applied()  # each broker knows all the others
        except BaseException:
            self.close()
            raise
        return self

    def close(self) -> None:
        """End all processes, and remove the temporary directory. Idempotent; does nothing in a forked child."""
        if self._owner_pid != os.getpid():
            return
        host, self._host = self._host, None
        if host is not None:
            host.close()
        self._remove()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None and self._host is not None:
            error.add_note(self.last_changes())
        self.close()

    # -- what there is -------------------------------------------------------------------------------------------

    @property
    def bootstrap_servers(self) -> str:
        """`host:port` of all brokers."""
        return ",".join(broker.address for broker in self.brokers)

    @property
    def broker_ids(self) -> Sequence[int]:
        """The ids of all brokers."""
        return [broker.id for broker in self.brokers]

    @property
    def is_running(self) -> bool:
        """Whether it was started and not closed."""
        return self._host is not None

    def broker(self, broker_id: int) -> ClusterBroker:
        """Return a broker by id.

        Raises:
            ValueError: There is none.
        """
        for broker in self.brokers:
            if broker.id == broker_id:
                return broker
        raise ValueError(f"there is no broker {broker_id}")

    def leader(self, topic: str, partition: int) -> ClusterBroker:
        """Return a partition's leader; wait until it has one.

        Raises:
            EmbeddedBrokerError: It has none for 30 s.
        """
        view = self.wait_for(lambda view: view.leader(topic, partition) is not None)
        return self.broker(view.leader(topic, partition) or 0)

    def followers(self, topic: str, partition: int) -> list[ClusterBroker]:
        """Return a partition's replicas that do not lead it."""
        view = self.view()
        leader = view.leader(topic, partition)
        return [self.broker(member) for member in view.replicas(topic, partition) if member != leader]

    def isr(self, topic: str, partition: int) -> list[int]:
        """Return a partition's in-sync replicas."""
        return self.view().isr(topic, partition)

    def view(self) -> ClusterView:
        """Return the cluster as the controller sees it now."""
        return ClusterView(self.controller.tell({"command": "view"}))

    def replicas(self, topic: str, partition: int) -> dict[int, tuple[int, int, int]]:
        """Return log start, high watermark and log end of a partition on each running broker that has it."""
        key, found = f"{topic}-{partition}", {}
        for broker in self.brokers:
            described = broker.tell({"command": "replicas"}) if broker.is_running else {}
            if key in described:
                start, watermark, end = described[key]
                found[broker.id] = (start, watermark, end)
        return found

    def history(self) -> list[str]:
        """Return the last changes of the metadata, oldest first."""
        return list(self.controller.tell({"command": "history"})["lines"])

    def wait_for(self, condition: Callable[[ClusterView], bool], timeout_s: float = _WAIT_S) -> ClusterView:
        """Wait until a condition on the cluster is true; return the view that fulfilled it.

        Raises:
            EmbeddedBrokerError: It did not become true in time; the message shows the cluster and its last changes.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            view = self.view()
            if condition(view):
                return view
            if time.monotonic() >= deadline:
                raise EmbeddedBrokerError(f"not true within {timeout_s} s:\n{view}\n{self.last_changes()}")
            time.sleep(_POLL_S)

    def wait_until_in_sync(self, timeout_s: float = _WAIT_S) -> ClusterView:
        """Wait until every partition has a leader and all its replicas are in sync.

        Raises:
            EmbeddedBrokerError: As `wait_for`.
        """
        return self.wait_for(lambda view: view.is_in_sync, timeout_s)

    # -- what tests do to it -------------------------------------------------------------------------------------

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        *,
        replication_factor: int | None = None,
        assignment: Sequence[Sequence[int]] | None = None,
        configs: Mapping[str, str] | None = None,
    ) -> None:
        """Make a topic, and wait until its partitions have leaders that know it.

        Args:
            name: Of the topic.
            partitions: How many, unless `assignment` says.
            replication_factor: None for the cluster's.
            assignment: The brokers of each partition, its preferred leader first.
            configs: Its options.

        Raises:
            EmbeddedBrokerError: The controller refused.
        """
        self._ask_controller(
            {
                "command": "create_topic",
                "name": name,
                "partitions": partitions,
                "replication_factor": replication_factor or self._factor,
                "assignment": None if assignment is None else [list(members) for members in assignment],
                "configs": dict(configs or {}),
            }
        )
        self.wait_until_applied()

    def wait_until_applied(self, timeout_s: float = _WAIT_S) -> None:
        """Wait until all running brokers have applied the metadata as it is now.

        Raises:
            EmbeddedBrokerError: As `wait_for`.
        """
        end = self.view().end_offset
        running = {broker.id for broker in self.brokers if broker.is_running}
        self.wait_for(
            lambda view: all(view.applied(member) >= end for member in view.active_brokers if member in running),
            timeout_s,
        )

    def move_leader(self, topic: str, partition: int, to: int) -> None:
        """Make another in-sync replica leader.

        Raises:
            EmbeddedBrokerError: It is not in sync, or not active.
        """
        self._ask_controller({"command": "move_leader", "topic": topic, "partition": partition, "to": to})

    def reassign(self, topic: str, partition: int, replicas: Sequence[int] | None) -> None:
        """Move a partition to other brokers; `wait_until_in_sync` waits for it. None cancels what is in progress.

        Raises:
            EmbeddedBrokerError: The controller refused.
        """
        wanted = None if replicas is None else list(replicas)
        self._ask_controller({"command": "reassign", "topic": topic, "partition": partition, "replicas": wanted})

    def elect(
        self, kind: Literal["preferred", "unclean"] = "preferred", topic: str | None = None, partition: int = 0
    ) -> None:
        """Elect the preferred leaders, or any leader for partitions without one; of all partitions without `topic`."""
        self._ask_controller({"command": "elect", "kind": kind, "topic": topic, "partition": partition}, ignores=(84,))

    # -- inside --------------------------------------------------------------------------------------------------

    def ask(self, command: Mapping[str, Any]) -> dict[str, Any]:
        """Send the host a command and return its answer.

        Raises:
            EmbeddedBrokerError: It answered an error.
            IllegalStateError: The cluster does not run, or belongs to another process.
        """
        if self._host is None or self._owner_pid != os.getpid():
            raise IllegalStateError("the embedded cluster does not run in this process")
        return self._host.ask(command)

    def _ask_controller(self, command: Mapping[str, Any], ignores: Sequence[int] = ()) -> None:
        answer = self.controller.tell(command)
        if answer["code"] not in (0, *ignores):
            raise EmbeddedBrokerError(
                f"the controller answered {answer['code']} to {command['command']}: {answer['message']}"
            )

    def last_changes(self) -> str:
        """Return the last changes of the metadata as text, for the report of a failed test."""
        try:
            return "last changes of the embedded cluster:\n" + "\n".join(self.history()[-_HISTORY_LINES:])
        except EmbeddedBrokerError as error:
            return f"the embedded cluster's history is not to be had: {error}"


def _temporary_root() -> str | None:
    """Return where the temporary directory belongs, None for the default."""
    try:
        status = os.statvfs(_MEMORY)
    except OSError:
        return None
    is_large = status.f_bavail * status.f_frsize >= _MEMORY_BYTES
    return _MEMORY if is_large and os.access(_MEMORY, os.W_OK) and "TMPDIR" not in os.environ else None
