"""Run a load in transactions: rows and the position after them are committed together.

The transactional id is the name of the load, and of the group whose committed offset is its position:

1. Look at the position, without disturbing a process that may be at work.
2. `init_transactions` fences every earlier process of the load, and completes or aborts what it left open.
3. Look again: no earlier process can commit any more, so this is the position.
4. Every `checkpoint_s`: commit the rows since then, with the new position.

Readers with isolation.level=read_committed see each row once. Nothing is kept on this machine's disk, so a load can be
continued on another one. A transaction that fails is aborted, and a new attempt begins at step 2. One id may be used
for many inputs: see `positions`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from kafkaprod.admin.client import ClusterClient
from kafkaprod.admin.topics import LATEST, log_offsets
from kafkaprod.loader.attempt import Job
from kafkaprod.loader.feed import run_length
from kafkaprod.loader.load import MAX_RESTARTS, smaller_batches
from kafkaprod.loader.opening.errors import LoadError, LoadRefusedError
from kafkaprod.loader.opening.source import Source
from kafkaprod.loader.positions.committed_position import CommittedPosition, digest_of
from kafkaprod.loader.positions.positions import Inputs, Place, Positions, find_positions
from kafkaprod.loader.producing import LoadProducer
from kafkaprod.loader.reports.report import LoadReport
from kafkaprod.loader.transactional_attempt import TransactionalAttempt, TryAgainError
from kafkaprod.text import counted, printable

logger = logging.getLogger("kafkaprod.loader")


def find_position(
    client: ClusterClient,
    transactional_id: str,
    topic: str,
    sources: Sequence[Source] | None = None,
    *,
    is_write: bool = False,
) -> CommittedPosition | None:
    """Return what a load has committed, without disturbing a process that may be at work; None: nothing.

    Args:
        client: A client of the cluster.
        transactional_id: The transactional id of the load.
        topic: The topic of the load.
        sources: Its inputs; None: of all loads with the id one that stopped, or else the first.
        is_write: The id may be used for these inputs and this topic alone.

    Raises:
        LoadError: The group has an offset that no load committed, or the inputs have changed.
        OSError: An input cannot be read.
        KafkaError: As a broker answered.
    """
    positions = find_positions(client, transactional_id, topic)
    if sources is None:
        return positions.any_of()
    inputs = Inputs.of(sources)
    if is_write:
        positions.check_alone(inputs)
    return positions.find(inputs)


class TransactionalLoad:
    """Runs one load.

    Args:
        job: What to load; it has no manifest.
        client: Asks the cluster.
        transactional_id: The transactional id of the load.
        resumes: Continue a load that stopped.
        restarts: Begin again, whatever is committed.
        is_write: The id is that of one write: it may be used for these inputs and this topic alone.
    """

    def __init__(
        self,
        job: Job,
        client: ClusterClient,
        transactional_id: str,
        *,
        resumes: bool = False,
        restarts: bool = False,
        is_write: bool = False,
    ) -> None:
        self._job = job
        self._client = client
        self._id = transactional_id
        self._resumes = resumes
        self._restarts = restarts
        self._is_write = is_write
        self._inputs = Inputs.of(job.sources)
        decided_later = ("record_limit", "needs_keys")
        wanted = {name: value for name, value in job.options.fingerprint.items() if name not in decided_later}
        self._fingerprint = digest_of(wanted)
        self._refused: list[tuple[int, int, str]] = []
        self._batch_bytes: int | None = None
        self._place = Place(0, {})
        self._run_rows: int | None = None
        self._dead_letter_bytes = job.sink.position()
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
            if committed.done_at:
                rows = committed.sent_count + committed.bad_count
                self._job.options.expected.check_rows(rows, is_end=True)
            restarts = 0
            producer: LoadProducer | None = None
            while not committed.done_at:
                rank = committed.rank
                attempt = TransactionalAttempt(
                    self._job, committed, self._id, self._refused, self._batch_bytes, self._client, producer
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

    def _find(self, *, is_final: bool = False) -> Positions:
        topic = self._job.options.topic
        return find_positions(self._client, self._id, topic, is_final=is_final, ignores_others=self._restarts)

    def _fence(self, attempt: TransactionalAttempt) -> CommittedPosition:
        """Keep all earlier processes from committing; return what is committed then."""
        attempt.open()
        try:
            committed = self._choose(self._find(is_final=True))
            attempt.place = self._place
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

    def _choose(self, positions: Positions) -> CommittedPosition:
        """Return the position to continue from. Raises LoadRefusedError where the arguments do not fit it."""
        if self._is_write and not self._restarts:
            positions.check_alone(self._inputs)
        found = None if self._restarts else positions.find(self._inputs)
        if found is None:
            return self._fresh(positions)
        self._check_wanted(found)
        options, who = self._job.options, f"transactional id {self._id!r}"
        if not self._fingerprint.startswith(found.options):
            raise LoadRefusedError(
                f"the options are not those that {who} began with: rows would become other records. Give the same "
                "options, or start over with --restart"
            )
        check_log(self._client, options.topic, found)
        self._place = positions.place_of(found)
        return found

    def _check_wanted(self, found: CommittedPosition) -> None:
        """Raise LoadRefusedError unless the arguments say that an earlier load of the inputs continues."""
        topic, rows, who = self._job.options.topic, counted(found.sent_count, "record"), f"id {self._id!r}"
        if not found.done_at:
            if not self._resumes:
                raise LoadRefusedError(
                    f"a load into {topic!r} stopped after {rows} (transactional {who}): continue it with --resume, or "
                    "start over with --restart"
                )
            return
        if not self._resumes:
            raise LoadRefusedError(
                f"already loaded into {topic!r} at {found.done_at}: {rows} (transactional {who}). --restart sends them "
                "again"
            )
        if any(each.pipe is not None for each in self._job.sources):
            raise LoadRefusedError(
                f"--resume: a load of a pipe is complete since {found.done_at} (transactional {who}), and whether this "
                "one has the same bytes cannot be compared. If it is another input, give it a transactional id of its "
                "own"
            )
        if found.times and self._inputs.times and found.times != self._inputs.times:
            raise LoadRefusedError(
                f"--resume: an input of the same name, size, beginning and end was loaded at {found.done_at}: {rows} "
                f"(transactional {who}). It was written at another time, so this may be another one. If it is, "
                "--restart loads it"
            )

    def _fresh(self, positions: Positions) -> CommittedPosition:
        topic_id, partition_count, cluster_id = self._topic()
        options = self._job.options
        if options.partition is not None and options.partition >= partition_count:
            partitions = counted(partition_count, "partition")
            raise LoadRefusedError(f"topic {options.topic!r} has {partitions}, but no partition {options.partition}")
        self._place, earlier = positions.place(self._inputs, restarts=self._restarts)
        if self._run_rows is None:
            self._run_rows = run_length(self._job.sources, self._job.reading)
        return CommittedPosition(
            partition_count=partition_count,
            run_rows=self._run_rows,
            topic_id=topic_id,
            inputs=self._inputs.digest,
            options=self._fingerprint,
            record_limit=options.record_limit,
            needs_keys=options.needs_keys,
            dead_letter_bytes=self._dead_letter_bytes,
            cluster_id=cluster_id,
            times=self._inputs.times,
            names=self._inputs.names,
            files=self._inputs.files,
            earlier=earlier,
        )

    def _topic(self) -> tuple[str, int, str]:
        """Return the topic's id, its number of partitions, and the cluster's id."""
        cluster = self._client.metadata([self._job.options.topic])
        topic = cluster.topics[0]
        topic_id = "" if topic.topic_id is None else str(topic.topic_id)
        return topic_id, len(topic.partitions), cluster.cluster_id or ""


def check_log(client: ClusterClient, topic: str, found: CommittedPosition) -> None:
    """Compare the log with what a load has committed: its rows may be gone, or the topic or cluster another one.

    Args:
        client: A client of the cluster.
        topic: The topic of the load.
        found: What it has committed.

    Raises:
        LoadRefusedError: The log is not the one of the load, or ends before it.
        KafkaError: As a broker answered.
    """
    cluster = client.metadata([topic])
    topic_id = cluster.topics[0].topic_id
    for what, was, is_now in (
        ("cluster", found.cluster_id, cluster.cluster_id),
        (f"topic {topic!r}", found.topic_id, None if topic_id is None else str(topic_id)),
    ):
        if was and is_now and was != is_now:
            raise LoadRefusedError(
                f"the load began with the {what} of id {was}, and this one, which was created again or is another one, "
                f"has {is_now}: the records that were committed are not here. Start over with --restart"
            )
    ends = log_offsets(client, topic, LATEST) if found.ends else {}
    for number, end in found.known_ends().items():
        if ends.get(number, -1) < end:
            raise LoadRefusedError(
                f"{topic}[{number}] ends at offset {ends.get(number)}, but records of the load were committed up to "
                f"{end}: they are gone. Start over with --restart"
            )
