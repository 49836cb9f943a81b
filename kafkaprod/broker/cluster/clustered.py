"""The standing of a broker in a cluster of several processes: it asks the controller, the leaders, the coordinators.

`member.ClusterMember` belongs to the event loop; this class brings calls of other threads there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from kafkaprod.broker.calls.refusal import RequestRefusedError
from kafkaprod.broker.calls.request import Deferred, Outcome, Ready
from kafkaprod.broker.cluster import former_files, forwarded_topics
from kafkaprod.broker.cluster.marker_replication import write_replicated
from kafkaprod.broker.cluster.member import ClusterMember
from kafkaprod.broker.cluster.nodes import node_of, replicas_of
from kafkaprod.broker.cluster.replicated_topics import ReplicatedTopics
from kafkaprod.broker.cluster.standing import Doors, OnErrors, OnMarkers, Refuse, Standing, WantedMarkers
from kafkaprod.broker.cluster.topics import INTERNAL_TOPIC_OPTIONS, INTERNAL_TOPICS, Topic
from kafkaprod.broker.cluster.transaction_partitions import join_transaction
from kafkaprod.broker.cluster_config import ClusterConfig
from kafkaprod.broker.controller.requests import FORWARDED_VERSIONS
from kafkaprod.broker.coordinator.coordinators import Coordinator
from kafkaprod.broker.coordinator.transaction import ProducerIdAndEpoch
from kafkaprod.broker.listeners import Endpoint
from kafkaprod.broker.storage.log.log_dir import KnownTopics, LogDir
from kafkaprod.broker.storage.log.partition_log import PartitionLog
from kafkaprod.net.poller import Poller
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.create_partitions import CreatePartitionsRequest
from kafkaprod.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kafkaprod.protocol.messages.fetch import FetchRequest
from kafkaprod.protocol.messages.replicate_metadata import ReplicateMetadataRequest, ReplicateMetadataResponse
from kafkaprod.protocol.schema import Request, Response
from kafkaprod.structs import TopicPartition

if TYPE_CHECKING:
    from kafkaprod.broker.cluster.broker import Broker

_TIMEOUT_MS = 10_000
_METADATA_MS = 1_000


class Clustered(Standing):
    """See the module docstring.

    Attributes:
        member: The event loop's side, once it has been joined.
    """

    leaders_move = True
    appends_in_loop = True

    member: ClusterMember

    def __init__(self, cluster: ClusterConfig, broker: Broker) -> None:
        """Join nothing yet.

        Args:
            cluster: Where the other processes are.
            broker: Whose standing it is.
        """
        self.replication_factor = cluster.replication_factor
        self._cluster = cluster
        self._broker = broker

    # -- the broker's start --------------------------------------------------------------------------------------------

    def find_topics(self, log_dir: LogDir) -> KnownTopics:
        """Return nothing: the topics of a cluster come with its metadata."""
        former_files.name_unused(log_dir.path)
        return KnownTopics({}, {})

    def open_topics(self) -> ReplicatedTopics:
        """Return an empty table, which follows the metadata."""
        broker = self._broker
        return ReplicatedTopics(
            broker.log_dirs, broker.config.log, broker.purgatory.notify, self._cluster.min_insync_replicas
        )

    def recover(self) -> None:
        """Do nothing: replicas belong to their leaders, transactions to their coordinator."""

    def join(self, poller: Poller, doors: Doors, on_stopped: Callable[[], None]) -> None:
        """Open the socket for the other processes; clients are served when the metadata is complete."""
        self.member = ClusterMember(self._broker, self._cluster, poller, self._broker.clock)
        self.member.on_serving = doors.accept_clients
        self.member.on_stopped = on_stopped
        doors.accept_peers(self._cluster)

    # -- the event loop ------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Do nothing: the first `pump` registers."""

    def pump(self) -> None:
        self.member.pump()

    def next_deadline_ms(self) -> int | None:
        return self.member.next_deadline_ms()

    def shut_down(self) -> None:
        """Hand leadership over, then stop. Thread-safe, and safe in a signal handler."""
        self._broker.post(self.member.shut_down)

    def close(self) -> None:
        """Close the links."""
        self.member.close()

    def finish(self) -> None:
        """Do nothing: the controller has the metadata log."""

    def receive_slice(self, request: ReplicateMetadataRequest) -> ReplicateMetadataResponse:
        return self.member.receive_slice(request)

    def fetch_by_follower(self, body: FetchRequest) -> Outcome:
        return self.member.follower_fetches.handle(body)

    # -- coordinators --------------------------------------------------------------------------------------------------

    def refusal(self, coordinator: Coordinator) -> ErrorCode:
        return self.member.coordination.refusal(coordinator)

    def after_replicas(
        self, coordinator: Coordinator, refuse: Refuse, receiver: Callable[[Ready], None]
    ) -> Callable[[Ready], None]:
        return self.member.coordination.after_replicas(coordinator, refuse, receiver)

    def find_coordinator(self, topic: str, endpoint: Endpoint | None) -> tuple[int, str, int] | None:
        """Return the leader of the internal topic's partition."""
        partition = self._broker.topics.partition(topic, 0)
        if partition is None:
            self.create_named(topic)
            return None
        node = node_of(self._broker, replicas_of(self._broker, partition).leader_id, endpoint)
        return None if node is None else (node.node_id, node.host, node.port)

    def make_internal_log(self, name: str) -> PartitionLog:
        """Refuse: only the topic's leader has a coordinator, and that has a log."""
        raise RequestRefusedError(ErrorCode.NOT_COORDINATOR, "Another broker is the coordinator.")

    def reserve_producer_ids(self) -> None:
        """Do nothing: blocks come from the controller before the last ones are gone."""

    # -- transactions --------------------------------------------------------------------------------------------------

    def join_transaction(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Collection[TopicPartition],
        then: OnErrors,
        *,
        is_verification: bool,
    ) -> None:
        """Ask the cluster's coordinator from the event loop, and come back."""

        def ask() -> None:
            self.join_transaction_in_loop(
                transactional_id,
                producer,
                partitions,
                lambda errors: self._broker.run_control(lambda: then(errors)),
                is_verification=is_verification,
            )

        self._broker.post(ask)

    def join_transaction_in_loop(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Collection[TopicPartition],
        then: OnErrors,
        *,
        is_verification: bool,
    ) -> None:
        """Ask the cluster's coordinator."""
        topics = self._broker.topics
        join_transaction(
            self.member, topics, transactional_id, producer, partitions, then, is_verification=is_verification
        )

    def write_markers(self, wanted: WantedMarkers, then: OnMarkers) -> None:
        """Write them where this broker leads; wait for the in-sync replicas."""
        self._broker.post(lambda: write_replicated(self._broker, wanted, then))

    # -- topics, and all else that the controller decides --------------------------------------------------------------

    def forward(
        self,
        request: Request,
        finish: Callable[[Response | None], Response],
        is_visible: Callable[[Response | None], bool] = lambda _: True,
    ) -> Outcome:
        """Ask the controller over its link, and wait for the metadata."""
        deferred = Deferred()

        def complete(response: Response | None) -> None:
            self._broker.run_control(lambda: deferred.complete(finish(response)))

        def answered(response: Response | None) -> None:
            self.member.when(lambda: is_visible(response), _METADATA_MS, lambda: complete(response))

        self._ask_controller(request, answered)
        return deferred

    def sweep_tokens(self) -> None:
        """Do nothing: the controller has a timer."""

    def create_named(self, name: str) -> Topic | None:
        """Have the controller make it meanwhile."""
        is_internal = name in INTERNAL_TOPICS
        configs = INTERNAL_TOPIC_OPTIONS if is_internal else {}
        wanted = CreatableTopic(
            name=name,
            num_partitions=1 if is_internal else self._broker.config.num_partitions,
            replication_factor=self.replication_factor,
            configs=[CreatableTopicConfig(name=option, value=value) for option, value in configs.items()],
        )
        self._ask_controller(CreateTopicsRequest(topics=[wanted]), lambda _: None)
        return None

    def create_topics(self, body: CreateTopicsRequest, refuse: Refuse) -> Outcome:
        """Check the topics, and have the controller make those that pass."""
        return forwarded_topics.create_topics(self._broker, body, refuse)

    def create_partitions(self, body: CreatePartitionsRequest, refuse: Refuse) -> Outcome:
        """Check the topics, and have the controller add partitions to those that pass."""
        return forwarded_topics.create_partitions(self._broker, body)

    def _ask_controller(self, request: Request, on_answer: Callable[[Response | None], None]) -> None:
        """Send the controller a request, from any thread; `on_answer` is called in the event loop."""
        version = FORWARDED_VERSIONS[request.api]
        self._broker.post(lambda: self.member.ask_controller(request, version, on_answer, _TIMEOUT_MS))
