"""Proposals of ISRs on their way to the controller: all that wait go in one request, one request is in flight.

Pure state: time is an argument. Source: Kafka, AlterPartitionManager.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Mapping
from typing import Final

from kafkaprod.broker.metadata.image import PartitionKey
from kafkaprod.broker.replication.partition import PartitionReplica
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    PartitionProposal,
    TopicProposals,
)
from kafkaprod.protocol.schema import Response

RETRY_MS: Final = 50
TIMEOUT_MS: Final = 2000


class IsrRequests:
    """See the module docstring."""

    def __init__(self, broker_id: int) -> None:
        self._broker_id = broker_id
        self._in_flight: AlterPartitionRequest | None = None
        self._sent: dict[PartitionKey, PartitionProposal] = {}
        self._lost_at_ms = 0
        self._not_before_ms = 0
        self._proposing: dict[PartitionKey, PartitionReplica] = {}

    def add(self, replica: PartitionReplica) -> None:
        """Note that a replica has a proposal."""
        self._proposing[replica.key] = replica

    def discard(self, key: PartitionKey) -> None:
        """Forget a replica that is no longer hosted."""
        self._proposing.pop(key, None)

    def next_request(self, broker_epoch: int, now_ms: int) -> AlterPartitionRequest | None:
        """Return the next request, None if one is in flight or there is no proposal."""
        if self._in_flight is not None and now_ms >= self._lost_at_ms:
            self.on_lost(now_ms)
        if self._in_flight is not None or now_ms < self._not_before_ms:
            return None
        self._sent = {}
        for key, replica in list(self._proposing.items()):
            if replica.proposal is None:
                del self._proposing[key]
            elif not replica.is_waiting_for_metadata:
                self._sent[key] = replica.proposal
        if not self._sent:
            return None
        topics: dict[uuid.UUID, list[PartitionProposal]] = defaultdict(list)
        for (topic_id, _), proposal in self._sent.items():
            topics[topic_id].append(proposal)
        self._in_flight = AlterPartitionRequest(
            broker_id=self._broker_id,
            broker_epoch=broker_epoch,
            topics=[TopicProposals(topic_id=topic_id, partitions=parts) for topic_id, parts in topics.items()],
        )
        self._lost_at_ms = now_ms + TIMEOUT_MS
        return self._in_flight

    def on_answer(
        self,
        request: AlterPartitionRequest,
        answer: Response | None,
        replica_of: Mapping[PartitionKey, PartitionReplica],
        now_ms: int,
    ) -> bool:
        """Take the controller's answer, None if there is none; return whether this broker must register again."""
        if request is not self._in_flight:
            return False
        self._in_flight = None
        if not isinstance(answer, AlterPartitionResponse) or answer.error_code != ErrorCode.NONE:
            self._not_before_ms = now_ms + RETRY_MS
            return isinstance(answer, AlterPartitionResponse) and answer.error_code == ErrorCode.STALE_BROKER_EPOCH
        outcomes = {
            (topic.topic_id, each.partition_index): each for topic in answer.topics for each in topic.partitions
        }
        for key, proposal in self._sent.items():
            replica, outcome = replica_of.get(key), outcomes.get(key)
            if replica is not None and outcome is not None and replica.on_isr_outcome(proposal, outcome):
                self._not_before_ms = now_ms + RETRY_MS
        return False

    def on_lost(self, now_ms: int) -> None:
        """The request or its answer was lost: the proposals stay, and are sent again."""
        self._in_flight = None
        self._not_before_ms = now_ms + RETRY_MS

    def next_deadline_ms(self) -> int:
        """Return when a waiting proposal may be sent, or when the one in flight counts as lost."""
        return self._not_before_ms if self._in_flight is None else self._lost_at_ms
