"""Sees every acknowledgement and every read, and knows what must hold of all replicas at all times.

acknowledged   a record acknowledged with acks=all is in the log of every later clean leader, at its offset, once
read           what a consumer saw lies below the high watermark, and never changes
wake           a fetch waits only while it is too early to answer it
end            the end that consumers see does not go back, from leader to leader
one leader     one replica acts as leader in a leader epoch
log matching   logs agree below the smaller of two high watermarks
watermark      log start <= high watermark <= log end
image          each image is what the log adds up to, also of those that begin with a snapshot
ISR            the leader is in it, it is part of the replicas
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from kafkaprod.broker.calls.request import ClientRequest
from kafkaprod.broker.metadata.image import ClusterImage, PartitionKey
from kafkaprod.broker.replication.partition import PartitionReplica
from kafkaprod.protocol.messages.fetch import FetchRequest

if TYPE_CHECKING:
    from kafkaprod.broker.controller.controller import Controller
    from tests.simulation.logs import SimulatedLog
    from tests.simulation.nodes import BrokerNode, ControllerNode


IMAGE_PARTS = ("end_offset", "brokers", "topics", "topic_ids", "partitions", "configs", "features", "next_producer_id")


class ViolationError(AssertionError):
    """An invariant does not hold; the text begins with its name."""


class Checker:
    """See the module docstring.

    Attributes:
        acknowledged_count: Records acknowledged so far.
        lost_with_power: Records that a power cut took from the last in-sync replica; they may be gone.
    """

    def __init__(self, brokers: dict[int, BrokerNode], controller: ControllerNode) -> None:
        self._brokers = brokers
        self._controller = controller
        self._acknowledged: dict[PartitionKey, dict[int, int]] = defaultdict(dict)
        self._epochs: dict[tuple[PartitionKey, int], int] = {}
        self._reads: dict[PartitionKey, dict[int, int]] = defaultdict(dict)
        self._leaders: dict[tuple[PartitionKey, int], int] = {}
        self._ends: dict[PartitionKey, tuple[int, int]] = {}
        self.acknowledged_count = 0
        self.read_count = 0
        self._lost_by: dict[int, set[tuple[PartitionKey, int]]] = defaultdict(set)
        self.lost_with_power: set[tuple[PartitionKey, int]] = set()

    def acknowledged(self, key: PartitionKey, offset: int, value: int, epoch: int) -> None:
        """A producer was answered that its record is at an offset, by the leader of an epoch."""
        self.acknowledged_count += 1
        known = self._acknowledged[key].setdefault(offset, value)
        if known != value and (key, offset) not in self.lost_with_power:
            raise ViolationError(f"acknowledged: offset {offset} holds {known}, and {value} was acknowledged there")
        self._acknowledged[key][offset] = value
        self._epochs[key, offset] = epoch

    def read(self, key: PartitionKey, offset: int, value: int) -> None:
        """A consumer read a record."""
        self.read_count += 1
        known = self._reads[key].setdefault(offset, value)
        if known != value and (key, offset) not in self.lost_with_power:
            raise ViolationError(f"read: offset {offset} was {known}, now {value}")

    def fetched(self, key: PartitionKey, end_offset: int, high_watermark: int) -> None:
        """A leader gave a consumer records up to an offset, and its high watermark."""
        if end_offset > high_watermark:
            raise ViolationError(f"read: up to {end_offset} of {key[1]}, above the high watermark {high_watermark}")

    def found_end(self, key: PartitionKey, leader_epoch: int, end_offset: int) -> None:
        """A leader answered a consumer where a partition ends."""
        known_end, known_epoch = self._ends.get(key, (0, -1))
        is_lost = any((key, offset) in self.lost_with_power for offset in range(end_offset, known_end))
        if leader_epoch >= known_epoch and end_offset < known_end and not is_lost:
            raise ViolationError(f"end: {end_offset} in epoch {leader_epoch}, and {known_end} in epoch {known_epoch}")
        if leader_epoch >= known_epoch:
            self._ends[key] = (end_offset, leader_epoch)

    def leading(self, replica: PartitionReplica) -> None:
        """A replica begins to lead."""
        other = self._leaders.setdefault((replica.key, replica.leader_epoch), replica.broker_id)
        if other != replica.broker_id:
            raise ViolationError(f"one leader: {other} and {replica.broker_id} in epoch {replica.leader_epoch}")
        log = self._brokers[replica.broker_id].logs[replica.key]
        # What the last in-sync replica lost with the power is lost.
        lost = {(key, offset) for key, offset in self._lost_by[replica.broker_id] if key == replica.key}
        self.lost_with_power |= {(key, offset) for key, offset in lost if offset >= log.end_offset}
        for offset, value in self._acknowledged[replica.key].items():
            if self._epochs[replica.key, offset] >= replica.leader_epoch:
                continue  # a paused broker learns late that it led before
            place = (replica.key, offset)
            if log.value_at(offset) != value and place not in self.lost_with_power:
                raise ViolationError(
                    f"acknowledged: {value} at {offset} of {replica.key[1]} is {log.value_at(offset)} in the log of"
                    f" broker {replica.broker_id}, which leads in epoch {replica.leader_epoch}"
                )

    def power_cut(self, broker_id: int, held: dict[PartitionKey, int]) -> None:
        """A broker lost what it had not synced.

        Args:
            broker_id: The broker.
            held: Where its logs ended before.
        """
        for key, end_offset in held.items():
            lost = range(self._brokers[broker_id].logs[key].end_offset, end_offset)
            self._lost_by[broker_id] |= {(key, offset) for offset in lost}

    def registered(self, broker_id: int, image: ClusterImage) -> None:
        """A broker that did not stop cleanly has registered again: it may not be in sync beside others."""
        for partition in image.partitions_of(broker_id):
            if broker_id in partition.isr and len(partition.isr) > 1:
                raise ViolationError(f"registered: broker {broker_id} lost records and is still in sync: {partition}")

    def is_lost_sequence(self, key: PartitionKey, epoch: int) -> bool:
        """Return whether what a leader of an epoch refused as out of order is out of order for good.

        An old leader that does not know of its successor may refuse, too: then the producer tries again.
        """
        controller = self._controller.controller
        assert controller is not None
        if controller.context.image.partitions[key].leader_epoch != epoch:
            return False
        if not any(known == key for known, _ in self.lost_with_power):
            raise ViolationError(f"acknowledged: a producer's sequence has a gap in partition {key[1]}")
        return True

    def check_all(self) -> None:
        """Check what must hold of all replicas now."""
        controller = self._controller.controller
        assert controller is not None
        for partition in controller.context.image.partitions.values():
            if not set(partition.isr) <= set(partition.replicas) or not partition.isr:
                raise ViolationError(f"ISR: {partition}")
            if partition.leader not in (-1, *partition.isr):
                raise ViolationError(f"ISR: leader outside of it: {partition}")
            self._check_logs(partition.key)
        for broker_id, lost in self._lost_by.items():
            logs = self._brokers[broker_id].logs
            lost -= {(key, offset) for key, offset in lost if key in logs and offset < logs[key].end_offset}
        for broker in self._brokers.values():
            if not broker.process.is_up:
                continue
            if broker.follower.image.end_offset > controller.log.end_offset:
                raise ViolationError(f"image: broker {broker.broker_id} is ahead of the controller")
            for exchange in broker.handler_broker.exchanges:
                if not exchange.is_over and isinstance(exchange.request.body, FetchRequest):
                    self._check_waiting(broker, exchange.request)

    def _check_waiting(self, broker: BrokerNode, request: ClientRequest[Any]) -> None:
        """Check that a broker has less than a waiting fetch wants, and leads what it is about."""
        ready_bytes = 0
        for topic in request.body.topics:
            for wanted in topic.partitions:
                key = (topic.topic_id, wanted.partition)
                replica = broker.manager.replicas.get(key)
                if replica is None or not replica.is_leader:
                    raise ViolationError(f"wake: a fetch waits at broker {broker.broker_id}, which does not lead {key}")
                log = broker.logs[key]
                bound = log.last_stable_offset if request.body.isolation_level else log.high_watermark
                found = log.read(wanted.fetch_offset, wanted.partition_max_bytes, bound).records
                ready_bytes += 0 if found is None else found.length
        if ready_bytes >= request.body.min_bytes:
            raise ViolationError(
                f"wake: a fetch waits at broker {broker.broker_id} for {request.body.min_bytes} bytes, and there are"
                f" {ready_bytes}"
            )

    def _check_logs(self, key: PartitionKey) -> None:
        logs = [broker.logs[key] for broker in self._brokers.values() if key in broker.logs]
        for log in logs:
            if not log.log_start_offset <= log.high_watermark <= log.end_offset:
                raise ViolationError(f"watermark: {log.log_start_offset} {log.high_watermark} {log.end_offset}")
        for place, log in enumerate(logs):
            for other in logs[:place]:
                self._check_pair(key, log, other)

    def _check_pair(self, key: PartitionKey, log: SimulatedLog, other: SimulatedLog) -> None:
        below = min(log.high_watermark, other.high_watermark)
        if log.values[:below] == other.values[:below]:
            return
        for offset in range(below):
            values = log.value_at(offset), other.value_at(offset)
            if values[0] != values[1] and (key, offset) not in self.lost_with_power:
                raise ViolationError(f"log matching: offset {offset} is {values[0]} and {values[1]}")

    def is_at_rest(self) -> bool:
        """Return whether `check_end` has nothing more to wait for."""
        controller = self._controller.controller
        if controller is None or not self._controller.process.is_up:
            return False
        image = controller.context.image
        return all(broker.follower.image.end_offset == image.end_offset for broker in self._brokers.values()) and all(
            set(partition.isr) == set(partition.replicas)
            and not (partition.adding or partition.removing)
            and len({self._end_of(replica, partition.key) for replica in partition.replicas}) == 1
            for partition in image.partitions.values()
        )

    def _end_of(self, broker_id: int, key: PartitionKey) -> int:
        log = self._brokers[broker_id].logs.get(key)
        return -1 if log is None else log.end_offset

    def check_end(self) -> None:
        """Check what must hold once faults have ended and the cluster has come to rest."""
        controller = self._controller.controller
        assert controller is not None
        image = controller.context.image
        self._check_image("the controller", image)
        for partition in image.partitions.values():
            if set(partition.isr) != set(partition.replicas) or partition.adding or partition.removing:
                raise ViolationError(f"rest: not all replicas are in sync: {partition}")
            logs = [self._brokers[replica].logs[partition.key] for replica in partition.replicas]
            if any(log.values != logs[0].values for log in logs):
                raise ViolationError(f"rest: the logs of partition {partition.index} differ")
            self._check_values(partition.key, logs[0])
        for broker in self._brokers.values():
            if broker.follower.image.end_offset != image.end_offset:
                raise ViolationError(f"rest: broker {broker.broker_id} has not applied the whole metadata log")
            self._check_image(f"broker {broker.broker_id}", broker.follower.image)

    def started(self, controller: Controller) -> None:
        """A controller has started, from a snapshot perhaps."""
        self._check_image("the controller that starts", controller.context.image)

    def _check_image(self, whose: str, image: ClusterImage) -> None:
        """Check that an image is what the log adds up to at its offset, with or without a snapshot between."""
        replayed = ClusterImage()
        for batch in self._controller.batches:
            if batch.base_offset >= image.end_offset:
                break
            for delta, record in enumerate(batch.records):
                replayed.apply(batch.base_offset + delta, record)
        for name in IMAGE_PARTS:
            if getattr(replayed, name) != getattr(image, name):
                raise ViolationError(f"image: {name} of {whose} are not what the log adds up to at {image.end_offset}")

    def _check_values(self, key: PartitionKey, log: SimulatedLog) -> None:
        for offset, value in self._acknowledged[key].items():
            if log.value_at(offset) != value and (key, offset) not in self.lost_with_power:
                raise ViolationError(f"acknowledged: {value} at {offset} is {log.value_at(offset)} at the end")
        seen: set[int] = set()
        for batch in log.batches:
            for value in batch.values:
                if batch.sequence >= 0 and value in seen:
                    raise ViolationError(f"acknowledged: {value} is in the log twice")
                seen.add(value)
