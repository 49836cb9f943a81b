"""A controller without a process: events in, answers out."""

from __future__ import annotations

import uuid
from typing import Any

from kafkaprod.broker.controller.controller import Controller
from kafkaprod.broker.controller.events import (
    AlterPartition,
    CreateTopic,
    Heartbeat,
    IsrMember,
    IsrProposal,
    RegisterBroker,
)
from kafkaprod.broker.controller.requests import FORWARDED_VERSIONS, on_request
from kafkaprod.broker.metadata.image import PartitionImage, RecoveryState
from kafkaprod.protocol.error_codes import ErrorCode as E
from kafkaprod.protocol.schema import Request


class Rig:
    """A controller with three active brokers and a topic of one partition on all of them."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.controller = Controller("c", session_timeout_ms=100, seed=1, now_ms=0)
        self.epochs = {broker_id: self.register(broker_id).broker_epoch for broker_id in (1, 2, 3)}
        for broker_id in self.epochs:
            assert not self.beat(broker_id).is_fenced
        assert self.ask(CreateTopic, name="t", assignment=((1, 2, 3),)).error == E.NONE

    def ask(self, event_class: Any, **fields: Any) -> Any:
        answers: list[Any] = []
        self.controller.queue.put(event_class(**fields, reply=answers.append), self.now_ms)
        while self.controller.turn(self.now_ms):
            pass
        return answers[0]

    def request(self, request: Request) -> Any:
        """The response to a request, as brokers send and get them: over the wire."""
        answers: list[Any] = []
        version = FORWARDED_VERSIONS[request.api]
        arrived = type(request).decode(request.encode(version), version)
        on_request(self.controller, arrived, self.now_ms, answers.append)
        while self.controller.turn(self.now_ms):
            pass
        return type(answers[0]).decode(answers[0].encode(version), version)

    def register(self, broker_id: int, incarnation: int = 0, **fields: Any) -> Any:
        identity = uuid.UUID(int=broker_id * 100 + incarnation)
        return self.ask(RegisterBroker, broker_id=broker_id, incarnation_id=identity, cluster_id="c", **fields)

    def beat(self, broker_id: int, *, wants_shutdown: bool = False) -> Any:
        return self.ask(
            Heartbeat,
            broker_id=broker_id,
            broker_epoch=self.controller.context.image.brokers[broker_id].epoch,
            metadata_offset=self.controller.log.end_offset,
            wants_fence=False,
            wants_shutdown=wants_shutdown,
            arrived_ms=self.now_ms,
        )

    @property
    def partition(self) -> PartitionImage:
        (found,) = self.controller.context.image.partitions.values()
        return found

    def propose(self, *members: int, broker_id: int = 1, **changes: Any) -> Any:
        partition = self.partition
        fields: dict[str, Any] = {
            "key": partition.key,
            "leader_epoch": partition.leader_epoch,
            "partition_epoch": partition.partition_epoch,
            "members": tuple(IsrMember(member, -1) for member in members),
            "recovery_state": RecoveryState.RECOVERED,
        }
        proposal = IsrProposal(**(fields | changes))
        answer = self.ask(
            AlterPartition, broker_id=broker_id, broker_epoch=self.epochs[broker_id], proposals=(proposal,)
        )
        return answer.error if answer.error else answer.outcomes[0].error
