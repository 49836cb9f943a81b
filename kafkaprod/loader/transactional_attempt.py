"""Send the rows of a transactional load, transaction by transaction, until the input ends or one fails."""

from __future__ import annotations

import contextlib
import sys
import time
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kafkaprod._core.columns.row_partitions import count_partitions
from kafkaprod.admin.client import ClusterClient
from kafkaprod.errors import (
    KafkaError,
    ProducerFencedError,
    TransactionAbortableError,
    TransactionTimeoutError,
    broker_code,
)
from kafkaprod.loader.attempt import INTERRUPTED_S, Job
from kafkaprod.loader.feed import Feed, Turn
from kafkaprod.loader.formats.rows import RowBlock
from kafkaprod.loader.opening.errors import LoadError
from kafkaprod.loader.positions.committed_position import CommittedPosition, read_position
from kafkaprod.loader.positions.in_flight import LEAST_BATCH_BYTES, refused_rows
from kafkaprod.loader.positions.positions import Place
from kafkaprod.loader.producing import LoadProducer
from kafkaprod.loader.reports.spread import Spread
from kafkaprod.marks.steps import commit, send_mark
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.results.block import BlockResult
from kafkaprod.structs import TopicPartition

ABORT_S: Final = 5.0
COMMIT_TRIES: Final = 3  # each takes max_block_ms
_ABORTED: Final = (  # by the coordinator, after the transaction's timeout
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.PRODUCER_FENCED,
)


class TryAgainError(Exception):
    """The transaction cannot be committed; its rows must be sent again. The cause is why."""

    def __init__(self, refused: list[tuple[int, int, str]] | None = None, *, is_batch_too_large: bool = False) -> None:
        super().__init__("the transaction was aborted")
        self.refused = refused or []
        self.is_batch_too_large = is_batch_too_large


class TransactionalAttempt:
    """Sends rows until the input ends or a transaction fails.

    Args:
        job: What to load.
        committed: What is committed; is replaced at each commit.
        transactional_id: The transactional id of the load.
        refused: Rows that a broker did not take.
        batch_bytes: The batch size of the producer; None: as the options set it.
        client: Asks the cluster.
        producer: The producer of the attempt before, whose transaction was aborted; None: `open` makes one.
    """

    def __init__(
        self,
        job: Job,
        committed: CommittedPosition,
        transactional_id: str,
        refused: list[tuple[int, int, str]],
        batch_bytes: int | None,
        client: ClusterClient,
        producer: LoadProducer | None = None,
    ) -> None:
        self._job = job
        self._client = client
        self._options = job.options
        self._id = transactional_id
        self._refused = refused
        self._batch_bytes = batch_bytes
        self.committed = committed
        self.has_sent = False
        self._producer = producer
        self._is_open = False  # a transaction
        self._sent: list[tuple[int, NDArray[np.int64], BlockResult]] = []  # in it
        self._counts = [0, 0, 0]  # records, bytes, bad rows in it
        self._spread = Spread()  # of its records
        self._read_count = 0  # rows of the inputs
        self._next_commit_s = 0.0
        self._last = committed.position  # of the last complete block
        self.place = Place(0, {})  # of the position
        self.must_forget = False  # an earlier load is begun again: what it committed must not be continued

    def open(self) -> None:
        """Make the producer, and fence earlier ones, unless there is one. Raises KafkaError."""
        if self._producer is not None:
            return
        options = dict(self._options.producer) | {"transactional_id": self._id}
        if self._batch_bytes is not None:
            options["batch_size"] = self._batch_bytes
        self._producer = LoadProducer.open(options, self._options.topic)
        try:
            self._producer.init_transactions()
        except BaseException:
            self._producer.close(0)
            raise

    def run(self) -> None:
        """Send everything that is left.

        Raises:
            TryAgainError: Another attempt must continue from `committed`, with the same producer, which stays open.
            LoadError, KafkaError, OSError, KeyboardInterrupt: See transactional.TransactionalLoad.
        """
        producer = self._opened
        self._job.sink.join(producer)
        patience_s: float | None = 0.0
        try:
            if not self.committed.done_at:
                self._send_all()
            patience_s = None
        except KeyboardInterrupt:
            with contextlib.suppress(LoadError):
                self._abort(INTERRUPTED_S)
            raise
        except (KafkaError, OSError) as error:
            again = self._judge(error)
            is_aborted = self._abort(ABORT_S)
            if again is None or not is_aborted:
                raise
            raise again from error
        finally:
            if not isinstance(sys.exception(), TryAgainError):
                self.close(patience_s)

    def close(self, timeout_s: float | None = 0.0) -> None:
        """Close the producer."""
        self._job.report.take(self._opened.latencies, self._opened.retry_count)
        self._opened.close(timeout_s)

    @property
    def producer(self) -> LoadProducer:
        """Return the open producer."""
        return self._opened

    @property
    def _opened(self) -> LoadProducer:
        assert self._producer is not None
        return self._producer

    # -- rows ----------------------------------------------------------------------------------------------------------

    def _send_all(self) -> None:
        start = self.committed
        self._last = start.position
        self._read_count = start.sent_count + start.bad_count
        if self.must_forget:
            self._commit(start)
        limits = replace(self._options, record_limit=start.record_limit, needs_keys=start.needs_keys)
        target = limits.target(start.partition_count, start.run_rows)
        feed = Feed(self._job.sources, self._job.reading, target, self._options.rate, can_resume=True)
        self._next_commit_s = time.monotonic() + self._options.checkpoint_s
        for turn in feed.turns(start.position, self._refused):
            self._send(feed, _without_committed(turn, start))
        self._options.check_end(self._read_count)
        self._commit(self.committed.moved(self._last, None).finished())

    def _send(self, feed: Feed, turn: Turn) -> None:
        """Give bad rows to the sink and the others to the producer; commit when it is time."""
        block, partitions, bad = turn.block, turn.partitions, turn.bad
        self._read_count += block.row_count + len(bad)
        self._options.expected.check_rows(self._read_count, is_end=False)
        is_stopped = bool(bad) and self._job.sink.stops
        if is_stopped:
            keep = (block.numbers < bad[0].row) & (not block.is_tail)
            block, partitions = block.select(keep), partitions[keep]
        self._job.report.note(block)
        if bad or block.row_count:
            self._begin()
        for row in () if is_stopped else bad:
            self._job.sink.put(row)
            self._job.progress.on_bad()
            self._counts[2] += 1
        for part, part_partitions in feed.at_rate(block, partitions):
            if part.row_count:
                self._begin()
                self._send_part(turn.position.source, part, part_partitions)
            self._job.progress.on_block(part.row_count, int(part.sizes().sum()), turn.position)
            is_last = part.end_row == block.end_row and not is_stopped
            if is_last:
                self._last = turn.position
            if block.is_tail:  # a part of a row, perhaps: not before the whole input is compared
                continue
            if time.monotonic() >= self._next_commit_s and (is_last or (part.row_count and not bad)):
                next_row = None if is_last else int(part.numbers[-1]) + 1
                self._commit(self.committed.moved(turn.position if is_last else turn.start, next_row))
        if is_stopped:
            self._commit(self.committed.moved(turn.start, turn.start.row if block.is_tail else bad[0].row))
            self._job.sink.put(bad[0])

    def _send_part(self, source: int, part: RowBlock, partitions: NDArray[np.int32]) -> None:
        self.has_sent = True
        result = self._opened.send_block(self._options.topic, part, partitions)
        self._sent.append((source, part.numbers, result))
        self._counts[0] += part.row_count
        self._counts[1] += int(part.sizes().sum())
        if self._job.report.spread is not None:
            counts = np.zeros(self.committed.partition_count, dtype=np.int64)
            count_partitions(partitions.data, counts.data)
            self._spread.add(Spread.of(part.sizes(), counts))

    # -- transactions --------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        if not self._is_open:
            self._opened.begin_transaction()
            self._is_open = True

    def _commit(self, committed: CommittedPosition) -> None:
        """Commit what was sent, with the new position."""
        self._begin()
        self._job.sink.sync()
        sent, size, bad = self._counts
        committed = replace(
            committed,
            sent_count=committed.sent_count + sent,
            sent_bytes=committed.sent_bytes + size,
            bad_count=committed.bad_count + bad,
            dead_letter_bytes=self._job.sink.position(),
        )
        with contextlib.suppress(KafkaError, TimeoutError):  # the commit raises them
            self._opened.flush(self._opened.config.max_block_ms / 1000)
        committed = committed.ending_at(self._ends())
        self._send_mark(committed)
        commit(self._opened, self._patience_s)
        self.committed = committed
        self.place = replace(self.place, known=committed)
        self._is_open = False
        self._sent.clear()
        self._counts = [0, 0, 0]
        report = self._job.report
        if report.spread is not None:
            report.spread.add(self._spread)
            self._spread = Spread()
        report.sent_count += sent
        report.sent_bytes += size
        self._job.progress.on_retries(report.retry_count + self._opened.retry_count)
        self._next_commit_s = time.monotonic() + self._options.checkpoint_s

    def _send_mark(self, committed: CommittedPosition) -> None:
        """Send the position; it must follow the one that this load knows.

        Raises:
            TransactionAbortableError: There is another one: it was not seen because a coordinator was asked that was
                paused and deposed. The next attempt finds it.
        """
        topic, place = self._options.topic, self.place
        before = send_mark(self._client, self._opened, self._id, place.offsets(topic, committed), self._patience_s)
        if self.must_forget and place.known is None:
            return  # whatever is there is begun again
        found = before.get(TopicPartition(topic, place.partition))
        if (None if found is None else read_position(found.metadata, self._id)) != place.known:
            raise TransactionAbortableError(
                f"transactional id {self._id!r} has committed another position of {topic!r} than the coordinator knew "
                "that was asked before"
            )

    @property
    def _patience_s(self) -> float:
        return (COMMIT_TRIES - 1) * self._opened.config.max_block_ms / 1000

    def _ends(self) -> dict[int, int]:
        """Return where partitions end behind what was sent and is acknowledged."""
        ends: dict[int, int] = {}
        for _, _, result in self._sent:
            if result.done():
                ends |= result.ends()
        return ends

    def _abort(self, timeout_s: float) -> bool:
        """Abort, so that readers do not wait for the transaction's timeout; return whether that is certain.

        Raises:
            LoadError: Another process took over: brokers tell that from a transaction that took too long only here.
        """
        if not self._is_open:
            return True
        try:
            self._opened.abort_transaction(timeout_s)
        except ProducerFencedError as error:
            raise LoadError(
                f"another process took over transactional id {self._id!r}, or a transaction took longer than "
                f"transaction_timeout_ms={self._opened.config.transaction_timeout_ms}: this load ends here"
            ) from error
        except KafkaError:
            return False
        self._is_open = False
        return True

    def _judge(self, error: Exception) -> TryAgainError | None:
        """Return what another attempt needs to know; None: another try does not help."""
        if isinstance(error, TransactionTimeoutError | LoadError) or not isinstance(error, KafkaError):
            return None
        refused = refused_rows(self._sent, has_least_batches=self._batch_bytes == LEAST_BATCH_BYTES)
        if refused:
            return TryAgainError(refused)
        cause = error.__cause__ if isinstance(error.__cause__, KafkaError) else error
        is_ours = getattr(cause, "topic", None) == self._options.topic  # and not that of bad rows
        if is_ours and broker_code(cause) == ErrorCode.MESSAGE_TOO_LARGE:
            return TryAgainError(is_batch_too_large=True)
        is_unknown = getattr(error, "outcome", "") == "unknown"  # the next attempt reads what was committed
        is_aborted = isinstance(error, TransactionAbortableError) or broker_code(cause) in _ABORTED
        return TryAgainError() if is_unknown or is_aborted else None


def _without_committed(turn: Turn, start: CommittedPosition) -> Turn:
    """Return the turn without the rows that were committed when the attempt began."""
    if turn.position.source != start.source or start.next_row <= turn.start.row:
        return turn
    keep = turn.block.numbers >= start.next_row
    bad = [row for row in turn.bad if row.row >= start.next_row]
    return turn._replace(block=turn.block.select(keep), partitions=turn.partitions[keep], bad=bad)
