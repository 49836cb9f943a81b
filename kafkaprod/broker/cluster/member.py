"""A broker's part in a cluster: its registration, its copy of the metadata, its replicas, and the links to the others.

The state machines of `replication` and `metadata` decide; this module gives them the time and carries what they want to
say over `peers`. The event loop owns it: `pump` after each turn.
"""

from __future__ import annotations

import logging
import queue
from collections.abc import Callable

from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.broker.cluster.coordination import Coordination
from kafkaprod.broker.cluster.fetch_wire import fetch_answer, fetch_request, offset_answers, offset_request
from kafkaprod.broker.cluster.follower_fetches import FollowerFetches
from kafkaprod.broker.cluster.replica_directories import ReplicaDirectories
from kafkaprod.broker.cluster.replicated_topics import ReplicatedTopics
from kafkaprod.broker.cluster_config import ClusterConfig
from kafkaprod.broker.controller import wire
from kafkaprod.broker.controller.requests import FORWARDED_VERSIONS
from kafkaprod.broker.metadata.image import PartitionKey
from kafkaprod.broker.peers.link import OnAnswer, PeerLink
from kafkaprod.broker.peers.rules import CONTROLLER, LinkRules, socket_path
from kafkaprod.broker.replication.fetcher import FetchAnswer, Fetcher, FetcherAnswer, FetchRequest, OffsetLookup
from kafkaprod.broker.replication.lifecycle import BrokerLifecycle, BrokerState, LifecycleRequest, LifecycleResponse
from kafkaprod.broker.replication.partition import ReplicaSettings
from kafkaprod.broker.replication.replica_manager import ReplicaManager
from kafkaprod.broker.settings.replicated_settings import ReplicatedSettings
from kafkaprod.clock import Clock
from kafkaprod.net.poller import Poller
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from kafkaprod.protocol.messages.broker_registration import BrokerRegistrationResponse
from kafkaprod.protocol.messages.fetch import FetchResponse
from kafkaprod.protocol.messages.list_offsets import ListOffsetsResponse
from kafkaprod.protocol.messages.replicate_metadata import ReplicateMetadataRequest, ReplicateMetadataResponse
from kafkaprod.protocol.schema import Request, Response

logger = logging.getLogger(__name__)

MAX_FETCH_WAIT_MS = 500
"""How long a leader holds an empty answer back in a quiet cluster; less where followers count as slow sooner."""

_REQUEST_TIMEOUT_MS = 2_000
_FETCH_VERSION, _OFFSETS_VERSION = 18, 9

Condition = Callable[[], bool]


class ClusterMember:
    """See the module docstring.

    Attributes:
        config: The configuration of the cluster.
        lifecycle: Where the broker stands with the controller.
        manager: Its replicas.
        rules: Cuts and delays of its links.
        on_stopped: Called when a controlled shutdown is complete.
        on_serving: Called once, when clients may be served.
        coordination: Whether this broker coordinates groups and transactions.
        follower_fetches: The requests of its followers.
    """

    def __init__(self, broker: Broker, config: ClusterConfig, poller: Poller, clock: Clock) -> None:
        """Join nothing yet: the first `pump` registers.

        Args:
            broker: Whose topics are a `ReplicatedTopics`.
            config: The configuration of the cluster.
            poller: The poller of the event loop.
            clock: Measures all times.
        """
        assert isinstance(broker.topics, ReplicatedTopics)
        assert isinstance(broker.settings, ReplicatedSettings)
        self.config = config
        self.rules = LinkRules()
        self.on_stopped: Callable[[], None] = lambda: None
        self.on_serving: Callable[[], None] = lambda: None
        self.coordination = Coordination(broker, self)
        broker.topics.ask_controller = broker.settings.ask_controller = self._call_controller
        self._broker = broker
        self._topics = broker.topics
        self._settings = broker.settings
        self._poller = poller
        self._clock = clock
        self._name = str(broker.config.node_id)
        self._links: dict[tuple[str, str], PeerLink] = {}  # by peer and purpose
        self._awaited: list[tuple[int, Condition, Callable[[], None]]] = []
        self._is_serving = self._has_stopped = self._asks_for_ids = False
        self._known_offset = self._followed_offset = self._topics.image.end_offset
        self._tick_ms = max(config.replica_lag_ms // 4, 10)
        self._ticks_at_ms = clock.now_ms()
        self.lifecycle = BrokerLifecycle(
            broker.config.node_id,
            config.cluster_id,
            config.incarnation_id,
            heartbeat_ms=config.heartbeat_ms,
            rack=config.rack,
            previous_epoch=config.previous_epoch,
            listeners=wire.listeners_of(broker.endpoints, broker.config.protocols),
            log_dirs=broker.log_dirs.online_ids if len(broker.log_dirs.paths) > 1 else (),
        )
        self.manager = ReplicaManager(
            broker.config.node_id,
            self._topics.image,
            lambda: self.lifecycle.broker_epoch,
            self._topics.open_log,
            self._topics.drop_log,
            self._topics.min_isr,
            ReplicaSettings(
                lag_ms=config.replica_lag_ms,
                idle_ms=0,
                max_wait_ms=min(MAX_FETCH_WAIT_MS, max(config.replica_lag_ms // 4, 1)),
            ),
        )
        self.follower_fetches = FollowerFetches(broker, self.manager.sessions, self._topics.image)
        self._directories = ReplicaDirectories(
            broker.config.node_id, broker.log_dirs, self._topics, self.manager, self.lifecycle, broker.post
        )

    # -- the loop's side -----------------------------------------------------------------------------------------------

    def pump(self) -> None:
        """Send what is due, and notice what has come true."""
        now_ms = self._clock.now_ms()
        for link in list(self._links.values()):
            link.on_time()
        if self.lifecycle.state is BrokerState.STOPPED:
            if not self._has_stopped:
                self._has_stopped = True
                self.on_stopped()
            return
        if self.lifecycle.state is BrokerState.RUNNING and not self._is_serving:
            self._is_serving = True
            self._topics.set_strays_aside()
            self.on_serving()
        self._give_up_directories(now_ms)
        if self.manager.is_behind:
            self._work(now_ms)
        request = self.lifecycle.next_request(self._followed_offset, now_ms)
        if request is not None:
            self._register_or_beat(request)
        self._propose(now_ms)
        self._assign(now_ms)
        for fetcher in list(self.manager.fetchers.values()):
            wanted = fetcher.next_request(now_ms)
            if wanted is not None:
                self._fetch(fetcher, wanted)
        self._refill_producer_ids()
        if now_ms >= self._ticks_at_ms:
            self._ticks_at_ms = now_ms + self._tick_ms
            self.manager.tick(now_ms)
        self._check_awaited(now_ms)

    def next_deadline_ms(self) -> int:
        """Return when `pump` has something to do."""
        if self.manager.is_behind:
            return self._clock.now_ms()
        deadlines = [self.lifecycle.next_deadline_ms()]
        if self.manager.needs_tick:
            deadlines.append(self._ticks_at_ms)
        deadlines += [deadline for deadline, _, _ in self._awaited]
        possible = [fetcher.next_deadline_ms() for fetcher in self.manager.fetchers.values()]
        possible += [link.next_deadline_ms() for link in self._links.values()]
        possible.append(self._directories.assignments.next_deadline_ms())
        for deadline in possible:
            if deadline is not None:
                deadlines.append(deadline)
        return min(deadlines)

    def receive_slice(self, request: ReplicateMetadataRequest) -> ReplicateMetadataResponse:
        """Take metadata over, and follow it in the replicas it names."""
        answer, changed = self._topics.follower.receive(wire.slice_of(request), self.lifecycle.broker_epoch)
        self._follow(changed)
        return ReplicateMetadataResponse(
            error_code=answer.error, end_offset=answer.end_offset, end_epoch=answer.end_epoch
        )

    def describe_replicas(self) -> dict[str, list[int]]:
        """Return log start, high watermark and end of each replica, by "topic-partition"."""
        described = {}
        for (topic_id, index), replica in self.manager.replicas.items():
            log, topic = replica.log, self._topics.image.topics.get(topic_id)
            if topic is not None:
                described[f"{topic.name}-{index}"] = [log.log_start_offset, log.high_watermark, log.end_offset]
        return described

    def shut_down(self) -> None:
        """Begin a controlled shutdown; `on_stopped` is called at its end."""
        if self.lifecycle.state not in (BrokerState.SHUTTING_DOWN, BrokerState.STOPPED):
            self.lifecycle.shut_down(self._clock.now_ms())

    def when(self, condition: Condition, timeout_ms: int, then: Callable[[], None]) -> None:
        """Call `then` on the event loop once the metadata makes a condition true, or the time is over."""
        if condition():
            then()
        else:
            self._awaited.append((self._clock.now_ms() + timeout_ms, condition, then))

    def ask_controller(self, request: Request, version: int, on_answer: OnAnswer, timeout_ms: int) -> None:
        """Send the controller a request; on the event loop."""
        self._link(CONTROLLER).send(request, version, on_answer, timeout_ms)

    def ask_broker(self, node_id: int, request: Request, version: int, on_answer: OnAnswer, timeout_ms: int) -> None:
        """Send a broker a request of a coordinator; on the event loop.

        Fetches have a connection of their own: a broker handles one request of a connection at a time, and a request
        that waits for this broker's fetch would wait for itself.
        """
        self._link(str(node_id), "coordination").send(request, version, on_answer, timeout_ms)

    def _call_controller(self, request: Request) -> Response | None:
        """Ask the controller from another thread, and wait for the answer."""
        answers: queue.SimpleQueue[Response | None] = queue.SimpleQueue()
        version = FORWARDED_VERSIONS[request.api]
        self._broker.post(lambda: self.ask_controller(request, version, answers.put, _REQUEST_TIMEOUT_MS))
        try:
            return answers.get(timeout=2 * _REQUEST_TIMEOUT_MS / 1000)
        except queue.Empty:
            return None

    def close(self) -> None:
        """Close the links."""
        for link in list(self._links.values()):
            link.close()

    # -- inside --------------------------------------------------------------------------------------------------------

    def _follow(self, changed: frozenset[PartitionKey]) -> None:
        """Follow what the metadata says, if it has grown."""
        image, now_ms = self._topics.image, self._clock.now_ms()
        if image.end_offset == self._known_offset:
            return
        self._known_offset = image.end_offset
        if self._settings.follow(image):
            self._broker.run_control(self._broker.follow_settings)
        self._topics.follow_configs()
        self.manager.note_metadata(changed)
        self._topics.publish(self.manager.replicas, [key for key in changed if key[0] not in image.topics])
        self._work(now_ms)

    def _work(self, now_ms: int) -> None:
        """Follow some of the metadata, and say how far the replicas have come."""
        manager = self.manager
        done = manager.work(now_ms)
        self._directories.note(done)
        self._topics.publish(manager.replicas, done, manager.is_behind_in)
        if any(key in manager.replicas and manager.replicas[key].is_leader for key in done):
            self.follower_fetches.hurry()
        if not manager.is_behind:
            self._followed_offset = self._known_offset
            self.lifecycle.beat_soon(now_ms)
        self.coordination.on_metadata(done)
        self._check_awaited(now_ms)

    def _check_awaited(self, now_ms: int) -> None:
        awaited, self._awaited = self._awaited, []
        for deadline_ms, condition, then in awaited:
            if condition() or now_ms >= deadline_ms:
                then()
            else:
                self._awaited.append((deadline_ms, condition, then))

    def _ask(self, request: Request, on_answer: OnAnswer) -> None:
        self.ask_controller(request, FORWARDED_VERSIONS[request.api], on_answer, _REQUEST_TIMEOUT_MS)

    def _register_or_beat(self, request: LifecycleRequest) -> None:
        def answered(response: Response | None) -> None:
            now_ms = self._clock.now_ms()
            if not isinstance(response, LifecycleResponse):
                self.lifecycle.on_lost(now_ms)
                return
            self.lifecycle.on_answer(request, response, now_ms)
            if isinstance(response, BrokerRegistrationResponse):
                self._follow(self._topics.follower.catch_up(self.lifecycle.broker_epoch))

        self._ask(request, answered)

    def _propose(self, now_ms: int) -> None:
        request = self.manager.next_isr_request(now_ms)
        if request is None:
            return
        sent = request

        def answered(response: Response | None) -> None:
            later_ms = self._clock.now_ms()
            if self.manager.on_isr_answer(sent, response, later_ms):
                self.lifecycle.register_again(later_ms)

        self._ask(sent, answered)

    def _give_up_directories(self, now_ms: int) -> None:
        """Neither lead nor follow with replicas whose log directory has failed."""
        failed = self._directories.take_failures(now_ms)
        if failed:
            self._topics.publish(self.manager.replicas, failed)
            self.coordination.on_metadata(failed)

    def _assign(self, now_ms: int) -> None:
        assignments = self._directories.assignments
        if self.lifecycle.state is BrokerState.REGISTERING:
            return
        sent = assignments.next_request(self.lifecycle.broker_epoch, now_ms)
        if sent is not None:
            self._ask(sent, lambda response: assignments.on_answer(sent, response, self._clock.now_ms()))

    def _refill_producer_ids(self) -> None:
        ids = self._broker.producer_ids
        is_running = self.lifecycle.state is BrokerState.RUNNING
        if self._asks_for_ids or not is_running or not ids.is_low:
            return
        self._asks_for_ids = True

        def answered(response: Response | None) -> None:
            self._asks_for_ids = False
            if isinstance(response, AllocateProducerIdsResponse) and response.error_code == ErrorCode.NONE:
                ids.add_block(response.producer_id_start, response.producer_id_len)

        request = AllocateProducerIdsRequest(
            broker_id=self._broker.config.node_id, broker_epoch=self.lifecycle.broker_epoch
        )
        self._ask(request, answered)

    def _fetch(self, fetcher: Fetcher, request: FetchRequest) -> None:
        lookups = [key for key, question in request.questions.items() if isinstance(question, OffsetLookup)]
        if lookups:
            self._look_up(fetcher, request, lookups)
            return

        def answered(response: Response | None) -> None:
            if isinstance(response, FetchResponse):
                fetcher.on_answer(request, fetch_answer(response), self._clock.now_ms())
            else:
                fetcher.on_lost(self._clock.now_ms())

        self._link(str(fetcher.source)).send(fetch_request(request), _FETCH_VERSION, answered, _REQUEST_TIMEOUT_MS)

    def _look_up(self, fetcher: Fetcher, request: FetchRequest, keys: list[PartitionKey]) -> None:
        """Ask where the leader's logs start, then where they end."""
        answers: dict[PartitionKey, FetcherAnswer] = {}

        def ask(timestamp: int, then: Callable[[ListOffsetsResponse], None]) -> None:
            def answered(response: Response | None) -> None:
                if isinstance(response, ListOffsetsResponse):
                    then(response)
                else:
                    fetcher.on_lost(self._clock.now_ms())

            body = offset_request(request, keys, self._topics.image, self._broker.config.node_id, timestamp)
            self._link(str(fetcher.source)).send(body, _OFFSETS_VERSION, answered, _REQUEST_TIMEOUT_MS)

        def started(starts: ListOffsetsResponse) -> None:
            ask(-1, lambda ends: finish(starts, ends))

        def finish(starts: ListOffsetsResponse, ends: ListOffsetsResponse) -> None:
            answers.update(offset_answers(starts, ends, self._topics.image))
            fetcher.on_answer(request, FetchAnswer(answers), self._clock.now_ms())

        ask(-2, started)

    def _link(self, name: str, purpose: str = "") -> PeerLink:
        key = (name, purpose)
        if key not in self._links:
            path = socket_path(self.config.directory, name)
            self._links[key] = PeerLink(self._poller, self._clock, self.rules, self._name, name, path)
        return self._links[key]
