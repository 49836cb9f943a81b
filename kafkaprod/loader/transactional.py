"""Run a load in transactions: rows and the position after them are committed together.

The transactional id is the name of the load, and of the group whose committed offset is its position:

1. Look at the position, without disturbing a process that may be at work.
2. `init_transactions` fences every earlier process of the load, and completes or aborts what it left open.
3. Look again: no earlier process can commit any more, so this is the position.
4. Every `checkpoint_s`: commit the rows since then, with the new position.

Readers with isolation.level=read_committed see each row once. Nothing is kept on this machine's disk, so a load can be
continued on another one. A transaction that fails is aborted, and a new attempt begins at step 2.
"""

from __future__ import annotations

import logging
import time

from kafkaprod.admin.client import ClusterClient
from kafkaprod.admin.groups import committed_offset
from kafkaprod.loader.attempt import Job
from kafkaprod.loader.committed_position import CommittedPosition, digest_of, digest_of_inputs, read_position
from kafkaprod.loader.errors import LoadError, LoadRefusedError
from kafkaprod.loader.feed import run_length
from kafkaprod.loader.load import MAX_RESTARTS, smaller_batches
from kafkaprod.loader.producing import LoadProducer
from kafkaprod.loader.report import LoadReport
from kafkaprod.loader.transactional_attempt import POSITION_PARTITION, TransactionalAttempt, TryAgainError
from kafkaprod.structs import TopicPartition
from kafkaprod.text import counted, printable

logger = logging.getLogger("kafkaprod.loader")


def find_position(
    client: ClusterClient, transactional_id: str, topic: str, *, is_final: bool = False
) -> CommittedPosition | None:
    """Return what a load has committed; None if no load has this id.

    Args:
        client: A client of the cluster.
        transactional_id: The transactional id of the load.
        topic: The topic of the load.
        is_final: Earlier processes are fenced: wait for what they decided. Else an open transaction, which a killed
            process may have left behind, is not waited for.

    Raises:
        LoadError: The group has an offset that no load committed.
        KafkaError: As a broker answered.
    """
    place = TopicPartition(topic, POSITION_PARTITION)
    found = committed_offset(client, transactional_id, place, is_stable=is_final)
    return None if found is None else read_position(found.metadata, transactional_id)


class TransactionalLoad:
    """Runs one load.

    Args:
        job: What to load; it has no manifest.
        client: Asks the cluster.
        transactional_id: The transactional id of the load.
        resumes: Continue a load that stopped.
        restarts: Begin again, whatever is committed.
    """

    def __init__(
        self, job: Job, client: ClusterClient, transactional_id: str, *, resumes: bool = False, restarts: bool = False
    ) -> None:
        self._job = job
        self._client = client
        self._id = transactional_id
        self._resumes = resumes
        self._restarts = restarts
        self._inputs = digest_of_inputs(job.sources)
        decided_later = ("record_limit", "needs_keys")
        wanted = {name: value for name, value in job.options.fingerprint.items() if name not in decided_later}
        self._fingerprint = digest_of(wanted)
        self._refused: list[tuple[int, int, str]] = []
        self._batch_bytes: int | None = None
        self._first: CommittedPosition | None = None
        self.has_sent = False
        self.report: LoadReport = job.report

    def run(self) -> LoadReport:
        """Load everything.

        Raises:
            LoadError, KafkaError, OSError: It stopped; --resume continues after the last commit.
            KeyboardInterrupt: The same.
        """
        started = time.monotonic()
        committed = self._choose(self._find())
        self.report.passed_count = committed.sent_count
        is_first = True
        try:
            restarts = 0
            producer: LoadProducer | None = None
            while not committed.done_at:
                rank = committed.rank
                attempt = TransactionalAttempt(
                    self._job, committed, self._id, self._refused, self._batch_bytes, producer
                )
                try:
                    committed = attempt.committed = self._fence(attempt)
                    if is_first:  # no earlier process commits any more
                        self.report.passed_count, is_first = committed.sent_count, False
                    attempt.run()
                except TryAgainError as error:
                    restarts = 0 if attempt.committed.rank > rank else restarts + 1
                    producer = self._prepare_again(attempt, error, restarts)
                finally:
                    self.has_sent = self.has_sent or attempt.has_sent
                    committed = attempt.committed
        finally:
            self.report.seconds = time.monotonic() - started
            self.report.sent_in_all, self.report.bad_in_all = committed.sent_count, committed.bad_count
            self.report.sent_count = committed.sent_count - self.report.passed_count
        self.report.is_complete = True
        return self.report

    def _find(self, *, is_final: bool = False) -> CommittedPosition | None:
        if self._restarts:
            return None
        return find_position(self._client, self._id, self._job.options.topic, is_final=is_final)

    def _fence(self, attempt: TransactionalAttempt) -> CommittedPosition:
        """Keep all earlier processes from committing; return what is committed then."""
        attempt.open()
        try:
            committed = self._choose(self._find(is_final=True))
            self._job.sink.rewind(committed.dead_letter_bytes)
        except BaseException:
            attempt.close()
            raise
        attempt.must_forget = self._restarts
        self._restarts, self._resumes = False, True  # the attempts after this one continue it
        return committed

    def _prepare_again(self, attempt: TransactionalAttempt, error: TryAgainError, restarts: int) -> LoadProducer | None:
        """Prepare another attempt; return its producer, None if it must make one.

        The same producer does not fence a process that took over meanwhile.

        Raises:
            LoadError: There were too many, or the input cannot be read again.
        """
        try:
            self._check_again(error, restarts)
            self._job.sink.rewind(attempt.committed.dead_letter_bytes)
        except BaseException:
            attempt.close()
            raise
        logger.info("the transaction was aborted, its rows are sent again: %s", printable(str(error.__cause__)))
        if error.is_batch_too_large:
            attempt.close()
            return None
        return attempt.producer

    def _check_again(self, error: TryAgainError, restarts: int) -> None:
        cause = error.__cause__ if isinstance(error.__cause__, Exception) else error
        if any(source.pipe is not None for source in self._job.sources):
            raise LoadError(
                f"a part of the input must be read again, which is not possible with a pipe ({cause}): run the command "
                "with --resume and the same bytes"
            ) from cause
        if error.refused:
            self._refused += error.refused
        elif error.is_batch_too_large:
            self._batch_bytes = smaller_batches(self._batch_bytes, self._job.options.producer, cause)
        elif restarts > MAX_RESTARTS:
            raise LoadError(f"transactions are aborted again and again: {cause}") from cause

    # -- where to begin ------------------------------------------------------------------------------------------------

    def _choose(self, found: CommittedPosition | None) -> CommittedPosition:
        """Return the position to continue from. Raises LoadRefusedError where the arguments do not fit it."""
        if found is None or not found.is_begun:
            return self._fresh()
        options, rows = self._job.options, counted(found.sent_count, "record")
        is_same = found.inputs == self._inputs
        who = f"transactional id {self._id!r}"
        if found.done_at and is_same and self._resumes and any(each.pipe is not None for each in self._job.sources):
            raise LoadRefusedError(
                f"--resume: a load of a pipe is complete since {found.done_at} ({who}), and whether this one has the "
                "same bytes cannot be compared. If it is another input, give it a transactional id of its own"
            )
        if found.done_at and not is_same:
            return self._fresh()  # the id is used for one load after the other
        if not self._resumes:
            if found.done_at:
                raise LoadRefusedError(
                    f"already loaded into {options.topic!r} at {found.done_at}: {rows} ({who}). --restart sends them "
                    "again"
                )
            raise LoadRefusedError(
                f"a load into {options.topic!r} stopped after {rows} ({who}): continue it with --resume, or start over "
                "with --restart"
            )
        if not is_same:
            raise LoadRefusedError(
                f"the input is not what it was when {who} began. Use --restart to load it from the beginning"
            )
        if found.options != self._fingerprint:
            raise LoadRefusedError(
                f"the options are not those that {who} began with: rows would become other records. Give the same "
                "options, or start over with --restart"
            )
        if found.topic_id != self._topic()[0]:
            raise LoadRefusedError(
                f"topic {options.topic!r} was created again since {who} began. Start over with --restart"
            )
        return found

    def _fresh(self) -> CommittedPosition:
        if self._first is not None:
            return self._first
        topic_id, partition_count = self._topic()
        options = self._job.options
        if options.partition is not None and options.partition >= partition_count:
            partitions = counted(partition_count, "partition")
            raise LoadRefusedError(f"topic {options.topic!r} has {partitions}, but no partition {options.partition}")
        self._first = CommittedPosition(
            partition_count=partition_count,
            run_rows=run_length(self._job.sources, self._job.reading),
            topic_id=topic_id,
            inputs=self._inputs,
            options=self._fingerprint,
            record_limit=options.record_limit,
            needs_keys=options.needs_keys,
            dead_letter_bytes=self._job.sink.position(),
        )
        return self._first

    def _topic(self) -> tuple[str, int]:
        """Return the topic's id and its number of partitions."""
        topic = self._client.metadata([self._job.options.topic]).topics[0]
        return "" if topic.topic_id is None else str(topic.topic_id), len(topic.partitions)
