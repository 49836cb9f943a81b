"""A sender with a hand-turned clock and a pool of brokers that exist only as lists. No socket, no thread."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from kafkaprod._core.queues.accumulator import Accumulator
from kafkaprod._core.queues.buffer_pool import BufferPool
from kafkaprod._core.queues.completion import DeliveryFuture
from kafkaprod._core.queues.placement import Placement
from kafkaprod._core.requests.drain import Drain
from kafkaprod._core.requests.produce_request import ProduceRequest
from kafkaprod.engine.loop import Sender
from kafkaprod.engine.topic_watch import TopicWatch
from kafkaprod.errors import BootstrapError, ConnectionLostError, KafkaError
from kafkaprod.metadata import Metadata
from kafkaprod.metrics import ProducerMetrics
from kafkaprod.metrics.sums import NodeCounters
from kafkaprod.net.node import ConnectionStage
from kafkaprod.net.node_state import ConnectionFailure
from kafkaprod.protocol.in_flight import InFlightRequest, OnDone
from kafkaprod.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kafkaprod.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kafkaprod.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from kafkaprod.results.batch import BatchCompletion, FailureLedger
from kafkaprod.structs import Node
from tests.support.clock import ManualClock
from tests.support.config import unchecked_config

TOPIC = "orders"
WITHOUT_ID: uuid.UUID | None = None


def topic_uuid(name: str) -> uuid.UUID:
    return uuid.uuid5(uuid.NAMESPACE_DNS, name)


@dataclass
class Sent:
    """A request that the pool was given."""

    node_id: int
    api_key: int
    version: int
    on_done: OnDone
    request: Any = None
    body: bytes = b""
    expects_response: bool = True

    @property
    def produce(self) -> ProduceRequest:
        """The core's request behind a Produce request."""
        return self.on_done.args[0]  # type: ignore[attr-defined, no-any-return]

    def ended(self, **outcome: Any) -> InFlightRequest:
        done = InFlightRequest(self.node_id, self.on_done, self.api_key, self.version, 0, 0, 0)
        for name, value in outcome.items():
            setattr(done, name, value)
        return done


@dataclass
class FakePool:
    """Looks like a NodePool. Tests put outcomes into `finished`; what happened is in `log`, in order."""

    clock: ManualClock
    ready: set[int] = field(default_factory=lambda: {1})
    version: int | None = 9
    max_in_flight: int = 5
    sent: list[Sent] = field(default_factory=list)
    open: list[Sent] = field(default_factory=list)
    finished: list[InFlightRequest] = field(default_factory=list)
    failures: list[ConnectionFailure] = field(default_factory=list)
    nodes: Mapping[int, Node] = field(default_factory=dict)
    throttled: list[tuple[int, int]] = field(default_factory=list)
    disconnected: list[tuple[int, KafkaError]] = field(default_factory=list)
    last_failures: dict[int, ConnectionFailure] = field(default_factory=dict)
    log: list[str] = field(default_factory=list)
    poll_timeouts: list[float] = field(default_factory=list)
    wakeups: int = 0
    is_rebootstrap_required: bool = False
    is_bootstrap_hopeless: bool = False
    rotates: bool = False
    is_any_untried: bool = False
    refuses: KafkaError | None = None
    breaks: BaseException | None = None
    while_polled: Callable[[], object] = lambda: None

    poll_count: int = 0
    to_wake: list[Callable[[], None]] = field(default_factory=list)
    wait_ns: int = 0
    connection_count: int = 0

    @property
    def members(self) -> FakePool:
        return self

    def metrics(self) -> Mapping[int, NodeCounters]:
        return {}

    def node_ids(self) -> list[int]:
        return sorted(self.ready)

    def least_loaded_node(self, now_ms: int, *, other_than: int | None = None) -> int | None:
        usable = (node_id for node_id in self.ready if node_id != other_than and self.is_ready(node_id, now_ms))
        return min(usable, default=None)

    @property
    def is_any_connected(self) -> bool:
        return bool(self.ready)

    def may_be_accepted_later(self, error: KafkaError) -> bool:
        return self.rotates

    def is_ready(self, node_id: int, now_ms: int) -> bool:
        return node_id in self.ready and sum(sent.node_id == node_id for sent in self.open) < self.max_in_flight

    def is_connected(self, node_id: int) -> bool:
        return node_id in self.ready

    def ready_delay_ms(self, node_id: int, now_ms: int) -> int | None:
        return None

    def update_nodes(self, nodes: Mapping[int, Node], cluster_id: str | None = None) -> None:
        self.nodes = nodes

    def rebootstrap(self) -> None:
        self.is_rebootstrap_required = False
        self.log.append("rebootstrap")

    def api_version(self, node_id: int, api_key: int, our_min: int, our_max: int) -> int | None:
        return None if self.version is None else min(self.version, our_max)

    def send(
        self, node_id: int, request: Any, *, on_done: OnDone, now_ms: int, timeout_ms: int, version: int | None = None
    ) -> None:
        sent = Sent(node_id, request.api, request.versions[1], on_done, request)
        if self.refuses is None:
            self._take(sent)
        else:
            self.finished.append(sent.ended(error=self.refuses))

    def send_body(
        self,
        node_id: int,
        api_key: int,
        version: int,
        parts: Sequence[Any],
        size: int,
        *,
        on_done: OnDone,
        now_ms: int,
        timeout_ms: int,
        expects_response: bool = True,
        max_response_bytes: int = 0,
    ) -> None:
        body = b"".join(bytes(memoryview(buffer)) for part in parts for buffer in part.from_byte(0))
        assert len(body) == size
        self._take(Sent(node_id, api_key, version, on_done, None, body, expects_response))

    def _take(self, sent: Sent) -> None:
        self.sent.append(sent)
        self.open.append(sent)

    def throttle(self, node_id: int, throttle_ms: int, now_ms: int) -> None:
        self.throttled.append((node_id, throttle_ms))

    def poll(self, timeout_ms: float) -> list[InFlightRequest]:
        self.poll_timeouts.append(timeout_ms)
        if self.breaks is not None:
            raise self.breaks
        while self.to_wake:
            self.to_wake.pop()()
        self.while_polled()
        finished, self.finished = self.finished, []
        return finished

    def name_of(self, node_id: int) -> str:
        return f"node {node_id}"

    def last_failure(self, node_id: int) -> ConnectionFailure | None:
        return self.last_failures.get(node_id)

    def newest_failure_ms(self, node_id: int) -> int:
        failures = [self.last_failures[node_id]] if node_id in self.last_failures else self.last_failures.values()
        return -1 if node_id in self.ready else max((failure.at_ms for failure in failures), default=-1)

    def why_not_connected(self) -> KafkaError | None:
        return next((failure.error for failure in self.last_failures.values()), None)

    def take_failures(self) -> list[ConnectionFailure]:
        failures, self.failures = self.failures, []
        return failures

    def wakeup(self) -> None:
        self.wakeups += 1

    def disconnect(self, node_id: int, error: KafkaError) -> None:
        self.disconnected.append((node_id, error))

    def bootstrap_error(self) -> KafkaError:
        return BootstrapError("no bootstrap server could be used: h:1 (connect): refused")

    def close(self) -> list[InFlightRequest]:
        self.log.append("pool closed")
        closed, self.open = self.open, []
        error = ConnectionLostError("the client closes")
        return [each.ended(error=error) for each in closed]


class Rig:
    """A sender and all it works with. `turn` is one turn of its loop."""

    def __init__(self, *, topics: Mapping[str, Sequence[int]] | None = None, **options: Any) -> None:
        batch_size = options.pop("batch_size", 16384)
        max_request_bytes = options.pop("max_request_bytes", 1 << 20)
        linger_ms = options.pop("linger_ms", 0)
        metadata_options = options.pop("metadata_options", {})
        keeps_producer_id = options.pop("keeps_producer_id", False)
        self.config = unchecked_config(**{"enable_idempotence": False, "retry_backoff_ms": 100, **options})
        self.clock = ManualClock(now_ms=1_000_000)
        self.pool = FakePool(self.clock)
        self.ledger = FailureLedger()
        self.accumulator = Accumulator(
            BufferPool(1 << 24), batch_size, 1 << 20, partial(BatchCompletion, ledger=self.ledger), self.pool.wakeup
        )
        self.drain = Drain(
            self.accumulator,
            linger_ms,
            max_request_bytes,
            self.config.enable_idempotence,
        )
        self.placement = Placement(self.accumulator)
        if keeps_producer_id:
            self.drain.set_producer(4000, 0)
        self.metadata = Metadata(
            unchecked_config(**metadata_options),
            self.clock.now_ms(),
            random=lambda: 0.5,
            keeps_cluster=keeps_producer_id,
        )
        self.watch = TopicWatch(
            self.accumulator, self.clock, self.pool.wakeup, 60_000, 10_000, lambda: True, lambda: None
        )
        self.metrics = ProducerMetrics("test", "0", 0)
        self.sender = Sender(
            self.config,
            self.accumulator,
            self.drain,
            self.placement,
            self.pool,  # type: ignore[arg-type]
            self.metadata,
            self.watch,
            self.clock,
            self.metrics,
            keeps_producer_id=keeps_producer_id,
            random=lambda: 0.5,  # no jitter
        )
        self.topics = dict({TOPIC: (1,)} if topics is None else topics)
        if self.topics:
            self.learn()

    # -- the world -----------------------------------------------------------------------------------------------------

    def learn(self) -> None:
        """Let the sender ask for all topics and get them, and a producer id if it wants one."""
        for name in self.topics:
            self.metadata.add_topic(name, self.clock.now_ms())
        self.turn()
        self.answer_metadata()
        self.turn()
        if self.config.enable_idempotence and self.drain.producer_id < 0:
            self.answer_producer_id()
            self.turn()

    def turn(self, advance_ms: int = 0) -> None:
        self.clock.advance(advance_ms)
        self.sender.run_once()

    def open_of(self, kind: type) -> list[Sent]:
        return [sent for sent in self.pool.open if isinstance(sent.request, kind)]

    def metric(self, name: str) -> float:
        return float(self.metrics.snapshot(self.clock.now_ms())["producer-metrics"][name])

    @property
    def produce_requests(self) -> list[Sent]:
        return [sent for sent in self.pool.open if sent.request is None]

    def complete(self, sent: Sent, **outcome: Any) -> None:
        self.pool.open.remove(sent)
        self.pool.finished.append(sent.ended(**outcome))

    def metadata_response(self, **errors: int) -> MetadataResponse:
        nodes = {1, 2}.union(*self.topics.values()) - {-1}
        return MetadataResponse(
            cluster_id="c",
            brokers=[MetadataResponseBroker(node_id=i, host=f"h{i}", port=9092, rack=f"r{i}") for i in sorted(nodes)],
            topics=[
                MetadataResponseTopic(
                    error_code=errors.get(name, 0),
                    name=name,
                    topic_id=topic_uuid(name),
                    partitions=[
                        MetadataResponsePartition(error_code=0, partition_index=i, leader_id=leader, leader_epoch=0)
                        for i, leader in enumerate(leaders)
                    ],
                )
                for name, leaders in self.topics.items()
            ],
        )

    def answer_metadata(self, **errors: int) -> None:
        (sent,) = self.open_of(MetadataRequest)
        self.complete(sent, response=self.metadata_response(**errors))

    def answer_producer_id(self, producer_id: int = 4000, epoch: int = 0, error_code: int = 0) -> None:
        (sent,) = self.open_of(InitProducerIdRequest)
        response = InitProducerIdResponse(error_code=error_code, producer_id=producer_id, producer_epoch=epoch)
        self.complete(sent, response=response)

    # -- records -------------------------------------------------------------------------------------------------------

    def send(self, value: bytes = b"v", partition: int = 0, topic: str = TOPIC) -> DeliveryFuture:
        future = self.accumulator.append(
            self.accumulator.topics[topic], None, value, None, partition, 0, self.clock.now_ms()
        )
        assert future is not None
        return future

    def in_flight(self, value: bytes = b"v", partition: int = 0) -> tuple[DeliveryFuture, Sent]:
        """Send one record and let it go out."""
        future = self.send(value, partition)
        self.turn()
        return future, self.produce_requests[-1]

    def answer(
        self,
        sent: Sent,
        error_code: int = 0,
        *,
        offset: int = 7,
        throttle_ms: int = 0,
        write_ms: int = 0,
        **fields: Any,
    ) -> None:
        """Answer every batch of a produce request alike."""
        topics: dict[str, list[PartitionProduceResponse]] = {}
        for ref in sent.produce.refs():
            topics.setdefault(ref.topic, []).append(
                PartitionProduceResponse(
                    index=ref.partition, error_code=error_code, base_offset=offset if error_code == 0 else -1, **fields
                )
            )
        self.answer_topics(sent, topics, throttle_ms, write_ms)

    def answer_topics(
        self,
        sent: Sent,
        topics: Mapping[str, list[PartitionProduceResponse]],
        throttle_ms: int = 0,
        write_ms: int = 0,
    ) -> None:
        by_id = sent.version >= 13
        response = ProduceResponse(
            responses=[
                TopicProduceResponse(
                    name="" if by_id else name,
                    topic_id=topic_uuid(name) if by_id else WITHOUT_ID,
                    partition_responses=partitions,
                )
                for name, partitions in topics.items()
            ],
            throttle_time_ms=throttle_ms,
        )
        body = memoryview(response.encode(sent.version))
        self.complete(sent, body=body, latency_ms=write_ms + 3, written_at_ms=write_ms)


def failure(error: KafkaError, attempt: int = 1, at_ms: int = 0) -> ConnectionFailure:
    return ConnectionFailure(Node(-1, "h", 1), ConnectionStage.CONNECT, error, attempt, at_ms=at_ms)
