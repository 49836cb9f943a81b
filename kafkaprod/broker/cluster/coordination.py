"""Which broker of a cluster coordinates groups, and which transactions: the leaders of two internal partitions.

`__consumer_offsets` and `__transaction_state` have one partition each. A new leader reads the log, then answers;
meanwhile clients get COORDINATOR_LOAD_IN_PROGRESS. A broker that leads no more forgets what it knew, and answers
NOT_COORDINATOR. An answer goes out when the high watermark covers what it shows (KAFKA-20634).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import partial

from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.broker.cluster.coordinator_log import ReplicatedCoordinatorLog
from kafkaprod.broker.cluster.marker_sender import MarkerSender
from kafkaprod.broker.coordinator.offset_log import OFFSETS_TOPIC
from kafkaprod.broker.coordinator.transaction_log import TRANSACTIONS_TOPIC
from kafkaprod.broker.metadata.image import PartitionKey
from kafkaprod.errors import KafkaError
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.init_producer_id import InitProducerIdRequest
from kafkaprod.protocol.schema import Request
from kafkaprod.structs import TopicPartition

logger = logging.getLogger(__name__)

_GROUP_APIS = (
    ApiKey.OFFSET_COMMIT,
    ApiKey.OFFSET_FETCH,
    ApiKey.JOIN_GROUP,
    ApiKey.HEARTBEAT,
    ApiKey.LEAVE_GROUP,
    ApiKey.SYNC_GROUP,
    ApiKey.DESCRIBE_GROUPS,
    ApiKey.DELETE_GROUPS,
    ApiKey.TXN_OFFSET_COMMIT,
    ApiKey.OFFSET_DELETE,
    ApiKey.CONSUMER_GROUP_HEARTBEAT,
    ApiKey.CONSUMER_GROUP_DESCRIBE,
)
_TRANSACTION_APIS = (
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.END_TXN,
    ApiKey.DESCRIBE_TRANSACTIONS,
    ApiKey.LIST_TRANSACTIONS,
)
COORDINATED: Mapping[ApiKey, str] = {
    **dict.fromkeys(_GROUP_APIS, OFFSETS_TOPIC),
    **dict.fromkeys(_TRANSACTION_APIS, TRANSACTIONS_TOPIC),
}
"""The requests for a coordinator, and whose."""


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
    """What a broker is to one of the two topics.

    Attributes:
        open: Makes the coordinator of a log, or an empty one of None; on the control thread.
        log: Of the coordinator, None while another broker is.
    """

    open: Callable[[ReplicatedCoordinatorLog | None], None]
    role: Role = Role.OTHER
    log: ReplicatedCoordinatorLog | None = None


class Coordination:
    """See the module docstring. The event loop owns it, except `refusal` and `log_of`, which any thread may call."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._offices = {
            OFFSETS_TOPIC: _Office(broker.open_groups),
            TRANSACTIONS_TOPIC: _Office(partial(_open_transactions, broker)),
        }

    def refusal(self, api: ApiKey, body: Request) -> ErrorCode:
        """Return why this broker does not answer a request for a coordinator, NONE if it does."""
        topic = _topic_of(api, body)
        if topic is None:
            return ErrorCode.NONE
        role = self._offices[topic].role
        if api is ApiKey.LIST_TRANSACTIONS and role is Role.OTHER:
            return ErrorCode.NONE  # clients ask all brokers; this one has none
        return _REFUSALS[role]

    def log_of(self, api: ApiKey, body: Request) -> ReplicatedCoordinatorLog | None:
        """Return the log that the answer to a request waits for, None if there is none."""
        topic = _topic_of(api, body)
        return None if topic is None else self._offices[topic].log

    def on_metadata(self, changed: Iterable[PartitionKey]) -> None:
        """Take an office over, or let go of it, when the leader of its log has changed."""
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
                self._broker.run_control(lambda: office.open(None), _nothing)
        elif office.log is None or office.log.latest_epoch != replica.leader_epoch:
            log = ReplicatedCoordinatorLog(self._broker, TopicPartition(topic, 0), partition.log, replica)
            office.role, office.log = Role.LOADING, log
            self._broker.run_control(lambda: _load(office, log), lambda: _loaded(office, log))


def _open_transactions(broker: Broker, log: ReplicatedCoordinatorLog | None) -> None:
    """Read the transactions of a cluster from a log, None for none; those known so far are forgotten.

    Decided ones are completed once the replicas have all that was read.

    Raises:
        LogError: CORRUPT_MESSAGE, the log is damaged.
        CorruptDataError: A record of it is.
    """
    if log is None:
        broker.transactions = broker.make_transactions([], broker.markers, lambda _: None)
        return
    transactions = broker.make_transactions([log], MarkerSender(broker, log), log.when_replicated)
    log.when_replicated(lambda: transactions.recover(list, broker.clock.wall_ms()))
    broker.transactions = transactions


def _load(office: _Office, log: ReplicatedCoordinatorLog) -> None:
    try:
        office.open(log)
    except KafkaError:
        logger.exception("the coordinator's state cannot be read from %r", log.partition)
        office.open(None)


def _loaded(office: _Office, log: ReplicatedCoordinatorLog) -> None:
    if office.log is log:
        office.role = Role.COORDINATOR


def _topic_of(api: ApiKey, body: Request) -> str | None:
    if isinstance(body, InitProducerIdRequest) and body.transactional_id is None:
        return None  # an id of the broker's own block
    return COORDINATED.get(api)


def _nothing() -> None:
    """Takes the place of a call that is not needed."""
