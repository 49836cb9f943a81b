"""What the controller knows: the image, and what is not in the log (sessions, shutdowns in progress).

Pure state: belongs to the controller's turn.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Final

from kafkaprod.broker.metadata.image import BrokerImage, ClusterImage, PartitionImage
from kafkaprod.broker.metadata.records import NO_LEADER
from kafkaprod.broker.metadata.tokens import TokenConfig
from kafkaprod.protocol.error_codes import ErrorCode

TOPIC_RESOURCE: Final = 2
BROKER_RESOURCE: Final = 4
UNCLEAN_OPTION: Final = "unclean.leader.election.enable"
MIN_ISR_OPTION: Final = "min.insync.replicas"
CONTROLLER_ID: Final = 3000
"""As clients see a controller that is no broker; brokers count from 1."""


class ChangeRefusedError(Exception):
    """A change is refused, with an error for its result."""

    def __init__(self, error: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.error = error


@dataclass(slots=True)
class ControllerContext:
    """See the module docstring.

    Attributes:
        image: The cluster as the log describes it.
        sessions: When each registered broker's session ends, by broker id.
        applied: The offset below which each broker has applied the log, by broker id.
        shutdown_offsets: The log's end when a broker's controlled shutdown began, kept once (KAFKA-14292).
        generator: The random source for placement and for ids of tokens.
        tokens: Options of delegation tokens.
        least_producer_id: No producer id below it is given out.
        voter_id: The node that is the quorum.
        requester: Who has sent the request that is handled, if it came in an envelope.
        wall_offset_ms: What the wall clock is ahead of the times that events have.
    """

    cluster_id: str
    session_timeout_ms: int
    default_configs: dict[str, str]
    generator: random.Random
    tokens: TokenConfig = field(default_factory=TokenConfig)
    least_producer_id: int = 0
    voter_id: int = CONTROLLER_ID
    requester: str = ""
    wall_offset_ms: int = 0
    image: ClusterImage = field(default_factory=ClusterImage)
    sessions: dict[int, int] = field(default_factory=dict)
    applied: dict[int, int] = field(default_factory=dict)
    shutdown_offsets: dict[int, int] = field(default_factory=dict)

    def wall_ms(self, now_ms: int) -> int:
        """Return a time as milliseconds since 1970."""
        return now_ms + self.wall_offset_ms

    def broker_error(self, broker_id: int, broker_epoch: int) -> ErrorCode:
        """Return BROKER_ID_NOT_REGISTERED for an unknown broker, STALE_BROKER_EPOCH for another registration of it."""
        broker = self.image.brokers.get(broker_id)
        if broker is None:
            return ErrorCode.BROKER_ID_NOT_REGISTERED
        return ErrorCode.NONE if broker.epoch == broker_epoch else ErrorCode.STALE_BROKER_EPOCH

    def is_alive(self, broker: BrokerImage, now_ms: int) -> bool:
        """Whether a broker's session has not ended."""
        return self.sessions.get(broker.broker_id, -1) > now_ms

    def option(self, topic_name: str, name: str) -> str:
        """Return a topic's option, or its default."""
        topic = self.image.configs.get((TOPIC_RESOURCE, topic_name), {})
        cluster = self.image.configs.get((BROKER_RESOURCE, ""), {})
        return topic.get(name) or cluster.get(name) or self.default_configs[name]

    def may_be_unclean(self, partition: PartitionImage) -> bool:
        """Whether a replica outside of the ISR may lead."""
        return self.option(self.image.topics[partition.topic_id].name, UNCLEAN_OPTION) == "true"

    def leaderless(self) -> list[PartitionImage]:
        """Return the partitions without a leader."""
        return [partition for partition in self.image.partitions.values() if partition.leader == NO_LEADER]
