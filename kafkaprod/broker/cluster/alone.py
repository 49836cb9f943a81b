"""The standing of a broker alone, a cluster of one: it decides itself, and at once.

Its controller is inside (`own_controller`), it leads all partitions, coordinates all groups and transactions, and its
logs are the only replicas.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

from kafkaprod.broker.calls.request import CloseConnectionError, Outcome, Ready
from kafkaprod.broker.cluster import former_files, own_topic_requests
from kafkaprod.broker.cluster.own_controller import OwnController
from kafkaprod.broker.cluster.own_topics import OwnTopics
from kafkaprod.broker.cluster.standing import Doors, OnErrors, OnMarkers, Refuse, Standing, WantedMarkers
from kafkaprod.broker.cluster.topics import INTERNAL_TOPIC_OPTIONS, Topic
from kafkaprod.broker.controller.context import TOPIC_RESOURCE
from kafkaprod.broker.controller.controller import NO_LEVELS
from kafkaprod.broker.coordinator.coordinators import Coordinator
from kafkaprod.broker.coordinator.transaction import TV2, ProducerIdAndEpoch
from kafkaprod.broker.coordinator.transaction_coordinator import OpenTransaction
from kafkaprod.broker.listeners import Endpoint
from kafkaprod.broker.metadata.features import TRANSACTION_VERSION
from kafkaprod.broker.storage.errors import LogError
from kafkaprod.broker.storage.format.log_config import parse_properties
from kafkaprod.broker.storage.log.log_dir import KnownTopics, LogDir
from kafkaprod.broker.storage.log.partition_log import PartitionLog
from kafkaprod.errors import BrokerError
from kafkaprod.net.poller import Poller
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.create_partitions import CreatePartitionsRequest
from kafkaprod.protocol.messages.create_topics import CreateTopicsRequest
from kafkaprod.protocol.messages.fetch import FetchRequest
from kafkaprod.protocol.messages.replicate_metadata import ReplicateMetadataRequest, ReplicateMetadataResponse
from kafkaprod.protocol.schema import Request, Response
from kafkaprod.structs import TopicPartition

if TYPE_CHECKING:
    from kafkaprod.broker.cluster.broker import Broker

logger = logging.getLogger(__name__)


class Alone(Standing):
    """See the module docstring.

    Attributes:
        controller: Inside this broker; of the control thread.
        topics: The table that this broker makes itself.
    """

    leaders_move = False
    appends_in_loop = False
    replication_factor = 1

    controller: OwnController
    topics: OwnTopics

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    # -- the broker's start --------------------------------------------------------------------------------------------

    def find_topics(self, log_dir: LogDir) -> KnownTopics:
        """Read the metadata; return what it says of topics."""
        broker = self._broker
        version = broker.config.transactions.version
        levels = NO_LEVELS if version is None else {TRANSACTION_VERSION: version}
        controller = self.controller = OwnController(
            log_dir,
            broker.clock,
            broker.endpoints,
            broker.config.protocols,
            levels,
            broker.config.tokens,
            broker.config.metadata_snapshot_bytes,
        )
        broker.settings.ask_controller = controller.ask
        controller.on_change = broker.settings.follow
        broker.settings.follow(controller.image)
        former_files.take_over(log_dir.path, broker.config.disk, controller, broker.settings)
        image, log = controller.image, broker.config.log
        configs = {
            name: parse_properties(image.configs.get((TOPIC_RESOURCE, name), {}), log) for name in image.topic_ids
        }
        return KnownTopics(configs, image.topic_ids)

    def open_topics(self) -> OwnTopics:
        """Open all logs of the directory."""
        broker = self._broker
        self.topics = OwnTopics(broker.log_dirs, self.controller, broker.config.log, broker.purgatory.notify)
        return self.topics

    def recover(self) -> None:
        """Complete the transactions that a crash left decided, and make missing topics of the configuration."""
        broker = self._broker
        broker.transactions.recover(self._open_transactions, broker.clock.wall_ms())
        for name, partition_count in broker.config.topics.items():
            if self.topics.get(name) is None:
                self.topics.create(name, partition_count, {})

    def _open_transactions(self) -> list[OpenTransaction]:
        """The transactions that are open in partitions now: those that recovery has completed are not."""
        return [
            OpenTransaction(topic_partition, ProducerIdAndEpoch(entry.producer_id, entry.epoch))
            for topic_partition, partition_log in self._broker.log_dirs.partitions.items()
            for entry in partition_log.producers()
            if entry.has_transaction
        ]

    def join(self, poller: Poller, doors: Doors, on_stopped: Callable[[], None]) -> None:
        """Remember what to call; nothing needs the poller."""
        self._doors = doors
        self._on_stopped = on_stopped

    # -- the event loop ------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Serve clients from the first turn on."""
        self._doors.accept_clients()

    def pump(self) -> None:
        """Do nothing: there are no links."""

    def next_deadline_ms(self) -> int | None:
        return None

    def shut_down(self) -> None:
        """Stop at once: no other broker could take the partitions over."""
        self._on_stopped()

    def close(self) -> None:
        """Do nothing: there are no links."""

    def finish(self) -> None:
        """Wait for the snapshot that is being written."""
        self.controller.close()

    def receive_slice(self, request: ReplicateMetadataRequest) -> ReplicateMetadataResponse:
        """Refuse it."""
        raise CloseConnectionError("ReplicateMetadata was sent to a broker that has its controller inside")

    def fetch_by_follower(self, body: FetchRequest) -> Outcome:
        """Refuse it."""
        raise CloseConnectionError("a follower's Fetch was sent to a broker that has its controller inside")

    # -- coordinators --------------------------------------------------------------------------------------------------

    def refusal(self, coordinator: Coordinator) -> ErrorCode:
        """Return NONE."""
        return ErrorCode.NONE

    def after_replicas(
        self, coordinator: Coordinator, refuse: Refuse, receiver: Callable[[Ready], None]
    ) -> Callable[[Ready], None]:
        """Return the receiver: there is nothing to wait for."""
        return receiver

    def find_coordinator(self, topic: str, endpoint: Endpoint | None) -> tuple[int, str, int] | None:
        """Return this broker, None if the topic cannot be made."""
        try:
            self.make_internal_log(topic)
        except BrokerError as error:
            logger.error("cannot make the topic %s: %s", topic, error)
            return None
        place = endpoint or self._broker.endpoint
        return self._broker.config.node_id, place.host, place.port

    def make_internal_log(self, name: str) -> PartitionLog:
        """Return the log of the topic's one partition."""
        topic = self.topics.get(name) or self.topics.create(name, 1, INTERNAL_TOPIC_OPTIONS)
        return topic.partitions[0].log

    def reserve_producer_ids(self) -> None:
        """Have the controller write a block down."""
        try:
            self._broker.producer_ids.add_block(*self.controller.producer_ids())
        except LogError as error:
            raise OSError(str(error)) from error

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
        """Ask the coordinator of this broker."""
        then(self._join(transactional_id, producer, partitions, is_verification=is_verification))

    def join_transaction_in_loop(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Collection[TopicPartition],
        then: OnErrors,
        *,
        is_verification: bool,
    ) -> None:
        """Ask the coordinator of this broker, on the control thread."""
        errors: dict[TopicPartition, ErrorCode] = {}

        def ask() -> None:
            errors.update(self._join(transactional_id, producer, partitions, is_verification=is_verification))

        self._broker.run_control(ask, lambda: then(errors))

    def write_markers(self, wanted: WantedMarkers, then: OnMarkers) -> None:
        """Write and commit them now."""
        then([self._broker.markers.write(marker, partitions) for marker, partitions in wanted])

    def _join(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Collection[TopicPartition],
        *,
        is_verification: bool,
    ) -> Mapping[TopicPartition, ErrorCode]:
        transactions = self._broker.transactions
        if is_verification:
            return transactions.verify(transactional_id, producer, partitions)
        now_ms = self._broker.clock.wall_ms()
        return dict.fromkeys(
            partitions, transactions.add_partitions(transactional_id, producer, partitions, TV2, now_ms)
        )

    # -- topics, and all else that the controller decides --------------------------------------------------------------

    def forward(
        self,
        request: Request,
        finish: Callable[[Response | None], Response],
        is_visible: Callable[[Response | None], bool] = lambda _: True,
    ) -> Outcome:
        """Ask the controller inside, which answers at once."""
        return finish(self.controller.ask(request))

    def sweep_tokens(self) -> None:
        """Remove them now."""
        self.controller.sweep_tokens()

    def create_named(self, name: str) -> Topic | None:
        """Make it now."""
        return self.topics.create(name, self._broker.config.num_partitions, {})

    def create_topics(self, body: CreateTopicsRequest, refuse: Refuse) -> Outcome:
        """Make them in steps."""
        return own_topic_requests.create_topics(self._broker, self.topics, body, refuse)

    def create_partitions(self, body: CreatePartitionsRequest, refuse: Refuse) -> Outcome:
        """Make them in steps."""
        return own_topic_requests.create_partitions(self._broker, self.topics, body, refuse)
