"""One load that is killed at random instants and resumed until it ends by itself, while its cluster dies, too."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import random
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from kafkaprod.admin.client import ClusterClient
from kafkaprod.admin.topics import log_offsets
from kafkaprod.config import ProducerConfig
from kafkaprod.errors import KafkaError
from kafkaprod.loader.positions.committed_position import CommittedPosition
from kafkaprod.loader.positions.manifest_file import ManifestFile
from kafkaprod.loader.transactional import find_position
from tests.support.loader.forked_load import load
from tests.support.loader.kill_inputs import KillInput, change, replace_while_read
from tests.support.loader.load_rig import read_topic

MANIFEST, TRANSACTIONS, NOTHING = "manifest", "transactions", "nothing"
PATIENCE_S: Final = 300.0  # beyond delivery_timeout_ms, 120 s: a load whose brokers stay away ends by it
MOST_KILLS: Final = 8  # of a load that keeps nothing and begins again
TRY_AGAIN: Final = 75
_FORKS: Final = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["tests.support.loader.forked_load"])
WORDS_OF_CHANGE: Final = (
    "not what it was",
    "while it was read",
    "files instead of",
    "has another",
    "another file",
    "is not a whole",
    "is not the file",
)


class Servers(Protocol):
    """What a load sends to."""

    @property
    def bootstrap(self) -> str:
        """Its addresses."""

    def die(self, rng: random.Random) -> None:
        """Kill all of it or a part."""

    def come_back(self) -> None:
        """Start what was killed, with its disk."""


@dataclass
class Tally:
    """What happened."""

    loads: int = 0
    kills: int = 0
    kills_with_progress: int = 0
    resumed_inside: int = 0  # killed when some records, but not all, were there
    deaths: int = 0  # of brokers
    changes: int = 0  # of inputs between runs
    refused_changes: int = 0
    replaced: int = 0  # inputs, while they were read
    try_again: int = 0  # runs that ended with 75
    rows: int = 0
    lost: int = 0
    twice: int = 0
    foreign: int = 0
    misplaced: int = 0
    stuck: int = 0
    again: int = 0  # rows there more than once after a load that keeps nothing: what it promises

    @property
    def is_good(self) -> bool:
        """Whether every row of every load was where it belongs, once."""
        wrong = self.lost, self.twice, self.foreign, self.misplaced, self.stuck
        return not any(wrong) and self.changes == self.refused_changes


@dataclass
class KilledLoad:
    """A load of one input.

    Attributes:
        input: Its input.
        servers: Where it sends.
        topic: Its topic.
        keeps: Where its progress is: MANIFEST, TRANSACTIONS or NOTHING.
        directory: For manifests.
        name: Its transactional id.
        arguments: More of its arguments.
        longest_s: The latest instant of a kill.
        has_deaths: Brokers die during it.
        rng: Of everything random.
        tally: Counts.
    """

    input: KillInput
    servers: Servers
    topic: str
    keeps: str
    directory: Path
    name: str
    arguments: Sequence[str]
    longest_s: float
    has_deaths: bool
    rng: random.Random
    tally: Tally

    def run_to_its_end(self) -> None:
        """Kill and resume until it ends by itself."""
        kill_count = 0
        while True:
            if self.rng.random() < 0.25 and self._progress():
                self._try_changed()
            may_die = self.keeps != NOTHING or kill_count < MOST_KILLS
            if self._run(may_die=may_die):
                break
            kill_count += 1
            with self._patient():
                self._count_progress()
        self.tally.loads += 1

    def repeat(self) -> int:
        """Give the command once more; return its exit code."""
        return self._wait(self._start(), PATIENCE_S)[0]

    # -- one run -------------------------------------------------------------------------------------------------------

    def _command(self) -> list[str]:
        keeps = {
            MANIFEST: ["--state", str(self.directory), "--resume"],
            TRANSACTIONS: ["--transactional-id", self.name, "--resume"],
            NOTHING: ["--no-manifest"],
        }[self.keeps]
        more = ["-b", self.servers.bootstrap, "-q", "--checkpoint-interval", "0.03", *keeps]
        return ["load", *self.input.names, "-t", self.topic, *more, *self.input.more, *self.arguments]

    def _start(self) -> Running:
        return Running(self._command(), self.input.files[0].path if self.input.is_pipe else None)

    def _run(self, *, may_die: bool) -> bool:
        """Run it once, with what is to happen meanwhile; return whether it ended by itself and is complete."""
        undo: list[Callable[[], None]] = []
        running = self._start()
        try:
            if self.rng.random() < 0.8:  # others die at any time, before they did anything, too
                for _ in range(1 if self.keeps == TRANSACTIONS else self.rng.randrange(1, 4)):
                    self._await_progress(running)
            for instant_s, action in self._events(undo, may_die=may_die):
                if running.is_alive_at(instant_s):
                    action()
            if may_die and running.is_alive_at(self._kill_after_s):
                running.kill()
                self.tally.kills += 1
                return False
            code, error = self._wait(running, PATIENCE_S)
        finally:
            running.kill()
            had_changes = [step() for step in reversed(undo)]
        return self._is_complete(code, error, had_changes=bool(had_changes))

    def _events(self, undo: list[Callable[[], None]], *, may_die: bool) -> Iterator[tuple[float, Callable[[], None]]]:
        """What happens during a run, in order; draws when it is killed."""
        self._kill_after_s = self.rng.uniform(0, self.longest_s)
        if may_die and self.keeps != NOTHING and not self.input.is_pipe and self.rng.random() < 0.1:
            yield self.rng.uniform(0, self._kill_after_s), lambda: self._replace(undo)
        if self.has_deaths and self.rng.random() < 0.4:
            instant_s = self.rng.uniform(0, self._kill_after_s)
            yield instant_s, lambda: self._let_die(undo)
            if self.rng.random() < 0.5:  # else the load is killed, or runs on, while they are away
                yield instant_s + self.rng.uniform(0, 0.5), self.servers.come_back

    def _let_die(self, undo: list[Callable[[], None]]) -> None:
        self.tally.deaths += 1
        self.servers.die(self.rng)
        undo.append(self.servers.come_back)

    def _replace(self, undo: list[Callable[[], None]]) -> None:
        self.tally.replaced += 1
        undo.append(replace_while_read(self.input, self.rng))

    def _wait(self, running: Running, limit_s: float) -> tuple[int, str]:
        code, error = running.wait(limit_s)
        if code is None:
            self.tally.stuck += 1
            running.kill()
            raise AssertionError(f"stuck: {running.arguments}: {error}")
        return code, error

    def _is_complete(self, code: int, error: str, *, had_changes: bool) -> bool:
        if code == 0:
            return True
        if self.input.is_pipe and code == 2 and "a load of a pipe is complete" in error:
            return True  # it was killed when it had noted its end
        if code == TRY_AGAIN:
            self.tally.try_again += 1
            assert self.has_deaths, error
            return False
        is_of_change = had_changes and any(words in error for words in WORDS_OF_CHANGE)
        assert is_of_change, f"exit code {code}: {error}"
        return False

    def _try_changed(self) -> None:
        """Change the input and resume: it must be refused, and then continue when the input is what it was."""
        if self.input.is_pipe or self.keeps == NOTHING:
            return
        kind, undo = change(self.input, self.rng, sees_times=self.keeps == MANIFEST)
        self.tally.changes += 1
        try:
            code, error = self._wait(self._start(), PATIENCE_S)
        finally:
            undo()
        is_refused = code == 2 and any(words in error for words in WORDS_OF_CHANGE)
        assert is_refused, f"{kind} {self.input.names}: exit code {code}: {error}"
        self.tally.refused_changes += 1

    # -- how far it is -------------------------------------------------------------------------------------------------

    def _await_progress(self, running: Running) -> None:
        """Return when it has written a manifest or a committed position, or has ended."""
        before = self._progress()
        deadline_s = time.monotonic() + PATIENCE_S
        while running.is_alive_at(0) and self._progress() == before and time.monotonic() < deadline_s:
            time.sleep(0.02)

    def _progress(self) -> list[int]:
        """When the manifests were written, what is committed, or the ends of the log; empty: nowhere."""
        if self.keeps == NOTHING:
            with self._patient(), self._client() as client:
                return list(log_offsets(client, self.topic).values())
        if self.keeps == TRANSACTIONS:
            with self._patient():
                committed = self.position()
                is_inside = committed is not None and committed.is_begun and not committed.done_at
                return [committed.rank] if committed is not None and is_inside else []
        return [file.stat().st_mtime_ns for file in sorted(self.directory.glob("*.load.json"))]

    def position(self) -> CommittedPosition | None:
        """What a load in transactions has committed."""
        with self._client() as client:
            return find_position(client, self.name, self.topic)

    def _client(self) -> ClusterClient:
        return ClusterClient(ProducerConfig.from_options({"bootstrap_servers": self.servers.bootstrap}))

    def _count_progress(self) -> None:
        """Read what a killed load left; raises if it cannot be read."""
        for sent_count, is_done in self._positions():
            self.tally.kills_with_progress += 1
            self.tally.resumed_inside += sent_count > 0 and not is_done

    def _positions(self) -> Iterator[tuple[int, bool]]:
        if self.keeps == TRANSACTIONS:
            committed = self.position()
            if committed is not None:
                yield committed.sent_count, bool(committed.done_at)
        for file in self.directory.glob("*.load.json"):
            manifest = ManifestFile(file).read()
            assert manifest is not None
            yield manifest.sent_count, manifest.is_done

    @contextlib.contextmanager
    def _patient(self) -> Iterator[None]:
        """Take an error for no answer where brokers die."""
        try:
            yield
        except KafkaError:
            if not self.has_deaths:
                raise


class Running:
    """A process that loads: forked from one that has imported everything, so that a kill costs little.

    Args:
        arguments: Of the command, after `kafkaprod`.
        stdin: A file that comes through a pipe; None: nothing.
        dies_at: The writer of the pipe is killed behind so many bytes; None: it is not.
    """

    def __init__(self, arguments: Sequence[str], stdin: Path | None, dies_at: int | None = None) -> None:
        self.arguments = arguments
        descriptor, self._errors = tempfile.mkstemp()
        os.close(descriptor)
        self._process = _FORKS.Process(target=load, args=(arguments, stdin, self._errors, dies_at))
        self._process.start()
        self._started_s: float | None = None

    def is_alive_at(self, instant_s: float) -> bool:
        """Wait until an instant, counted from the first one that was waited for, or its end; return whether it runs."""
        if self._started_s is None and instant_s:
            self._started_s = time.monotonic()
        left_s = 0.0 if self._started_s is None else self._started_s + instant_s - time.monotonic()
        self._process.join(max(left_s, 0.0))
        return self._process.exitcode is None

    def wait(self, limit_s: float) -> tuple[int | None, str]:
        """Wait for its end; return its exit code, None if it still runs, and what it said."""
        self._process.join(limit_s)
        return self._process.exitcode, Path(self._errors).read_text()

    def kill(self) -> None:
        """Kill it (SIGKILL) if it runs."""
        self._process.kill()
        self._process.join()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._errors)


def compare(servers: Servers, topic: str, keeps: str, rows: Sequence[bytes], *, has_keys: bool, tally: Tally) -> None:
    """Count what is lost, twice, foreign or out of order, as confluent-kafka reads it."""
    place = {row: number for number, row in enumerate(rows)}
    seen = [0] * len(rows)
    for records in read_topic(servers.bootstrap, topic, is_committed=keeps == TRANSACTIONS).values():
        last = -1
        for record in records:
            number = place.get(record.value or b"")
            if number is None:
                tally.foreign += 1
                continue
            seen[number] += 1
            if keeps != NOTHING:
                tally.misplaced += number <= last
                last = number
            if has_keys:
                tally.misplaced += record.key is None or b'"id":"%s"' % record.key not in rows[number]
    tally.rows += len(rows)
    tally.lost += seen.count(0)
    count = sum(times - 1 for times in seen if times > 1)
    if keeps == NOTHING:
        tally.again += count
    else:
        tally.twice += count
