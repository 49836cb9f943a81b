"""Fetches of followers at a leader: answered when there is news, held back while there is none.

`replication.fetch_sessions` decides what is news; this class has the requests that wait, at most one a follower. The
event loop owns it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from kafkaprod.broker.calls.file_records import FileResponse
from kafkaprod.broker.calls.purgatory import DelayedOperation
from kafkaprod.broker.calls.request import Deferred, Outcome
from kafkaprod.broker.cluster.fetch_wire import MAX_ANSWER_BYTES, fetch_response, wanted_fetch
from kafkaprod.broker.metadata.image import ClusterImage
from kafkaprod.broker.replication.fetch_sessions import FetchSession, FetchSessions
from kafkaprod.broker.replication.partition import FetchOutcome
from kafkaprod.broker.replication.partition_replica_log import ReadBatches
from kafkaprod.broker.storage.log.segment import FileSlice
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.fetch import FetchRequest, FetchResponse
from kafkaprod.structs import TopicPartition

if TYPE_CHECKING:
    from kafkaprod.broker.cluster.broker import Broker


class _Held(NamedTuple):
    session: FetchSession
    deferred: Deferred
    operation: DelayedOperation


class FollowerFetches:
    """See the module docstring."""

    def __init__(self, broker: Broker, sessions: FetchSessions, image: ClusterImage) -> None:
        """Follow what moves in the broker's partitions.

        Args:
            broker: Has the purgatory, which keeps the time.
            sessions: What followers wait for.
            image: Knows the ids of topics.
        """
        self._broker = broker
        self._sessions = sessions
        self._image = image
        self._held: dict[int, _Held] = {}
        broker.purgatory.on_moved = self.note_moved

    def handle(self, body: FetchRequest) -> Outcome:
        """Answer at once if there is news, else when there is, or the time is over."""
        now_ms = self._broker.clock.now_ms()
        session = self._sessions.begin(wanted_fetch(body), now_ms)
        if isinstance(session, ErrorCode):
            return FetchResponse(error_code=session)
        self._release(session.follower)  # a connection that is gone
        response, is_news = self._collect(session)
        if is_news or body.max_wait_ms <= 0:
            return response
        deferred = Deferred()
        deferred.on_abandon = lambda: self._cancel(session)

        def expire(is_expired: bool) -> bool:
            if is_expired:
                self._held.pop(session.follower, None)
                deferred.complete(fetch_response({}, session.session_id, []))
            return is_expired

        operation = self._broker.purgatory.watch((), now_ms + body.max_wait_ms, expire)
        self._held[session.follower] = _Held(session, deferred, operation)
        return deferred

    def note_moved(self, moved: Iterable[TopicPartition]) -> None:
        """Answer the requests that have waited for partitions."""
        ids = self._image.topic_ids
        self._sessions.note_moved([(ids[topic], index) for topic, index in moved if topic in ids])
        for held in [held for held in self._held.values() if held.session.moved]:
            response, is_news = self._collect(held.session)
            if is_news:
                self._answer(held, response)

    def hurry(self) -> None:
        """Answer all requests now, with or without news: their followers may have more to ask since the metadata."""
        for held in list(self._held.values()):
            self._answer(held, self._collect(held.session)[0])

    def _collect(self, session: FetchSession) -> tuple[FileResponse, bool]:
        """Return the answer, and whether it is worth an answer now: it has news, or there is more to look at."""
        size_bytes = 0

        def has_room(outcome: FetchOutcome) -> bool:
            nonlocal size_bytes
            size_bytes += sum(batches.source.length for batches in outcome.batches if isinstance(batches, ReadBatches))
            return size_bytes < MAX_ANSWER_BYTES

        outcomes = self._sessions.collect(session, has_room)
        ranges: list[FileSlice] = []
        response = fetch_response(outcomes, session.session_id, ranges)
        return FileResponse(response, ranges), bool(outcomes or session.moved)

    def _answer(self, held: _Held, response: FileResponse) -> None:
        del self._held[held.session.follower]
        self._broker.purgatory.cancel(held.operation)
        held.deferred.complete(response)

    def _cancel(self, session: FetchSession) -> None:
        held = self._held.get(session.follower)
        if held is not None and held.session is session:
            del self._held[session.follower]
            self._broker.purgatory.cancel(held.operation)

    def _release(self, follower: int) -> None:
        held = self._held.get(follower)
        if held is not None:
            self._answer(held, FileResponse(fetch_response({}, held.session.session_id, []), []))
