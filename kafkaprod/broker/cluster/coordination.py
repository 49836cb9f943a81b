"""Which broker of a cluster coordinates groups, and which transactions: the leaders of two internal partitions.

`__consumer_offsets` and `__transaction_state` have one partition each. A new leader reads the log, then answers;
meanwhile clients get COORDINATOR_LOAD_IN_PROGRESS. A broker that leads no more forgets what it knew, and answers
NOT_COORDINATOR. An answer goes out when the
high watermark covers what it shows (KAFKA-20634).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from functools import partial

from kafkaprod.broker.calls.request import Ready
from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.broker.cluster.coordinator_log import ReplicatedCoordinatorLog
from kafkaprod.broker.cluster.marker_sender import MarkerSender
from kafkaprod.broker.cluster.membership import Membership
from kafkaprod.broker.cluster.standing import Refuse
from kafkaprod.broker.coordinator.coordinators import Coordinator
from kafkaprod.broker.coordinator.offset_log import OFFSETS_TOPIC
from kafkaprod.broker.coordinator.transaction_log import TRANSACTIONS_TOPIC
from kafkaprod.broker.metadata.image import PartitionKey
from kafkaprod.errors import KafkaError
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.structs import TopicPartition

logger = logging.getLogger(__name__)


class Role(Enum):
    """Whether a broker is the coordinator."""

    OTHER = "another broker is"
    LOADING = "it reads the log"
    COORDINATOR = "it is"


_REFUSALS = {
    Role.OTHER: ErrorCode.NOT_COORDINATOR,
    Role.LOADING: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    Role.COORDINATOR: ErrorCode.NONE,
}


@dataclass(slots=True)
class _Office:
    """The role of a broker for one of the two topics.

    Attributes:
        open: Makes the coordinator of a log, or an empty one of None; on the control thread.
        log: The log of the coordinator, None while another broker is.
    """

    open: Callable[[ReplicatedCoordinatorLog | None], None]
    role: Role = Role.OTHER
    log: ReplicatedCoordinatorLog | None = None


class Coordination:
    """See the module docstring. The event loop owns it; `refusal` and `after_replicas` are thread-safe."""

    def __init__(self, broker: Broker, peers: Membership) -> None:
        self._broker = broker
        self._offices = {
            OFFSETS_TOPIC: _Office(broker.open_groups),
            TRANSACTIONS_TOPIC: _Office(partial(_open_transactions, broker, peers)),
        }

    def refusal(self, coordinator: Coordinator) -> ErrorCode:
        """Return why this broker does not answer a request for a coordinator, NONE if it does."""
        role = self._offices[coordinator.topic].role
        if coordinator.is_asked_everywhere and role is Role.OTHER:
            return ErrorCode.NONE
        return _REFUSALS[role]

    def after_replicas(
        self, coordinator: Coordinator, refuse: Refuse, receiver: Callable[[Ready], None]
    ) -> Callable[[Ready], None]:
        """Return what takes a coordinator's answer, and passes it on once the replicas of its log have what it shows.

        Args:
            coordinator: Whose answer it is.
            refuse: Makes the answer of an error: NOT_COORDINATOR, another broker leads; COORDINATOR_NOT_AVAILABLE, the
                replicas did not take it in time.
            receiver: Takes the answer, from any thread.
        """
        log = self._offices[coordinator.topic].log
        return receiver if log is None else lambda ready: log.hold(ready, refuse, receiver)

    def on_metadata(self, changed: Iterable[PartitionKey]) -> None:
        """Take an office over, or give it up, when the leader of its log has changed."""
        image = self._broker.image
        for topic, office in self._offices.items():
            topic_id = image.topic_ids.get(topic)
            if topic_id is not None and (topic_id, 0) in changed:
                self._follow(topic, office)

    def _follow(self, topic: str, office: _Office) -> None:
        partition = self._broker.topics.partition(topic, 0)
        replica = None if partition is None else partition.replica
        if partition is None or replica is None or not replica.is_leader:
            if office.role is not Role.OTHER:
                office.role, office.log = Role.OTHER, None
                self._broker.run_control(lambda: office.open(None))
        elif office.log is None or office.log.latest_epoch != replica.leader_epoch:
            log = ReplicatedCoordinatorLog(self._broker, TopicPartition(topic, 0), partition.log, replica)
            office.role, office.log = Role.LOADING, log
            self._broker.run_control(lambda: _load(office, log), lambda: _loaded(office, log))


def _open_transactions(broker: Broker, peers: Membership, log: ReplicatedCoordinatorLog | None) -> None:
    """Read the transactions of a cluster from a log, None for none; those known so far are forgotten.

    Decided ones are completed once the replicas have all that was read.

    Raises:
        LogError: CORRUPT_MESSAGE, the log is damaged.
        CorruptDataError: A record of it is.
    """
    if log is None:
        broker.transactions = broker.make_transactions([], broker.markers, lambda _: None)
        return
    transactions = broker.make_transactions([log], MarkerSender(broker, peers, log), log.when_replicated)
    log.when_replicated(lambda: transactions.recover(list, broker.clock.wall_ms()))
    broker.transactions = transactions


def _load(office: _Office, log: ReplicatedCoordinatorLog) -> None:
    try:
        office.open(log)
    except KafkaError as error:
        logger.error("the coordinator's state cannot be read from %r: %s", log.partition, error)
        office.open(None)


def _loaded(office: _Office, log: ReplicatedCoordinatorLog) -> None:
    if office.log is log:
        office.role = Role.COORDINATOR
