"""What tests do to the topics of an embedded cluster, through its controller."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from kafkaprod.broker.embedding import arguments
from kafkaprod.broker.embedding.cluster_processes import ask_controller
from kafkaprod.broker.embedding.cluster_state import ClusterState
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.structs import INT32_MAX


class ClusterTopics:
    """Makes topics, and moves partitions and leaders. `EmbeddedCluster` describes the arguments."""

    def __init__(self, state: ClusterState, replication_factor: int) -> None:
        self._state = state
        self._factor = replication_factor

    def create(
        self,
        name: str,
        partitions: int = 1,
        *,
        replication_factor: int | None = None,
        assignment: Sequence[Sequence[int]] | None = None,
        configs: Mapping[str, str | int | bool] | None = None,
    ) -> None:
        """Make a topic, and wait until its partitions have leaders that know it."""
        arguments.text("name", name)
        arguments.whole("partitions", partitions, 1, INT32_MAX)
        if replication_factor is not None:
            arguments.whole("replication_factor", replication_factor, 1, len(self._state.brokers))
        if assignment is not None:
            example = "[[1, 2], [2, 3]]"
            for members in arguments.elements("assignment", assignment, example):
                for member in arguments.elements("assignment", members, example):
                    self._state.broker(member)
        ask_controller(
            self._state.controller,
            {
                "command": "create_topic",
                "name": name,
                "partitions": partitions,
                "replication_factor": replication_factor or self._factor,
                "assignment": None if assignment is None else [list(members) for members in assignment],
                "configs": arguments.options(configs or {}, {}, "configs"),
            },
        )
        self._state.wait_until_applied()

    def move_leader(self, topic: str, partition: int, to: int) -> None:
        """Make another in-sync replica leader."""
        self._state.broker(to)
        ask_controller(
            self._state.controller, {"command": "move_leader", "topic": topic, "partition": partition, "to": to}
        )

    def reassign(self, topic: str, partition: int, replicas: Sequence[int] | None) -> None:
        """Move a partition to other brokers; `wait_until_in_sync` waits for it. None cancels what is in progress."""
        wanted = None if replicas is None else arguments.elements("replicas", replicas, "[1, 2]")
        ask_controller(
            self._state.controller, {"command": "reassign", "topic": topic, "partition": partition, "replicas": wanted}
        )

    def elect(
        self, kind: Literal["preferred", "unclean"] = "preferred", topic: str | None = None, partition: int = 0
    ) -> None:
        """Elect the preferred leaders, or any leader for partitions without one."""
        arguments.choice("kind", kind, ("preferred", "unclean"))
        ask_controller(
            self._state.controller,
            {"command": "elect", "kind": kind, "topic": topic, "partition": partition},
            ignores=(ErrorCode.ELECTION_NOT_NEEDED,),
        )
