"""A cluster of scripted brokers on one thread: real sockets, Kafka's rules for sequences, and faults to order.

    with ScriptedCluster(topics={"t": 2}) as cluster:
        cluster.refuse(ApiKey.PRODUCE, 6, times=3)
        producer = Producer(bootstrap_servers=cluster.bootstrap)
        ...
        assert cluster.produced[0].code == 6

Every method may be called from the test's thread; state is read after the producer is quiet, or under `lock`.
Produce requests are decoded with the package's own declarations, batches are checked by CRC.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import struct
import threading
import time
import traceback
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from kafkaprod._core.records.batch_reader import RecordBatchReader
from kafkaprod.errors import CorruptDataError
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from kafkaprod.protocol.messages.init_producer_id import InitProducerIdResponse
from kafkaprod.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kafkaprod.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from kafkaprod.protocol.schema import Request, Response
from kafkaprod.protocol.server import ConnectionRefused, RequestReceived, ServerConnection
from tests.fault.partition_model import LoggedRecord, PartitionModel
from tests.kafka.cluster import wait_until

VERSIONS = {
    ApiKey.PRODUCE: (3, 13),
    ApiKey.METADATA: (0, 13),
    ApiKey.INIT_PRODUCER_ID: (0, 5),
    ApiKey.API_VERSIONS: (0, 4),
}
NOT_LEADER, UNKNOWN_TOPIC, UNKNOWN_TOPIC_ID, TOO_LARGE = 6, 3, 100, 10

Edit = Callable[[Response], Response | None]


@dataclass(frozen=True)
class Attempt:
    """One batch as it arrived, and what was answered."""

    node: int
    topic: str
    partition: int
    producer: tuple[int, int, int]  # id, epoch, base sequence
    values: tuple[bytes | None, ...]
    code: int
    is_written: bool
    at_s: float


@dataclass(eq=False)
class Refusal:
    """Answer with an error code, for the next `times` requests (of Produce: batches) that match."""

    api: ApiKey
    code: int
    times: int
    partition: int | None = None
    node: int | None = None
    is_written: bool = False  # Produce: append first, then refuse all the same
    hint: tuple[int, int] | None = None  # Produce: leader and epoch to name
    record_errors: tuple[tuple[int, str | None], ...] = ()
    count: int = 0

    def takes(self, api: ApiKey, node: int, partition: int | None) -> bool:
        if api is not self.api or self.count >= self.times:
            return False
        if self.node not in (None, node) or (self.partition is not None and self.partition != partition):
            return False
        self.count += 1
        return True


@dataclass(eq=False)
class Client:
    """One accepted connection."""

    node: int
    sock: socket.socket
    protocol: ServerConnection
    received_bytes: int = 0
    next_read_s: float = 0.0
    held: list[tuple[RequestReceived, Response]] = field(default_factory=list)


@dataclass
class Topic:
    """A topic's partitions under its id."""

    topic_id: uuid.UUID
    partitions: list[PartitionModel]


class ScriptedCluster:
    """Brokers 0 .. nodes-1.

    Args:
        topics: name -> number of partitions; their leaders go round the nodes.
        nodes: how many brokers.
        versions: what they announce; None: `VERSIONS`.
        receive_buffer_bytes: SO_RCVBUF of the connections.
        bytes_per_s: how fast each connection is read; 0: as fast as it comes.
        keeps_records: False: remember only counts (the batch is still checked by `on_batch`).
        largest_batch: larger ones are answered MESSAGE_TOO_LARGE; None: no limit.

    Attributes:
        produced: every batch that arrived, in order.
        first_producer: the (id, epoch) of the next InitProducerId.
        problems: what must never happen and did: damaged frames, exceptions.
        on_batch: called with (topic, partition, batch) for each batch received.
    """

    def __init__(
        self,
        topics: Mapping[str, int],
        *,
        nodes: int = 1,
        versions: Mapping[ApiKey, tuple[int, int]] | None = None,
        receive_buffer_bytes: int | None = None,
        bytes_per_s: float = 0,
        keeps_records: bool = True,
        largest_batch: int | None = None,
    ) -> None:
        self.lock = threading.RLock()
        self.versions = dict(versions or VERSIONS)
        self.produced: list[Attempt] = []
        self.requests: list[tuple[float, int, ApiKey]] = []
        self.problems: list[str] = []
        self.first_producer = (1000, 0)
        self.largest_batch = largest_batch
        self.throttle_ms = 0
        self.hidden_topics: set[str] = set()
        self.bytes_per_s = bytes_per_s
        self.on_batch: Callable[[str, int, RecordBatchReader], None] | None = None
        self.on_bytes: Callable[[memoryview], None] | None = None
        self.metadata_leaders: dict[tuple[str, int], int] = {}  # what metadata says, if not the truth
        self.metadata_epochs: dict[tuple[str, int], int] = {}  # likewise
        self._keeps_records = keeps_records
        self._refusals: list[Refusal] = []
        self._edits: list[tuple[ApiKey, int | None, Edit]] = []
        self._held_nodes: set[int] = set()
        self.topics = {name: self._new_topic(count, nodes) for name, count in topics.items()}
        self._selector = selectors.DefaultSelector()
        self._listeners = []
        for node in range(nodes):
            listener = socket.create_server(("127.0.0.1", 0))
            if receive_buffer_bytes is not None:
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
            self._listeners.append(listener)
            self._selector.register(listener, selectors.EVENT_READ, node)
        self._clients: list[Client] = []
        self._waker, self._wake = socket.socketpair()
        self._selector.register(self._waker, selectors.EVENT_READ, None)
        self._is_closing = False
        self._thread = threading.Thread(target=self._run, name="scripted-cluster", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_closing = True
        self._wakeup()
        self._thread.join(10)
        assert not self._thread.is_alive()
        assert not self.problems, self.problems[0]

    # -- script --------------------------------------------------------------------------------------------------------

    @property
    def bootstrap(self) -> str:
        """The address of node 0."""
        return self._address(0)

    def refuse(self, api: ApiKey, code: int, times: int = 1, **options: Any) -> Refusal:
        """Answer with an error code; options as in `Refusal`. Older ones come first."""
        refusal = Refusal(api, code, times, **options)
        with self.lock:
            self._refusals.append(refusal)
        return refusal

    def edit(self, api: ApiKey, change: Edit, *, node: int | None = None) -> None:
        """Change the next reply of an API; None instead of a reply: none is sent, ever."""
        with self.lock:
            self._edits.append((api, node, change))

    def hold(self, node: int) -> None:
        """Keep the replies to Produce back until `release`; the batches are appended."""
        with self.lock:
            self._held_nodes.add(node)

    def release(self, node: int) -> None:
        """Send what was held, and hold no more."""
        with self.lock:
            self._held_nodes.discard(node)
        self._wakeup()

    def move_leader(self, topic: str, partition: int, node: int) -> None:
        """Give a partition another leader under the next epoch."""
        with self.lock:
            model = self.topics[topic].partitions[partition]
            model.leader, model.leader_epoch = node, model.leader_epoch + 1

    def make_anew(self, topic: str, partitions: int) -> dict[int, list[LoggedRecord]]:
        """Delete a topic and create it under another id; return the old logs."""
        with self.lock:
            old = self.topics[topic]
            self.topics[topic] = self._new_topic(partitions, len(self._listeners))
            return {index: model.log for index, model in enumerate(old.partitions)}

    def reset_connections(self) -> int:
        """End every connection by RST; return how many there were."""
        with self.lock:
            clients = list(self._clients)
            for client in clients:
                client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self._drop(client)
        return len(clients)

    def wait_for_batches(self, count: int, timeout_s: float = 20) -> None:
        """Return when so many batches have arrived since the start."""
        wait_until(lambda: len(self.produced) >= count, timeout_s, f"{count} batches at the broker")

    def logs(self) -> dict[str, dict[int, list[LoggedRecord]]]:
        """What the record checker reads."""
        with self.lock:
            return {
                name: {index: list(model.log) for index, model in enumerate(topic.partitions)}
                for name, topic in self.topics.items()
            }

    def renumbered_in_doubt(self) -> list[Attempt]:
        """Batches that came with another id, epoch or sequence after a first attempt that was written."""
        numbers: dict[tuple[str, int, tuple[bytes | None, ...]], tuple[int, int, int]] = {}
        wrong = []
        for attempt in self.produced:
            key = (attempt.topic, attempt.partition, attempt.values)
            if key in numbers and numbers[key] != attempt.producer:
                wrong.append(attempt)
            if attempt.is_written:
                numbers[key] = attempt.producer
        return wrong

    # -- the thread ----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._is_closing:
                events = self._selector.select(self._pause_s())
                with self.lock:
                    for key, _ in events:
                        if key.fileobj is self._waker:
                            self._waker.recv(4096)
                        elif isinstance(key.data, int):
                            self._accept(self._listeners[key.data], key.data)
                        elif key.data in self._clients:
                            self._serve(key.data)
                    self._after_events()
        except Exception:
            self.problems.append(traceback.format_exc())
        finally:
            for client in list(self._clients):
                self._drop(client)
            for sock in (*self._listeners, self._waker, self._wake):
                sock.close()
            self._selector.close()

    def _pause_s(self) -> float | None:
        waiting = [client.next_read_s for client in self._clients if client.next_read_s]
        return max(min(waiting) - time.monotonic(), 0) if waiting else None

    def _after_events(self) -> None:
        now_s = time.monotonic()
        for client in list(self._clients):
            if client.next_read_s and client.next_read_s <= now_s:
                client.next_read_s = 0.0
                self._selector.register(client.sock, selectors.EVENT_READ, client)
            if client.held and client.node not in self._held_nodes:
                for request, response in client.held:
                    client.protocol.send_response(request, response)
                client.held.clear()
                self._flush(client)

    def _wakeup(self) -> None:
        with contextlib.suppress(OSError):
            self._wake.send(b"x")

    def _accept(self, listener: socket.socket, node: int) -> None:
        sock, _ = listener.accept()
        sock.settimeout(5)  # replies are small; a client that does not read them is a problem to report
        client = Client(node, sock, ServerConnection(self.versions))
        self._clients.append(client)
        self._selector.register(sock, selectors.EVENT_READ, client)

    def _drop(self, client: Client) -> None:
        if client in self._clients:
            self._clients.remove(client)
            with contextlib.suppress(KeyError):
                self._selector.unregister(client.sock)
            client.sock.close()

    def _serve(self, client: Client) -> None:
        try:
            data = client.sock.recv(4096 if self.bytes_per_s else 1 << 18)
        except OSError:
            self._drop(client)
            return
        if not data:
            self._drop(client)
            return
        if self.on_bytes is not None:
            self.on_bytes(memoryview(data))
        bytes_per_s = self.bytes_per_s  # a test may set it to 0 at any moment
        if bytes_per_s:
            self._selector.unregister(client.sock)
            client.next_read_s = time.monotonic() + len(data) / bytes_per_s
        client.protocol.receive_data(data)
        for event in client.protocol.events():
            if isinstance(event, ConnectionRefused):
                self.problems.append(f"refused: {event.error}")
                self._drop(client)
                return
            self._on_request(client, event)
        self._flush(client)

    def _flush(self, client: Client) -> None:
        try:
            while buffers := client.protocol.data_to_send(64):
                client.protocol.data_sent(client.sock.sendmsg(buffers))
        except OSError:
            self._drop(client)

    def _on_request(self, client: Client, received: RequestReceived) -> None:
        self.requests.append((time.monotonic(), client.node, received.api))
        try:
            request = received.decode()
            response = self._answer(client.node, request, received.header.api_version)
        except CorruptDataError as error:
            self.problems.append(f"{received.api.name}: {error}")
            self._drop(client)
            return
        if response is None:
            client.protocol.send_nothing(received)
            return
        for index, (api, node, change) in enumerate(self._edits):
            if api is received.api and node in (None, client.node):
                del self._edits[index]
                edited = change(response)
                if edited is None:
                    return
                response = edited
                break
        if received.api is ApiKey.PRODUCE and client.node in self._held_nodes:
            client.held.append((received, response))
        else:
            client.protocol.send_response(received, response)

    # -- answers -------------------------------------------------------------------------------------------------------

    def _refusal(self, api: ApiKey, node: int, partition: int | None = None) -> Refusal | None:
        return next((each for each in self._refusals if each.takes(api, node, partition)), None)

    def _answer(self, node: int, request: Request, version: int) -> Response | None:
        match request.api:
            case ApiKey.PRODUCE:
                assert isinstance(request, ProduceRequest)
                response = self._produce(node, request, version)
                return response if request.acks else None
            case ApiKey.METADATA:
                assert isinstance(request, MetadataRequest)
                return self._metadata(node, request)
            case ApiKey.INIT_PRODUCER_ID:
                return self._init_producer_id(node)
            case _:
                keys = [ApiVersion(api_key=key, min_version=a, max_version=b) for key, (a, b) in self.versions.items()]
                return ApiVersionsResponse(error_code=0, api_keys=keys)

    def _init_producer_id(self, node: int) -> Response:
        refusal = self._refusal(ApiKey.INIT_PRODUCER_ID, node)
        if refusal is not None:
            return InitProducerIdResponse(throttle_time_ms=0, error_code=refusal.code, producer_epoch=-1)
        producer_id, epoch = self.first_producer
        self.first_producer = (producer_id + 1, 0)
        return InitProducerIdResponse(throttle_time_ms=0, error_code=0, producer_id=producer_id, producer_epoch=epoch)

    def _metadata(self, node: int, request: MetadataRequest) -> Response:
        refusal = self._refusal(ApiKey.METADATA, node)
        names = list(self.topics) if request.topics is None else [str(topic.name) for topic in request.topics]
        return MetadataResponse(
            throttle_time_ms=0,
            brokers=[
                MetadataResponseBroker(node_id=index, host="127.0.0.1", port=self._port(index), rack=None)
                for index in range(len(self._listeners))
            ],
            cluster_id="scripted",
            controller_id=0,
            topics=[self._topic_metadata(name, 0 if refusal is None else refusal.code) for name in names],
            error_code=0,
        )

    def _topic_metadata(self, name: str, code: int) -> MetadataResponseTopic:
        topic = None if name in self.hidden_topics else self.topics.get(name)
        if topic is None or code:
            return MetadataResponseTopic(
                error_code=code or UNKNOWN_TOPIC, name=name, topic_id=None, is_internal=False, partitions=[]
            )
        partitions = [
            MetadataResponsePartition(
                error_code=0,
                partition_index=index,
                leader_id=self.metadata_leaders.get((name, index), model.leader),
                leader_epoch=self.metadata_epochs.get((name, index), model.leader_epoch),
                replica_nodes=[],
                isr_nodes=[],
                offline_replicas=[],
            )
            for index, model in enumerate(topic.partitions)
        ]
        return MetadataResponseTopic(
            error_code=0, name=name, topic_id=topic.topic_id, is_internal=False, partitions=partitions
        )

    def _produce(self, node: int, request: ProduceRequest, version: int) -> ProduceResponse:
        responses = []
        for data in request.topic_data:
            name = data.name if version < 13 else self._name_of(data.topic_id)
            answers = [self._append(node, name, each.index, each.records, version) for each in data.partition_data]
            responses.append(TopicProduceResponse(name=data.name, topic_id=data.topic_id, partition_responses=answers))
        throttle_ms, self.throttle_ms = self.throttle_ms, 0
        endpoints = [
            NodeEndpoint(node_id=index, host="127.0.0.1", port=self._port(index), rack=None)
            for index in range(len(self._listeners))
        ]
        is_hinted = any(each.current_leader.leader_id >= 0 for topic in responses for each in topic.partition_responses)
        return ProduceResponse(
            responses=responses, throttle_time_ms=throttle_ms, node_endpoints=endpoints if is_hinted else []
        )

    def _append(self, node: int, name: str | None, index: int, records: Any, version: int) -> PartitionProduceResponse:
        batch = RecordBatchReader(records)
        if self.on_batch is not None:
            self.on_batch(name or "", index, batch)
        model = None
        if name is not None and name in self.topics and index < len(self.topics[name].partitions):
            model = self.topics[name].partitions[index]
        refusal = self._refusal(ApiKey.PRODUCE, node, index)
        code, offset, is_written = 0, -1, False
        if model is None:
            code = UNKNOWN_TOPIC if version < 13 else UNKNOWN_TOPIC_ID
        elif refusal is not None and not refusal.is_written:
            code = refusal.code
        elif model.leader != node:
            code = NOT_LEADER
        elif self.largest_batch is not None and batch.size_bytes > self.largest_batch:
            code = TOO_LARGE
        elif self._keeps_records:
            code, offset = model.append(batch)
            is_written = code == 0
        if refusal is not None and is_written:
            code, offset = refusal.code, -1
        if self._keeps_records:
            values = tuple(record.value for record in batch.records())
            numbers = (batch.producer_id, batch.producer_epoch, batch.base_sequence)
            self.produced.append(Attempt(node, name or "", index, numbers, values, code, is_written, time.monotonic()))
        leader = LeaderIdAndEpoch()
        record_errors: list[Any] = []
        if refusal is not None:
            if refusal.hint is not None:
                leader = LeaderIdAndEpoch(leader_id=refusal.hint[0], leader_epoch=refusal.hint[1])
            record_errors = [
                BatchIndexAndErrorMessage(batch_index=at, batch_index_error_message=text)
                for at, text in refusal.record_errors
            ]
        return PartitionProduceResponse(
            index=index,
            error_code=code,
            base_offset=offset,
            record_errors=record_errors,
            error_message=None,
            current_leader=leader,
        )

    def _name_of(self, topic_id: uuid.UUID | None) -> str | None:
        return next((name for name, topic in self.topics.items() if topic.topic_id == topic_id), None)

    def _new_topic(self, partitions: int, nodes: int) -> Topic:
        return Topic(uuid.uuid4(), [PartitionModel(index % nodes) for index in range(partitions)])

    def _port(self, node: int) -> int:
        return int(self._listeners[node].getsockname()[1])

    def _address(self, node: int) -> str:
        return f"127.0.0.1:{self._port(node)}"
