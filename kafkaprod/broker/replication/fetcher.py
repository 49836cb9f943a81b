"""Copies partitions from one source broker: one request in flight, all partitions that are ready in it.

A partition is fetched from its log's end, with the leader epoch in force and the epoch of its last record, so that a
leader whose log parted from this one says where. What an answer means is decided per partition (`on_answer`); an answer
to what has changed since the request is ignored. Pure state: time is an argument.
Source: Kafka, AbstractFetcherThread; KIP-101, 279, 320, 595.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from kafkaprod.broker.metadata.image import PartitionKey
from kafkaprod.broker.replication.partition import FetchOutcome, FollowerFetch
from kafkaprod.broker.replication.replica_log import ReplicaLog
from kafkaprod.errors import BrokerError
from kafkaprod.protocol.error_codes import ErrorCode

logger = logging.getLogger("kafkaprod.broker.replication")

TIMEOUT_MS: Final = 2000


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
Answer = FetchOutcome | OffsetAnswer


@dataclass(frozen=True, slots=True)
class FetchRequest:
    """What goes to the source broker in one request."""

    questions: Mapping[PartitionKey, Question]


@dataclass(slots=True)
class _Fetched:
    log: ReplicaLog
    leader_epoch: int
    state: FetchState = FetchState.FETCHING
    delayed_until_ms: int = 0


class Fetcher:
    """See the module docstring.

    Attributes:
        source: The broker that is copied from.
    """

    def __init__(
        self, source: int, broker_id: int, broker_epoch: Callable[[], int], *, retry_ms: int, idle_ms: int
    ) -> None:
        """Make a fetcher without partitions.

        Args:
            source: The broker to copy from.
            broker_id: This broker.
            broker_epoch: Its registration, as each request carries it.
            retry_ms: How long a partition rests after an error.
            idle_ms: How long a partition rests after an answer without records.
        """
        self.source = source
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._retry_ms = retry_ms
        self._idle_ms = idle_ms
        self._partitions: dict[PartitionKey, _Fetched] = {}
        self._in_flight: FetchRequest | None = None
        self._lost_at_ms = 0

    def __len__(self) -> int:
        return len(self._partitions)

    def __contains__(self, key: PartitionKey) -> bool:
        return key in self._partitions

    def add(self, key: PartitionKey, log: ReplicaLog, leader_epoch: int) -> None:
        """Fetch a partition, from where its log ends now."""
        self._partitions[key] = _Fetched(log, leader_epoch)

    def remove(self, key: PartitionKey) -> None:
        """Fetch a partition no more; an answer in flight is ignored for it."""
        self._partitions.pop(key, None)

    def next_request(self, now_ms: int) -> FetchRequest | None:
        """Return the next request, None if one is in flight or no partition is ready."""
        if self._in_flight is not None:
            if now_ms < self._lost_at_ms:
                return None
            self.on_lost(now_ms)
        questions = {
            key: self._question(fetched)
            for key, fetched in self._partitions.items()
            if fetched.state is not FetchState.FAILED and fetched.delayed_until_ms <= now_ms
        }
        if not questions:
            return None
        self._in_flight = FetchRequest(questions)
        self._lost_at_ms = now_ms + TIMEOUT_MS
        return self._in_flight

    def on_answer(self, request: FetchRequest, answers: Mapping[PartitionKey, Answer], now_ms: int) -> None:
        """Take the answer to a request; one to an older request is ignored."""
        if request is not self._in_flight:
            return
        self._in_flight = None
        for key, question in request.questions.items():
            fetched = self._partitions.get(key)
            answer = answers.get(key)
            if fetched is None or answer is None or not self._is_current(fetched, question):
                continue
            try:
                if isinstance(answer, OffsetAnswer):
                    self._take_offsets(fetched, answer, now_ms)
                else:
                    self._take_fetch(fetched, question, answer, now_ms)
            except BrokerError as error:  # the others continue (KAFKA-8346)
                self._fail(key, fetched, error, now_ms)

    def on_lost(self, now_ms: int) -> None:
        """The request or its answer was lost: ask again after a rest."""
        if self._in_flight is None:
            return
        for key in self._in_flight.questions:
            if key in self._partitions:
                self._partitions[key].delayed_until_ms = now_ms + self._retry_ms
        self._in_flight = None

    def next_deadline_ms(self) -> int | None:
        """Return when `next_request` has something to say, None if never without a change."""
        if self._in_flight is not None:
            return self._lost_at_ms
        return min(
            (
                fetched.delayed_until_ms
                for fetched in self._partitions.values()
                if fetched.state is not FetchState.FAILED
            ),
            default=None,
        )

    def _question(self, fetched: _Fetched) -> Question:
        if fetched.state is FetchState.LOOKING_UP_OFFSETS:
            return OffsetLookup(fetched.leader_epoch)
        log = fetched.log
        last_epoch = log.epochs.epoch_for(log.end_offset - 1) if log.end_offset > log.log_start_offset else -1
        return FollowerFetch(self._broker_id, self._broker_epoch(), fetched.leader_epoch, log.end_offset, last_epoch)

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
            self._append(fetched, question, answer, now_ms)

    def _append(self, fetched: _Fetched, question: Question, answer: FetchOutcome, now_ms: int) -> None:
        log = fetched.log
        before = log.end_offset
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
        if log.end_offset == before:
            fetched.delayed_until_ms = now_ms + self._idle_ms

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
