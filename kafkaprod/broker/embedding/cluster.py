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
import random
import weakref
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Literal, Self

from kafkaprod.broker.embedding.chaos import KINDS, Chaos
from kafkaprod.broker.embedding.cluster_faults import ClusterFaults
from kafkaprod.broker.embedding.cluster_host import ClusterHost
from kafkaprod.broker.embedding.cluster_links import ClusterLinks
from kafkaprod.broker.embedding.cluster_members import ClusterMembers
from kafkaprod.broker.embedding.cluster_options import ClusterOptions, control_path
from kafkaprod.broker.embedding.cluster_processes import ClusterBroker
from kafkaprod.broker.embedding.cluster_state import LAST_CHANGES, ClusterState
from kafkaprod.broker.embedding.cluster_topics import ClusterTopics
from kafkaprod.broker.embedding.disturbance import Disturbance
from kafkaprod.broker.embedding.faults import FaultScript, FaultsOfAll
from kafkaprod.broker.embedding.temporary import make_temporary, name_temporary, remove_of_owner
from kafkaprod.broker.embedding.window import Window, checked_port
from kafkaprod.broker.peers.rules import CONTROLLER
from kafkaprod.errors import IllegalStateError, KafkaError


class EmbeddedCluster(ClusterState):
    """See the module docstring. Not thread-safe, except that several threads may wait and take views.

    Attributes:
        brokers: All of them, by id from 1.
        controller: The controller's process.
        faults: Scripts what the brokers that run do wrong; each forgets its rules when it starts again.
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
        listeners: str | None = None,
        advertised: Sequence[str] = (),
        data_dir: str | os.PathLike[str] | None = None,
        log_dirs: int = 1,
        auto_create_topics: bool = True,
        num_partitions: int = 1,
        sasl_users: Mapping[str, str] | None = None,
        sasl_oauthbearer: bool = False,
        tls_files: Sequence[str | os.PathLike[str]] | None = None,
        options: Mapping[str, str | int | bool] | None = None,
        ui: bool | int = False,
        record_requests: bool = False,
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
            listeners: Several sockets of each broker, "PLAINTEXT://:0,SASL_SSL://:0" say, in place of `ports`, as for
                `EmbeddedBroker`. A port that is not 0 is the first broker's, and those of the others follow it.
            advertised: One for each broker: the addresses that clients get in place of its own, as for
                `EmbeddedBroker`.
            data_dir: Kept; None for a temporary one that goes with the cluster: in memory (/dev/shm) where that has
                2 GiB free and TMPDIR is not set, because a busy disk makes restarts slow.
            log_dirs: How many log directories each broker has, in `data_dir`.
            auto_create_topics: Make topics that clients name and that do not exist.
            num_partitions: The number of partitions of topics made without a count.
            sasl_users: User name -> password, as for `EmbeddedBroker`: clients must log in if there are any.
            sasl_oauthbearer: Clients can log in with unsigned tokens, as for `EmbeddedBroker`.
            tls_files: Certificate chain, private key and, to ask clients for certificates, their authority; PEM files.
                The certificate is that of all brokers: for 127.0.0.1.
            options: Further options of all brokers under Kafka's names.
            ui: Show the cluster on a page, see `ui_url`: True, or its port.
            record_requests: Keep what clients ask, for `requests`; a page has it, too.

        Raises:
            ConfigError: An argument has a wrong type or value, or they do not fit together.
        """
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
            listeners=listeners,
            advertised=advertised,
            data_dir=data_dir,
            log_dirs=log_dirs,
            auto_create_topics=auto_create_topics,
            num_partitions=num_partitions,
            sasl_users=sasl_users,
            sasl_oauthbearer=sasl_oauthbearer,
            tls_files=tls_files,
            options=options,
            ui=ui,
            record_requests=record_requests,
        )
        self._owner_pid = os.getpid()
        # The path of a socket in it has at most 107 bytes, 103 on macOS.
        directory = name_temporary("kafkaprod-", most_bytes=80)
        self._remove = weakref.finalize(self, remove_of_owner, directory, self._owner_pid)
        self.data_dir = os.path.join(directory, "data") if data_dir is None else os.fspath(data_dir)
        self._first_topics = dict(topics or {})
        super().__init__(ClusterHost(checked.of_host(directory, self.data_dir)))
        self._links = ClusterLinks(self)
        self._topics = ClusterTopics(self, checked.factor)
        self._members = ClusterMembers(self._host, self, self._topics, self.data_dir)
        self._faults = ClusterFaults(self, self._links)
        self.faults: FaultScript = FaultsOfAll(
            lambda: {broker.id: broker.faults for broker in self.brokers if broker.is_running}
        )
        port = checked_port(ui)
        self._window = None if port is None else Window(self._control_paths(), port)

    # -- life ----------------------------------------------------------------------------------------------------------

    def start(self) -> Self:
        """Start controller and brokers, and make the topics; return when all is in sync.

        Raises:
            EmbeddedBrokerError: A process could not start.
            IllegalStateError: It runs already, or was closed.
        """
        if self.is_running:
            raise IllegalStateError("the embedded cluster runs already")
        if not self._remove.alive:
            raise IllegalStateError("the embedded cluster was closed: make another one")
        make_temporary(self._directory)
        if self._window is not None:
            self._window.start()
        try:
            self._host.start()
            names = [CONTROLLER, *(str(broker.id) for broker in self.brokers)]
            started = self.ask({"command": "start_all", "names": names})
            for broker in self.brokers:
                broker.note_start(started[str(broker.id)])
            self.wait_for(lambda view: len(view.active_brokers) == len(self.brokers))
            known = self.view().topics
            for name, partitions in self._first_topics.items():
                if name not in known:
                    self.create_topic(name, partitions)
            self.wait_until_in_sync()
            self.wait_until_applied()  # each broker knows all the others
            self._show_brokers()
        except BaseException:
            self.close()
            raise
        return self

    def close(self) -> None:
        """End all processes, and remove the temporary directory. Idempotent; does nothing in a forked child."""
        if self._owner_pid != os.getpid():
            return
        with contextlib.suppress(KafkaError, OSError):  # the cluster may be broken, which is no matter now
            self._faults.end_chaos()
        self._host.close()
        if self._window is not None:
            self._window.close()
        self._remove()

    @property
    def ui_url(self) -> str:
        """The address of the page that shows the cluster, with its secret, as `EmbeddedBroker.ui_url`.

        Raises:
            IllegalStateError: There is no page.
            EmbeddedBrokerError: The page could not be served.
        """
        if self._window is None:
            raise IllegalStateError("the embedded cluster has no page: make it with ui=True")
        return self._window.url

    def _control_paths(self) -> dict[str, str]:
        return {str(broker.id): control_path(self._directory, broker.id) for broker in self.brokers}

    def _show_brokers(self) -> None:
        """Have the page show the brokers that there are."""
        if self._window is not None:
            self._window.begin()
            addresses = {str(broker.id): broker.address for broker in self.brokers}
            self._window.describe(self.bootstrap_servers, addresses, self._control_paths())

    def restore(self) -> None:
        """Undo what tests did: end chaos, heal links, clear faults, run what is stopped or paused, wait until in sync.

        Brokers that were added are removed; brokers that were removed do not come back.

        Raises:
            EmbeddedBrokerError: A process did not start, or the cluster did not come into sync in 30 s.
        """
        self._faults.restore()
        self._members.remove_added()
        self._show_brokers()
        self.wait_until_in_sync()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None and self.is_running and LAST_CHANGES not in "".join(getattr(error, "__notes__", ())):
            error.add_note(self.last_changes())
        self.close()

    def cut(self, source: int | str, target: int | str, *, one_way: bool = False) -> Disturbance:
        """Cut the links between two processes: ids of brokers, or "controller".

        Args:
            source: Where messages come from.
            target: Where they would arrive. "clients" cuts a broker off from its clients: their connections are closed,
                and new ones are closed as soon as they are open.
            one_way: Cut only this direction.

        Raises:
            ValueError: There is no such process, or the two are the same.
        """
        return self._links.cut(source, target, one_way=one_way)

    def isolate(self, broker_id: int) -> Disturbance:
        """Cut a broker off from the other brokers and the controller. Clients still reach it.

        Raises:
            ValueError: There is no such broker.
        """
        return self._links.isolate(broker_id)

    def slow(
        self, source: int | str, target: int | str, delay_ms: int = 0, *, bytes_per_s: int | None = None
    ) -> Disturbance:
        """Let messages from one process to another arrive later, or slowly; the last call counts for one direction.

        Args:
            source: Where messages come from: the id of a broker, or "controller".
            target: Where they arrive.
            delay_ms: How much later, in milliseconds.
            bytes_per_s: How many bytes a second pass; None: as many as can.

        Raises:
            ValueError: There is no such process, the two are the same, or a number is not a whole one.
        """
        return self._links.slow(source, target, delay_ms, bytes_per_s=bytes_per_s)

    def heal(self) -> None:
        """Undo all cuts, delays and rates."""
        self._links.heal()

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        *,
        replication_factor: int | None = None,
        assignment: Sequence[Sequence[int]] | None = None,
        configs: Mapping[str, str | int | bool] | None = None,
    ) -> None:
        """Make a topic, and wait until its partitions have leaders that know it.

        Args:
            name: The name of the topic.
            partitions: How many, unless `assignment` says.
            replication_factor: None for the cluster's.
            assignment: The brokers of each partition, its preferred leader first.
            configs: Its options under Kafka's names.

        Raises:
            ConfigError: An argument has a wrong type or value.
            EmbeddedBrokerError: The controller refused.
        """
        self._topics.create(
            name, partitions, replication_factor=replication_factor, assignment=assignment, configs=configs
        )

    def move_leader(self, topic: str, partition: int, to: int) -> None:
        """Make another in-sync replica leader.

        Raises:
            ValueError: There is no such broker.
            EmbeddedBrokerError: It is not in sync, or not active, or there is no such partition.
        """
        self._topics.move_leader(topic, partition, to)

    def reassign(self, topic: str, partition: int, replicas: Sequence[int] | None) -> None:
        """Move a partition to other brokers; `wait_until_in_sync` waits for it. None cancels what is in progress.

        Raises:
            EmbeddedBrokerError: The controller refused.
        """
        self._topics.reassign(topic, partition, replicas)

    def elect(
        self, kind: Literal["preferred", "unclean"] = "preferred", topic: str | None = None, partition: int = 0
    ) -> None:
        """Elect the preferred leaders, or any leader for partitions without one; of all partitions without `topic`.

        Raises:
            ConfigError: `kind` is another word.
            EmbeddedBrokerError: There is no such partition, or it cannot have a leader.
        """
        self._topics.elect(kind, topic, partition)

    def add_broker(self, rack: str | None = None) -> ClusterBroker:
        """Start one more broker, with the options of the others; return it when all know it.

        It has no partitions: new topics are placed on it, too, and `reassign` moves partitions to it.

        Args:
            rack: Where it is.

        Raises:
            ConfigError: `rack` is no text.
            EmbeddedBrokerError: It could not start.
            IllegalStateError: The cluster does not run.
        """
        broker = self._members.add(rack)
        self._show_brokers()
        return broker

    def remove_broker(self, broker_id: int) -> None:
        """Take a broker out of the cluster for good: move its partitions away, stop it, unregister it.

        Each of its partitions goes to the broker with the fewest replicas that has none of it, or has one replica less
        where all the others have one. A broker that does not run can be removed, too; its files stay. Ids are not
        used again.

        Raises:
            ValueError: There is no such broker.
            EmbeddedBrokerError: It is the only one that runs, or its partitions did not come into sync elsewhere.
        """
        self._members.remove(broker_id)
        self._show_brokers()

    def shrink_isr(self, topic: str, partition: int, to: int = 1) -> Disturbance:
        """Cut followers off from a partition's leader until its ISR has `to` members.

        A follower of a partition to which nothing is written has all of it, and stays: write meanwhile, on another
        thread, or before the controller notices. Followers leave as slow ones do, after `replica_lag_ms`.

        Args:
            topic: The topic.
            partition: The partition's number.
            to: How many members are left, the leader among them.

        Returns:
            What undoes it, as `heal` does; they come back with their next fetches.

        Raises:
            ValueError: There is no such partition, or `to` is not at least 1.
            EmbeddedBrokerError: They did not leave in 30 s.
        """
        return self._faults.shrink_isr(topic, partition, to)

    def chaos(self, seed: int, kinds: Sequence[str] = KINDS, period_ms: int = 500) -> Chaos:
        """Break the cluster again and again, from now until the end of the `with` block, or `end` of what it returns.

        The cluster is whole and in sync then.

        Args:
            seed: The seed of the faults; the same seed draws the same ones.
            kinds: Which ones; see `KINDS`.
            period_ms: How long each one lasts, in milliseconds.

        Returns:
            A `Chaos`; the `with` statement gives the list of the faults so far, in words.

        Raises:
            ConfigError: An argument has a wrong type or value.
            IllegalStateError: The cluster does not run.
        """
        return self._faults.chaos(seed, kinds, period_ms)

    def roll(self) -> None:
        """Restart the brokers one after another, each when all is in sync."""
        self._faults.roll()

    def do_fault(
        self, kind: str, broker: ClusterBroker, dice: random.Random, wait: Callable[[], object] = lambda: None
    ) -> None:
        """Do one fault of `chaos` to a broker, wait, undo it, and wait until all is in sync.

        Raises:
            EmbeddedBrokerError: The cluster did not come into sync.
        """
        self._faults.do_fault(kind, broker, dice, wait)
