"""Sends the markers of decided transactions to the leaders of their partitions, until all of them have them.

Leaders may change meanwhile: each attempt asks the leaders of now. It ends early when another broker has become the
transactions' coordinator, which sends the markers again. Source: Kafka, TransactionMarkerChannelManager.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.broker.cluster.coordinator_log import ReplicatedCoordinatorLog
from kafkaprod.broker.cluster.membership import Membership
from kafkaprod.broker.coordinator.markers import FINAL_ERRORS, Marker
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from kafkaprod.protocol.schema import Response
from kafkaprod.structs import TopicPartition

_RETRY_MS = 20
_REQUEST_TIMEOUT_MS = 6_000  # above the time that a leader waits for its followers
_VERSION = 2
_NO_LEADER = -1

OnDone = Callable[[Mapping[TopicPartition, int]], None]


@dataclass(slots=True)
class _Delivery:
    """One marker on its way.

    Attributes:
        left: The partitions that do not have it.
        errors: The outcome of the others.
        on_done: Takes them all, on the control thread.
        waiting_count: How many leaders have not answered this attempt.
    """

    marker: Marker
    left: set[TopicPartition]
    on_done: OnDone
    errors: dict[TopicPartition, int] = field(default_factory=dict)
    waiting_count: int = 0


class MarkerSender:
    """See the module docstring. The event loop owns it, except `send`."""

    def __init__(self, broker: Broker, peers: Membership, log: ReplicatedCoordinatorLog) -> None:
        """Make a sender.

        Args:
            broker: This one.
            peers: Asks the leaders.
            log: The log of the transactions' coordinator.
        """
        self._broker = broker
        self._peers = peers
        self._log = log

    def send(self, marker: Marker, partitions: Collection[TopicPartition], on_done: OnDone) -> None:
        """Send a marker; `on_done` gets the error codes, on the control thread, when each partition has it or refuses.

        Thread-safe.
        """
        delivery = _Delivery(marker, set(partitions), on_done)
        self._broker.post(lambda: self._attempt(delivery))

    def _attempt(self, delivery: _Delivery) -> None:
        if not self._log.is_current:
            return
        by_leader: dict[int, list[TopicPartition]] = {}
        for key in sorted(delivery.left):
            partition = self._broker.topics.partition(*key)
            if partition is None:
                delivery.left.discard(key)
                delivery.errors[key] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif partition.image.leader != _NO_LEADER:
                by_leader.setdefault(partition.image.leader, []).append(key)
        delivery.waiting_count = len(by_leader)
        if not by_leader:
            self._end_attempt(delivery)
        for leader, keys in by_leader.items():
            self._ask(delivery, leader, keys)

    def _ask(self, delivery: _Delivery, leader: int, keys: list[TopicPartition]) -> None:
        def answered(response: Response | None) -> None:
            if isinstance(response, WriteTxnMarkersResponse):
                self._note(delivery, response)
            delivery.waiting_count -= 1
            if not delivery.waiting_count:
                self._end_attempt(delivery)

        request = _request(delivery.marker, keys)
        self._peers.ask_broker(leader, request, _VERSION, answered, _REQUEST_TIMEOUT_MS)

    def _note(self, delivery: _Delivery, response: WriteTxnMarkersResponse) -> None:
        for marker in response.markers:
            for topic in marker.topics:
                for outcome in topic.partitions:
                    key, error = TopicPartition(topic.name, outcome.partition_index), outcome.error_code
                    # A leader whose metadata is behind does not know the topic yet: that is no refusal.
                    is_final = error in FINAL_ERRORS and error != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                    if error == ErrorCode.NONE or is_final:
                        delivery.left.discard(key)
                        delivery.errors[key] = error

    def _end_attempt(self, delivery: _Delivery) -> None:
        if not delivery.left:
            self._broker.run_control(lambda: delivery.on_done(delivery.errors))
            return
        self._peers.when(lambda: False, _RETRY_MS, lambda: self._attempt(delivery))


def _request(marker: Marker, keys: Collection[TopicPartition]) -> WriteTxnMarkersRequest:
    topics: dict[str, WritableTxnMarkerTopic] = {}
    for topic, index in keys:
        topics.setdefault(topic, WritableTxnMarkerTopic(name=topic)).partition_indexes.append(index)
    wanted = WritableTxnMarker(
        producer_id=marker.producer_id,
        producer_epoch=marker.epoch,
        transaction_result=marker.is_commit,
        topics=list(topics.values()),
        coordinator_epoch=marker.coordinator_epoch,
        transaction_version=marker.transaction_version,
    )
    return WriteTxnMarkersRequest(markers=[wanted])
