"""The cluster as tests see it, and what they ask the controller for: plain values. Pure functions."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

from kafkaprod.broker.controller.context import TOPIC_RESOURCE
from kafkaprod.broker.controller.controller import Controller
from kafkaprod.broker.controller.events import (
    AlterConfig,
    BrokerGone,
    ControllerEvent,
    CreateTopic,
    ElectionType,
    ElectLeaders,
    MoveLeader,
    Reassign,
    UnregisterBroker,
)
from kafkaprod.broker.metadata.image import ClusterImage, PartitionKey


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


EVENT_COMMANDS = ("gone", "create_topic", "move_leader", "reassign", "unregister", "elect", "alter_config")
"""What `event_of` knows."""


def event_of(image: ClusterImage, command: dict[str, Any], reply: Callable[[Any], None]) -> ControllerEvent:
    """Return the event of a command.

    Raises:
        ValueError: It is not known, or names a partition that does not exist.
    """
    match command["command"]:
        case "gone":
            return BrokerGone(command["broker_id"], uuid.UUID(command["incarnation_id"]), reply)
        case "create_topic":
            assignment = command.get("assignment")
            return CreateTopic(
                command["name"],
                command["partitions"],
                command["replication_factor"],
                None if assignment is None else tuple(map(tuple, assignment)),
                command["configs"],
                reply=reply,
            )
        case "move_leader":
            return MoveLeader(_key(image, command), command["to"], reply)
        case "reassign":
            replicas = command["replicas"]
            return Reassign(_key(image, command), None if replicas is None else tuple(replicas), reply)
        case "unregister":
            return UnregisterBroker(command["broker_id"], reply=reply)
        case "elect":
            keys = None if command.get("topic") is None else (_key(image, command),)
            return ElectLeaders(ElectionType[command["kind"].upper()], keys, reply)
        case "alter_config":
            return AlterConfig(TOPIC_RESOURCE, command["topic"], command["name"], command["value"], reply)
        case unknown:
            raise ValueError(f"unknown command {unknown!r}")


def _key(image: ClusterImage, command: dict[str, Any]) -> PartitionKey:
    topic_id = image.topic_ids.get(command["topic"])
    key = None if topic_id is None else (topic_id, int(command["partition"]))
    if key is None or key not in image.partitions:
        raise ValueError(f"there is no partition {command['topic']}-{command['partition']}")
    return key
