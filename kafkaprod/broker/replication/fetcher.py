"""Copies partitions from one source broker: one request in flight, in it what has changed since the one before.

The source keeps a session (`fetch_sessions`): what was asked waits there until it is answered, so requests do not
name idle partitions. A session whose answer may be lost, or of another registration, is ended: the next one begins
with all partitions.

A partition is fetched from its log's end, with the leader epoch in force and the epoch of its last record, so that a
leader whose log parted from this one says where. What an answer means is decided per partition (`on_answer`); an answer
to what has changed since the request is ignored. Pure state: time is an argument.
Source: Kafka, AbstractFetcherThread; KIP-101, 227, 279, 320, 595.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, NamedTuple

from kafkaprod.broker.metadata.image import PartitionKey
from kafkaprod.broker.replication.partition import FetchOutcome, FollowerFetch
from kafkaprod.broker.replication.replica_log import ReplicaLog
from kafkaprod.errors import BrokerError
from kafkaprod.protocol.error_codes import ErrorCode

logger = logging.getLogger("kafkaprod.broker.replication")

TIMEOUT_MS: Final = 2000
FIRST_WAIT_MS: Final = 50
"""How long an answer may be held back after a change: a partition that is new to a fetcher waits as long at most."""


class FetchState(Enum):
    """Whether a partition is fetched now."""

    FETCHING = auto()
    LOOKING_UP_OFFSETS = auto()
    FAILED = auto()


@dataclass(frozen=True, slots=True)
class OffsetLookup:
    """Asks a leader where its log starts and ends, after an offset that it does not have."""

    leader_epoch: int


@dataclass(frozen=True, slots=True)
class OffsetAnswer:
    """Where the leader's log starts and ends."""

    error: ErrorCode
    log_start_offset: int = -1
    end_offset: int = -1


Question = FollowerFetch | OffsetLookup
FetcherAnswer = FetchOutcome | OffsetAnswer


@dataclass(frozen=True, slots=True)
class FetchRequest:
    """What goes to the source broker in one request: lookups alone, or what has changed in the session.

    Attributes:
        questions: What was not asked yet, or has been answered.
        forgotten: No longer wanted.
        follower: This broker.
        broker_epoch: Its registration.
        session_id: The session; 0 begins one.
        session_epoch: Counts the session's requests; 0 begins one.
        wait_ms: How long the source may hold an answer without news back.
    """

    questions: Mapping[PartitionKey, Question]
    forgotten: frozenset[PartitionKey] = frozenset()
    follower: int = -1
    broker_epoch: int = -1
    session_id: int = 0
    session_epoch: int = 0
    wait_ms: int = 0


class FetchAnswer(NamedTuple):
    """What comes back: the partitions that have news.

    Attributes:
        answers: By partition.
        session_id: The session; 0 if the source keeps none, and has answered all of the request.
        error: Why the whole request failed, NONE if it did not.
    """

    answers: Mapping[PartitionKey, FetcherAnswer]
    session_id: int = 0
    error: ErrorCode = ErrorCode.NONE


@dataclass(slots=True)
class _Fetched:
    log: ReplicaLog
    leader_epoch: int
    state: FetchState = FetchState.FETCHING
    delayed_until_ms: int = 0
    question: Question | None = None  # as it was asked last


class _Session(NamedTuple):
    """What the source knows of; id 0: nothing."""

    session_id: int = 0
    epoch: int = 0
    broker_epoch: int = -1


class Fetcher:
    """See the module docstring.

    Attributes:
        source: The broker that is copied from.
    """

    def __init__(
        self,
        source: int,
        broker_id: int,
        broker_epoch: Callable[[], int],
        *,
        retry_ms: int,
        idle_ms: int,
        max_wait_ms: int = 0,
    ) -> None:
        """Make a fetcher without partitions.

        Args:
            source: The broker to copy from.
            broker_id: This broker.
            broker_epoch: Its registration, as each request carries it.
            retry_ms: How long a partition rests after an error.
            idle_ms: How long the fetcher rests after an answer without records.
            max_wait_ms: How long the source may hold answers back at most. It begins with less after each change.
        """
        self.source = source
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._retry_ms = retry_ms
        self._idle_ms = idle_ms
        self._max_wait_ms = max_wait_ms
        self._wait_ms = min(FIRST_WAIT_MS, max_wait_ms)
        self._partitions: dict[PartitionKey, _Fetched] = {}
        self._to_ask: dict[PartitionKey, None] = {}
        self._delayed: list[tuple[int, PartitionKey]] = []  # heap; an entry counts if the partition still says the same
        self._standing: set[PartitionKey] = set()  # asked in the session, and not answered
        self._forgotten: set[PartitionKey] = set()
        self._session = _Session()
        self._in_flight: FetchRequest | None = None
        self._sent_ms = self._lost_at_ms = self._rests_until_ms = 0

    def __len__(self) -> int:
        return len(self._partitions)

    def __contains__(self, key: PartitionKey) -> bool:
        return key in self._partitions

    def add(self, key: PartitionKey, log: ReplicaLog, leader_epoch: int) -> None:
        """Fetch a partition, from where its log ends now."""
        self._partitions[key] = _Fetched(log, leader_epoch)
        self._to_ask[key] = None
        self._rests_until_ms = 0
        self._wait_ms = min(FIRST_WAIT_MS, self._max_wait_ms)

    def remove(self, key: PartitionKey) -> None:
        """Fetch a partition no more; an answer in flight is ignored for it."""
        if self._partitions.pop(key, None) is None:
            return
        self._to_ask.pop(key, None)
        self._standing.discard(key)
        self._forgotten.add(key)

    def next_request(self, now_ms: int) -> FetchRequest | None:
        """Return the next request, None if one is in flight, or there is nothing to ask and to wait for."""
        if self._in_flight is not None:
            if now_ms < self._lost_at_ms:
                return None
            self.on_lost(now_ms)
        if self._session.session_id and self._session.broker_epoch != self._broker_epoch():
            self._end_session(now_ms)
        self._end_delays(now_ms)
        if now_ms < self._rests_until_ms:
            return None
        request = self._next_lookups() or self._next_fetch()
        if request is not None:
            self._in_flight = request
            self._sent_ms, self._lost_at_ms = now_ms, now_ms + TIMEOUT_MS
        return request

    def on_answer(self, request: FetchRequest, answer: FetchAnswer, now_ms: int) -> None:
        """Take the answer to a request; one to an older request is ignored."""
        if request is not self._in_flight:
            return
        self._in_flight = None
        if answer.error != ErrorCode.NONE:
            self._end_session(now_ms)
            self._rests_until_ms = now_ms + self._retry_ms
            return
        is_lookup = any(isinstance(question, OffsetLookup) for question in request.questions.values())
        if not is_lookup:
            self._session = _Session(answer.session_id, request.session_epoch + 1, request.broker_epoch)
        is_hurried = bool(self._to_ask)
        has_progress = [self._take(key, request, part, now_ms) for key, part in answer.answers.items()]
        if is_lookup:
            for key in request.questions.keys() - answer.answers.keys():
                self._ask_later(key, now_ms + self._retry_ms)
        elif not answer.session_id:
            self._end_session(now_ms)
        if not is_hurried and not any(has_progress):
            self._rests_until_ms = now_ms + self._idle_ms
        is_quiet = not answer.answers and now_ms - self._sent_ms >= request.wait_ms
        self._wait_ms = min(2 * self._wait_ms if is_quiet else FIRST_WAIT_MS, self._max_wait_ms)

    def on_lost(self, now_ms: int) -> None:
        """The request or its answer was lost: begin again after a rest."""
        if self._in_flight is None:
            return
        self._in_flight = None
        self._end_session(now_ms)
        self._rests_until_ms = now_ms + self._retry_ms

    def next_deadline_ms(self) -> int | None:
        """Return when `next_request` has something to say, None if never without a change."""
        if self._in_flight is not None:
            return self._lost_at_ms
        if self._to_ask or self._standing or self._forgotten:
            return self._rests_until_ms
        return max(self._delayed[0][0], self._rests_until_ms) if self._delayed else None

    # -- what is asked -------------------------------------------------------------------------------------------------

    def _next_lookups(self) -> FetchRequest | None:
        looking_up = FetchState.LOOKING_UP_OFFSETS
        keys = [key for key in self._to_ask if self._partitions[key].state is looking_up]
        return FetchRequest(self._ask(keys)) if keys else None

    def _next_fetch(self) -> FetchRequest | None:
        """Return what has changed; nothing new is a request, too, that waits on for what stands."""
        session_id, epoch, _ = self._session
        if not session_id:
            self._forgotten.clear()
            epoch = 0
        if not self._to_ask and not self._standing and not self._forgotten:
            return None
        questions = self._ask(list(self._to_ask))
        self._standing.update(questions)
        forgotten = frozenset(self._forgotten - questions.keys())
        self._forgotten.clear()
        broker_epoch = self._broker_epoch()
        return FetchRequest(questions, forgotten, self._broker_id, broker_epoch, session_id, epoch, self._wait_ms)

    def _ask(self, keys: list[PartitionKey]) -> dict[PartitionKey, Question]:
        questions = {}
        for key in keys:
            del self._to_ask[key]
            fetched = self._partitions[key]
            questions[key] = fetched.question = self._question(fetched)
        return questions

    def _ask_later(self, key: PartitionKey, at_ms: int) -> None:
        fetched = self._partitions.get(key)
        if fetched is not None:
            fetched.delayed_until_ms = at_ms
            heapq.heappush(self._delayed, (at_ms, key))

    def _end_delays(self, now_ms: int) -> None:
        while self._delayed and self._delayed[0][0] <= now_ms:
            at_ms, key = heapq.heappop(self._delayed)
            fetched = self._partitions.get(key)
            if fetched is not None and fetched.delayed_until_ms == at_ms and fetched.state is not FetchState.FAILED:
                self._to_ask[key] = None

    def _end_session(self, now_ms: int) -> None:
        """Let the next request begin a session, with all that is fetched."""
        self._session = _Session()
        self._standing.clear()
        self._forgotten.clear()
        for key, fetched in self._partitions.items():
            if fetched.state is not FetchState.FAILED and fetched.delayed_until_ms <= now_ms:
                self._to_ask[key] = None

    def _question(self, fetched: _Fetched) -> Question:
        if fetched.state is FetchState.LOOKING_UP_OFFSETS:
            return OffsetLookup(fetched.leader_epoch)
        log = fetched.log
        last_epoch = log.epochs.epoch_for(log.end_offset - 1) if log.end_offset > log.log_start_offset else -1
        return FollowerFetch(
            self._broker_id,
            self._broker_epoch(),
            fetched.leader_epoch,
            log.end_offset,
            last_epoch,
            log.high_watermark,
            log.log_start_offset,
        )

    # -- what is answered ----------------------------------------------------------------------------------------------

    def _take(self, key: PartitionKey, request: FetchRequest, answer: FetcherAnswer, now_ms: int) -> bool:
        """Take a partition's answer, and ask again; return whether that is worth a request at once."""
        self._standing.discard(key)
        fetched = self._partitions.get(key)
        if fetched is None:
            return False
        question = fetched.question or request.questions.get(key)
        if question is None or not self._is_current(fetched, question):
            self._to_ask[key] = None
            return True
        before = fetched.log.end_offset
        try:
            if isinstance(answer, OffsetAnswer):
                self._take_offsets(fetched, answer, now_ms)
            else:
                self._take_fetch(fetched, question, answer, now_ms)
        except BrokerError as error:  # the others continue (KAFKA-8346)
            self._fail(key, fetched, error, now_ms)
        if fetched.delayed_until_ms > now_ms:
            self._ask_later(key, fetched.delayed_until_ms)
        elif fetched.state is not FetchState.FAILED:
            self._to_ask[key] = None
        return fetched.log.end_offset != before

    def _fail(self, key: PartitionKey, fetched: _Fetched, error: BrokerError, now_ms: int) -> None:
        """Ask again for what came damaged; leave a partition whose log takes no appends until its epoch changes."""
        logger.warning(
            "broker %d cannot append what broker %d sent of %s: %s", self._broker_id, self.source, key, error
        )
        if error.code == ErrorCode.CORRUPT_MESSAGE:
            fetched.delayed_until_ms = now_ms + self._retry_ms
        else:
            fetched.state = FetchState.FAILED

    @staticmethod
    def _is_current(fetched: _Fetched, question: Question) -> bool:
        """Whether nothing has changed since the question (KAFKA-7786, 13207)."""
        if question.leader_epoch != fetched.leader_epoch:
            return False
        return isinstance(question, OffsetLookup) or question.offset == fetched.log.end_offset

    def _take_fetch(self, fetched: _Fetched, question: Question, answer: FetchOutcome, now_ms: int) -> None:
        if answer.error == ErrorCode.OFFSET_OUT_OF_RANGE:
            fetched.state = FetchState.LOOKING_UP_OFFSETS
        elif answer.error == ErrorCode.FENCED_LEADER_EPOCH:
            fetched.state = FetchState.FAILED  # until the metadata brings a higher epoch
        elif answer.error != ErrorCode.NONE:
            fetched.delayed_until_ms = now_ms + self._retry_ms
        elif answer.diverging is not None:
            self._truncate(fetched.log, *answer.diverging)
        else:
            self._append(fetched.log, question, answer)

    @staticmethod
    def _append(log: ReplicaLog, question: Question, answer: FetchOutcome) -> None:
        for batch in answer.batches:
            if batch.leader_epoch > question.leader_epoch:
                break  # of a leader that this replica does not follow yet (KAFKA-18723)
            if batch.end_offset <= log.end_offset:
                continue
            if batch.base_offset < log.end_offset and log.end_offset == log.log_start_offset:
                log.restart_at(batch.base_offset)  # the batch begins before an empty log (KAFKA-6975)
            log.append_replicated(batch)
        log.high_watermark = max(log.high_watermark, min(answer.high_watermark, log.end_offset))
        if answer.log_start_offset > log.log_start_offset:
            log.raise_log_start(min(answer.log_start_offset, log.end_offset))

    @staticmethod
    def _truncate(log: ReplicaLog, epoch: int, end_offset: int) -> None:
        """Cut the log where it parts from the leader's; nothing else of such an answer is used (KAFKA-14704)."""
        own_epoch, own_end = log.epochs.end_offset_for(epoch, log.end_offset)
        if own_epoch < 0:
            own_end = log.end_offset
        cut = min(end_offset, own_end) if own_epoch in (epoch, -1) else own_end
        log.truncate_to(max(min(cut, log.end_offset), log.log_start_offset))

    def _take_offsets(self, fetched: _Fetched, answer: OffsetAnswer, now_ms: int) -> None:
        log = fetched.log
        if answer.error != ErrorCode.NONE:
            fetched.delayed_until_ms = now_ms + self._retry_ms
            return
        if answer.end_offset < log.end_offset:
            log.truncate_to(max(answer.end_offset, log.log_start_offset))
        if answer.log_start_offset > log.end_offset or answer.end_offset < log.log_start_offset:
            log.restart_at(answer.log_start_offset)
        fetched.state = FetchState.FETCHING
