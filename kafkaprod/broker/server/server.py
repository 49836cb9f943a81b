"""The broker's sockets: accept, read, hand to handlers, write. One event loop, one control thread, one for long
calculations, one for maintenance.

    socket -> Session.receive -> requests -> handler in the loop (data plane) or on the control thread -> Session.send
    -> socket

Why the data plane has no threads of its own: see `Lane`. What leaves the loop is a sync that must precede an
acknowledgement (flush policy "each"), so that waiting requests share one, and long calculations (`steps`), so that no
client waits for another one's batch of millions of records. Fairness: one read and one request of a connection a turn.
Memory: `read_budget` bounds what all connections hold of requests, `admission` the connections; answers with records
are file ranges. Threads: `run` belongs to one thread; `stop` and `post` may be called from any.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from kafkaprod.broker.calls.purgatory import Purgatory
from kafkaprod.broker.calls.timers import Timers
from kafkaprod.broker.cluster.alone import Alone
from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.broker.cluster.control import ControlThread
from kafkaprod.broker.cluster.maintenance import Maintenance
from kafkaprod.broker.cluster.standing import Standing
from kafkaprod.broker.cluster_config import ClusterConfig
from kafkaprod.broker.config import BrokerConfig
from kafkaprod.broker.server.accepting import Acceptor, Acceptors, close_acceptors, open_acceptors
from kafkaprod.broker.server.admission import Admission
from kafkaprod.broker.server.dispatcher import Dispatcher
from kafkaprod.broker.server.read_budget import ReadBudget
from kafkaprod.broker.server.router import announced_versions, peer_versions
from kafkaprod.broker.server.session import Session, SessionStage
from kafkaprod.clock import Clock, SystemClock
from kafkaprod.errors import KafkaError, printable
from kafkaprod.net.poller import READABLE, Poller

logger = logging.getLogger(__name__)

_READ_BYTES = 512 * 1024
_OVERDUE_CHECK_MS = 1_000
_SYNC_THREADS = 4


class BrokerServer:
    """See the module docstring.

    Attributes:
        broker: What the sockets serve.
        bound: Name of a listener -> address of its socket.
    """

    def __init__(self, config: BrokerConfig, clock: Clock | None = None) -> None:
        """Take over the data directory and bind the socket; nothing is accepted before `run`.

        Raises:
            OSError: The directory cannot be used, or (AddressError) the address.
            KafkaError: As `Broker`.
        """
        has_login = any(listener.has_login for listener in config.all_listeners)
        versions = announced_versions(takes_metrics=config.client_metrics, max_versions=config.max_versions)
        self._config = config
        self._clock = clock or SystemClock()
        self._timers = Timers()
        self._posted: deque[Callable[[], None]] = deque()  # the one thing other threads touch
        self._is_stopping = False
        self._has_crashed = False
        self._admission = Admission(lambda: self.broker.config, has_login)
        self._budget = ReadBudget(config.limits.max_queued_bytes, config.limits.max_request_bytes)
        self._paused: set[Session] = set()  # wait for memory
        self._ready: deque[Session] = deque()  # have requests waiting, and none in progress
        self._large: dict[Session, None] = {}  # the same, whose next request takes long: a turn begins one
        self._scratch = memoryview(bytearray(_READ_BYTES))
        self._syncs = ThreadPoolExecutor(_SYNC_THREADS, thread_name_prefix="kafkaprod-broker-sync")
        self._long_work = ThreadPoolExecutor(1, thread_name_prefix="kafkaprod-broker-long")
        opened = open_acceptors(config)  # may fail, so the poller's sockets are opened after it
        self._poller = Poller()
        self._purgatory = Purgatory(self._poller.wakeup)
        try:
            self.broker = Broker(
                config,
                self._clock,
                self._purgatory,
                self._run_blocking,
                self._run_control,
                self._run_long,
                {acceptor.listener.name: acceptor.endpoint for acceptor in opened},
                _standing_maker(config.cluster),
            )
        except BaseException:
            close_acceptors(opened)
            self._poller.close()
            raise
        self.bound = {acceptor.listener.name: acceptor.bound for acceptor in opened}
        self.broker.bound_ports = {name: place.port for name, place in self.bound.items()}
        self.broker.post = self.post
        self.broker.api_versions = versions
        self.broker.peer_api_versions = peer_versions()
        self._control = ControlThread(self.broker.coordinators, self._clock, self._on_crash)
        self._maintenance = Maintenance(self.broker, self._control.submit)
        self._dispatcher = Dispatcher(self.broker, self)
        self._acceptors = Acceptors(opened, self.broker, self._admission, versions, self._poller, self._clock, self)
        self._standing = self.broker.standing
        self._standing.join(self._poller, self._acceptors, self.stop)

    # -- life ----------------------------------------------------------------------------------------------------------

    def run(self) -> bool:
        """Serve until `stop`; return whether the shutdown was clean."""
        self._control.start()
        self._maintenance.start()
        self._standing.begin()
        self.call_after(_OVERDUE_CHECK_MS, self._close_overdue)
        try:
            while not self._is_stopping:
                self._turn()
        finally:
            is_clean = self._close()
        return is_clean and not self._has_crashed

    def cut_clients(self, *, is_cut: bool) -> None:
        """Close the connections of clients and take no new ones, or take them again (tests); on the loop."""
        self._acceptors.are_clients_cut = is_cut
        for session in [session for session in self._admission if is_cut and not session.is_peer]:
            self.close_session(session)

    def stop(self) -> None:
        """Make `run` return. Thread-safe, and safe in a signal handler."""
        self._is_stopping = True
        self._poller.wakeup()

    def shut_down(self) -> None:
        """Stop after a controlled shutdown. Thread-safe, and safe in a signal handler."""
        self._standing.shut_down()

    def post(self, call_later: Callable[[], None]) -> None:
        """Have a call made by the event loop. Thread-safe."""
        self._posted.append(call_later)
        self._poller.wakeup()

    def submit_control(self, call_later: Callable[[], None], *, may_be_long: bool = False) -> None:
        """Have a call made by the control thread. Thread-safe."""
        self._control.submit(call_later, may_be_long=may_be_long)

    def call_after(self, delay_ms: int, call_later: Callable[[], None]) -> None:
        """Have a call made by the event loop, later."""
        self._timers.call_at(self._clock.now_ms() + delay_ms, call_later)

    def _on_crash(self) -> None:
        self._has_crashed = True
        self.stop()

    def _close(self) -> bool:
        self._acceptors.close()
        self._standing.close()
        for session in self._admission:
            self.close_session(session)
        self._control.stop()
        self._long_work.shutdown(cancel_futures=True)
        self._syncs.shutdown()
        self._maintenance.stop()
        self._poller.close()
        return self.broker.close()

    def _run_blocking(self, work: Callable[[], None], then: Callable[[], None]) -> None:
        def run() -> None:
            work()
            self.post(then)

        self._syncs.submit(run)

    def _run_long(self, work: Callable[[], None], then: Callable[[], None]) -> None:
        def run() -> None:
            work()
            self.post(then)

        self._long_work.submit(run)

    def _run_control(self, work: Callable[[], None], then: Callable[[], None] | None = None) -> None:
        def run() -> None:
            work()
            if then is not None:
                self.post(then)

        self._control.submit(run)

    # -- the loop ------------------------------------------------------------------------------------------------------

    def _turn(self) -> None:
        for data, mask in self._poller.poll(self._timeout_ms()):
            if isinstance(data, Session):
                self._on_ready(data, mask)
            elif isinstance(data, Acceptor):
                self._acceptors.accept(data)
            else:
                data.on_ready(mask)
        for _ in range(len(self._posted)):  # what these post runs in the next turn
            self._posted.popleft()()
        for _ in range(len(self._ready)):
            session = self._ready.popleft()
            self._begin_next(session)
            self._account(session)
        if self._large:
            session = next(iter(self._large))
            del self._large[session]
            self._dispatcher.begin_next(session)
            self._account(session)
        if self._paused:
            self._resume_paused()
        now_ms = self._clock.now_ms()
        self._timers.run(now_ms)
        self._standing.pump()
        self._purgatory.run(now_ms)

    def _timeout_ms(self) -> int | None:
        if self._ready or self._large or self._posted:
            return 0
        possible = (part.next_deadline_ms() for part in (self._timers, self._purgatory, self._standing))
        deadlines = [deadline for deadline in possible if deadline is not None]
        return max(min(deadlines) - self._clock.now_ms(), 0) if deadlines else None

    def begin(self, session: Session) -> None:
        """Serve a new session."""
        self._on_ready(session, READABLE)

    def _on_ready(self, session: Session, mask: int) -> None:
        if session.is_closed:
            return
        try:
            if not session.is_open:
                session.is_open = session.transport.try_open()
            if session.is_open and mask & READABLE and session.wants_input and not self._read(session):
                self.close_session(session)
                return
        except (OSError, KafkaError) as error:
            self.drop(session, error)
            return
        self._begin_next(session)
        self._account(session)
        if session.has_output:
            self.push(session)
        elif not session.is_closed:
            self._watch(session)

    def _begin_next(self, session: Session) -> None:
        """Begin the session's next request; one that takes long behind those of all others in this turn."""
        if session.is_next_large:
            self._large[session] = None
        else:
            self._dispatcher.begin_next(session)

    def _read(self, session: Session) -> bool:
        """Read what the memory for requests allows; return False at the end of the stream."""
        room = self._budget.room(session, _READ_BYTES)
        if not room:
            session.is_paused = True
            self._paused.add(session)
            return True
        return session.receive(self._scratch[:room], self._clock.now_ms())

    def _account(self, session: Session) -> None:
        """Note what the session holds of requests."""
        if not session.is_closed:
            self._budget.update(session, session.held_bytes, session.incomplete_bytes)

    def _resume_paused(self) -> None:
        """Let those read on that there is memory for now."""
        for session in list(self._paused):
            if self._budget.room(session, _READ_BYTES):
                self._paused.discard(session)
                session.is_paused = False
                self._watch(session)

    def _watch(self, session: Session) -> None:
        """Poll for what the session wants now."""
        interest = session.interest
        if interest != session.watched:
            self._poller.modify(session, interest, session)
            session.watched = interest

    # -- answers -------------------------------------------------------------------------------------------------------

    def push(self, session: Session) -> None:
        """Send what the session has to send; when its answer is out, the next request may begin."""
        if session.is_closed:
            return
        try:
            is_sent = session.send()
        except (OSError, KafkaError) as error:
            self.drop(session, error)
            return
        if is_sent and session.stage is SessionStage.ANSWERED:
            self._complete(session)
        if not session.is_closed:
            self._watch(session)

    def _complete(self, session: Session) -> None:
        if session.closes_after_answer:
            self.close_session(session)
            return
        session.stage = SessionStage.IDLE
        session.last_active_ms = self._clock.now_ms()
        self._account(session)
        self._admission.note_request(session)
        if session.is_trusted:
            session.accept_frames_up_to(self._config.limits.max_request_bytes)
        if session.waiting:
            self._ready.append(session)

    # -- ends ----------------------------------------------------------------------------------------------------------

    def drop(self, session: Session, error: Exception) -> None:
        """Close a connection because of an error, and log it unless the client is just gone."""
        if not isinstance(error, ConnectionError):
            logger.warning("connection from %s closed: %s", session.host, printable(str(error)))
        self.close_session(session)

    def close_session(self, session: Session) -> None:
        """Close a connection; answers that come later are dropped. Idempotent."""
        if session.is_closed:
            return
        self._admission.remove(session)
        self._budget.update(session, 0, 0)
        self._paused.discard(session)
        self._poller.unregister(session)
        session.close()

    def _close_overdue(self) -> None:
        for session in self._admission.overdue(self._clock.now_ms(), bool(self._paused)):
            self.close_session(session)
        self.call_after(_OVERDUE_CHECK_MS, self._close_overdue)


def _standing_maker(cluster: ClusterConfig | None) -> Callable[[Broker], Standing]:
    """Return what makes a broker's standing: the one place where a broker alone and one of several part."""
    if cluster is None:
        return Alone
    from kafkaprod.broker.cluster.clustered import Clustered  # a broker alone starts without it

    return partial(Clustered, cluster)
