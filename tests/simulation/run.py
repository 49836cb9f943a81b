"""One run of a simulated cluster: faults drawn by the seed, then none, then everything must be whole."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

from kafkaprod.broker.controller.events import MoveLeader
from kafkaprod.broker.controller.requests import FORWARDED_VERSIONS
from kafkaprod.broker.metadata.image import ClusterImage, PartitionKey
from kafkaprod.broker.metadata.records import PartitionChangeRecord
from kafkaprod.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from kafkaprod.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kafkaprod.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kafkaprod.protocol.schema import Request
from tests.simulation.checker import Checker, ViolationError
from tests.simulation.clients import SimulatedProducer
from tests.simulation.nodes import BrokerNode, ControllerNode
from tests.simulation.outcomes import Outcomes
from tests.simulation.producing import EngineNode
from tests.simulation.reading import SimulatedConsumer, WaitingConsumer
from tests.simulation.world import World

FAULTS_MS = 2000
REST_MS = 4000
STARTS_MS = 600
STEP_MS = 50
CHECK_EACH_EVENTS = 150


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run did."""

    seed: int
    acknowledged: int
    read: int
    faults: int
    elections: int
    delivered: int
    failed: int
    digest: str


def creation(name: str, partition_count: int, replication_factor: int = 3) -> CreateTopicsRequest:
    """What has the controller make a topic."""
    topic = CreatableTopic(name=name, num_partitions=partition_count, replication_factor=replication_factor)
    return CreateTopicsRequest(topics=[topic])


class Simulation:
    """A cluster, its clients and its faults. The same seed gives the same history, to the byte.

    Attributes:
        node_type: The kind of its brokers.
        topics: Topic -> number of partitions.
    """

    node_type: type[BrokerNode] = BrokerNode
    topics: Mapping[str, int] = MappingProxyType({"orders": 2, "events": 2})

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.world = world = World(seed)
        self.controller = ControllerNode(world)
        self.brokers: dict[int, BrokerNode] = {}
        self.checker = Checker(self.brokers, self.controller)
        self.outcomes = Outcomes(world)
        self.fault_count = 0
        chance = world.random
        broker_count = chance.choice((3, 3, 3, 4, 5))
        for broker_id in range(1, broker_count + 1):
            broker = self.node_type(world, broker_id, self.controller, self.brokers)
            broker.on_leading = self.checker.leading
            broker.server.acknowledged = self._acknowledged
            self.brokers[broker_id] = broker
        self.controller.brokers = self.brokers
        self.controller.on_registered = self.checker.registered
        self.controller.on_started = self.checker.started
        world.rules.max_delay_ms = chance.choice((2, 5, 20))
        min_isr = chance.choice((1, 1, 2))
        max_batches = chance.choice((1, 3, 100))
        idle_ms = chance.choice((15, 40))
        self.controller.snapshot_records = chance.choice((None, 10, 30))
        for broker in self.brokers.values():
            broker.min_isr = min_isr
            broker.settings.max_batches = max_batches
            broker.settings.idle_ms = idle_ms
        kinds = [
            *(self._crash, self._pause, self._cut, self._slow, self._power_cut, self._roll, self._move),
            *(
                self._controller_crash,
                self._reset_connection,
                self._pause_producer,
                self._recreate_topic,
                self._reassign,
            ),
        ]
        self._kinds = chance.sample(kinds, chance.randint(1, len(kinds)))
        self._vulture = chance.choice((0.0, 0.1, 0.4))
        self.controller.on_change = self._on_change
        self._period_ms = chance.choice((80, 200, 500))
        self.producers: list[SimulatedProducer] = []
        self.engines: list[EngineNode] = []

    def run(self) -> Outcome:
        """Run it to its end.

        Raises:
            ViolationError: An invariant does not hold.
        """
        self.controller.start()
        for broker in self.brokers.values():
            broker.start()
        self._run_while(lambda: not self._are_serving(), STARTS_MS)
        self._create_topic()
        self._run_while(
            lambda: len(self._keys()) < sum(self.topics.values()) or not self.checker.is_at_rest(), STARTS_MS
        )
        self.world.rules.loss = self.world.random.choice((0.0, 0.0, 0.01, 0.05))
        self.world.rules.repeat = self.world.random.choice((0.0, 0.0, 0.05))
        self._start_clients()
        self.world.at(self._period_ms, self._fault)
        self._run(self.world.now_ms + FAULTS_MS)
        self._heal()
        self._run(self.world.now_ms + 400)
        for producer in self.producers:
            producer.is_stopping = True
        for engine in self.engines:
            engine.is_stopping = True
        self._run_until_at_rest()
        if not self._are_idle():
            raise ViolationError("rest: a producer's record has no outcome")
        if any(engine.is_waiting for engine in self.engines):
            raise ViolationError("starves: a program still waits for memory, and all of it is free")
        self.checker.check_end()
        self._check_outcomes()
        assert self.controller.controller is not None
        partitions = self.controller.controller.context.image.partitions.values()
        return Outcome(
            self.seed,
            self.checker.acknowledged_count,
            self.checker.read_count,
            self.fault_count,
            sum(partition.leader_epoch for partition in partitions),
            self.outcomes.delivered_count,
            self.outcomes.failed_count,
            self.world.digest,
        )

    def _run_until_at_rest(self) -> None:
        """Run until nothing is outstanding, at most as long as everything has to be whole again."""
        longest_ms = max(engine.config.delivery_timeout_ms for engine in self.engines)
        settles_ms = self.world.now_ms + max(longest_ms + 1000, REST_MS)
        self._run_while(lambda: not self.checker.is_at_rest(), REST_MS)
        self._run_while(lambda: self.outcomes.open_count > 0 or not self._are_idle(), settles_ms - self.world.now_ms)
        self._run_while(lambda: not self.checker.is_at_rest(), REST_MS)

    def _run_while(self, condition: Callable[[], bool], most_ms: int) -> None:
        ends_ms = self.world.now_ms + most_ms
        while self.world.now_ms < ends_ms and condition():
            self._run(self.world.now_ms + STEP_MS)

    def _are_serving(self) -> bool:
        return all(broker.server.is_serving for broker in self.brokers.values())

    def _are_idle(self) -> bool:
        are_served = not any(engine.is_waiting for engine in self.engines)
        return are_served and all(producer.is_idle for producer in self.producers if producer.acks == -1)

    def _check_outcomes(self) -> None:
        self.outcomes.check_end()
        for key in self._keys():
            for replica in self._image().partitions[key].replicas:
                self.outcomes.check_log(key, self.brokers[replica].logs[key])

    def _run(self, end_ms: int) -> None:
        self.world.run_until(end_ms, self.checker.check_all, CHECK_EACH_EVENTS)

    def _create_topic(self) -> None:
        for name, count in self.topics.items():
            self._ask_controller(creation(name, count))

    def _ask_controller(self, request: Request) -> None:
        version = FORWARDED_VERSIONS[request.api]
        arrived = type(request).decode(request.encode(version), version)
        self.world.in_process(
            self.controller.process,
            0,
            lambda: self.controller.on_request(arrived, lambda _: None),
        )

    def _image(self) -> ClusterImage:
        assert self.controller.controller is not None
        return self.controller.controller.context.image

    def _keys(self, topic: str | None = None) -> list[PartitionKey]:
        image = self._image()
        return sorted(key for key in image.partitions if topic in (None, image.topics[key[0]].name))

    def _acknowledged(self, key: PartitionKey, offset: int, value: int, epoch: int) -> None:
        self.outcomes.acknowledged(key, offset, value)
        self.checker.acknowledged(key, offset, value, epoch)

    def _start_clients(self) -> None:
        for number, key in enumerate(self._keys("orders")):
            for shift, acks in enumerate((-1, -1, 1)):
                producer = SimulatedProducer(self.world, self.brokers, self.checker, key, 1 + number * 3 + shift, acks)
                self.producers.append(producer)
        for number in range(self.world.random.choice((1, 1, 2))):
            self.engines.append(self._make_engine(number))
        SimulatedConsumer(self.world, self.brokers, self.checker, self._keys())
        WaitingConsumer(self.world, self.brokers, self.checker, "waiting consumer", self._keys())

    def _make_engine(self, number: int) -> EngineNode:
        return EngineNode(self.world, self.brokers, self.outcomes, number, "events")

    # -- faults --------------------------------------------------------------------------------------------------------

    def _fault(self) -> None:
        self.fault_count += 1
        self.world.random.choice(self._kinds)()
        self.world.at(self.world.random.randint(self._period_ms // 2, self._period_ms * 2), self._again)

    def _again(self) -> None:
        if not self._is_healed:
            self._fault()

    _is_healed = False

    def _some_broker(self) -> BrokerNode:
        return self.brokers[self.world.random.choice(sorted(self.brokers))]

    def _crash(self) -> None:
        self._end(self._some_broker(), power_cut=False)

    def _power_cut(self) -> None:
        self._end(self._some_broker(), power_cut=True)

    def _end(self, broker: BrokerNode, *, power_cut: bool) -> None:
        if not broker.process.is_up:
            return
        is_noticed = self.world.random.random() < 0.5
        self.world.note(f"{'power cut' if power_cut else 'kill'} {broker.process.name}, noticed: {is_noticed}")
        held = {key: log.end_offset for key, log in broker.logs.items()}
        broker.kill(power_cut=power_cut, is_noticed=is_noticed)
        if power_cut:
            self.checker.power_cut(broker.broker_id, held)
        self.world.at(self.world.random.randint(1, 800), lambda: self._start(broker))

    def _start(self, broker: BrokerNode) -> None:
        if not broker.process.is_up:
            self.world.note(f"start {broker.process.name}")
            broker.start()

    def _pause(self) -> None:
        broker = self._some_broker()
        length_ms = self.world.random.randint(10, 900)
        self.world.note(f"pause {broker.process.name} for {length_ms}")
        broker.process.paused_until_ms = self.world.now_ms + length_ms

    def _names(self) -> list[str]:
        brokers = [broker.process.name for broker in self.brokers.values()]
        return ["controller", *brokers, *(engine.process.name for engine in self.engines)]

    def _cut(self) -> None:
        source, target = self.world.random.sample(self._names(), 2)
        pairs = {(source, target)}
        if self.world.random.random() < 0.5:
            pairs.add((target, source))
        self.world.note(f"cut {sorted(pairs)}")
        self.world.cuts |= pairs
        self.world.at(self.world.random.randint(20, 900), lambda: self.world.cuts.difference_update(pairs))

    def _slow(self) -> None:
        source, target = self.world.random.sample(self._names(), 2)
        delay_ms = self.world.random.randint(10, 300)
        self.world.note(f"slow {source} to {target}: {delay_ms} ms")
        self.world.slow[source, target] = delay_ms
        self.world.at(self.world.random.randint(100, 900), partial(self._hurry, source, target))

    def _hurry(self, source: str, target: str) -> None:
        self.world.slow.pop((source, target), None)

    def _on_change(self, change: PartitionChangeRecord) -> None:
        """Perhaps kill the leader just after its ISR or epoch has changed: rules matter most then."""
        if self._is_healed or self.world.random.random() > self._vulture:
            return
        leaders = [
            broker for broker in self.brokers.values() if self._leads(broker, (change.topic_id, change.partition_id))
        ]
        if leaders:
            self.world.at(self.world.random.randint(0, 25), lambda: self._end(leaders[0], power_cut=False))

    @staticmethod
    def _leads(broker: BrokerNode, key: object) -> bool:
        replica = broker.manager.replicas.get(key)  # type: ignore[call-overload]
        return broker.process.is_up and replica is not None and replica.is_leader

    def _roll(self) -> None:
        broker = self._some_broker()
        if broker.process.is_up:
            self.world.note(f"shut down {broker.process.name}")
            broker.shut_down()
            self.world.at(self.world.random.randint(100, 900), lambda: self._start(broker))

    def _move(self) -> None:
        key = self.world.random.choice(self._keys())
        event = MoveLeader(key, self.world.random.choice(sorted(self.brokers)))
        self.world.in_process(self.controller.process, 0, lambda: self.controller.put(event))

    def _reassign(self) -> None:
        chance = self.world.random
        key = chance.choice(self._keys())
        replicas = chance.sample(sorted(self.brokers), chance.choice((2, 3, 3))) if chance.random() < 0.9 else None
        self.world.note(f"move partition {key[1]} to {replicas}")
        topic = self._image().topics[key[0]].name
        partition = ReassignablePartition(partition_index=key[1], replicas=replicas)
        topics = [ReassignableTopic(name=topic, partitions=[partition])]
        self._ask_controller(AlterPartitionReassignmentsRequest(topics=topics))

    def _reset_connection(self) -> None:
        broker = self._some_broker()
        if broker.server.reset_some():
            self.world.note(f"reset a connection to {broker.process.name}")

    def _pause_producer(self) -> None:
        process = self.world.random.choice(self.engines).process
        length_ms = self.world.random.randint(10, 900)
        self.world.note(f"pause {process.name} for {length_ms}")
        process.paused_until_ms = self.world.now_ms + length_ms

    def _recreate_topic(self) -> None:
        self.world.note("delete and create the topic events")
        self._ask_controller(DeleteTopicsRequest(topics=[DeleteTopicState(name="events")]))
        delay_ms = self.world.random.randint(1, 300)
        self.world.at(delay_ms, lambda: self._ask_controller(creation("events", 2)))

    def _controller_crash(self) -> None:
        if self.controller.process.is_up:
            self.world.note("kill controller")
            self.controller.kill()
            self.world.at(self.world.random.randint(1, 500), self._start_controller)

    def _start_controller(self) -> None:
        if not self.controller.process.is_up:
            self.world.note("start controller")
            self.controller.start()

    def _heal(self) -> None:
        self.world.note("heal")
        self._is_healed = True
        self.world.cuts.clear()
        self.world.slow.clear()
        self.world.links.clear()
        self.world.rules.loss = self.world.rules.repeat = 0.0
        self._start_controller()
        for engine in self.engines:
            engine.process.paused_until_ms = 0
        for broker in self.brokers.values():
            broker.process.paused_until_ms = 0
            broker.settings.max_batches = 100
            broker.server.gray = None
            self.world.at(100, lambda broker=broker: self._revive(broker))  # type: ignore[misc]

    def _revive(self, broker: BrokerNode) -> None:
        """Start a broker whenever it is down, also if it still shuts down now."""
        self._start(broker)
        self.world.at(300, lambda: self._revive(broker))
