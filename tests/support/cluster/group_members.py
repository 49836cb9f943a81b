"""Consumers of a group that count what the group does to them: confluent-kafka and kafka-python."""

from __future__ import annotations

import time
from typing import Any, Protocol

from confluent_kafka import Consumer
from kafka import ConsumerRebalanceListener, KafkaConsumer

PATIENCE_S = 60.0
_HEARTBEAT_MS = 200


class GroupMember(Protocol):
    """A consumer of one topic.

    Attributes:
        assigned_count: How often it was given partitions.
        revoked_count: How often it had to give partitions up.
    """

    assigned_count: int
    revoked_count: int

    def read(self, count: int) -> list[bytes]:
        """Return the next values; commit behind them."""

    def close(self) -> None:
        """Leave the group."""


class ConfluentMember:
    """See `GroupMember`."""

    def __init__(self, bootstrap_servers: str, group_id: str, topic: str) -> None:
        self.assigned_count = self.revoked_count = 0
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": group_id,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "heartbeat.interval.ms": _HEARTBEAT_MS,
                "reconnect.backoff.max.ms": 500,
            }
        )
        self._consumer.subscribe([topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked)

    def read(self, count: int) -> list[bytes]:
        """See `GroupMember`."""
        values: list[bytes] = []
        deadline = time.monotonic() + PATIENCE_S
        while len(values) < count:
            assert time.monotonic() < deadline, values
            message = self._consumer.poll(0.1)
            if message is not None and message.error() is None:
                values.append(message.value() or b"")
        self._consumer.commit(asynchronous=False)
        return values

    def close(self) -> None:
        """See `GroupMember`."""
        self._consumer.close()

    def _assigned(self, *_: Any) -> None:
        self.assigned_count += 1

    def _revoked(self, *_: Any) -> None:
        self.revoked_count += 1


class KafkaPythonMember(ConsumerRebalanceListener):  # type: ignore[misc]  # kafka-python has no types
    """See `GroupMember`."""

    def __init__(self, bootstrap_servers: str, group_id: str, topic: str) -> None:
        self.assigned_count = self.revoked_count = 0
        self._consumer = KafkaConsumer(
            bootstrap_servers=bootstrap_servers.split(","),
            group_id=group_id,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=_HEARTBEAT_MS,
        )
        self._consumer.subscribe([topic], listener=self)

    def read(self, count: int) -> list[bytes]:
        """See `GroupMember`."""
        values: list[bytes] = []
        deadline = time.monotonic() + PATIENCE_S
        while len(values) < count:
            assert time.monotonic() < deadline, values
            # kafka-python 3.0.12 never finishes a join that outlasts a poll: on a busy machine 100 ms are too short.
            for records in self._consumer.poll(5_000).values():
                values += [record.value for record in records]
        self._consumer.commit()
        return values

    def close(self) -> None:
        """See `GroupMember`."""
        self._consumer.close(autocommit=False)

    def on_partitions_assigned(self, assigned: Any) -> None:
        """Count; called by the consumer."""
        self.assigned_count += 1

    def on_partitions_revoked(self, revoked: Any) -> None:
        """Count; called by the consumer, before its first join without any."""
        self.revoked_count += bool(revoked)


MEMBERS: dict[str, type[ConfluentMember] | type[KafkaPythonMember]] = {
    "confluent-kafka": ConfluentMember,
    "kafka-python": KafkaPythonMember,
}
