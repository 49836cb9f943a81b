"""The state of an embedded cluster at one moment, as its controller sees it. A value."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


class ClusterView:
    """See the module docstring."""

    def __init__(self, described: dict[str, Any]) -> None:
        self._described = described

    def __str__(self) -> str:
        lines = [f"controller epoch {self._described['controller_epoch']}, metadata to offset {self.end_offset}"]
        lines += [f"broker {broker_id}: {broker}" for broker_id, broker in self._described["brokers"].items()]
        lines += [
            f"{topic}-{index}: {partition}"
            for topic, partitions in self._described["topics"].items()
            for index, partition in enumerate(partitions)
        ]
        return "\n".join(lines)

    @property
    def end_offset(self) -> int:
        """Where the metadata log ends."""
        return int(self._described["end_offset"])

    @property
    def controller_epoch(self) -> int:
        """How often the controller has started."""
        return int(self._described["controller_epoch"])

    @property
    def topics(self) -> dict[str, int]:
        """The topics and their partition counts."""
        return {name: len(partitions) for name, partitions in self._described["topics"].items()}

    @property
    def active_brokers(self) -> list[int]:
        """The brokers that may lead: registered, not fenced, not stopping."""
        return sorted(
            int(broker_id)
            for broker_id, broker in self._described["brokers"].items()
            if not broker["is_fenced"] and not broker["is_stopping"]
        )

    @property
    def is_in_sync(self) -> bool:
        """Whether every partition has a leader, all its replicas are in sync, and none is on its way elsewhere."""
        return all(
            partition["leader"] >= 0
            and len(partition["isr"]) == len(partition["replicas"])
            and not partition["is_moving"]
            for partition in self._partitions()
        )

    def applied(self, broker_id: int) -> int:
        """The metadata offset that a broker has reported, 0 before its first heartbeat."""
        return int(self._described["brokers"].get(str(broker_id), {}).get("applied", 0))

    def leader(self, topic: str, partition: int) -> int | None:
        """The id of a partition's leader, None without one, or without the partition."""
        found = self._partition(topic, partition)
        return None if found is None or found["leader"] < 0 else int(found["leader"])

    def leader_epoch(self, topic: str, partition: int) -> int:
        """A partition's leader epoch, -1 without the partition."""
        found = self._partition(topic, partition)
        return -1 if found is None else int(found["leader_epoch"])

    def isr(self, topic: str, partition: int) -> list[int]:
        """A partition's in-sync replicas, none without the partition."""
        found = self._partition(topic, partition)
        return [] if found is None else list(found["isr"])

    def replicas(self, topic: str, partition: int) -> list[int]:
        """A partition's replicas, the preferred leader first; none without the partition."""
        found = self._partition(topic, partition)
        return [] if found is None else list(found["replicas"])

    def _partition(self, topic: str, partition: int) -> dict[str, Any] | None:
        partitions = self._described["topics"].get(topic, [])
        return partitions[partition] if 0 <= partition < len(partitions) else None

    def _partitions(self) -> Iterator[dict[str, Any]]:
        for partitions in self._described["topics"].values():
            yield from partitions
