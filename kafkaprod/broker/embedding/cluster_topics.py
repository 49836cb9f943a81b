"""What tests do to the topics of an embedded cluster, through its controller."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from kafkaprod.broker.embedding import arguments
from kafkaprod.broker.embedding.child_process import EmbeddedBrokerError
from kafkaprod.broker.embedding.cluster_processes import ClusterBroker, ClusterProcess
from kafkaprod.broker.embedding.cluster_view import ClusterView
from kafkaprod.structs import INT32_MAX


class TopicControls:
    """The part of `EmbeddedCluster` that makes topics, and moves partitions and leaders."""

    brokers: list[ClusterBroker]
    controller: ClusterProcess
    _factor: int

    @abstractmethod
    def broker(self, broker_id: int) -> ClusterBroker:
        """Return a broker by id."""

    @abstractmethod
    def wait_until_applied(self, timeout_s: float = 30.0) -> ClusterView:
        """Wait until all running brokers have applied the metadata as it is now."""

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        *,
        replication_factor: int | None = None,
        assignment: Sequence[Sequence[int]] | None = None,
        configs: Mapping[str, str | int | bool] | None = None,
    ) -> None:
        """Make a topic, and wait until its partitions have leaders that know it.

        Args:
            name: The name of the topic.
            partitions: How many, unless `assignment` says.
            replication_factor: None for the cluster's.
            assignment: The brokers of each partition, its preferred leader first.
            configs: Its options under Kafka's names.

        Raises:
            ConfigError: An argument has a wrong type or value.
            EmbeddedBrokerError: The controller refused.
        """
        arguments.text("name", name)
        arguments.whole("partitions", partitions, 1, INT32_MAX)
        if replication_factor is not None:
            arguments.whole("replication_factor", replication_factor, 1, len(self.brokers))
        if assignment is not None:
            example = "[[1, 2], [2, 3]]"
            for members in arguments.elements("assignment", assignment, example):
                for member in arguments.elements("assignment", members, example):
                    self.broker(member)
        self._ask_controller(
            {
                "command": "create_topic",
                "name": name,
                "partitions": partitions,
                "replication_factor": replication_factor or self._factor,
                "assignment": None if assignment is None else [list(members) for members in assignment],
                "configs": arguments.options(configs or {}, {}, "configs"),
            }
        )
        self.wait_until_applied()

    def move_leader(self, topic: str, partition: int, to: int) -> None:
        """Make another in-sync replica leader.

        Raises:
            ValueError: There is no such broker.
            EmbeddedBrokerError: It is not in sync, or not active, or there is no such partition.
        """
        self.broker(to)
        self._ask_controller({"command": "move_leader", "topic": topic, "partition": partition, "to": to})

    def reassign(self, topic: str, partition: int, replicas: Sequence[int] | None) -> None:
        """Move a partition to other brokers; `wait_until_in_sync` waits for it. None cancels what is in progress.

        Raises:
            EmbeddedBrokerError: The controller refused.
        """
        wanted = None if replicas is None else arguments.elements("replicas", replicas, "[1, 2]")
        self._ask_controller({"command": "reassign", "topic": topic, "partition": partition, "replicas": wanted})

    def elect(
        self, kind: Literal["preferred", "unclean"] = "preferred", topic: str | None = None, partition: int = 0
    ) -> None:
        """Elect the preferred leaders, or any leader for partitions without one; of all partitions without `topic`.

        Raises:
            ConfigError: `kind` is another word.
            EmbeddedBrokerError: There is no such partition, or it cannot have a leader.
        """
        arguments.choice("kind", kind, ("preferred", "unclean"))
        self._ask_controller({"command": "elect", "kind": kind, "topic": topic, "partition": partition}, ignores=(84,))

    def _ask_controller(self, command: Mapping[str, Any], ignores: Sequence[int] = ()) -> None:
        answer = self.controller.tell(command)
        if answer["code"] not in (0, *ignores):
            raise EmbeddedBrokerError(
                f"the controller answered {answer['code']} to {command['command']}: {answer['message']}"
            )
