"""A client of the consumer protocol for tests of groups: it revokes before it takes, as KIP-848 wants."""

from __future__ import annotations

import uuid
from collections.abc import Mapping

from kafkaprod.broker.coordinator.consumer_group import ConsumerGroup, HeartbeatResult
from kafkaprod.broker.coordinator.consumer_member import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    NOTHING,
    STATIC_LEAVE_EPOCH,
    Assignment,
    ConsumerHeartbeat,
    TopicIdPartition,
)
from kafkaprod.broker.coordinator.regex_subscriptions import SubscribableTopic, Topics

REBALANCE_MS = 30_000


def topic_id(name: str) -> uuid.UUID:
    return uuid.uuid5(uuid.NAMESPACE_DNS, name)


def topics(counts: Mapping[str, int]) -> Topics:
    return {name: SubscribableTopic(topic_id(name), count) for name, count in counts.items()}


def partitions(name: str, *indexes: int) -> Assignment:
    return frozenset(TopicIdPartition(topic_id(name), index) for index in indexes)


class Client:
    """One member.

    Attributes:
        owned: what it uses.
        revoking: it must give this up, and still uses it.
    """

    def __init__(
        self, member_id: str, names: set[str], instance_id: str | None = None, regex: str | None = None
    ) -> None:
        self.member_id = member_id
        self.names = frozenset(names)
        self.instance_id = instance_id
        self.regex = regex
        self.epoch = JOIN_EPOCH
        self.owned: Assignment = NOTHING
        self.revoking: Assignment = NOTHING
        self._next: Assignment = NOTHING

    def beat(self, group: ConsumerGroup, topics: Topics, now_ms: int = 0, **change: object) -> HeartbeatResult:
        """Send a full heartbeat, and note what is to be given up; `finish_revocation` does so."""
        result = group.heartbeat(self.request()._replace(**change), topics, now_ms)  # type: ignore[arg-type]
        self.epoch = result.member_epoch
        assert result.assignment is not None
        self._next = result.assignment
        self.revoking = self.owned - self._next
        if not self.revoking:
            self.owned = self._next
        return result

    def finish_revocation(self) -> None:
        """Give up what is to be given up, and take what is new."""
        self.owned, self.revoking = self._next, NOTHING

    def request(self) -> ConsumerHeartbeat:
        """The whole state."""
        return ConsumerHeartbeat(
            "g",
            self.member_id,
            self.epoch,
            "client",
            "/127.0.0.1",
            self.instance_id,
            None,
            REBALANCE_MS,
            self.names,
            self.regex,
            None,
            self.owned,
        )

    def begin_again(self) -> None:
        """Abandon everything, as after 110."""
        self.epoch, self.owned, self.revoking, self._next = JOIN_EPOCH, NOTHING, NOTHING, NOTHING

    def leave(self, group: ConsumerGroup, *, for_restart: bool = False) -> HeartbeatResult:
        """Leave the group."""
        epoch = STATIC_LEAVE_EPOCH if for_restart else LEAVE_EPOCH
        result = group.leave(ConsumerHeartbeat("g", self.member_id, epoch, instance_id=self.instance_id))
        self.begin_again()
        return result
