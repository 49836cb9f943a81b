"""Proposals of ISRs on their way to the controller: all that wait go in one request, one request is in flight.

Pure state: time is an argument. Source: Kafka, AlterPartitionManager.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kafkaprod.broker.controller.events import AlterPartition, AlterPartitionAnswer, IsrProposal
from kafkaprod.broker.metadata.image import PartitionKey
from kafkaprod.broker.replication.partition import PartitionReplica
from kafkaprod.protocol.error_codes import ErrorCode

RETRY_MS: Final = 50
TIMEOUT_MS: Final = 2000


class IsrRequests:
    """See the module docstring."""

    def __init__(self, broker_id: int) -> None:
        self._broker_id = broker_id
        self._in_flight: AlterPartition | None = None
        self._lost_at_ms = 0
        self._not_before_ms = 0
        self._proposing: dict[PartitionKey, PartitionReplica] = {}

    def add(self, replica: PartitionReplica) -> None:
        """Note that a replica has a proposal."""
        self._proposing[replica.key] = replica

    def discard(self, key: PartitionKey) -> None:
        """Forget a replica that is no longer hosted."""
        self._proposing.pop(key, None)

    def next_request(self, broker_epoch: int, now_ms: int) -> AlterPartition | None:
        """Return the next request, None if one is in flight or there is no proposal."""
        if self._in_flight is not None and now_ms >= self._lost_at_ms:
            self.on_lost(now_ms)
        if self._in_flight is not None or now_ms < self._not_before_ms:
            return None
        proposals: list[IsrProposal] = []
        for key, replica in list(self._proposing.items()):
            if replica.proposal is None:
                del self._proposing[key]
            elif not replica.is_waiting_for_metadata:
                proposals.append(replica.proposal)
        if not proposals:
            return None
        self._in_flight = AlterPartition(self._broker_id, broker_epoch, tuple(proposals))
        self._lost_at_ms = now_ms + TIMEOUT_MS
        return self._in_flight

    def on_answer(
        self,
        request: AlterPartition,
        answer: AlterPartitionAnswer | ErrorCode,
        replica_of: Mapping[PartitionKey, PartitionReplica],
        now_ms: int,
    ) -> bool:
        """Take the controller's answer; return whether this broker must register again."""
        if request is not self._in_flight:
            return False
        self._in_flight = None
        if isinstance(answer, ErrorCode) or answer.error != ErrorCode.NONE:
            self._not_before_ms = now_ms + RETRY_MS
            return not isinstance(answer, ErrorCode) and answer.error == ErrorCode.STALE_BROKER_EPOCH
        proposals: dict[PartitionKey, IsrProposal] = {proposal.key: proposal for proposal in request.proposals}
        for outcome in answer.outcomes:
            replica = replica_of.get(outcome.key)
            if replica is not None and replica.on_isr_outcome(proposals[outcome.key], outcome):
                self._not_before_ms = now_ms + RETRY_MS
        return False

    def on_lost(self, now_ms: int) -> None:
        """The request or its answer was lost: the proposals stay, and are sent again."""
        self._in_flight = None
        self._not_before_ms = now_ms + RETRY_MS

    def next_deadline_ms(self) -> int:
        """Return when a waiting proposal may be sent, or when the one in flight counts as lost."""
        return self._not_before_ms if self._in_flight is None else self._lost_at_ms
