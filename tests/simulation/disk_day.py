"""Simulated clusters whose brokers have several log directories: disks fail and are repaired, replicas move.

The product's controller, replicas and `ReplicaDirectories` decide; this module stands for `LogDirs` and for the disks.
A log is on the disk that `SimulatedDisks.places` names. A disk that is broken when a process starts is not opened: what
is on it is not known to that process, and a replica that is made elsewhere hides the old one until the disk is back.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, cast

from kafkaprod.broker.cluster.replica_directories import ReplicaDirectories
from kafkaprod.broker.metadata.image import PartitionKey
from kafkaprod.broker.replication.lifecycle import BrokerState
from kafkaprod.broker.replication.partition_replica_log import PartitionReplicaLog
from kafkaprod.broker.storage.errors import LogDirectoryFailedError
from kafkaprod.structs import TopicPartition
from tests.simulation.logs import SimulatedLog
from tests.simulation.nodes import BrokerNode
from tests.simulation.run import Simulation
from tests.simulation.serving import HandlerBroker, SimulatedTopics

DISKS = 3


@dataclass(frozen=True, slots=True)
class SimulatedMove:
    """A replica that moves to another disk."""

    key: PartitionKey
    topic_partition: TopicPartition
    target: uuid.UUID


class SimulatedMoves:
    """The moves of a broker; copies survive its process."""

    def __init__(self) -> None:
        self.by_partition: dict[TopicPartition, SimulatedMove] = {}
        self.may_complete: Callable[[TopicPartition, uuid.UUID], bool] = lambda _, __: True
        self.on_given_up: Callable[[TopicPartition], None] = lambda _: None

    def cancel(self, topic_partition: TopicPartition) -> None:
        """Give a move up."""
        if self.by_partition.pop(topic_partition, None) is not None:
            self.on_given_up(topic_partition)


class SimulatedDisks:
    """The log directories of a broker, in place of `LogDirs`; they survive its process.

    Attributes:
        places: On which disk each log is.
        hidden: Logs on broken disks whose replica was made again elsewhere.
        broken: Disks that fail now; the first one does not.
        opened: What the running process could open.
    """

    def __init__(self, broker_id: int) -> None:
        self.ids = tuple(uuid.UUID(int=100 * broker_id + number) for number in range(DISKS))
        self.paths = [str(each) for each in self.ids]
        self.places: dict[PartitionKey, uuid.UUID] = {}
        self.hidden: dict[PartitionKey, tuple[uuid.UUID, SimulatedLog]] = {}
        self.broken: set[uuid.UUID] = set()
        self.opened: tuple[uuid.UUID, ...] = self.ids
        self.moves = SimulatedMoves()

    @property
    def online_ids(self) -> tuple[uuid.UUID, ...]:
        """See `LogDirs`."""
        return tuple(each for each in self.opened if each not in self.broken)

    @property
    def failed_ids(self) -> tuple[uuid.UUID, ...]:
        """See `LogDirs`."""
        return tuple(each for each in self.opened if each in self.broken)

    @property
    def has_offline(self) -> bool:
        """Whether one of them cannot be used."""
        return len(self.online_ids) < len(self.ids)


def _wholeness(log: SimulatedLog) -> tuple[int, int]:
    """As `LogDirs` has it."""
    return log.epochs.latest_epoch, log.end_offset


class DiskTopics(SimulatedTopics):
    """The table of topics; opens logs as `LogDirs.create_replica` does."""

    _node: DiskNode

    def open_log(self, key: PartitionKey) -> PartitionReplicaLog:
        """Open or make a replica's log, on the disk that the metadata names.

        Raises:
            LogDirectoryFailedError: It is on a disk that is broken, or may be.
        """
        disks = self._node.disks
        place = disks.places.get(key)
        if place not in disks.online_ids:
            known = self.image.partitions[key].directory_of(self._node.broker_id)
            is_old = self.had_log(key, self._node.broker_id) and disks.has_offline
            if place in disks.opened or is_old or not self._node.may_make(key, known):
                self._unopened.add(key)
                raise LogDirectoryFailedError(f"{key} may be on a broken disk")
            if place is not None:
                disks.hidden[key] = (place, self._node.logs.pop(key))
            disks.places[key] = known if known in disks.online_ids else disks.online_ids[0]
        return super().open_log(key)

    def drop_log(self, key: PartitionKey) -> None:
        """Delete a replica's log; on a broken disk it stays."""
        self._unopened.discard(key)
        opened = self._open.get(key)
        if opened is not None:
            self._node.disks.moves.cancel(opened[0])
            super().drop_log(key)
            self._node.disks.places.pop(key, None)

    def directory_of(self, key: PartitionKey) -> uuid.UUID:
        """See `ReplicatedTopics`."""
        return self._node.disks.places[key]

    def move_target_of(self, key: PartitionKey) -> uuid.UUID | None:
        """See `ReplicatedTopics`."""
        move = self._node.disks.moves.by_partition.get(self._open[key][0])
        return move.target if move else None

    def is_open(self, key: PartitionKey) -> bool:
        """Whether the running process has opened a replica's log."""
        return key in self._open

    def place_of(self, key: PartitionKey) -> TopicPartition:
        """Return the partition of an open replica."""
        return self._open[key][0]


class DiskHandlerBroker(HandlerBroker):
    """Handlers over that table."""

    topics_type = DiskTopics


class DiskNode(BrokerNode):
    """A broker with several disks."""

    handler_type = DiskHandlerBroker

    def __init__(self, *arguments: Any) -> None:
        self.disks = SimulatedDisks(arguments[1])
        super().__init__(*arguments)

    def _reset(self) -> None:
        disks = self.disks
        disks.opened = tuple(each for each in disks.ids if each not in disks.broken)
        for key, (place, log) in list(disks.hidden.items()):  # the start keeps the one that was followed later
            if place in disks.opened and key in self.logs:
                if _wholeness(log) > _wholeness(self.logs[key]):
                    self.logs[key], disks.places[key] = log, place
                del disks.hidden[key]
        for log in self.logs.values():
            log.is_offline = False
        super()._reset()
        self.disk_topics = cast(DiskTopics, self.topics)
        self.directories = ReplicaDirectories(
            self.broker_id, cast(Any, disks), self.topics, self.manager, self.lifecycle, self._post
        )

    def _post(self, call: Callable[[], None]) -> None:
        self.world.in_process(self.process, 0, call)

    def online_log_dirs(self) -> tuple[uuid.UUID, ...]:
        """See `LogDirs`."""
        return self.disks.online_ids

    def may_make(self, key: PartitionKey, known: uuid.UUID) -> bool:
        """Whether a replica without a log on an open disk is new for certain: see `LogDirs.create_replica`."""
        has_left_copy = any(move.key == key for move in self.disks.moves.by_partition.values())
        return not self.disks.has_offline or (known in self.disks.online_ids and not has_left_copy)

    def break_disk(self, disk: uuid.UUID) -> None:
        """Let a disk fail."""
        self.disks.broken.add(disk)
        for key, place in self.disks.places.items():
            if place == disk and key in self.logs:
                self.logs[key].is_offline = True

    def give_up_disks(self) -> None:
        """As `ClusterMember` does."""
        failed = self.directories.take_failures(self.now_ms())
        if failed:
            self.topics.publish(self.manager.replicas, failed)

    def note_places(self, done: Iterable[PartitionKey]) -> None:
        """As `ClusterMember` does."""
        self.directories.note(done)

    def assign_places(self) -> None:
        """As `ClusterMember` does."""
        if self.lifecycle.state is BrokerState.REGISTERING:
            return
        assignments = self.directories.assignments
        request = assignments.next_request(self.lifecycle.broker_epoch, self.now_ms())
        if request is not None:
            sent = request
            self._ask(sent, lambda answer: assignments.on_answer(sent, answer, self.now_ms()))

    def begin_move(self, key: PartitionKey, target: uuid.UUID) -> None:
        """Move a replica, if all disks are online, as `LogDirs.move` does."""
        if not self.disk_topics.is_open(key) or self.disks.has_offline or key not in self.disks.places:
            return
        topic_partition = self.disk_topics.place_of(key)
        self.disks.moves.cancel(topic_partition)
        if self.disks.places[key] != target:
            self.disks.moves.by_partition[topic_partition] = SimulatedMove(key, topic_partition, target)

    def _tick(self) -> None:
        disks = self.disks
        for place, move in list(disks.moves.by_partition.items()):
            source = disks.places.get(move.key)
            if source not in disks.online_ids or not self.disk_topics.is_open(move.key):
                continue  # the copy stays for the next start
            if move.target not in disks.online_ids:
                disks.moves.cancel(place)
            elif disks.moves.may_complete(place, move.target):
                disks.places[move.key] = move.target
                del disks.moves.by_partition[place]
        super()._tick()

    def _stopped(self) -> None:
        super()._stopped()
        if self.disks.has_offline:
            self.clean_epoch = -1


class DiskDay(Simulation):
    """A day on which disks fail, too."""

    node_type = DiskNode

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._kinds = [*self._kinds, self._fail_disk, self._fail_disk, self._move_log, self._move_log]

    def _fail_disk(self) -> None:
        broker, chance = cast(DiskNode, self._some_broker()), self.world.random
        disk = chance.choice(broker.disks.ids[1:])
        if disk not in broker.disks.broken:
            self._break(broker, disk)
            self.world.at(chance.randint(1, 400), lambda: self._restart(broker))

    def _break(self, broker: DiskNode, disk: uuid.UUID) -> None:
        self.world.note(f"disk {disk.int} of {broker.process.name} fails")
        if broker.process.is_up:
            self.world.in_process(broker.process, 0, lambda: broker.break_disk(disk))
        else:
            broker.break_disk(disk)
        self.world.at(self.world.random.randint(200, 1200), lambda: self._repair(broker, disk))

    def _restart(self, broker: DiskNode) -> None:
        if self.world.random.random() < 0.5:
            self._end(broker, power_cut=False)
        elif broker.process.is_up:
            self.world.note(f"shut down {broker.process.name}")
            broker.shut_down()
            self.world.at(self.world.random.randint(100, 900), lambda: self._start(broker))

    def _repair(self, broker: DiskNode, disk: uuid.UUID) -> None:
        """Repair a disk while the broker is down: it is opened by the next process."""
        if not broker.process.is_up:
            self.world.note(f"disk {disk.int} of {broker.process.name} is repaired")
            broker.disks.broken.discard(disk)
        else:
            self._restart(broker)
            self.world.at(20, lambda: self._repair(broker, disk))

    def _move_log(self) -> None:
        broker, chance = cast(DiskNode, self._some_broker()), self.world.random
        keys = sorted(broker.disks.places)
        if broker.process.is_up and keys:
            key, target = chance.choice(keys), chance.choice(broker.disks.ids)
            self.world.note(f"{broker.process.name} moves {key[1]} of {key[0]} to disk {target.int}")
            self.world.in_process(broker.process, 0, lambda: broker.begin_move(key, target))
            disk = chance.choice((target, broker.disks.places[key]))
            if chance.random() < 0.5 and disk != broker.disks.ids[0]:
                self.world.at(chance.randint(1, 80), lambda: self._end_without(broker, disk))

    def _end_without(self, broker: DiskNode, disk: uuid.UUID) -> None:
        """Kill a broker whose replica moves, and break the disk that it leaves, or goes to."""
        if broker.process.is_up and disk not in broker.disks.broken:
            self._end(broker, power_cut=False)
            self._break(broker, disk)
