"""A program with transactions: the whole producer engine, with its own state machine of transactions.

    init -> begin -> send ... -> commit or abort -> begin ...

It ends transactions that fail as the documentation says: by their abort, or, if that cannot be, by ending itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kafkaprod._core.queues.completion import DeliveryFuture
from kafkaprod.broker.coordinator.coordinators import GROUPS
from kafkaprod.engine.transactions.calls import Call
from kafkaprod.engine.transactions.identity import TransactionalIdentity
from kafkaprod.engine.transactions.states import State
from kafkaprod.errors import KafkaError
from kafkaprod.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from kafkaprod.structs import TopicPartition
from tests.simulation.asking import Asker
from tests.simulation.ledger import Ledger, LedgerEntry
from tests.simulation.nodes import BrokerNode
from tests.simulation.outcomes import Outcomes
from tests.simulation.producing import MOST_RETRIES, EngineNode
from tests.simulation.world import World

AGAIN_MS = 50
MOST_HESITATION_MS = 1500
OFFSETS_MS = 30
OFFSETS_VERSION = 7
Start = Callable[[Callable[[], None]], Call | None]


def group_of(transactional_id: str) -> str:
    """Return the group whose offsets a program commits."""
    return f"group of {transactional_id}"


class TransactionalNode(EngineNode):
    """See the module docstring.

    Attributes:
        transactional_id: Of all instances of the program.
        on_commit: Called when it begins to commit.
        is_over: It does nothing any more: it was stopped, has crashed, or its producer has failed for good.
    """

    def __init__(
        self,
        world: World,
        brokers: dict[int, BrokerNode],
        outcomes: Outcomes,
        ledger: Ledger,
        number: int,
        topic: str,
        transactional_id: str,
    ) -> None:
        self.transactional_id = transactional_id
        self.ledger = ledger
        self.is_over = False
        self.on_commit: Callable[[TransactionalNode], None] = lambda _: None
        self._entry: LedgerEntry | None = None
        self._left_count = 0
        super().__init__(world, brokers, outcomes, number, topic)
        self._way = "partition"
        self._pace_ms = world.random.choice((2, 10, 40))

    def _options(self, hosts: list[str]) -> dict[str, Any]:
        chance = self.world.random
        options = super()._options(hosts)
        self.timeout_ms = chance.choice((300, 800, 2000))
        return {
            **options,
            "enable_idempotence": True,
            "acks": "all",
            "retries": MOST_RETRIES,
            "transactional_id": self.transactional_id,
            "transaction_timeout_ms": self.timeout_ms,
            "linger_ms": min(options["linger_ms"], 5),
            "delivery_timeout_ms": 5 + options["request_timeout_ms"] + chance.choice((500, 3000)),
        }

    @property
    def identity(self) -> TransactionalIdentity:
        """The engine's transactions."""
        assert self.engine.transactions is not None
        return self.engine.transactions

    @property
    def is_idle(self) -> bool:
        """Whether no transaction is open, and none follows."""
        return self.is_over or (self.is_stopping and self._entry is None)

    def crash(self) -> None:
        """End the process; what its open transaction becomes is for the coordinator to say."""
        self.process.is_up = False
        self.is_over = True
        self.outcomes.forget(self._first // 1_000_000_000)

    # -- the program ---------------------------------------------------------------------------------------------------

    def _send_some(self) -> None:
        """Begin: the topic is known."""
        self.ledger.taken_over(self.transactional_id)
        self._init()

    def _init(self) -> None:
        self._call(self.identity.start_init, self._on_init)

    def _on_init(self, error: KafkaError | None) -> None:
        if error is None:
            self._rest(self._begin)
        elif not self._ends_with(error):
            self.world.in_process(self.process, AGAIN_MS, self._init)

    def _begin(self) -> None:
        if self.is_stopping:
            return
        chance = self.world.random
        try:
            self.identity.begin()
        except KafkaError as error:
            if not self._ends_with(error):
                self._rest(self._begin)
            return
        self._entry = self.ledger.begin(self.transactional_id, self.timeout_ms)
        self._left_count = chance.choice((0, 1, 2, 5))
        self._send_next()

    def _send_next(self) -> None:
        chance = self.world.random
        if self._left_count <= 0:
            hesitates = chance.random() < 0.05  # longer than the coordinator waits
            delay_ms = chance.randint(0, MOST_HESITATION_MS) if hesitates else chance.randint(0, 5)
            then = self._send_offsets if self._has_offsets() else self._end
            self.world.in_process(self.process, delay_ms, then)
            return
        self._left_count -= 1
        try:
            self.identity.check_sending()
        except KafkaError as error:
            if not self._ends_with(error):
                self._abort()
            return
        self._send()
        self.world.in_process(self.process, chance.randint(0, self._pace_ms), self._send_next)

    def _took(self, value: int, future: DeliveryFuture) -> None:
        assert self._entry is not None
        self.ledger.sent(self._entry, value, future.partition)
        super()._took(value, future)

    def _has_offsets(self) -> bool:
        """Whether this transaction commits offsets."""
        return self.world.random.random() < 0.3

    def _offsets(self) -> tuple[dict[TopicPartition, int], Any]:
        """Return offsets and the group, or its member, whose they are: the number of the transaction, to be known."""
        entry = self._entry
        assert entry is not None
        entry.has_offsets = True
        return {TopicPartition(self.topic, 0): entry.number}, group_of(self.transactional_id)

    def _send_offsets(self) -> None:
        """Commit offsets in the transaction, as a program does that reads and writes."""
        offsets, group = self._offsets()
        self._call(lambda wake: self.identity.start_offsets(offsets, group, wake), self._on_offsets)

    def _on_offsets(self, error: KafkaError | None) -> None:
        if error is None:
            self._end()
        elif not self._ends_with(error):
            self._abort()

    def _end(self) -> None:
        if self.world.random.random() < 0.7:
            assert self._entry is not None
            self.ledger.committing(self._entry)
            self.on_commit(self)
            self._call(self.identity.start_commit, self._on_commit)
        else:
            self._abort()

    def _abort(self) -> None:
        assert self._entry is not None
        self.ledger.aborting(self._entry)
        self._call(self.identity.start_abort, self._on_abort)

    def _on_commit(self, error: KafkaError | None) -> None:
        assert self._entry is not None
        if error is None:
            self._settle(is_committed=True)
            return
        self.world.note(f"{self.process.name}: the commit failed: {error.outcome}: {error}")
        if error.outcome != "unknown":
            self.ledger.ended(self._entry, is_committed=error.outcome == "committed")
        if not self._ends_with(error):
            self._abort()

    def _on_abort(self, error: KafkaError | None) -> None:
        if error is None:
            self._settle(is_committed=False)
        elif not self._ends_with(error):
            self.world.in_process(self.process, AGAIN_MS, self._abort)

    def _settle(self, *, is_committed: bool) -> None:
        assert self._entry is not None
        self.ledger.ended(self._entry, is_committed=is_committed)
        self._entry = None
        self._rest(self._begin)

    def _rest(self, then: Callable[[], None]) -> None:
        self.world.in_process(self.process, self.world.random.randint(0, self._pace_ms), then)

    def _ends_with(self, error: KafkaError) -> bool:
        """Return whether the producer has failed for good; the program is over then."""
        if self.identity._machine.state is not State.FATAL_ERROR:
            return False
        self.world.note(f"{self.process.name} ends: {error}")
        self.is_over = True
        return True

    def _call(self, start: Start, then: Callable[[KafkaError | None], None]) -> None:
        """Make a call that waits; `then` gets its error."""
        calls: list[Call | None] = []

        def look() -> None:
            call = calls[0]
            if call is not None and not call.is_done:
                return
            calls[0] = None
            error = None
            try:
                if call is not None:
                    self.identity.finish(call)
            except KafkaError as failure:
                error = failure
            if call is not None:
                then(error)

        def wake() -> None:
            self.world.in_process(self.process, 0, look)

        try:
            calls.append(start(wake))
        except KafkaError as failure:
            then(failure)
            return
        self.engine.node_pool.wakeup()


class OffsetsReader:
    """Asks again and again which offsets the groups of programs have.

    Attributes:
        found: The offset of each program's group that was answered last.
    """

    def __init__(
        self, world: World, brokers: dict[int, BrokerNode], ledger: Ledger, topic: str, names: Sequence[str]
    ) -> None:
        self.process = world.process("offsets reader")
        self.process.is_up = True
        self._world = world
        self._asker = Asker(world, self.process, brokers)
        self._ledger = ledger
        self._topic = topic
        self.found = dict.fromkeys(names, -1)
        self._read()

    def _read(self) -> None:
        self._world.in_process(self.process, OFFSETS_MS, self._read)
        coordinator = self._asker.leader_of(GROUPS.topic)
        if coordinator is None:
            return
        name = self._world.random.choice(list(self.found))
        floor = self._ledger.offset_floor(name)
        topics = [OffsetFetchRequestTopic(name=self._topic, partition_indexes=[0])]
        request = OffsetFetchRequest(group_id=group_of(name), topics=topics, require_stable=True)

        def answered(answer: Any) -> None:
            if answer is not None and not answer.error_code:
                (partition,) = answer.topics[0].partitions
                if not partition.error_code:
                    self.found[name] = partition.committed_offset
                    self._ledger.fetched_offset(name, partition.committed_offset, floor)

        self._asker.ask(coordinator, request, OFFSETS_VERSION, answered, of_leader=GROUPS.topic)
