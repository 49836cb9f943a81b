"""A broker's standing in its cluster: what a broker alone decides by itself, and brokers of a cluster ask each
other for.

A broker alone is a cluster of one. `alone.Alone` answers at once, from its own controller, logs and coordinators;
`clustered.Clustered` asks the controller, the leaders and the coordinators. Handlers use this interface, and do not ask
which of the two it is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

from kafkaprod.broker.calls.request import Outcome, Ready
from kafkaprod.broker.cluster.topics import Topic, TopicTable
from kafkaprod.broker.cluster_config import ClusterConfig
from kafkaprod.broker.coordinator.coordinators import Coordinator
from kafkaprod.broker.coordinator.markers import Marker
from kafkaprod.broker.coordinator.transaction import ProducerIdAndEpoch
from kafkaprod.broker.listeners import Endpoint
from kafkaprod.broker.storage.log.log_dir import KnownTopics, LogDir
from kafkaprod.broker.storage.log.partition_log import PartitionLog
from kafkaprod.net.poller import Poller
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.create_partitions import CreatePartitionsRequest
from kafkaprod.protocol.messages.create_topics import CreateTopicsRequest
from kafkaprod.protocol.messages.fetch import FetchRequest
from kafkaprod.protocol.messages.replicate_metadata import ReplicateMetadataRequest, ReplicateMetadataResponse
from kafkaprod.protocol.schema import Request, Response
from kafkaprod.structs import TopicPartition

Refuse = Callable[[int], Response]
"""Makes the answer of an error code."""

OnErrors = Callable[[Mapping[TopicPartition, ErrorCode]], None]
WantedMarkers = Sequence[tuple[Marker, Sequence[TopicPartition]]]
OnMarkers = Callable[[list[dict[TopicPartition, int]]], None]


class Doors(Protocol):
    """The sockets of a broker's server."""

    def accept_clients(self) -> None:
        """Take connections of clients."""

    def accept_peers(self, cluster: ClusterConfig) -> None:
        """Take connections of the cluster's other processes."""


class Standing(ABC):
    """See the module docstring.

    Attributes:
        leaders_move: Other brokers may become a partition's leader.
        appends_in_loop: Replicas belong to the event loop, so no append may leave it.
        replication_factor: The number of replicas of topics that do not say it.
    """

    leaders_move: bool
    appends_in_loop: bool
    replication_factor: int

    # -- the broker's start, in the order of the calls -----------------------------------------------------------------

    @abstractmethod
    def find_topics(self, log_dir: LogDir) -> KnownTopics:
        """Return what is known of the topics before the logs of a directory are opened."""

    @abstractmethod
    def open_topics(self) -> TopicTable:
        """Return the table of topics, over the open directory."""

    @abstractmethod
    def recover(self) -> None:
        """Complete what the last process of the directory left, and make the topics of the configuration."""

    @abstractmethod
    def join(self, poller: Poller, doors: Doors, on_stopped: Callable[[], None]) -> None:
        """Take a place in the event loop.

        Args:
            poller: The poller of the event loop.
            doors: Opened to clients as soon as they may be served.
            on_stopped: Called when a shutdown is complete.
        """

    # -- the event loop ------------------------------------------------------------------------------------------------

    @abstractmethod
    def begin(self) -> None:
        """Note that the event loop runs."""

    @abstractmethod
    def pump(self) -> None:
        """Do what is due; after each turn."""

    @abstractmethod
    def next_deadline_ms(self) -> int | None:
        """Return when `pump` has something to do, None for never."""

    @abstractmethod
    def shut_down(self) -> None:
        """Begin a controlled shutdown."""

    @abstractmethod
    def close(self) -> None:
        """Release what the event loop polls."""

    @abstractmethod
    def finish(self) -> None:
        """Wait for what is being written, when all threads but those have ended."""

    @abstractmethod
    def receive_slice(self, request: ReplicateMetadataRequest) -> ReplicateMetadataResponse:
        """Take metadata over that the cluster's controller has pushed.

        Raises:
            CloseConnectionError: This broker has its controller inside.
        """

    @abstractmethod
    def fetch_by_follower(self, body: FetchRequest) -> Outcome:
        """Answer a fetch of another broker of the cluster.

        Raises:
            CloseConnectionError: There are no other brokers.
        """

    # -- coordinators --------------------------------------------------------------------------------------------------

    @abstractmethod
    def refusal(self, coordinator: Coordinator) -> ErrorCode:
        """Return why this broker does not answer a request for a coordinator, NONE if it does. Thread-safe."""

    @abstractmethod
    def after_replicas(
        self, coordinator: Coordinator, refuse: Refuse, receiver: Callable[[Ready], None]
    ) -> Callable[[Ready], None]:
        """Return what takes a coordinator's answer, and passes it on once the replicas of its log have what it shows.

        Thread-safe.
        """

    @abstractmethod
    def find_coordinator(self, topic: str, endpoint: Endpoint | None) -> tuple[int, str, int] | None:
        """Return id, host and port of the leader of a coordinator's log, None without one; a missing topic is made."""

    @abstractmethod
    def make_internal_log(self, name: str) -> PartitionLog:
        """Return a coordinator's log, which is made if it is missing; on the control thread.

        Raises:
            RequestRefusedError: NOT_COORDINATOR, or KAFKA_STORAGE_ERROR, the disk refused.
            LogError: The disk refused.
        """

    @abstractmethod
    def reserve_producer_ids(self) -> None:
        """Reserve a block of producer ids, where the controller has not sent one before they are gone.

        Raises:
            OSError: The disk refused.
        """

    # -- transactions --------------------------------------------------------------------------------------------------

    @abstractmethod
    def join_transaction(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Collection[TopicPartition],
        then: OnErrors,
        *,
        is_verification: bool,
    ) -> None:
        """Have the coordinator add partitions to a transaction, or verify that they are part of it.

        Args:
            transactional_id: The transactional id of the producer.
            producer: Who writes.
            partitions: Where to.
            then: Takes the error of each partition, on the control thread, where this is called; perhaps now.
            is_verification: Only check that they are part of the transaction.
        """

    @abstractmethod
    def join_transaction_in_loop(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Collection[TopicPartition],
        then: OnErrors,
        *,
        is_verification: bool,
    ) -> None:
        """Do the same for the event loop: it calls this, and `then` is called there."""

    @abstractmethod
    def write_markers(self, wanted: WantedMarkers, then: OnMarkers) -> None:
        """Write markers; `then` gets the error codes of each one's partitions. On the control thread, both."""

    # -- topics, and all else that the controller decides --------------------------------------------------------------

    @abstractmethod
    def forward(
        self,
        request: Request,
        finish: Callable[[Response | None], Response],
        is_visible: Callable[[Response | None], bool] = lambda _: True,
    ) -> Outcome:
        """Send a request to the controller; return the outcome. On the control thread.

        The request keeps its own format, as in Kafka; the client's rights were checked before.

        Args:
            request: What the controller gets.
            finish: Makes the client's answer of the controller's, None if there is none; on the control thread.
            is_visible: Whether this broker's metadata shows the change; the answer waits for it a while.
        """

    @abstractmethod
    def sweep_tokens(self) -> None:
        """Remove delegation tokens that are over, if the controller is inside; on the control thread.

        Raises:
            LogError: The disk refused.
        """

    @abstractmethod
    def create_named(self, name: str) -> Topic | None:
        """Make a topic that a client has named; None if it comes later, and the client must ask again.

        Raises:
            BrokerError: It cannot be made.
        """

    @abstractmethod
    def create_topics(self, body: CreateTopicsRequest, refuse: Refuse) -> Outcome:
        """Make topics, or only check whether they could be made."""

    @abstractmethod
    def create_partitions(self, body: CreatePartitionsRequest, refuse: Refuse) -> Outcome:
        """Give topics more partitions, or only check whether they could have them."""
