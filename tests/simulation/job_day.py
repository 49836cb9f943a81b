"""A day of transactions on which programs are jobs, run again until they are done (`jobs`)."""

from __future__ import annotations

from contextlib import ExitStack

from kafkaprod.admin import coordinators
from tests.simulation import transaction_day
from tests.simulation.checker import ViolationError
from tests.simulation.committed_reading import CommittedConsumer
from tests.simulation.jobs import Job, JobNode, virtual_time
from tests.simulation.rules import replaced
from tests.simulation.run import STARTS_MS, Outcome
from tests.simulation.transacting import OffsetsReader, TransactionalNode
from tests.simulation.transaction_day import TOPIC, TransactionDay

MOST_RUNS = 40
DONE_MS = 60_000


class JobDay(TransactionDay):
    """See the module docstring.

    Attributes:
        jobs: By the transactional id of their runs.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        chance = self.world.random
        jobs = [
            Job(number, chance.choice((1, 3, 8, 20)), chance.choice((False, False, True, 2, 5)))
            for number in range(chance.choice((1, 2, 3)))
        ]
        self.jobs = {job.transactional_id: job for job in jobs}

    def run(self) -> Outcome:
        """See `Simulation.run`."""
        with ExitStack() as scaled:
            scaled.enter_context(virtual_time(self.world))
            scaled.enter_context(replaced(transaction_day, "MOST_INSTANCES", MOST_RUNS))
            scaled.enter_context(replaced(coordinators, "RETRY_MS", 20))
            try:
                outcome = super().run()
            finally:
                for program in self.programs:
                    if isinstance(program, JobNode):
                        program.on_over = lambda _: None
                        program.end()
        if not self._is_lossy():
            for consumer in self.consumers:
                for job in self.jobs.values():
                    self._check_job(job, consumer.process.name)
        return outcome

    def _check_job(self, job: Job, reader: str) -> None:
        rows = self.consumer_side.rows
        if job.results:
            rows.check_whole(reader, {job.row(0).partition: job.rows})
        elif not job.parts and rows.count(reader, job.row(0).partition) not in (0, job.rows):
            raise ViolationError(f"whole: {reader} has seen a part of {job.write_id}")
        if not job.parts and sum(not result.already_written for result in job.results) > 1:
            raise ViolationError(f"one: several runs say that they wrote {job.write_id}")

    def _start_clients(self) -> None:
        keys = self._keys(TOPIC)
        self._run_while(lambda: not self._is_coordinating(), STARTS_MS)
        for number in range(2):
            name = f"committed consumer {number}"
            self.consumers.append(CommittedConsumer(self.world, self.brokers, self.checker, self.ledger, name, keys))
        self._start_program("ada")
        self.offsets_reader = OffsetsReader(self.world, self.brokers, self.ledger, TOPIC, ["ada"])
        self.consumer_side.start(TOPIC, self.topics[TOPIC])
        self._start_member()
        for name in self.jobs:
            self.world.at(self.world.random.randint(0, 800), lambda name=name: self._start_program(name))  # type: ignore[misc]

    def _make_program(self, number: int, name: str) -> TransactionalNode:
        if name not in self.jobs:
            return super()._make_program(number, name)
        rows = self.consumer_side.rows
        run = JobNode(self.world, self.brokers, self.outcomes, self.ledger, number, TOPIC, self.jobs[name], rows)
        run.on_over = self._run_again
        return run

    def _start_program(self, name: str) -> None:
        if name in self.jobs:
            self._begin_program(name)
        else:
            super()._start_program(name)

    def _run_again(self, run: JobNode) -> None:
        """Run a job again that is not done, and now and then one that is: a scheduler does so."""
        chance = self.world.random
        is_wanted = not run.job.results or (not self._is_healed and chance.random() < 0.5)
        others = [other for other in self.programs if other.transactional_id == run.transactional_id]
        if self._is_healed and not all(other.is_over for other in others):
            return  # one after the other: the last one to begin fences the others, and must have its time
        if is_wanted and len(self.programs) < MOST_RUNS:
            self.world.at(chance.randint(1, 200), lambda: self._start_program(run.transactional_id))

    def _run_until_at_rest(self) -> None:
        self._run_while(lambda: not self._are_done(), DONE_MS)
        super()._run_until_at_rest()

    def _are_done(self) -> bool:
        return all(program.is_over for program in self.programs if program.transactional_id in self.jobs) and all(
            job.results or len(self.programs) >= MOST_RUNS for job in self.jobs.values()
        )

    def _are_idle(self) -> bool:
        return super()._are_idle() and self._are_done()
