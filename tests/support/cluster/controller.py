"""A controller without a process: events in, answers out."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from kafkaprod.broker.controller.controller import Controller
from kafkaprod.broker.controller.requests import FORWARDED_VERSIONS, on_request
from kafkaprod.broker.metadata.features import SUPPORTED
from kafkaprod.broker.metadata.image import PartitionImage
from kafkaprod.protocol.error_codes import ErrorCode as E
from kafkaprod.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    BrokerState,
    PartitionProposal,
    TopicProposals,
)
from kafkaprod.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from kafkaprod.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from kafkaprod.protocol.messages.broker_registration import BrokerRegistrationRequest, Feature
from kafkaprod.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from kafkaprod.protocol.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from kafkaprod.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kafkaprod.protocol.schema import Request


class Rig:
    """A controller with three active brokers and a topic of one partition on all of them."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.controller = Controller("c", session_timeout_ms=100, seed=1, now_ms=0)
        self.epochs = {broker_id: self.register(broker_id).broker_epoch for broker_id in (1, 2, 3)}
        for broker_id in self.epochs:
            assert not self.beat(broker_id).is_fenced
        assert self.create("t", (1, 2, 3)).error_code == E.NONE

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

    def register(
        self,
        broker_id: int,
        incarnation: int | None = 0,
        features: Mapping[str, tuple[int, int]] = SUPPORTED,
        **fields: Any,
    ) -> Any:
        request = BrokerRegistrationRequest(
            broker_id=broker_id,
            incarnation_id=None if incarnation is None else uuid.UUID(int=broker_id * 100 + incarnation),
            features=[
                Feature(name=name, min_supported_version=lowest, max_supported_version=highest)
                for name, (lowest, highest) in features.items()
            ],
            **({"cluster_id": "c"} | fields),
        )
        return self.request(request)

    def create(self, name: str, *replicas: tuple[int, ...], validate_only: bool = False, **fields: Any) -> Any:
        """The result of a topic's creation, with the replicas of each partition, or the counts among the fields."""
        assignments = [
            CreatableReplicaAssignment(partition_index=index, broker_ids=list(each))
            for index, each in enumerate(replicas)
        ]
        topic = CreatableTopic(name=name, assignments=assignments, **fields)
        return self.request(CreateTopicsRequest(topics=[topic], validate_only=validate_only)).topics[0]

    def grow(self, name: str, count: int, *replicas: tuple[int, ...], validate_only: bool = False) -> Any:
        """The result of more partitions, with the replicas of each new one."""
        assignments = [CreatePartitionsAssignment(broker_ids=list(each)) for each in replicas] or None
        topic = CreatePartitionsTopic(name=name, count=count, assignments=assignments)
        return self.request(CreatePartitionsRequest(topics=[topic], validate_only=validate_only)).results[0]

    def delete(self, name: str) -> Any:
        return self.request(DeleteTopicsRequest(topics=[DeleteTopicState(name=name)])).responses[0]

    def reassign(self, name: str, index: int, replicas: Sequence[int] | None) -> Any:
        partition = ReassignablePartition(partition_index=index, replicas=None if replicas is None else list(replicas))
        topics = [ReassignableTopic(name=name, partitions=[partition])]
        return self.request(AlterPartitionReassignmentsRequest(topics=topics)).responses[0].partitions[0]

    def beat(self, broker_id: int, **fields: Any) -> Any:
        return self.request(
            BrokerHeartbeatRequest(
                broker_id=broker_id,
                broker_epoch=self.controller.context.image.brokers[broker_id].epoch,
                current_metadata_offset=self.controller.log.end_offset,
                **fields,
            )
        )

    @property
    def partition(self) -> PartitionImage:
        (found,) = self.controller.context.image.partitions.values()
        return found

    def answer_to(
        self, *members: int, broker_id: int = 1, topic_id: uuid.UUID | None = None, epochs: Any = (), **changes: Any
    ) -> Any:
        """The response to a proposal; `epochs` are those of the members that are not -1."""
        partition = self.partition
        fields: dict[str, Any] = {
            "partition_index": partition.index,
            "leader_epoch": partition.leader_epoch,
            "partition_epoch": partition.partition_epoch,
            "new_isr_with_epochs": [
                BrokerState(broker_id=member, broker_epoch=dict(epochs).get(member, -1)) for member in members
            ],
        }
        topic = TopicProposals(
            topic_id=topic_id or partition.topic_id, partitions=[PartitionProposal(**(fields | changes))]
        )
        return self.request(
            AlterPartitionRequest(broker_id=broker_id, broker_epoch=self.epochs[broker_id], topics=[topic])
        )

    def propose(self, *members: int, **changes: Any) -> Any:
        """The error of a proposal."""
        answer = self.answer_to(*members, **changes)
        return answer.error_code or answer.topics[0].partitions[0].error_code
