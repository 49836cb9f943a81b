"""One try of a write that happens once, however often it is run.

    glance    is the write committed? Then compare the rows, and return; no other try is disturbed
    fence     InitProducerId under the write's own transactional id: every earlier try is decided, none commits later
    look      as the glance, and now it holds
    rows      in one transaction; then the pending mark: an offset of the write's own group, in that transaction
    guard     the mark before the pending one, at the node that has taken that: of another try, or none
    commit    rows and mark are there, or neither

A write in parts takes the steps from the rows on again for each part; its mark says how many rows are committed, and
what their digest is. The next try reads its input from the beginning, compares so many rows, and sends the others.

A try that was fenced waits for the mark of the try that fenced it, and never fences back: so tries at once end. Nothing
is decided by a clock. See docs/exactly-once.md.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import socket
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
)
from kafkaprod.marks import looks, steps, verdict
from kafkaprod.marks.digest import RowTap
from kafkaprod.marks.endings import is_fenced, is_of_rights, name_rights, result_of, taken_over, unsure
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
_LONGEST_PART: Final = 1 / 3  # of the time that a transaction may take
logger = logging.getLogger("kafkaprod.marks")


class WriteTry:
    """One try. Not thread-safe: `open`, then the rows, then `commit` or `give_up`, then `close`.

    Args:
        writers: Those of the producer: the try takes one for as long as it lasts.
        write_id: The id of the write.
        verify: What a repetition is compared by: "content", "count" or "none".
        parts: Commit whenever so many rows were sent; True: whenever a third of transaction_timeout_ms has passed;
            False: all rows in one transaction.
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
        *,
        parts: int | bool = False,
        wait_s: float = WAIT_S,
    ) -> None:
        if verify not in verdict.VERIFY:
            raise ConfigError(f"verify={verify!r} must be one of {', '.join(map(repr, verdict.VERIFY))}")
        if not isinstance(parts, int) or parts < 0:
            raise ConfigError(f"parts={parts!r} must be a number of rows, True or False")
        self._parts = parts
        self._name = mark_name(DEFAULT_PREFIX, write_id)
        self._write_id = str(write_id)
        self._verify = verify
        self._wait_s = wait_s
        self._writers = writers
        self._writer: KeptWriter | None = None
        self._attempt = secrets.token_hex(4)
        self._cluster = ""
        self._topic_ids: dict[str, str] = {}
        self._mark: Mark | None = None  # of the whole write
        self._last: Mark | None = None  # of the last part that is committed
        self._part_begin = 0, 0.0  # of the one that is open: its first row, and when it was begun
        self._is_clean = False  # no transaction is open: the writer may make the next write

    @property
    def is_repetition(self) -> bool:
        """Whether the write is committed: its rows are only compared."""
        return self._mark is not None

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
            found = self._glance()
            sending: WritingProducer | None = None
            if found is None or not found.is_done:
                sending = self._writer.start(self._name)
                sending.producer.init_transactions()
                found = looks.read_mark(self._client, self._name, _SETTLED_MS)
            self.tap = RowTap(is_rehearsal=found is not None, counts_only=self._verify != verdict.CONTENT)
            if found is not None:
                self._check_topics(found)
                self._is_clean = True
            if found is not None and found.is_done:
                self._mark = found
                return
            self.sending, self._last = sending, found
            if found is None:
                self._begin()
        except AuthorizationError as error:
            name_rights(error, self._name)
            raise

    def room(self) -> int | None:
        """Return how many rows may come before `end_piece`; None: any number."""
        if self.tap.is_rehearsal:
            return None if self._last is None else self._last.rows - self.tap.rows
        return None if isinstance(self._parts, bool) else self._part_begin[0] + self._parts - self.tap.rows

    def end_piece(self) -> None:
        """Commit a part if it is long enough, or begin to send if all rows that are committed were compared.

        Raises:
            WriteConflictError: They are other rows; none was sent.
            WriteTakenOverError: A later try has fenced this one.
            KafkaError: As `commit_transaction`.
        """
        if self._mark is not None:
            return
        if self.tap.is_rehearsal:
            assert self._last is not None
            if self.tap.rows >= self._last.rows:
                self._end_skipping(self._last)
        elif self._is_part_full():
            mine = self._mark_of_rows(is_done=False)
            other = self._commit(mine)
            if other is not None:
                raise taken_over(self._write_id, self._last, self._wait_s)
            self._last = mine
            self._begin()

    def _end_skipping(self, last: Mark) -> None:
        if self.tap.rows != last.rows:
            verdict.refuse_cut(last, self.tap.rows)
        verdict.check_rows(last, self._verify, self.tap.topics, self.tap.rows, self.tap.digest)
        self.tap.is_rehearsal = False
        logger.info("write %r continues behind row %d", self._write_id, last.rows)
        self._begin()

    def _begin(self) -> None:
        assert self.sending is not None
        self._is_clean = False
        self.sending.producer.begin_transaction()
        self._part_begin = self.tap.rows, monotonic_s()

    def _is_part_full(self) -> bool:
        first, since_s = self._part_begin
        if isinstance(self._parts, bool):
            longest_s = self._config.transaction_timeout_ms / 1000 * _LONGEST_PART
            return self._parts and self.tap.rows > first and monotonic_s() - since_s >= longest_s
        return self.tap.rows - first >= self._parts

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
            return result_of(self._mark, already_written=True)
        assert self.sending is not None
        if self.tap.is_rehearsal:  # a part was committed that has more rows
            assert self._last is not None
            verdict.check_rows(self._last, verdict.COUNT, self.tap.topics, self.tap.rows, "")
        try:
            mine = self._mark_of_rows(is_done=True)
            other = self._commit(mine)
        except Exception as error:
            found = self.give_up(error, has_all_rows=True)
            if found is None:
                raise
            return found
        if other is None:
            return result_of(mine, already_written=False)
        if not other.is_done:
            raise taken_over(self._write_id, self._last, self._wait_s)
        return self._taken(other, has_all_rows=True)

    def _commit(self, mine: Mark) -> Mark | None:
        """Commit rows and mark; return the mark of another try that was there before: then nothing is committed."""
        assert self.sending is not None
        self.sending.producer.flush()
        before = self._guard(mine)
        if before != self._last:
            self._abort()
            return before or self._last  # a mark that is gone was forgotten, or is one of another cluster
        steps.commit(self.sending.producer, _UNKNOWN_S)
        self._is_clean = mine.is_done
        return None

    def give_up(self, error: BaseException, *, has_all_rows: bool = False) -> WriteResult | None:
        """Abort what was begun. Return the outcome if the write is committed in spite of the error.

        Args:
            error: What ended the try.
            has_all_rows: The tap has seen all rows: they are compared with those that another try has committed.

        Raises:
            WriteTakenOverError, WriteUnknownError, WriteConflictError: In place of the error.
        """
        if is_of_rights(error):
            name_rights(error, self._name)
        if self.sending is None:
            return None
        is_known = isinstance(error, KafkaError) and (is_fenced(error) or error.outcome == "unknown")
        if not is_known:
            self._abort()
            return None
        deadline_s = monotonic_s() + self._wait_s
        while (mark := self._glance()) is None or not mark.is_done:
            if monotonic_s() > deadline_s:
                raise unsure(error, self._write_id, self._last, self._wait_s) from error
            self._client.wait(_POLL_MS)
        logger.warning("write %r is committed, although this try ended with an error: %s", self._write_id, error)
        return self._taken(mark, has_all_rows=has_all_rows)

    def known(self) -> WriteResult:
        """Return the outcome of a repetition without a look at its rows."""
        assert self._mark is not None
        return result_of(self._mark, already_written=True)

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

    def _mark_of_rows(self, *, is_done: bool) -> Mark:
        topics = tuple(self.tap.topics) or tuple(self._topic_ids)
        if len(topics) > 1 and (self._last is not None or not is_done):
            raise ConfigError(
                f"write {self._write_id!r} is one in parts, and has rows for {len(topics)} topics: it can have one. "
                "Give each topic a write of its own"
            )
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
            parts=1 if self._last is None else self._last.parts + 1,
            is_done=is_done,
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
            return result_of(mark, already_written=False)
        self._check_topics(mark)
        if has_all_rows:
            verdict.check_rows(mark, self._verify, self.tap.topics, self.tap.rows, self.tap.digest)
        return result_of(mark, already_written=True)

    def _abort(self) -> None:
        """End the transaction, so that it holds up no reader; if that fails, the next try or its timeout does."""
        assert self.sending is not None
        with contextlib.suppress(KafkaError):
            self.sending.producer.abort_transaction(_ABORT_S)
