"""The real producer engine as a simulated process: its sender's turns, its records, and the outcome of each.

Nothing of the engine is replaced but its network, its clock and its source of jitter. The scheduler runs a turn when
the last one's wait is over, when a connection has news, or when the engine wakes itself; turns that never wait and
achieve nothing are a violation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from kafkaprod._core.queues.completion import DeliveryFuture
from kafkaprod._core.queues.topic_queues import TopicQueues
from kafkaprod.config import ProducerConfig
from kafkaprod.engine.engine import Engine
from kafkaprod.errors import KafkaError, ProducerClosedError, RecordTooLargeError
from tests.simulation.nodes import WALL_MS, BrokerNode
from tests.simulation.outcomes import Outcomes
from tests.simulation.serving import PORT, host_of
from tests.simulation.wire import SimulatedNetwork
from tests.simulation.world import World

MAX_TURNS_AT_ONCE = 200
MAX_RECORDS = 300
MOST_RETRIES = 2**31 - 1
VALUE_STEP = 1_000_000_000


class EngineNode:
    """A program with a producer, which sends numbered records.

    Attributes:
        is_idempotent: Whether nothing may be in the log twice, and all of it in order.
        is_stopping: No record is sent any more.
    """

    def __init__(
        self, world: World, brokers: dict[int, BrokerNode], outcomes: Outcomes, number: int, topic: str
    ) -> None:
        self.world = world
        self.topic = topic
        self.outcomes = outcomes
        self.process = world.process(f"engine {number}")
        self.process.is_up = True
        world.skew(self.process)
        self.is_stopping = False
        self._ticket = 0
        self._first = (100 + number) * VALUE_STEP
        self._count = 0
        chance = world.random
        self._pace_ms = chance.choice((10, 40, 120))
        self._most_at_once = chance.choice((1, 4, 10))
        self._padding = chance.choice((0, 40, 400))
        self._way = chance.choice(("partition", "key", "any"))
        servers = {host_of(broker.broker_id): broker.server for broker in brokers.values()}
        self.network = SimulatedNetwork(world, self.process, servers)
        self.network.poller.on_ready = lambda: self._wake_in(0)
        options = self._options(sorted(servers))
        self.config = ProducerConfig.from_options(options)
        self.is_idempotent = self.config.enable_idempotence
        self.acks = self.config.acks
        outcomes.add_producer(self._first // VALUE_STEP, is_idempotent=self.is_idempotent, acks=self.acks)
        world.note(f"{self.process.name}: {self._way}, {options}")
        self.engine = Engine(self.config, self, network=self.network, random=chance.random)
        self.engine.accumulator.seed = chance.getrandbits(60)
        self._due_ms: int | None = None
        self._progress, self._turns_at_once = (-1, 0, 0), 0
        self._steps: Iterator[Any] | None = None
        self._queues: TopicQueues | None = None
        self._wake_in(0)
        self._find_topic()

    def _options(self, hosts: list[str]) -> dict[str, Any]:
        chance = self.world.random
        is_idempotent = chance.random() < 0.75
        request_timeout_ms = chance.choice((150, 400, 1500))
        linger_ms = chance.choice((0, 0, 5, 30))
        return {
            "client_id": self.process.name,
            "bootstrap_servers": ",".join(f"{host}:{PORT}" for host in hosts),
            "enable_idempotence": is_idempotent,
            "acks": "all" if is_idempotent else chance.choice(("all", 1, 0)),
            "retries": MOST_RETRIES if is_idempotent else chance.choice((0, 1, MOST_RETRIES)),
            "max_in_flight_requests_per_connection": chance.choice((1, 2, 5)),
            "linger_ms": linger_ms,
            "batch_size": chance.choice((1, 200, 1000, 16_384)),
            "buffer_memory": 1 << 20,
            "max_block_ms": 600_000,  # the brokers may start late
            "request_timeout_ms": request_timeout_ms,
            "delivery_timeout_ms": linger_ms + request_timeout_ms + chance.choice((0, 500, 3000, 8000)),
            "retry_backoff_ms": chance.choice((5, 20, 50)),
            "retry_backoff_max_ms": 100,
            "reconnect_backoff_ms": chance.choice((5, 20, 50)),
            "reconnect_backoff_max_ms": 100,
            "metadata_max_age_ms": chance.choice((200, 1000, 10_000)),
            "socket_connection_setup_timeout_ms": 200,
            "socket_connection_setup_timeout_max_ms": 400,
            "connections_max_idle_ms": chance.choice((300, 60_000)),
            "compression_type": chance.choice(("none", "none", "none", "gzip")),
            "partitioner_adaptive_partitioning_enable": chance.random() < 0.5,
            "partitioner_availability_timeout_ms": chance.choice((0, 100)),
        }

    # -- the engine's clock --------------------------------------------------------------------------------------------

    def now_ms(self) -> int:
        """The time by this process's clock."""
        return self.world.clock_ms(self.process)

    def now_us(self) -> int:
        """The same in microseconds."""
        return self.now_ms() * 1000

    def wall_ms(self) -> int:
        """The time of day."""
        return WALL_MS + self.world.now_ms

    # -- the sender's turns --------------------------------------------------------------------------------------------

    def _wake_in(self, delay_ms: int) -> None:
        due_ms = self.world.now_ms + delay_ms
        if self._due_ms is None or due_ms < self._due_ms:
            self._due_ms = due_ms
            self.world.in_process(self.process, delay_ms, lambda: self._turn(due_ms))

    def _turn(self, due_ms: int) -> None:
        if self._due_ms != due_ms:
            return  # an earlier one was needed
        self._due_ms = None
        self._watch_spinning()
        poller = self.network.poller
        self.engine.sender.run_once()
        self.engine.accumulator.set_sender_sleeps(True)  # what comes before the next turn must wake it
        if poller.had_events:
            self._wake_in(0)
        else:  # a millisecond of its clock may be a little more or less
            self._wake_in(min(-int(-poller.timeout_ms * 1000 // self.process.clock_permille), 60_000))

    def _watch_spinning(self) -> None:
        progress = (self.world.now_ms, self.network.sent_count, self.outcomes.open_count)
        if progress != self._progress:
            self._progress, self._turns_at_once = progress, 0
        self._turns_at_once += 1
        if self._turns_at_once > MAX_TURNS_AT_ONCE:
            self.outcomes.fail(f"spinning: {self.process.name} makes turn after turn without waiting")

    # -- the program ---------------------------------------------------------------------------------------------------

    def _find_topic(self) -> None:
        """Wait for the topic as `send` does, then begin to send."""
        if self._steps is None:
            deadline_ms = self.now_ms() + self.config.max_block_ms
            self._steps = self.engine.topic_watch.wait_for(
                self.topic,
                None,
                deadline_ms,
                lambda: None,
                lambda: self,
            )
        try:
            next(self._steps)
        except StopIteration as end:
            self._queues = end.value
            self.world.in_process(self.process, 1, self._send_some)

    def wake(self) -> None:
        """Look again for the topic: there is news."""
        if self._queues is None and self._steps is not None:
            self.world.in_process(self.process, 0, self._look_again)

    def __call__(self) -> None:
        """Do as `wake`."""
        self.wake()

    def start_with(self, start: Callable[[], None]) -> None:
        """Wake the sender at once: its turn comes later here."""
        start()

    def _look_again(self) -> None:
        if self._queues is None:
            self._find_topic()

    def _send_some(self) -> None:
        if self.is_stopping or self._count >= MAX_RECORDS:
            return
        chance = self.world.random
        for _ in range(chance.randint(1, self._most_at_once)):
            self._send()
            if self.is_waiting:
                return  # as a program with one thread does
        self.world.in_process(self.process, chance.randint(1, self._pace_ms), self._send_some)

    def _send(self) -> None:
        chance, accumulator = self.world.random, self.engine.accumulator
        queues = accumulator.topics.get(self.topic)
        if queues is None:
            return
        value = self._first + self._count
        partition, key = -1, None
        if self._way == "partition":
            partition = chance.randrange(queues.partition_count)
        elif self._way == "key":
            key = b"%d" % chance.randrange(4)
        body = b"%d " % value + b"x" * (chance.randint(0, self._padding) if self._padding else 0)
        now_ms, wall_ms = self.now_ms(), self.wall_ms()

        def append(ticket: int) -> DeliveryFuture | None:
            return accumulator.append(queues, key, body, None, partition, wall_ms, now_ms, ticket)

        try:
            future = append(0)
        except (RecordTooLargeError, ProducerClosedError):
            return
        if future is not None:
            self._took(value, future)
        else:
            self._wait_in_line(append, value, accumulator.memory_need(key, body, None))

    def _took(self, value: int, future: DeliveryFuture) -> None:
        self._count += 1
        self.outcomes.sent(value, future.partition)
        future.add_done_callback(lambda done: self._settled(value, done))

    def _wait_in_line(self, append: Callable[[int], DeliveryFuture | None], value: int, need: int) -> None:
        """Wait for memory as `send` does, but never look by itself: a waiter that is not woken waits for ever."""
        pool = self.engine.accumulator.pool
        ticket = pool.new_ticket()

        def try_again() -> None:
            if self._ticket != ticket:
                return  # woken once more, and served before
            future = append(ticket)
            if future is not None:
                self._ticket = 0
                pool.dequeue_waiter(ticket)
                self._took(value, future)
                self._send_some()

        self._ticket = ticket
        self.world.note(f"{self.process.name} waits for memory")
        pool.enqueue_waiter(need, lambda: self.world.in_process(self.process, 0, try_again), ticket)
        self.engine.sender.wakeup()
        self.world.in_process(self.process, 0, try_again)

    def _settled(self, value: int, done: DeliveryFuture) -> None:
        error = done.peek_error()
        if error is None:
            metadata = done.result(0)
            self.outcomes.delivered(value, metadata.partition, metadata.offset)
        else:
            assert isinstance(error, KafkaError), error
            self.outcomes.failed(value, error)

    @property
    def is_waiting(self) -> bool:
        """Whether the program waits in line for memory. Nothing but the engine wakes it."""
        return self._ticket != 0

    @property
    def unsettled_count(self) -> int:
        """Batches without an outcome."""
        return self.engine.accumulator.incomplete_batch_count
