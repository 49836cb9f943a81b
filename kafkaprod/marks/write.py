"""One try of a write that happens once, however often it is run.

    glance    is the write committed? Then compare the rows, and return; no other try is disturbed
    fence     InitProducerId under the write's own transactional id: every earlier try is decided, none commits later
    look      as the glance, and now it holds
    rows      in one transaction; then the pending mark: an offset of the write's own group, in that transaction
    guard     the mark before the pending one, at the node that has taken that: of another try, or none
    commit    rows and mark are there, or neither

A try that was fenced waits for the mark of the try that fenced it, and never fences back: so tries at once end. Nothing
is decided by a clock. See docs/exactly-once.md.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import socket
from collections.abc import Collection
from typing import Final

from kafkaprod.admin.client import ClusterClient
from kafkaprod.admin.topics import demand_topic
from kafkaprod.clock import monotonic_s, wall_s
from kafkaprod.config import ProducerConfig
from kafkaprod.errors import (
    AuthorizationError,
    BrokerError,
    ConfigError,
    KafkaError,
    ProducerFencedError,
    WriteTakenOverError,
    WriteUnknownError,
)
from kafkaprod.marks import looks, steps, verdict
from kafkaprod.marks.digest import RowTap
from kafkaprod.marks.mark import Mark
from kafkaprod.marks.place import DEFAULT_PREFIX, mark_name
from kafkaprod.marks.writers import KeptWriter, Writers, WritingProducer
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.results.write import WriteResult

WAIT_S: Final = 30.0
_GLANCE_MS: Final = 500  # an open transaction that holds a mark for longer is fenced
_SETTLED_MS: Final = 30_000  # behind the fence a mark is held only until its decided transaction is applied
_POLL_MS: Final = 100
_ABORT_S: Final = 10.0
_UNKNOWN_S: Final = 60.0
_RIGHTS: Final = (
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
)


logger = logging.getLogger("kafkaprod.marks")


class WriteTry:
    """One try. Not thread-safe: `open`, then the rows, then `commit` or `give_up`, then `close`.

    Args:
        writers: Those of the producer: the try takes one for as long as it lasts.
        write_id: The id of the write.
        verify: What a repetition is compared by: "content", "count" or "none".
        wait_s: How long a try that was fenced waits for the mark of the one that fenced it.

    Attributes:
        tap: Sees the rows; a rehearsal if the write is committed already.
        sending: What sends them; None in a rehearsal.

    Raises:
        ConfigError: An argument is wrong, or the configuration allows no transactions.
    """

    tap: RowTap
    sending: WritingProducer | None = None

    def __init__(
        self,
        writers: Writers,
        write_id: object,
        verify: str = verdict.CONTENT,
        wait_s: float = WAIT_S,
    ) -> None:
        if verify not in verdict.VERIFY:
            raise ConfigError(f"verify={verify!r} must be one of {', '.join(map(repr, verdict.VERIFY))}")
        self._name = mark_name(DEFAULT_PREFIX, write_id)
        self._write_id = str(write_id)
        self._verify = verify
        self._wait_s = wait_s
        self._writers = writers
        self._writer: KeptWriter | None = None
        self._attempt = secrets.token_hex(4)
        self._cluster = ""
        self._topic_ids: dict[str, str] = {}
        self._mark: Mark | None = None
        self._is_clean = False  # no transaction is open: the writer may make the next write

    @property
    def is_repetition(self) -> bool:
        """Whether the write is committed: its rows are only compared."""
        return self.tap.is_rehearsal

    @property
    def needs_rows(self) -> bool:
        """Whether the rows must be shown or sent."""
        return not self.is_repetition or self._verify != verdict.NONE

    def open(self, *topics: str) -> None:
        """Look whether the write is committed; if it is not, fence earlier tries, and begin.

        Args:
            topics: Topics of the rows, if they are known: looked up before anything is sent.

        Raises:
            WriteStaleError: Its mark is of another cluster, or of a topic that was made again.
            AuthorizationError: A right is missing; a note names all that a write needs.
            KafkaError: As `init_transactions` and `begin_transaction`.
        """
        try:
            self._writer = self._writers.take()
            self._cluster = self._client.metadata([]).cluster_id or ""
            for topic in topics:
                self._look_up(topic)
            self._mark = self._glance()
            sending: WritingProducer | None = None
            if self._mark is None:
                sending = self._writer.start(self._name)
                sending.producer.init_transactions()
                self._mark = looks.read_mark(self._client, self._name, _SETTLED_MS)
            self.tap = RowTap(is_rehearsal=self._mark is not None, counts_only=self._verify != verdict.CONTENT)
            if self._mark is not None:
                self._check_topics(self._mark)
                self._is_clean = True
            elif sending is not None:
                sending.producer.begin_transaction()
                self.sending = sending
        except AuthorizationError as error:
            self._name_rights(error)
            raise

    def commit(self) -> WriteResult:
        """Commit the rows that were sent, or compare those that were shown.

        Raises:
            WriteConflictError: The id is known with other rows.
            WriteTakenOverError: A later try has fenced this one.
            WriteUnknownError: Run it again, with the same id.
            KafkaError: As `commit_transaction`; nothing was written.
        """
        if self._mark is not None:
            if self.needs_rows:
                verdict.check_rows(self._mark, self._verify, self.tap.topics, self.tap.rows, self.tap.digest)
            return _result(self._mark, already_written=True)
        assert self.sending is not None
        try:
            self.sending.producer.flush()
            mine = self._mark_of_rows()
            other = self._guard(mine)
            if other is None:
                steps.commit(self.sending.producer, _UNKNOWN_S)
                self._is_clean = True
                return _result(mine, already_written=False)
        except Exception as error:
            found = self.give_up(error, has_all_rows=True)
            if found is None:
                raise
            return found
        self._abort()
        return self._taken(other, has_all_rows=True)

    def give_up(self, error: BaseException, *, has_all_rows: bool = False) -> WriteResult | None:
        """Abort what was begun. Return the outcome if the write is committed in spite of the error.

        Args:
            error: What ended the try.
            has_all_rows: The tap has seen all rows: they are compared with those that another try has committed.

        Raises:
            WriteTakenOverError, WriteUnknownError, WriteConflictError: In place of the error.
        """
        if _has(error, AuthorizationError, _RIGHTS):
            self._name_rights(error)
        if self.sending is None:
            return None
        is_known = isinstance(error, KafkaError) and (_is_fenced(error) or error.outcome == "unknown")
        if not is_known:
            self._abort()
            return None
        deadline_s = monotonic_s() + self._wait_s
        while (mark := self._glance()) is None:
            if monotonic_s() > deadline_s:
                raise self._unsure(error) from error
            self._client.wait(_POLL_MS)
        logger.warning("write %r is committed, although this try ended with an error: %s", self._write_id, error)
        return self._taken(mark, has_all_rows=has_all_rows)

    def known(self) -> WriteResult:
        """Return the outcome of a repetition without a look at its rows."""
        assert self._mark is not None
        return _result(self._mark, already_written=True)

    def close(self) -> None:
        """Give the writer back; one whose transaction is open is closed, and leaves it to the next try."""
        writer, self._writer = self._writer, None
        self.sending = None
        if writer is None:
            return
        if self._is_clean:
            self._writers.give_back(writer)
        else:
            writer.close()

    @property
    def _config(self) -> ProducerConfig:
        assert self._writer is not None
        return self._writer.config

    @property
    def _client(self) -> ClusterClient:
        assert self._writer is not None
        return self._writer.client

    def _look_up(self, topic: str) -> None:
        if topic not in self._topic_ids:
            self._topic_ids[topic] = demand_topic(self._client, topic).topic_id or ""

    def _glance(self) -> Mark | None:
        """Look without fencing; a transaction that stays open counts as no mark."""
        try:
            return looks.read_mark(self._client, self._name, _GLANCE_MS)
        except BrokerError as error:
            if error.code != ErrorCode.UNSTABLE_OFFSET_COMMIT:
                raise
            return None

    def _check_topics(self, mark: Mark) -> None:
        for topic in mark.topics:
            self._look_up(topic)
        verdict.check_cluster(mark, self._cluster, self._topic_ids)

    def _mark_of_rows(self) -> Mark:
        topics = tuple(self.tap.topics) or tuple(self._topic_ids)
        if not topics:
            raise ConfigError(
                f"write {self._write_id!r} has no rows, and no topic whose offsets could keep its mark: nothing was "
                "written"
            )
        for topic in topics:
            self._look_up(topic)
        return Mark(
            write_id=self._write_id,
            rows=self.tap.rows,
            digest=self.tap.digest,
            topics={topic: self._topic_ids[topic] for topic in topics},
            cluster=self._cluster,
            written_by=f"{self._config.client_id or 'kafkaprod'}@{socket.gethostname()}:{os.getpid()}",
            written_ms=int(wall_s() * 1000),
            attempt=self._attempt,
        )

    def _guard(self, mine: Mark) -> Mark | None:
        """Send the pending mark, and return the one before it; None: this try may commit."""
        assert self.sending is not None
        offsets = {(min(mine.topics), 0): (mine.offset, mine.to_text())}
        patience_s = self._config.max_block_ms / 1000
        return looks.mark_in(
            steps.send_mark(self._client, self.sending.producer, self._name, offsets, patience_s), self._name
        )

    def _taken(self, mark: Mark, *, has_all_rows: bool) -> WriteResult:
        """Return the outcome where a mark is there although this try has sent rows."""
        if mark.attempt == self._attempt:
            return _result(mark, already_written=False)
        self._check_topics(mark)
        if has_all_rows:
            verdict.check_rows(mark, self._verify, self.tap.topics, self.tap.rows, self.tap.digest)
        return _result(mark, already_written=True)

    def _unsure(self, error: BaseException) -> KafkaError:
        if getattr(error, "outcome", None) == "unknown":
            return WriteUnknownError(
                f"it is not known whether write {self._write_id!r} is committed: {error}. Run it again with the same "
                "write_id: then it will be",
                write_id=self._write_id,
            )
        return WriteTakenOverError(
            f"another try of write {self._write_id!r} took over, and has not committed within {self._wait_s:g} s. "
            "This one wrote nothing: the rows are written by that try, or by the next one",
            write_id=self._write_id,
        )

    def _abort(self) -> None:
        """End the transaction, so that it holds up no reader; if that fails, the next try or its timeout does."""
        assert self.sending is not None
        with contextlib.suppress(KafkaError):
            self.sending.producer.abort_transaction(_ABORT_S)

    def _name_rights(self, error: BaseException) -> None:
        error.add_note(
            f"write_id needs Write on transactional id {self._name!r}, and Read on group {self._name!r} and on the "
            f"topic of the rows; allow them for names that begin with {DEFAULT_PREFIX!r}"
        )


def _result(mark: Mark, *, already_written: bool) -> WriteResult:
    return WriteResult(mark.write_id, already_written, mark.rows, mark.written_ms, mark.written_by, mark.digest)


def _is_fenced(error: BaseException) -> bool:
    """Whether a later try took over, or the transaction was open for too long: an abort proves nothing then."""
    return _has(error, ProducerFencedError, (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED))


def _has(error: BaseException | None, kind: type[BaseException], codes: Collection[int]) -> bool:
    """Whether an error or one of its causes is of a kind, or has one of the codes of the brokers."""
    while error is not None:
        if isinstance(error, kind) or getattr(error, "code", None) in codes:
            return True
        error = error.__cause__
    return False
