"""A leader's side of its followers' fetches: one session a follower, which keeps what that follower waits for.

A partition that a follower names waits in its session until there is news: records, a high watermark or a log
start that the follower does not have, where the logs part, an error. Then it is answered once, and the follower asks
again. So partitions that are idle are neither sent nor looked at, however many there are; those that move are noted
(`note_moved`). A request names what has changed since the one before. A follower that does not know whether an answer
was lost ends the session: it begins another one, with everything it fetches.
Pure state: time is an argument. Source: Kafka, KIP-227.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from kafkaprod.broker.metadata.image import PartitionKey
from kafkaprod.broker.replication.fetcher import FetchRequest, OffsetLookup
from kafkaprod.broker.replication.partition import FetchOutcome, FollowerFetch
from kafkaprod.protocol.error_codes import ErrorCode

MAX_LOOKS: Final = 200
"""How many partitions one answer looks at: a few milliseconds of the event loop. The others wait for the next one."""

_LAST_ID: Final = 2**31 - 1


@dataclass(slots=True, eq=False)
class FetchSession:
    """What one follower waits for.

    Attributes:
        follower: Its broker id.
        session_id: Names the session in requests.
        next_epoch: What the next request has to carry.
        fetched_ms: When the last request came.
        standing: What was asked and not answered.
        moved: The part of it that may have news.
    """

    follower: int
    session_id: int
    next_epoch: int = 0
    fetched_ms: int = 0
    standing: dict[PartitionKey, FollowerFetch] = field(default_factory=dict)
    moved: dict[PartitionKey, None] = field(default_factory=dict)


Fetch = Callable[[PartitionKey, FollowerFetch, int], FetchOutcome]
"""Looks at a partition for a follower, at a time."""


OnAwake = Callable[[PartitionKey, int, int], None]
"""Takes a partition, a follower that has waited for it, and when that one's last request came."""


class FetchSessions:
    """See the module docstring.

    Attributes:
        awake: The partitions that have moved and are not quiet again; whoever finds that they are takes them out.
    """

    def __init__(self, fetch: Fetch, on_awake: OnAwake = lambda *_: None) -> None:
        """Make no session.

        Args:
            fetch: Looks at a partition.
            on_awake: Called for each follower that waits for a partition which was quiet and moves.
        """
        self.awake: dict[PartitionKey, None] = {}
        self._fetch = fetch
        self._on_awake = on_awake
        self._sessions: dict[int, FetchSession] = {}
        self._last_id = 0

    def __iter__(self) -> Iterator[FetchSession]:
        return iter(self._sessions.values())

    def begin(self, request: FetchRequest, now_ms: int) -> FetchSession | ErrorCode:
        """Take a request over; return its session, or why there is none."""
        session = self._sessions.get(request.follower)
        if request.session_epoch == 0:
            session = self._sessions[request.follower] = FetchSession(request.follower, self._new_id(now_ms))
        elif session is None or session.session_id != request.session_id:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        elif session.next_epoch != request.session_epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        session.next_epoch += 1
        session.fetched_ms = now_ms
        for key in request.forgotten:
            session.standing.pop(key, None)
            session.moved.pop(key, None)
        for key, question in request.questions.items():
            if not isinstance(question, OffsetLookup):
                self._wake(key)
                session.standing[key] = question
                session.moved[key] = None
        return session

    def collect(
        self, session: FetchSession, has_room: Callable[[FetchOutcome], bool] = lambda _: True
    ) -> dict[PartitionKey, FetchOutcome]:
        """Return the news of the partitions that have moved; what is left of them waits for the next answer.

        Args:
            session: Whose partitions are looked at.
            has_room: Called with each part of the answer; returns whether there is room for another one.
        """
        answers: dict[PartitionKey, FetchOutcome] = {}
        for key in list(islice(session.moved, MAX_LOOKS)):
            del session.moved[key]
            question = session.standing[key]
            outcome = self._fetch(key, question, session.fetched_ms)
            if _is_news(question, outcome):
                del session.standing[key]
                answers[key] = outcome
                if not has_room(outcome):
                    break
        return answers

    def note_moved(self, keys: Iterable[PartitionKey]) -> None:
        """Note that partitions may have news."""
        for key in keys:
            self._wake(key)
            for session in self._sessions.values():
                if key in session.standing:
                    session.moved[key] = None

    def waiting_for(self, key: PartitionKey) -> Iterator[FetchSession]:
        """Yield the sessions whose followers wait for news of a partition."""
        return (session for session in self._sessions.values() if key in session.standing)

    def _wake(self, key: PartitionKey) -> None:
        if key not in self.awake:
            self.awake[key] = None
            for session in self.waiting_for(key):
                self._on_awake(key, session.follower, session.fetched_ms)

    def _new_id(self, now_ms: int) -> int:
        """Return an id new to this process; one of an earlier process may repeat it by chance."""
        self._last_id = max(self._last_id + 1, now_ms % _LAST_ID)
        return self._last_id


def _is_news(question: FollowerFetch, outcome: FetchOutcome) -> bool:
    return (
        outcome.error != ErrorCode.NONE
        or outcome.diverging is not None
        or bool(outcome.batches)
        or min(outcome.high_watermark, question.offset) > question.high_watermark
        or outcome.log_start_offset > question.log_start_offset
    )
