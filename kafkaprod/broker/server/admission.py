"""Who may be connected, and for how long: places for connections, by address, by listener and in all, and deadlines.

A connection is a stranger until it has logged in; where no login is needed, until its first request. Strangers take
at most half of the places: when these are full, or all are, the stranger that came first goes and the newcomer stays.
So a flood of connections that never log in cannot keep out those who do. Belongs to the event loop.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from kafkaprod.broker.config import BrokerConfig, Limits
from kafkaprod.broker.server.session import Session, SessionStage
from kafkaprod.broker.settings.broker_options import listener_limit

LOGIN_MS = 30_000
"""The time for TLS handshake and login, from accept on."""
FRAME_MS = 30_000
"""The time for a request from its first to its last byte, while the memory for unfinished requests is scarce."""
_SILENT_MS = 1_000
"""A stranger that need not log in keeps its place so long."""


@dataclass(frozen=True, slots=True)
class AdmissionDecision:
    """The decision about a newcomer: the reason if it is refused, and the connection it replaces."""

    refusal: str | None = None
    victim: Session | None = None


class Admission:
    """The open connections of a broker."""

    def __init__(self, config: Callable[[], BrokerConfig], has_login: bool) -> None:
        """Admit none yet.

        Args:
            config: Returns the limits of now; clients may change them.
            has_login: Whether clients have to log in.
        """
        self._config = config
        self._has_login = has_login
        self._sessions: dict[int, Session] = {}  # in the order of accept
        self._strangers: dict[Session, None] = {}  # in the order of accept, too
        self._by_host: Counter[str] = Counter()
        self._by_listener: Counter[str] = Counter()

    @property
    def _limits(self) -> Limits:
        return self._config().limits

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[Session]:
        return iter(list(self._sessions.values()))

    def check(self, host: str, now_ms: int, listener: str = "") -> AdmissionDecision:
        """Decide about a connection from `host` to a listener, before there is a session for it."""
        limits, most = self._limits, listener_limit(self._config(), listener, "max.connections")
        if self._by_host[host] >= limits.max_connections_per_ip:
            return AdmissionDecision(refusal=f"max_connections_per_ip={limits.max_connections_per_ip}")
        if self._by_listener[listener] >= most:
            strangers = (session for session in self._strangers if session.listener == listener)
            return self._replacing(strangers, f"listener.name.{listener.lower()}.max.connections={most}", now_ms)
        if len(self._sessions) < limits.max_connections and not self._has_login:
            return AdmissionDecision()
        if len(self._sessions) < limits.max_connections and 2 * len(self._strangers) < limits.max_connections:
            return AdmissionDecision()
        return self._replacing(iter(self._strangers), f"max_connections={limits.max_connections}", now_ms)

    def _replacing(self, strangers: Iterator[Session], limit: str, now_ms: int) -> AdmissionDecision:
        """Let the newcomer replace the first of some strangers, or refuse it by a limit."""
        oldest = next(strangers, None)
        if oldest is not None:
            is_silent = oldest.stage is SessionStage.IDLE and now_ms - oldest.opened_ms >= _SILENT_MS
            if self._has_login or is_silent:
                return AdmissionDecision(victim=oldest)
        return AdmissionDecision(refusal=limit)

    def add(self, session: Session) -> None:
        """Take a session in."""
        self._sessions[session.fileno()] = session
        self._strangers[session] = None
        self._by_host[session.host] += 1
        self._by_listener[session.listener] += 1

    def note_request(self, session: Session) -> None:
        """Note that a request was answered, after which the client may be no stranger."""
        if not session.is_stranger:
            self._strangers.pop(session, None)

    def remove(self, session: Session) -> None:
        """Forget a session that is about to be closed."""
        del self._sessions[session.fileno()]
        self._strangers.pop(session, None)
        self._by_listener[session.listener] -= 1
        self._by_host[session.host] -= 1
        if not self._by_host[session.host]:
            del self._by_host[session.host]

    def overdue(self, now_ms: int, is_memory_scarce: bool) -> list[Session]:
        """The sessions whose time is over: idle, not logged in, or too slow with a request."""
        return [session for session in self if self._is_overdue(session, now_ms, is_memory_scarce)]

    def _is_overdue(self, session: Session, now_ms: int, is_memory_scarce: bool) -> bool:
        if session.is_peer:
            return False
        max_idle_ms = self._limits.max_idle_ms
        if not session.is_open or not session.is_trusted:
            return now_ms - session.opened_ms >= min(LOGIN_MS, max_idle_ms)
        if is_memory_scarce and session.unfinished_since_ms is not None:
            return now_ms - session.unfinished_since_ms >= FRAME_MS
        return session.stage is not SessionStage.HANDLING and now_ms - session.last_active_ms >= max_idle_ms
