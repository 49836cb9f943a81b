"""What a simulated broker shows to real producers: sessions over simulated streams, and the broker's own handlers.

`HandlerBroker` has what the handlers of ApiVersions, Metadata, InitProducerId, Produce, Fetch and ListOffsets use of a
`Broker`: the table of topics made from the metadata, the purgatory, the producer ids. Their code is the product's.
"""

from __future__ import annotations

import functools
import uuid
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from kafkaprod.broker.calls.purgatory import Purgatory
from kafkaprod.broker.calls.request import ClientRequest, CloseConnectionError, NoResponse, Ready
from kafkaprod.broker.cluster.producer_ids import ProducerIds
from kafkaprod.broker.cluster.replicated_topics import ReplicatedTopics
from kafkaprod.broker.config import Limits
from kafkaprod.broker.listeners import Endpoint
from kafkaprod.broker.replication.partition_replica_log import PartitionReplicaLog
from kafkaprod.broker.server.router import announced_versions
from kafkaprod.broker.storage.format.log_config import LogConfig
from kafkaprod.broker.storage.log.group_commit import never
from kafkaprod.broker.storage.log.log_dirs import LogDirs
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.produce import ProduceRequest, ProduceResponse
from kafkaprod.protocol.schema import Request, Response
from kafkaprod.protocol.server import ConnectionRefused, RequestReceived, ServerConnection
from kafkaprod.structs import TopicPartition
from tests.simulation.dispatching import Exchange, Receiver
from tests.simulation.logs import values_of
from tests.simulation.wire import Receive, Stream
from tests.simulation.world import Process, World

if TYPE_CHECKING:
    from kafkaprod.broker.metadata.image import PartitionKey
    from tests.simulation.nodes import BrokerNode

LOOK_AGAIN_MS = 20
APIS = (ApiKey.API_VERSIONS, ApiKey.METADATA, ApiKey.PRODUCE, ApiKey.INIT_PRODUCER_ID)
PORT = 9092

Places = dict[tuple[str | None, uuid.UUID | None, int], tuple["PartitionKey", int]]


@functools.cache
def served_versions(apis: tuple[ApiKey, ...] = APIS) -> dict[ApiKey, tuple[int, int]]:
    """Return the versions of what is served."""
    versions = announced_versions()
    return {api: versions[api] for api in apis}


def host_of(broker_id: int) -> str:
    """Return a broker's address."""
    return f"10.0.0.{broker_id}"


class SimulatedTopics(ReplicatedTopics):
    """The table of topics over the node's logs, which no directory holds."""

    def __init__(self, node: BrokerNode, on_advance: Callable[[TopicPartition], None]) -> None:
        directory = SimpleNamespace(path="", topic_ids={}, partitions={})
        super().__init__(cast(LogDirs, directory), LogConfig(), on_advance, 1)
        self._node = node

    def open_log(self, key: PartitionKey) -> PartitionReplicaLog:
        """Open or make a replica's log; what an older topic of the name left is deleted (KAFKA-14616)."""
        name = self.image.topics[key[0]].name
        topic_partition = TopicPartition(name, key[1])
        log = self._node.take_log(topic_partition, key)
        log.on_advance = lambda: self._on_advance(topic_partition)
        self._open[key] = (topic_partition, cast(Any, log))
        return cast(PartitionReplicaLog, log)

    def drop_log(self, key: PartitionKey) -> None:
        """Delete a replica's log."""
        topic_partition, _ = self._open.pop(key)
        self._node.forget_log(topic_partition, key)
        self._on_advance(topic_partition)

    def min_isr(self, name: str) -> int:
        """Return the option of all topics."""
        return self._node.min_isr


class HandlerBroker:
    """See the module docstring. One for each life of a broker's process.

    Attributes:
        exchanges: Requests that wait for their outcomes, and some that have them.
        topics_type: The kind of its table of topics.
    """

    topics_type: type[SimulatedTopics] = SimulatedTopics

    def __init__(self, node: BrokerNode) -> None:
        self._is_woken = False
        self.purgatory = Purgatory(self._wake)
        self.topics = self.topics_type(node, self.purgatory.notify)
        self.image = self.topics.image
        self.standing: Any = SimpleNamespace(leaders_move=True, appends_in_loop=True)
        self.clock = node
        self.cluster_id = "simulated"
        self.config = SimpleNamespace(
            node_id=node.broker_id, flush_policy=never(), auto_create_topics=False, limits=Limits()
        )
        self.producer_ids = ProducerIds()
        self.api_versions = self.peer_api_versions = served_versions()
        self.acls = SimpleNamespace(is_open=True)
        self.post: Callable[[Callable[[], None]], None] = _refuse_to_leave
        self.run_long = _refuse_to_leave
        self.exchanges: list[Exchange] = []
        self.endpoint = Endpoint(host_of(node.broker_id), PORT)
        self.endpoints = {"PLAINTEXT": self.endpoint}

    def handle(self, request: ClientRequest[Any], receiver: Receiver) -> Exchange:
        """Handle a request; `receiver` gets what becomes of it."""
        exchange = Exchange(self, request, receiver)
        exchange.begin()
        if not exchange.is_over:
            self.exchanges = [*(other for other in self.exchanges if not other.is_over), exchange]
        return exchange

    def run_control(self, work: Callable[[], None], then: Callable[[], None] | None = None) -> None:
        """Make a call of the control thread, which has no work that takes time."""
        work()
        if then is not None:
            then()

    def follow(self, done: Collection[PartitionKey]) -> None:
        """Note that what the metadata says of some partitions has been done."""

    def pump(self) -> None:
        """Do what is due, after each event."""

    def _wake(self) -> None:
        self._is_woken = True

    def run_purgatory(self, now_ms: int) -> None:
        """Try what waits, and again where an answer had its client's next request handled, which moved something."""
        self._is_woken = False
        self.purgatory.run(now_ms)
        while self._is_woken:
            self._is_woken = False
            self.purgatory.run(now_ms)

    def tick(self) -> None:
        """Do what is due at times."""

    def from_control(self, call: Callable[[], None]) -> None:
        """Come back from the control thread."""
        call()


def _refuse_to_leave(*_: object) -> None:
    raise AssertionError("a request of the simulation is handled at once: its time stands still")


@dataclass(frozen=True, slots=True)
class Gray:
    """What a broker that is neither well nor down does with clients' requests. It leads and replicates as ever.

    Attributes:
        answer_ms: How long each waits before it is handled; None: until the broker is well again.
        only_produce: Whether others are handled at once.
    """

    answer_ms: int | None
    only_produce: bool

    def holds(self, api: ApiKey, waited_ms: int) -> bool:
        """Return whether a request waits longer."""
        if self.only_produce and api is not ApiKey.PRODUCE:
            return False
        return self.answer_ms is None or waited_ms < self.answer_ms


class Session:
    """One connection at the broker: requests one at a time, in order, as the dispatcher handles them."""

    def __init__(self, server: BrokerServer, down: Stream) -> None:
        self._server = server
        self._down = down
        self._connection = ServerConnection(server.broker.api_versions)
        self._waiting: deque[RequestReceived] = deque()
        self._exchange: Exchange | None = None
        self._is_busy = self._is_held = self._is_beginning = False
        self.is_closed = False

    def receive(self, data: bytes | None) -> None:
        """Take bytes of the client, or the end of its stream."""
        if self.is_closed:
            return
        if data is None:
            if not self._is_held:  # a broker that hangs handles later what it has received, and misses the end
                self.close()
            return
        self._connection.receive_data(bytearray(data))
        for event in self._connection.events():
            if isinstance(event, ConnectionRefused):
                raise AssertionError(f"the producer broke the protocol: {event.error}")
            self._waiting.append(event)
        self._flush()
        self._begin_next()

    def close(self) -> None:
        """Release what waits."""
        self.is_closed = True
        self._down.kill()
        if self._exchange is not None:
            self._exchange.abandon()

    def _begin_next(self) -> None:
        if self._is_beginning:
            return  # a request that is answered at once: the loop below goes on, however many wait
        self._is_beginning = True
        while self._waiting and not self._is_busy and not self.is_closed:
            self._is_busy = True
            self._begin(self._server.world.now_ms)
        self._is_beginning = False

    def _begin(self, since_ms: int) -> None:
        """Handle the next request, or look again if the broker is gray."""
        world, gray = self._server.world, self._server.gray
        if self.is_closed:
            return
        self._is_held = gray is not None and gray.holds(self._waiting[0].api, world.now_ms - since_ms)
        if self._is_held:
            world.in_process(self._server.process, LOOK_AGAIN_MS, lambda: self._begin(since_ms))
        else:
            self._handle(self._waiting.popleft())

    def _handle(self, received: RequestReceived) -> None:
        header = received.header
        request = ClientRequest(received.decode(), header.api_version, header.client_id or "", "10.0.1.1")
        places = self._server.places(request.body)
        broker = self._server.broker
        exchange = broker.handle(request, lambda ready: self._finish(received, request, ready, places))
        if not exchange.is_over:
            self._exchange = exchange

    def _finish(self, received: RequestReceived, request: ClientRequest[Any], ready: Ready, places: Places) -> None:
        self._exchange = None
        if isinstance(ready, ProduceResponse):
            self._server.on_produced(request.body, ready, places)
        self._is_busy = False
        if self.is_closed:
            return
        if isinstance(ready, CloseConnectionError):
            self._server.reset(self)
            return
        if isinstance(ready, NoResponse):
            self._connection.send_nothing(received)
        else:
            assert isinstance(ready, Response)
            self._connection.send_response(received, ready)
        self._flush()
        self._begin_next()

    def _flush(self) -> None:
        data = b"".join(self._connection.data_to_send(1000))
        self._connection.data_sent(len(data))
        if data:
            self._down.send(data)


class BrokerServer:
    """The listening side of a broker's machine; it survives the broker's process.

    Attributes:
        broker: What the handlers of the process work on.
        is_serving: Whether the process takes connections.
        has_power: Whether the machine answers at all.
        gray: What it does while it is neither well nor down.
        acknowledged: Called with key, offset, value and epoch of each record that an acks=all answer acknowledges.
    """

    def __init__(self, world: World, node: BrokerNode) -> None:
        self.process: Process = node.process
        self.broker: HandlerBroker = node.handler_broker
        self.is_serving = False
        self.has_power = True
        self.gray: Gray | None = None
        self.acknowledged: Callable[[PartitionKey, int, int, int], None] = lambda *_: None
        self.world = world
        self._node = node
        self._sessions: dict[Session, Callable[[], None]] = {}

    def accept(self, client: Process, down: Stream, reset: Callable[[], None]) -> Receive | None:
        """Take a connection; None if the port is closed, which resets it, or the machine is off, which is silent."""
        if not self.is_serving:
            if self.has_power:
                self._send_reset(client, reset)
            return None
        session = Session(self, down)
        self._sessions[session] = lambda: self._send_reset(client, reset)

        def receive(data: bytes | None) -> None:
            if session.is_closed:
                if data is not None and self.has_power:
                    self._send_reset(client, reset)
                return
            if self._node.process.is_up:
                session.receive(data)
                if session.is_closed:
                    self._sessions.pop(session, None)
                else:
                    self._node.pump()

        return receive

    def end(self, *, power_cut: bool) -> None:
        """End all sessions: the process has ended."""
        self.is_serving = False
        self.has_power = not power_cut
        for session, reset in self._sessions.items():
            session.close()
            if not power_cut:
                reset()
        self._sessions.clear()

    def reset(self, session: Session) -> None:
        """Reset a connection."""
        send_reset = self._sessions.pop(session, None)
        session.close()
        if send_reset is not None:
            send_reset()

    def reset_some(self) -> bool:
        """Reset one connection, as a network in trouble does; return whether there was one."""
        if not self._sessions:
            return False
        session = self.world.random.choice(list(self._sessions))
        if self.world.random.random() < 0.5:
            self.reset(session)
        else:  # the broker does not notice: it handles what it has received and what is under way
            self._sessions[session]()
        return True

    def places(self, request: Request) -> Places:
        """Return the key and leader epoch of each partition that an acks=all request goes to."""
        found: Places = {}
        if isinstance(request, ProduceRequest) and request.acks == -1:
            for topic in request.topic_data:
                name = self.broker.topics.name_of(topic.name, topic.topic_id)
                for data in topic.partition_data:
                    partition = None if name is None else self.broker.topics.partition(name, data.index)
                    if partition is not None and partition.replica is not None:
                        replica = partition.replica
                        found[topic.name, topic.topic_id, data.index] = (replica.key, replica.leader_epoch)
        return found

    def on_produced(self, request: ProduceRequest, response: ProduceResponse, places: Places) -> None:
        """Note the records that an answer acknowledges."""
        sent = {
            (topic.name, topic.topic_id, data.index): data.records
            for topic in request.topic_data
            for data in topic.partition_data
        }
        for topic in response.responses:
            for partition in topic.partition_responses:
                place = (topic.name, topic.topic_id, partition.index)
                if partition.error_code == ErrorCode.NONE and place in places:
                    key, epoch = places[place]
                    for delta, value in enumerate(values_of(cast(memoryview, sent[place]))):
                        self.acknowledged(key, partition.base_offset + delta, value, epoch)

    def _send_reset(self, client: Process, reset: Callable[[], None]) -> None:
        if (self.process.name, client.name) not in self.world.cuts:
            self.world.at(self.world.random.randint(0, self.world.rules.max_delay_ms), reset)
