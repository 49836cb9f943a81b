"""The cluster as tests see it, and what they ask the controller for: plain values. Pure functions."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

from kafkaprod.broker.controller.context import TOPIC_RESOURCE
from kafkaprod.broker.controller.controller import Controller
from kafkaprod.broker.controller.events import BrokerGone, ControllerEvent, MoveLeader, RemoveBroker
from kafkaprod.broker.controller.partitions import ElectionType
from kafkaprod.broker.metadata.image import ClusterImage, PartitionKey
from kafkaprod.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from kafkaprod.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from kafkaprod.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from kafkaprod.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kafkaprod.protocol.schema import Request


def describe(controller: Controller) -> dict[str, Any]:
    """Return brokers, topics and partitions."""
    image = controller.context.image
    topics: dict[str, list[dict[str, Any]]] = {}
    for topic in image.topics.values():
        topics[topic.name] = [
            {
                "leader": partition.leader,
                "leader_epoch": partition.leader_epoch,
                "partition_epoch": partition.partition_epoch,
                "replicas": list(partition.replicas),
                "isr": list(partition.isr),
                "is_moving": bool(partition.adding or partition.removing),
            }
            for partition in image.partitions_of_topic(topic.topic_id)
        ]
    return {
        "controller_epoch": controller.epoch,
        "end_offset": image.end_offset,
        "brokers": {
            str(broker.broker_id): {
                "epoch": broker.epoch,
                "is_fenced": broker.is_fenced,
                "is_stopping": broker.in_controlled_shutdown,
                "rack": broker.rack,
                "incarnation_id": str(broker.incarnation_id),
                "applied": controller.context.applied.get(broker.broker_id, 0),
            }
            for broker in image.brokers.values()
        },
        "topics": topics,
    }


COMMANDS = ("gone", "create_topic", "move_leader", "reassign", "unregister", "elect", "alter_config")
"""What `asked_of` knows."""


def asked_of(image: ClusterImage, command: dict[str, Any], reply: Callable[[Any], None]) -> Request | ControllerEvent:
    """Return the request that a command stands for, or the event with its reply.

    Raises:
        ValueError: It is not known, or names a partition that does not exist.
    """
    match command["command"]:
        case "gone":
            return BrokerGone(command["broker_id"], uuid.UUID(command["incarnation_id"]), reply)
        case "create_topic":
            topic = CreatableTopic(
                name=command["name"],
                num_partitions=command["partitions"],
                replication_factor=command["replication_factor"],
                assignments=[
                    CreatableReplicaAssignment(partition_index=index, broker_ids=replicas)
                    for index, replicas in enumerate(command.get("assignment") or ())
                ],
                configs=[CreatableTopicConfig(name=name, value=value) for name, value in command["configs"].items()],
            )
            return CreateTopicsRequest(topics=[topic])
        case "move_leader":
            return MoveLeader(_key(image, command), command["to"], reply)
        case "reassign":
            partition = ReassignablePartition(partition_index=_key(image, command)[1], replicas=command["replicas"])
            topics = [ReassignableTopic(name=command["topic"], partitions=[partition])]
            return AlterPartitionReassignmentsRequest(topics=topics)
        case "unregister":
            return RemoveBroker(command["broker_id"], reply)
        case "elect":
            keys = list(image.partitions) if command.get("topic") is None else [_key(image, command)]
            wanted = [
                TopicPartitions(topic=image.topics[topic_id].name, partitions=[index]) for topic_id, index in keys
            ]
            return ElectLeadersRequest(election_type=ElectionType[command["kind"].upper()], topic_partitions=wanted)
        case "alter_config":
            option = AlterableConfig(
                name=command["name"], value=command["value"], config_operation=command["value"] is None
            )
            resource = AlterConfigsResource(
                resource_type=TOPIC_RESOURCE, resource_name=command["topic"], configs=[option]
            )
            return IncrementalAlterConfigsRequest(resources=[resource])
        case unknown:
            raise ValueError(f"unknown command {unknown!r}")


def outcome_of(answer: Any) -> tuple[int, str | None]:
    """Return the error code and the message of an answer: the first of its parts that has an error."""
    parts = [answer]
    for name in ("topics", "responses", "partitions", "replica_election_results", "partition_result"):
        parts += [item for part in parts for item in getattr(part, name, ())]
    failed = next((part for part in parts if getattr(part, "error_code", 0)), None)
    if failed is None:
        return int(answer) if isinstance(answer, int) else 0, None
    return int(failed.error_code), getattr(failed, "error_message", None)


def _key(image: ClusterImage, command: dict[str, Any]) -> PartitionKey:
    topic_id = image.topic_ids.get(command["topic"])
    key = None if topic_id is None else (topic_id, int(command["partition"]))
    if key is None or key not in image.partitions:
        raise ValueError(f"there is no partition {command['topic']}-{command['partition']}")
    return key
