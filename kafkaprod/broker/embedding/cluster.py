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

import contextlib
import os
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, Self

from kafkaprod.broker.embedding.child_process import EmbeddedBrokerError
from kafkaprod.broker.embedding.cluster_changes import ChangeSignal
from kafkaprod.broker.embedding.cluster_faults import ClusterFaults
from kafkaprod.broker.embedding.cluster_members import MemberControls
from kafkaprod.broker.embedding.cluster_options import ClusterOptions
from kafkaprod.broker.embedding.cluster_processes import ClusterBroker, ClusterProcess
from kafkaprod.broker.embedding.cluster_topics import TopicControls
from kafkaprod.broker.embedding.cluster_view import ClusterView
from kafkaprod.broker.embedding.host_process import HostProcess
from kafkaprod.broker.embedding.temporary import make_temporary, name_temporary, remove_of_owner
from kafkaprod.broker.peers.rules import CONTROLLER
from kafkaprod.errors import ConfigError, IllegalStateError, KafkaError

_WAIT_S = 30.0
_LOOK_S = 0.02
"""How often a condition is looked at without a change of the metadata: it may be about other things as well."""

_HISTORY_LINES = 50
_SHOWN_TOPICS = 20
_LAST_CHANGES = "last changes of the embedded cluster:"


class EmbeddedCluster(ClusterFaults, TopicControls, MemberControls):
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
        sasl_users: Mapping[str, str] | None = None,
        sasl_oauthbearer: bool = False,
        tls_files: Sequence[str | os.PathLike[str]] | None = None,
        options: Mapping[str, str | int | bool] | None = None,
    ) -> None:
        """Describe what to run; `start` or a `with` statement runs it.

        Args:
            brokers: How many.
            racks: One for each broker; replicas are spread over them.
            topics: Name -> partition count, made at the start if missing.
            replication_factor: The number of replicas of topics that do not say; None for 3, or all brokers if there
                are fewer.
            min_insync_replicas: The lowest number of in-sync replicas of topics that do not set it.
            unclean_elections: Whether a replica outside of the ISR may lead if no other can.
            detection: "immediate": the end of a broker's process counts at once; "session": once its session ends.
            session_timeout_ms: A broker that does not answer for this time is fenced.
            replica_lag_ms: A follower that is behind for this time leaves the ISR.
            seed: The seed of the placement of replicas.
            ports: One for each broker; 0 takes a free one, as does an empty list.
            data_dir: Kept; None for a temporary one that goes with the cluster: in memory (/dev/shm) where that has
                2 GiB free and TMPDIR is not set, because a busy disk makes restarts slow.
            auto_create_topics: Make topics that clients name and that do not exist.
            num_partitions: The number of partitions of topics made without a count.
            sasl_users: User name -> password, as for `EmbeddedBroker`: clients must log in if there are any.
            sasl_oauthbearer: Clients can log in with unsigned tokens, as for `EmbeddedBroker`.
            tls_files: Certificate chain, private key and, to ask clients for certificates, their authority; PEM files.
                The certificate is that of all brokers: for 127.0.0.1.
            options: Further options of all brokers under Kafka's names.

        Raises:
            ConfigError: An argument has a wrong type or value, or they do not fit together.
        """
        super().__init__()
        checked = ClusterOptions(
            brokers=brokers,
            racks=racks,
            topics=topics,
            replication_factor=replication_factor,
            min_insync_replicas=min_insync_replicas,
            unclean_elections=unclean_elections,
            detection=detection,
            session_timeout_ms=session_timeout_ms,
            replica_lag_ms=replica_lag_ms,
            seed=seed,
            ports=ports,
            data_dir=data_dir,
            auto_create_topics=auto_create_topics,
            num_partitions=num_partitions,
            sasl_users=sasl_users,
            sasl_oauthbearer=sasl_oauthbearer,
            tls_files=tls_files,
            options=options,
        )
        self._owner_pid = os.getpid()
        # The path of a socket in it has at most 107 bytes, 103 on macOS.
        self._directory = name_temporary("kafkaprod-", most_bytes=80)
        self._remove = weakref.finalize(self, remove_of_owner, self._directory, self._owner_pid)
        self.data_dir = os.path.join(self._directory, "data") if data_dir is None else os.fspath(data_dir)
        self._topics = dict(topics or {})
        self._factor = checked.factor
        self._host: HostProcess | None = None
        self._host_options = checked.of_host(self._directory, self.data_dir)
        self.controller = ClusterProcess(self, CONTROLLER)
        self.brokers = [
            ClusterBroker(self, int(name), each["cluster"]["rack"], each["data_dir"], each["journal"])
            for name, each in self._host_options["brokers"].items()
        ]
        self._first_ids = frozenset(self.broker_ids)

    # -- life ----------------------------------------------------------------------------------------------------------

    def start(self) -> Self:
        """Start controller and brokers, and make the topics; return when all is in sync.

        Raises:
            EmbeddedBrokerError: A process could not start.
            IllegalStateError: It runs already, or was closed.
        """
        if self._host is not None:
            raise IllegalStateError("the embedded cluster runs already")
        if not self._remove.alive:
            raise IllegalStateError("the embedded cluster was closed: make another one")
        make_temporary(self._directory)
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
        with contextlib.suppress(KafkaError, OSError):  # the cluster may be broken, which is no matter now
            self.end_chaos()
        host, self._host = self._host, None
        if host is not None:
            host.close()
        self._remove()

    def restore(self) -> None:
        """Undo what tests did: as `ClusterFaults.restore`, and remove the brokers that were added.

        Brokers that were removed do not come back.

        Raises:
            EmbeddedBrokerError: A process did not start, or the cluster did not come into sync in 30 s.
        """
        super().restore()
        self.remove_added()
        self.wait_until_in_sync()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if (
            error is not None
            and self._host is not None
            and _LAST_CHANGES not in "".join(getattr(error, "__notes__", ()))
        ):
            error.add_note(self.last_changes())
        self.close()

    # -- what there is -------------------------------------------------------------------------------------------------

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all brokers, as clients take them.

        Raises:
            IllegalStateError: The cluster does not run.
        """
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
        raise ValueError(f"there is no broker {broker_id!r}: brokers are {', '.join(map(str, self.broker_ids))}")

    def leader(self, topic: str, partition: int) -> ClusterBroker:
        """Return a partition's leader; wait until it has one.

        Raises:
            ValueError: There is no such partition.
            EmbeddedBrokerError: It has no leader for 30 s.
        """
        what = f"no leader of {topic}-{partition}"
        self._view_with(topic, partition, what)
        view = self.wait_for(lambda view: view.leader(topic, partition) is not None, what=what)
        return self.broker(view.leader(topic, partition) or 0)

    def followers(self, topic: str, partition: int) -> list[ClusterBroker]:
        """Return a partition's replicas that do not lead it.

        Raises:
            ValueError: There is no such partition.
        """
        view = self._view_with(topic, partition, f"no followers of {topic}-{partition}")
        leader = view.leader(topic, partition)
        return [self.broker(member) for member in view.replicas(topic, partition) if member != leader]

    def isr(self, topic: str, partition: int) -> list[int]:
        """Return a partition's in-sync replicas.

        Raises:
            ValueError: There is no such partition.
        """
        return self._view_with(topic, partition, f"no ISR of {topic}-{partition}").isr(topic, partition)

    def view(self) -> ClusterView:
        """Return the cluster as the controller sees it now."""
        return ClusterView(self.controller.tell({"command": "view"}))

    def replicas(self, topic: str, partition: int) -> dict[int, tuple[int, int, int]]:
        """Return log start, high watermark and log end of a partition on each running broker that has it.

        Raises:
            ValueError: There is no such partition.
        """
        self._view_with(topic, partition, f"no replicas of {topic}-{partition}")
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

    def wait_for(
        self, condition: Callable[[ClusterView], bool], timeout_s: float = _WAIT_S, *, what: str = "not true"
    ) -> ClusterView:
        """Wait until a condition on the cluster is true; return the view that fulfilled it.

        Args:
            condition: What must be true of a view.
            timeout_s: How long, in seconds.
            what: Begins the error: what is the case without it.

        Raises:
            EmbeddedBrokerError: It did not become true in time; its note shows the cluster and its last changes.
        """
        if not callable(condition):
            raise ConfigError(f"condition={condition!r} is not a function of a view: write lambda view: ...")
        deadline = time.monotonic() + timeout_s
        view = self.view()
        if condition(view):
            return view
        with ChangeSignal(self._directory) as signal:
            while True:
                view = ClusterView(self.controller.tell({"command": "view", "wake": signal.path}))
                if condition(view):
                    return view
                if time.monotonic() >= deadline:
                    failure = EmbeddedBrokerError(f"{what} within {timeout_s} s")
                    failure.add_note(f"{view}\n{self.last_changes()}")  # notes keep their lines
                    raise failure
                signal.wait(_LOOK_S)

    def wait_until_in_sync(self, timeout_s: float = _WAIT_S) -> ClusterView:
        """Wait until every partition has a leader and all its replicas are in sync.

        Raises:
            EmbeddedBrokerError: As `wait_for`.
        """
        return self.wait_for(lambda view: view.is_in_sync, timeout_s, what="not in sync")

    def wait_until_applied(self, timeout_s: float = _WAIT_S) -> ClusterView:
        """Wait until all running brokers have applied the metadata as it is now.

        Raises:
            EmbeddedBrokerError: As `wait_for`.
        """
        end = self.view().end_offset
        running = {broker.id for broker in self.brokers if broker.is_running}
        return self.wait_for(
            lambda view: all(view.applied(member) >= end for member in view.active_brokers if member in running),
            timeout_s,
            what="not applied by all brokers",
        )

    # -- inside --------------------------------------------------------------------------------------------------------

    def ask(self, command: Mapping[str, Any]) -> dict[str, Any]:
        """Send the host a command and return its answer.

        Raises:
            EmbeddedBrokerError: It answered an error.
            IllegalStateError: The cluster does not run, or belongs to another process.
        """
        if self._host is None or self._owner_pid != os.getpid():
            raise IllegalStateError("the embedded cluster does not run in this process")
        return self._host.ask(command)

    def _view_with(self, topic: str, partition: int, what: str) -> ClusterView:
        """Return a view that has the partition. Raises ValueError, which `what` begins, if there is none."""
        view = self.view()
        count = view.topics.get(topic)
        if count is None:
            names = sorted(view.topics)
            more = ", ..." if len(names) > _SHOWN_TOPICS else ""
            raise ValueError(
                f"{what}: there is no such topic (topics: {', '.join(names[:_SHOWN_TOPICS]) or 'none'}{more})"
            )
        if partition not in range(count):
            raise ValueError(f"{what}: the topic has partitions 0 to {count - 1}")
        return view

    def last_changes(self) -> str:
        """Return the last changes of the metadata as text, for the report of a failed test."""
        try:
            return f"{_LAST_CHANGES}\n" + "\n".join(self.history()[-_HISTORY_LINES:])
        except EmbeddedBrokerError as error:
            return f"the embedded cluster's history cannot be read: {error}"
