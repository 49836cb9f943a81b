"""The controller and the brokers as simulated processes around the real state machines."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from kafkaprod.broker.controller.controller import Controller
from kafkaprod.broker.controller.events import BrokerGone
from kafkaprod.broker.controller.requests import FORWARDED_VERSIONS, on_request
from kafkaprod.broker.metadata.follower import MetadataSlice, SliceAnswer
from kafkaprod.broker.metadata.image import ClusterImage, PartitionKey
from kafkaprod.broker.metadata.image_records import records_of
from kafkaprod.broker.metadata.log import MetadataBatch, MetadataSnapshot
from kafkaprod.broker.metadata.records import PartitionChangeRecord, RegisterBrokerRecord, decode, encode
from kafkaprod.broker.replication.fetcher import FetchAnswer, Fetcher, FetchRequest
from kafkaprod.broker.replication.lifecycle import BrokerLifecycle, BrokerState, LifecycleRequest
from kafkaprod.broker.replication.partition import PartitionReplica, ReplicaSettings
from kafkaprod.broker.replication.replica_manager import ReplicaManager
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from kafkaprod.protocol.messages.alter_partition import AlterPartitionRequest
from kafkaprod.protocol.messages.broker_registration import Listener
from kafkaprod.protocol.schema import Request, Response
from kafkaprod.structs import TopicPartition
from tests.simulation.logs import SimulatedLog
from tests.simulation.serving import PORT, BrokerServer, HandlerBroker, host_of
from tests.simulation.world import World

CLUSTER_ID = "simulated"
SESSION_MS = 300
HEARTBEAT_MS = 60
TICK_MS = 40
LAG_MS = 150
SYNC_MS = 90
IDS_TIMEOUT_MS = 500
SNAPSHOT_MS = 20
WALL_MS = 1_700_000_000_000


class ControllerNode:
    """The controller's process; its log survives it, and the newest snapshot.

    Attributes:
        batches: All that were ever written, for the checker; a process starts with those behind the snapshot.
        snapshot_records: How many records of the log make a snapshot due; None: there are no snapshots.
        on_started: Called with each new process's state machine.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.process = world.process("controller")
        self.process.pump = self.pump
        self.brokers: dict[int, BrokerNode] = {}
        self.batches: list[MetadataBatch] = []
        self.controller: Controller | None = None
        self.on_change: Callable[[PartitionChangeRecord], None] = lambda _: None
        self._checked_count = 0
        self.on_registered: Callable[[int, ClusterImage], None] = lambda *_: None
        self.on_started: Callable[[Controller], None] = lambda _: None
        self.levels: dict[str, int] = {}
        self.snapshot_records: int | None = None
        self._snapshot: MetadataSnapshot | None = None
        self._snapshot_due = 0

    def start(self) -> None:
        self.process.is_up = True
        self.process.lives += 1
        self.world.skew(self.process)
        start = 0 if self._snapshot is None else self._snapshot.end_offset
        self.controller = Controller(
            CLUSTER_ID,
            session_timeout_ms=SESSION_MS,
            seed=self.world.random.getrandbits(32),
            now_ms=self.now_ms(),
            batches=tuple(batch for batch in self.batches if batch.base_offset >= start),
            snapshot=self._snapshot,
            persist=lambda batch, _image: self.batches.append(batch),
            levels=self.levels,
        )
        self.on_started(self.controller)
        self._tick()

    def now_ms(self) -> int:
        """The time by this process's clock."""
        return self.world.clock_ms(self.process)

    def kill(self) -> None:
        self.process.is_up = False

    def put(self, event: Any) -> None:
        """Queue an event in this process."""
        assert self.controller is not None
        self.controller.queue.put(event, self.now_ms())

    def on_request(self, request: Request, reply: Callable[[Response], None]) -> None:
        """Take a request that has arrived in this process."""
        assert self.controller is not None
        on_request(self.controller, request, self.now_ms(), reply)

    def pump(self) -> None:
        controller = self.controller
        assert controller is not None
        while controller.turn(self.now_ms()):
            self._check_registrations(controller)
        self._maybe_snapshot(controller)
        for broker_id in list(controller.channels):
            sent = controller.next_slice(broker_id, self.now_ms())
            if sent is not None:
                self._push(controller, self.brokers[broker_id], sent)

    def _maybe_snapshot(self, controller: Controller) -> None:
        """Take a snapshot if one is due; it is on the disk, and cuts the log, a little later."""
        image = controller.context.image
        if self.snapshot_records is None or image.end_offset - self._snapshot_due < self.snapshot_records:
            return
        self._snapshot_due = image.end_offset
        records = tuple(decode(encode(record)) for record in records_of(image))
        taken = MetadataSnapshot(image.end_offset, controller.log.last_epoch, records)

        def written() -> None:
            self._snapshot = taken
            controller.cut_log(taken.end_offset)

        self.world.in_process(self.process, self.world.random.randint(0, SNAPSHOT_MS), written)

    def _check_registrations(self, controller: Controller) -> None:
        """Show the checker each registration of a process that had not stopped cleanly, once."""
        if self._checked_count == len(self.batches):
            return
        self._checked_count = len(self.batches)
        for record in self.batches[-1].records:
            if isinstance(record, PartitionChangeRecord):
                self.on_change(record)
            if isinstance(record, RegisterBrokerRecord) and not self.brokers[record.broker_id].had_stopped_cleanly:
                self.on_registered(record.broker_id, controller.context.image)

    def _push(self, controller: Controller, broker: BrokerNode, sent: MetadataSlice) -> None:
        channel = controller.channels[broker.broker_id]
        life = self.process.lives

        def answered(answer: SliceAnswer) -> None:
            controller.on_slice_answer(channel, sent, answer, self.now_ms())

        def deliver() -> None:
            answer = broker.on_slice(sent)
            self.world.send(broker.process, self.process, lambda: answered(answer), life)

        self.world.send(self.process, broker.process, deliver)

    def _tick(self) -> None:
        self.world.in_process(self.process, TICK_MS, self._tick)


ProduceAnswer = Callable[[ErrorCode, int, int], None]
"""Takes an error, the record's offset, and the leader epoch in which it was acknowledged."""


@dataclass(slots=True)
class WaitingProduce:
    """An append that waits for the high watermark."""

    replica: PartitionReplica
    leader_epoch: int
    end_offset: int
    answer: ProduceAnswer


class BrokerNode:
    """A broker's process; its logs and what a clean stop leaves survive it.

    Attributes:
        log_type: The kind of its logs.
        handler_type: The kind of what its handlers work on.
    """

    log_type: type[SimulatedLog] = SimulatedLog
    handler_type: type[HandlerBroker] = HandlerBroker

    def __init__(
        self, world: World, broker_id: int, controller: ControllerNode, brokers: dict[int, BrokerNode]
    ) -> None:
        self.world = world
        self.broker_id = broker_id
        self.process = world.process(f"broker {broker_id}")
        self.process.pump = self.pump
        self.controller = controller
        self.brokers = brokers
        self.logs: dict[PartitionKey, SimulatedLog] = {}
        self.clean_epoch = -1
        self.incarnation = uuid.UUID(int=0)
        self.on_leading: Callable[[PartitionReplica], None] = lambda _: None
        self.min_isr = 1
        self.settings = ReplicaSettings(lag_ms=LAG_MS)
        self.had_stopped_cleanly = False
        self._places: dict[TopicPartition, PartitionKey] = {}
        self._reset()
        self.server = BrokerServer(world, self)

    def now_ms(self) -> int:
        """The time by this process's clock."""
        process = self.process
        return process.clock_offset_ms + self.world.now_ms * process.clock_permille // 1000

    def now_us(self) -> int:
        """The same in microseconds."""
        return self.now_ms() * 1000

    def wall_ms(self) -> int:
        """The time of day."""
        return WALL_MS + self.world.now_ms

    def _reset(self) -> None:
        self.handler_broker = self.handler_type(self)
        self.handler_broker.purgatory.on_moved = self._note_moved
        self.topics = self.handler_broker.topics
        self.follower = self.topics.follower
        self._ids_asked_until_ms = -1
        self._followed_offset = 0
        self.waiting: list[WaitingProduce] = []
        self.lifecycle = BrokerLifecycle(
            self.broker_id,
            CLUSTER_ID,
            self.incarnation,
            heartbeat_ms=HEARTBEAT_MS,
            rack=None,
            previous_epoch=self.clean_epoch,
            listeners=[Listener(name="PLAINTEXT", host=host_of(self.broker_id), port=PORT)],
            log_dirs=self.online_log_dirs(),
        )
        self.manager = ReplicaManager(
            self.broker_id,
            self.follower.image,
            lambda: self.lifecycle.broker_epoch,
            self.topics.open_log,
            self.topics.drop_log,
            self.topics.min_isr,
            self.settings,
        )

    # -- several log directories: see `disk_day` -----------------------------------------------------------------------

    def online_log_dirs(self) -> tuple[uuid.UUID, ...]:
        """Return the ids of the log directories that can be used."""
        return ()

    def give_up_disks(self) -> None:
        """Notice log directories that have failed."""

    def note_places(self, done: Iterable[PartitionKey]) -> None:
        """Look at where replicas are that the metadata has changed."""

    def assign_places(self) -> None:
        """Have the metadata say where replicas are."""

    # -- life ----------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        self.process.is_up = True
        self.process.lives += 1
        self.incarnation = uuid.UUID(int=self.world.random.getrandbits(128))
        self.world.skew(self.process)
        self._reset()
        self.server.broker = self.handler_broker
        self.server.has_power = True
        self.had_stopped_cleanly = self.clean_epoch >= 0
        self.clean_epoch = -1
        self._tick()
        self._sync()

    def kill(self, *, power_cut: bool = False, is_noticed: bool = False) -> None:
        """End the process; what it had not written to disk is lost in a power cut."""
        self.process.is_up = False
        self.server.end(power_cut=power_cut)
        for log in self.logs.values():
            log.restart_process(power_was_cut=power_cut)
        if is_noticed:
            event = BrokerGone(self.broker_id, self.incarnation)
            self.world.in_process(self.controller.process, 1, lambda: self.controller.put(event))

    def shut_down(self) -> None:
        """Begin a controlled shutdown."""
        if self.process.is_up and self.lifecycle.state not in (BrokerState.SHUTTING_DOWN, BrokerState.STOPPED):
            self.lifecycle.shut_down(self.now_ms())

    def take_log(self, topic_partition: TopicPartition, key: PartitionKey) -> SimulatedLog:
        """Open or make a log. Directories have the names of topics: what another topic of the name left is deleted."""
        before = self._places.get(topic_partition, key)
        if before != key:
            self.forget_log(topic_partition, before)
        self._places[topic_partition] = key
        return self.logs.setdefault(key, self.log_type(self))

    def forget_log(self, topic_partition: TopicPartition, key: PartitionKey) -> None:
        """Delete a log."""
        self.logs.pop(key, None)
        self._places.pop(topic_partition, None)

    def _stopped(self) -> None:
        self.process.is_up = False
        self.server.end(power_cut=False)
        self.clean_epoch = self.lifecycle.broker_epoch
        for log in self.logs.values():
            log.synced_offset = log.end_offset
            log.saved_watermark = log.high_watermark
            log.restart_process(power_was_cut=False)

    # -- work ----------------------------------------------------------------------------------------------------------

    def pump(self) -> None:
        now_ms = self.now_ms()
        state = self.lifecycle.state
        if state is BrokerState.RUNNING:
            self.server.is_serving = True
        elif state is BrokerState.STOPPED:
            self._stopped()
            return
        self.give_up_disks()
        if self.manager.is_behind:
            self._work()
        request = self.lifecycle.next_request(self._followed_offset, now_ms)
        if request is not None:
            self._ask_controller(request)
        proposals = self.manager.next_isr_request(now_ms)
        if proposals is not None:
            self._propose(proposals)
        self.assign_places()
        for fetcher in self.manager.fetchers.values():
            wanted = fetcher.next_request(now_ms)
            if wanted is not None:
                self._fetch(fetcher, wanted)
        if self.waiting:
            self._complete_produces()
        self.handler_broker.pump()
        self.handler_broker.run_purgatory(now_ms)

    def produce(
        self,
        key: PartitionKey,
        producer: int,
        sequence: int,
        value: int,
        acks: int,
        answer: ProduceAnswer,
    ) -> None:
        """Append a record as leader, and answer once it is acknowledged or refused."""
        replica = self.manager.replicas.get(key)
        is_serving = self.lifecycle.state in (BrokerState.RUNNING, BrokerState.SHUTTING_DOWN)
        if replica is None or not is_serving:
            answer(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1, -1)
            return
        error = replica.append_error(acks)
        if error != ErrorCode.NONE:
            answer(error, -1, -1)
            return
        log = self.logs[key]
        known = log.sequences.get(producer, {})
        if sequence >= 0 and sequence in known:
            end = known[sequence] + 1
        elif sequence > 0 and sequence - 1 not in known:
            answer(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1, replica.leader_epoch)
            return
        else:
            end = log.append_as_leader(replica.leader_epoch, producer, sequence, value)
        replica.advance_high_watermark()
        self.manager.sessions.note_moved([key])
        if acks == 1:
            answer(ErrorCode.NONE, end - 1, replica.leader_epoch)
        else:
            self.waiting.append(WaitingProduce(replica, replica.leader_epoch, end, answer))

    def _note_moved(self, moved: Iterable[TopicPartition]) -> None:
        ids = self.follower.image.topic_ids
        self.manager.sessions.note_moved([(ids[topic], index) for topic, index in moved if topic in ids])

    def on_slice(self, sent: MetadataSlice) -> SliceAnswer:
        answer, changed = self.follower.receive(sent, self.lifecycle.broker_epoch)
        self._follow(changed)
        return answer

    def _follow(self, changed: frozenset[PartitionKey]) -> None:
        self.manager.note_metadata(changed)
        self.topics.publish(self.manager.replicas, [key for key in changed if key[0] not in self.follower.image.topics])
        self._work()

    def _work(self) -> None:
        """Follow some of the metadata, as little at a time as it takes to come between any two partitions."""
        before = {key: replica.leader_epoch for key, replica in self.manager.replicas.items()}
        done = self.manager.work(self.now_ms(), 1)
        self.note_places(done)
        self.topics.publish(self.manager.replicas, done, self.manager.is_behind_in)
        if self.manager.is_behind:
            self.world.in_process(self.process, 1, lambda: None)
        else:
            self._followed_offset = self.follower.image.end_offset
        self.handler_broker.follow(done)
        for key in sorted(done):
            replica = self.manager.replicas.get(key)
            if replica is not None and replica.is_leader and replica.leader_epoch != before.get(key):
                self.on_leading(replica)

    def _complete_produces(self) -> None:
        still = []
        for waiting in self.waiting:
            outcome = waiting.replica.produce_outcome(waiting.leader_epoch, waiting.end_offset)
            if outcome is None:
                still.append(waiting)
            else:
                waiting.answer(outcome, waiting.end_offset - 1, waiting.leader_epoch)
        self.waiting = still

    def _ask_controller(self, request: LifecycleRequest) -> None:
        lifecycle = self.lifecycle

        def answered(answer: Any) -> None:
            lifecycle.on_answer(request, answer, self.now_ms())
            self._follow(self.follower.catch_up(lifecycle.broker_epoch))

        self._ask(request, answered)

    def _refill_producer_ids(self, now_ms: int) -> None:
        if now_ms < self._ids_asked_until_ms:
            return
        ids = self.handler_broker.producer_ids
        self._ids_asked_until_ms = now_ms + IDS_TIMEOUT_MS

        def answered(answer: Any) -> None:
            if answer.error_code == ErrorCode.NONE:
                self._ids_asked_until_ms = -1
                ids.add_block(answer.producer_id_start, answer.producer_id_len)

        request = AllocateProducerIdsRequest(broker_id=self.broker_id, broker_epoch=self.lifecycle.broker_epoch)
        self._ask(request, answered)

    def _propose(self, request: AlterPartitionRequest) -> None:
        manager = self.manager

        def answered(answer: Any) -> None:
            if manager.on_isr_answer(request, answer, self.now_ms()):
                self.lifecycle.register_again(self.now_ms())

        self._ask(request, answered)

    def _ask(self, request: Request, answered: Callable[[Any], None]) -> None:
        """Send a request to the controller as bytes; its answer comes back over the network."""
        controller, life, version = self.controller, self.process.lives, FORWARDED_VERSIONS[request.api]
        sent = request.encode(version)

        def reply(response: Response) -> None:
            answer = type(response).decode(response.encode(version), version)
            self.world.send(controller.process, self.process, lambda: answered(answer), life)

        def deliver() -> None:
            controller.on_request(type(request).decode(sent, version), reply)

        self.world.send(self.process, controller.process, deliver)

    def _fetch(self, fetcher: Fetcher, request: FetchRequest) -> None:
        source, life = self.brokers[fetcher.source], self.process.lives

        def answered(answer: FetchAnswer) -> None:
            fetcher.on_answer(request, answer, self.now_ms())

        def deliver() -> None:
            answer = source.manager.serve(request, source.now_ms())
            self.world.send(source.process, self.process, lambda: answered(answer), life)

        self.world.send(self.process, source.process, deliver)

    def _tick(self) -> None:
        self.manager.tick(self.now_ms())
        self.handler_broker.tick()
        if self.lifecycle.state is BrokerState.RUNNING and self.handler_broker.producer_ids.is_low:
            self._refill_producer_ids(self.now_ms())
        self.world.in_process(self.process, TICK_MS, self._tick)

    def _sync(self) -> None:
        for log in self.logs.values():
            log.synced_offset = log.end_offset
            log.saved_watermark = log.high_watermark
        self.world.in_process(self.process, SYNC_MS, self._sync)
