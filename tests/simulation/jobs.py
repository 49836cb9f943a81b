"""Jobs that are run again until one run says that its rows are there: the real steps of a write, `marks.write`.

once     a consumer of committed records sees one record of each row, however many runs there were, also side by side
whole    in the end, it sees a row of each job that a run has called done, all of them; of another job all, some whole
         parts of it, or nothing
one      at most one run of a job says that it wrote the rows, where a write is one transaction

Nothing of a write is replaced but its clock, its client's connections, and the threads behind its producer's calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any, cast

from kafkaprod._core.queues.completion import DeliveryFuture
from kafkaprod.admin.client import ClusterClient
from kafkaprod.broker.coordinator.coordinators import GROUPS
from kafkaprod.errors import ConnectionLostError, KafkaError, WriteTakenOverError
from kafkaprod.marks import steps, verdict, write
from kafkaprod.marks.place import DEFAULT_PREFIX, mark_name
from kafkaprod.marks.write import WriteTry
from kafkaprod.marks.writers import KeptWriter, Writers, WritingProducer
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from kafkaprod.results.write import WriteResult
from tests.simulation.asking import Asker
from tests.simulation.ledger import Ledger
from tests.simulation.lockstep import Program
from tests.simulation.nodes import WALL_MS, BrokerNode
from tests.simulation.outcomes import Outcomes
from tests.simulation.processing import TIMEOUT_MS, Row, Rows
from tests.simulation.rules import replaced
from tests.simulation.transacting import TransactionalNode
from tests.simulation.world import World

ROWS_OF = 1000  # the first one of the numbers that stand for jobs where `Rows` has partitions
WAIT_S = 2.0
FLUSH_MS = 5


class Job:
    """What is to be written once.

    Attributes:
        rows: How many.
        parts: As of `transaction()`.
        results: What runs have said.
    """

    def __init__(self, number: int, rows: int, parts: int | bool) -> None:
        self.number = number
        self.write_id = f"job {number}"
        self.transactional_id = mark_name(DEFAULT_PREFIX, self.write_id)
        self.rows = rows
        self.parts = parts
        self.results: list[WriteResult] = []

    def row(self, index: int) -> Row:
        """Return a row's name."""
        return Row(ROWS_OF + self.number, index)


@contextmanager
def virtual_time(world: World) -> Iterator[None]:
    """Let writes live in a world's time, and their waits be as short as those of its brokers."""
    with ExitStack() as scaled:
        for module in (write, steps):
            scaled.enter_context(replaced(module, "monotonic_s", lambda: world.now_ms / 1000))
        scaled.enter_context(replaced(write, "wall_s", lambda: (WALL_MS + world.now_ms) / 1000))
        token = SimpleNamespace(token_hex=lambda size: f"{world.random.getrandbits(8 * size):0{2 * size}x}")
        scaled.enter_context(replaced(write, "secrets", token))
        scaled.enter_context(replaced(write, "os", SimpleNamespace(getpid=lambda: 1)))
        scaled.enter_context(replaced(write, "socket", SimpleNamespace(gethostname=lambda: "host")))
        scaled.enter_context(replaced(write, "_GLANCE_MS", 100))
        yield


class JobNode(TransactionalNode):
    """One run of a job.

    Attributes:
        on_over: Called when it has ended, by itself or not.
    """

    def __init__(
        self,
        world: World,
        brokers: dict[int, BrokerNode],
        outcomes: Outcomes,
        ledger: Ledger,
        number: int,
        topic: str,
        job: Job,
        rows: Rows,
    ) -> None:
        self.job = job
        self._rows = rows
        self._row = 0
        self.on_over: Callable[[JobNode], None] = lambda _: None
        self.asker: Asker
        self._program: Program | None = None
        super().__init__(world, brokers, outcomes, ledger, number, topic, job.transactional_id)
        self._pace_ms = world.random.choice((1, 4))
        self.asker = Asker(world, self.process, brokers)

    def _options(self, hosts: list[str]) -> dict[str, Any]:
        options = super()._options(hosts)
        self.timeout_ms = TIMEOUT_MS
        return {**options, "transaction_timeout_ms": TIMEOUT_MS}

    @property
    def is_idle(self) -> bool:
        """Whether it has ended."""
        return self.is_over

    def crash(self) -> None:
        """End the process."""
        super().crash()
        self.end()

    def end(self) -> None:
        """Let nothing of it run any more."""
        if self._program is not None:
            self._program.kill()
        self.on_over(self)

    def _send_some(self) -> None:
        """Begin: the topic is known."""
        self._program = Program(self.world, self.process, self._work)
        self._program.start()

    def _work(self) -> None:
        try:
            result = self._write()
        except KafkaError as error:
            kind = type(error).__name__
            self.world.note(f"{self.process.name}: {self.job.write_id} ended with {kind}: {error}"[:300])
            if not isinstance(error, WriteTakenOverError) and self._entry is not None:
                self.sleep(self.timeout_ms)  # its transaction is left to its time-out, or the next run
        else:
            was = "was" if result.already_written else "is"
            self.world.note(f"{self.process.name}: {self.job.write_id} {was} done")
            self.job.results.append(result)
        self.is_over = True
        self.process.is_up = False  # with its connections, and what it has not sent
        self.outcomes.forget(self._first // 1_000_000_000)
        self.world.at(0, lambda: self.on_over(self))

    def sleep(self, length_ms: int) -> None:
        """Wait."""
        assert self._program is not None
        self._program.sleep(length_ms)

    def wait_for(self, begin: Callable[[Callable[[Any], None]], None]) -> Any:
        """Wait for the end of what begins."""
        assert self._program is not None
        return self._program.wait_for(begin)

    def _write(self) -> WriteResult:
        """Take the steps of `WriteCalls`."""
        writers = cast(Writers, JobWriter(self))
        attempt = JobTry(writers, self.job.write_id, verdict.COUNT, parts=self.job.parts, wait_s=WAIT_S)
        attempt.open(self.topic)
        try:
            self._send_rows(attempt)
        except KafkaError as error:
            found = attempt.give_up(error)
            if found is None:
                raise
            return found
        return attempt.commit()

    def _send_rows(self, attempt: WriteTry) -> None:
        tap, chance = attempt.tap, self.world.random
        for index in range(self.job.rows):
            tap.topics.setdefault(self.topic)
            tap.rows += 1
            if not tap.is_rehearsal:
                self.identity.check_sending()
                self._row = index
                before = self._count
                self._send()
                while self._count == before:  # in line for memory
                    self.sleep(FLUSH_MS)
                self.sleep(chance.randint(0, self._pace_ms))
            attempt.end_piece()

    def _took(self, value: int, future: DeliveryFuture) -> None:
        self._rows.sent(value, self.job.row(self._row))
        super()._took(value, future)


class JobTry(WriteTry):
    """A try whose topic is there."""

    def _look_up(self, topic: str) -> None:
        self._topic_ids[topic] = ""


class JobWriter(KeptWriter):
    """Makes the writes of one run, with the run's own engine; also the run's only writer."""

    def __init__(self, node: JobNode) -> None:
        self._node = node
        self.config = node.config
        self.client = JobClient(node)

    def take(self) -> JobWriter:
        return self

    def give_back(self, writer: KeptWriter) -> None:
        """The run ends."""

    def start(self, transactional_id: str) -> WritingProducer:
        assert transactional_id == self._node.transactional_id
        producer: Any = JobProducer(self._node)
        return WritingProducer(producer, cast(Any, None), self._node.identity)

    def close(self) -> None:
        """The run ends."""


class JobProducer:
    """The calls of a producer that a write makes, each a wait of the run."""

    def __init__(self, node: JobNode) -> None:
        self._node = node
        self.engine = node.engine

    def init_transactions(self) -> None:
        self._node.ledger.taken_over(self._node.transactional_id)
        self._call(self._node.identity.start_init)

    def begin_transaction(self) -> None:
        node = self._node
        node.identity.begin()
        node._entry = node.ledger.begin(node.transactional_id, node.timeout_ms)

    def flush(self) -> None:
        while self._node.unsettled_count:
            self._node.sleep(FLUSH_MS)

    def send_offsets_to_transaction(self, offsets: Any, group: str) -> None:
        self._call(lambda wake: self._node.identity.start_offsets(offsets, group, wake))

    def commit_transaction(self) -> None:
        node = self._node
        entry = node._entry
        assert entry is not None
        node.ledger.committing(entry)
        node.on_commit(node)
        try:
            self._call(node.identity.start_commit)
        except KafkaError as error:
            if error.outcome != "unknown":
                node.ledger.ended(entry, is_committed=error.outcome == "committed")
            raise
        node.ledger.ended(entry, is_committed=True)
        node._entry = None

    def abort_transaction(self, timeout: float | None = None) -> None:
        node = self._node
        entry = node._entry
        assert entry is not None
        node.ledger.aborting(entry)
        self._call(node.identity.start_abort)
        node.ledger.ended(entry, is_committed=False)
        node._entry = None

    def _call(self, start: Any) -> None:
        error = self._node.wait_for(lambda end: self._node._call(start, end))
        if error is not None:
            raise error


class JobClient(ClusterClient):
    """Asks brokers in the name of a run. A broker that was paused may answer what is old."""

    def __init__(self, node: JobNode) -> None:
        self._node = node

    def metadata(self, topics: list[str] | None, *, operations: bool = False, creates: bool = False) -> Any:
        return SimpleNamespace(cluster_id="c")

    def knows(self, node_id: int, host: str | None = None, port: int | None = None) -> bool:
        return True

    def wait(self, timeout_ms: int) -> None:
        self._node.sleep(timeout_ms)

    def ask(self, request: Any, node_id: int | None = None, version: int | None = None) -> Any:
        node = self._node
        if isinstance(request, FindCoordinatorRequest):
            node.sleep(1)
            leader = node.asker.leader_of(GROUPS.topic)
            code = ErrorCode.NONE if leader is not None else ErrorCode.COORDINATOR_NOT_AVAILABLE
            return FindCoordinatorResponse(
                error_code=code, node_id=-1 if leader is None else leader, host="broker", port=1
            )
        assert node_id is not None
        assert version is not None
        answer = node.wait_for(lambda end: node.asker.ask(node_id, request, version, end))
        if answer is None:
            raise ConnectionLostError(f"no answer of broker {node_id}")
        return answer
