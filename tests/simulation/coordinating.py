"""A simulated broker with coordinators: groups and transactions, as a broker of a cluster has them.

The standing is `cluster.clustered.Clustered`, with everything behind it (`Coordination`, the coordinators' replicated
logs, `MarkerSender`); only `ClusterMember`, which has sockets, is another one here. The control thread is a queue whose
calls run in order, each a little later.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from kafkaprod.broker.calls.request import ClientRequest
from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.broker.cluster.clustered import Clustered
from kafkaprod.broker.cluster.coordination import Coordination
from kafkaprod.broker.coordinator.consumer_group_config import ConsumerGroupConfig
from kafkaprod.broker.coordinator.coordinators import GROUPS, TRANSACTIONS
from kafkaprod.broker.coordinator.member import GroupConfig
from kafkaprod.broker.coordinator.transaction_coordinator import TransactionConfig
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from kafkaprod.protocol.schema import Request, Response
from kafkaprod.structs import TopicPartition
from tests.simulation.batch_logs import BatchLog
from tests.simulation.logs import SimulatedLog
from tests.simulation.nodes import BrokerNode, ControllerNode
from tests.simulation.serving import APIS, HandlerBroker, served_versions
from tests.simulation.world import World

if TYPE_CHECKING:
    from kafkaprod.broker.metadata.image import PartitionKey

LINK_LOOK_MS = 20
LINK_TIMEOUT_MS = 400
CONTROL_MS = 2
BEAT_MS, SESSION_MS = 25, 250
INTERNAL_TOPICS = (GROUPS.topic, TRANSACTIONS.topic)
COORDINATED_APIS = (
    ApiKey.FIND_COORDINATOR,
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.END_TXN,
    ApiKey.TXN_OFFSET_COMMIT,
)

Call = Callable[[], None]
OnAnswer = Callable[[Response | None], None]


class SimulatedMember:
    """What `Clustered` uses of `ClusterMember`: it asks other brokers, and waits for the metadata."""

    def __init__(self, node: CoordinatingNode, broker: CoordinatingBroker) -> None:
        self._node = node
        self._awaited: list[tuple[int, Callable[[], bool], Call]] = []
        self.coordination = Coordination(cast(Broker, broker), self)

    def when(self, condition: Callable[[], bool], timeout_ms: int, then: Call) -> None:
        """See `Membership`."""
        if condition():
            then()
        else:
            self._awaited.append((self._node.now_ms() + timeout_ms, condition, then))
            self._node.world.in_process(self._node.process, timeout_ms, lambda: None)

    def check_awaited(self) -> None:
        """Do what has come true, or was waited for long enough."""
        awaited, self._awaited = self._awaited, []
        for deadline_ms, condition, then in awaited:
            if condition() or self._node.now_ms() >= deadline_ms:
                then()
            else:
                self._awaited.append((deadline_ms, condition, then))

    def ask_controller(self, request: Request, version: int, on_answer: OnAnswer, timeout_ms: int) -> None:
        """Answer nothing: the topics of coordinators are there from the start."""
        on_answer(None)

    def ask_broker(self, node_id: int, request: Request, version: int, on_answer: OnAnswer, timeout_ms: int) -> None:
        """See `Membership`. A connection that ends, with the process at its other end, answers with None."""
        node, target = self._node, self._node.brokers[node_id]
        world, process, life, their_life = node.world, node.process, node.process.lives, target.process.lives
        late_ms = node.lateness_of_verification() if _is_verification(request) else 0
        deadline_ms = world.now_ms + (timeout_ms if late_ms else min(timeout_ms, LINK_TIMEOUT_MS))
        asked = ClientRequest(request, version, process.name, "10.0.0.9", is_peer=True)
        answered: list[bool] = []
        delivered: list[bool] = []

        def end(response: Any) -> None:
            if not answered:
                answered.append(True)
                on_answer(response)

        def reply(ready: Any) -> None:
            world.in_process(
                target.process, late_ms, lambda: world.send(target.process, process, lambda: end(ready), life)
            )

        def deliver() -> None:
            if delivered:
                return  # a connection repeats nothing
            delivered.append(True)
            target.handler_broker.handle(asked, reply)

        def look() -> None:
            is_gone = not target.process.is_up or target.process.lives != their_life
            if answered:
                return
            if is_gone or world.now_ms >= deadline_ms:
                end(None)
            else:
                world.in_process(process, LINK_LOOK_MS, look)

        world.send(process, target.process, deliver)
        look()


class CoordinatingBroker(HandlerBroker):
    """See the module docstring."""

    markers: Any

    coordinators = Broker.coordinators
    level_of = Broker.level_of
    make_transactions = Broker.make_transactions
    open_groups = Broker.open_groups
    _consumer_group_config = Broker._consumer_group_config
    _find_log = Broker._find_log
    _load_groups = Broker._load_groups
    _subscribable_topics = Broker._subscribable_topics
    _write_groups = Broker._write_groups

    def __init__(self, node: CoordinatingNode) -> None:
        super().__init__(node)
        self._node = node
        self._control: deque[tuple[Call, Call | None]] = deque()
        self.config.groups = GroupConfig(min_session_timeout_ms=100, initial_rebalance_delay_ms=30)
        self.config.consumer_groups = ConsumerGroupConfig(BEAT_MS, SESSION_MS)
        self.config.transactions = TransactionConfig(timeout_check_ms=50)
        self.settings = SimpleNamespace(get=lambda _: {})
        self.post = self._post
        self.standing = Clustered(cast(Any, SimpleNamespace(replication_factor=3)), cast(Broker, self))
        self.standing.member = SimulatedMember(node, self)
        self.api_versions = self.peer_api_versions = served_versions((*APIS, *COORDINATED_APIS))
        self._topics_of_groups: tuple[Any, Any] = ({}, {})
        self._load_groups(None)  # type: ignore[misc]
        self.transactions = self.make_transactions([], self.markers, self.run_control)  # type: ignore[misc]

    def _post(self, call: Call) -> None:
        self._node.world.in_process(self._node.process, 0, call)

    def run_control(self, work: Call, then: Call | None = None) -> None:
        """Have a call made after those before it, then another one in the event loop."""
        self._control.append((work, then))
        delay_ms = self._node.world.random.randint(0, CONTROL_MS)
        self._node.world.in_process(self._node.process, delay_ms, self._run_next)

    def _run_next(self) -> None:
        work, then = self._control.popleft()
        self._on_time()
        work()
        if then is not None:
            self.post(then)

    def from_control(self, call: Call) -> None:
        """Have the event loop make a call."""
        self.post(call)

    def follow(self, done: Collection[PartitionKey]) -> None:
        """Take offices over, or give them up."""
        self.standing.member.coordination.on_metadata(done)

    def pump(self) -> None:
        """See `HandlerBroker`."""
        self.standing.member.check_awaited()

    def tick(self) -> None:
        """Run the coordinators' timers."""
        self.run_control(lambda: None)

    def _on_time(self) -> None:
        now_ms, wall_ms = self.clock.now_ms(), self.clock.wall_ms()
        groups, transactions = self.coordinators()  # type: ignore[misc]
        groups.on_time(now_ms)
        transactions.on_time(now_ms, wall_ms)
        transactions.next_deadline_ms(now_ms)


class CoordinatingNode(BrokerNode):
    """A broker whose logs hold real batches, and which coordinates groups and transactions.

    Attributes:
        on_marker: Called with the broker when it has written a marker as leader.
        lateness_of_verification: Gives how much later than others the answer to a verification comes.
    """

    log_type = BatchLog
    handler_type = CoordinatingBroker

    def __init__(
        self, world: World, broker_id: int, controller: ControllerNode, brokers: dict[int, BrokerNode]
    ) -> None:
        self.on_marker: Callable[[CoordinatingNode], None] = lambda _: None
        self.lateness_of_verification: Callable[[], int] = lambda: 0
        super().__init__(world, broker_id, controller, brokers)

    def take_log(self, topic_partition: TopicPartition, key: PartitionKey) -> SimulatedLog:
        """See `BrokerNode.take_log`."""
        log = super().take_log(topic_partition, key)
        assert isinstance(log, BatchLog)
        log.on_marker = lambda: self.on_marker(self)
        return log


def _is_verification(request: Request) -> bool:
    return isinstance(request, AddPartitionsToTxnRequest) and any(
        transaction.verify_only for transaction in request.transactions
    )
