"""Running `kafkaprod load` in tests, and reading back what it did with a client of other people's."""

from __future__ import annotations

import contextlib
import io
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar, cast

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, TopicPartition

from kafkaprod.cli.main import main

PATIENCE_S = 30.0

T = TypeVar("T")


@dataclass
class Seen:
    """A record as confluent-kafka's consumer gives it."""

    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes]]
    timestamp: int


@dataclass
class Finished:
    """A run of the command."""

    code: int
    out: str
    err: str


@dataclass
class LoadRig:
    """Commands against one broker; manifests go to `state_dir`, or the load has a transactional id."""

    bootstrap: str
    state_dir: Path
    topic: str
    transactional_id: str | None = None

    def command(self, *arguments: str) -> list[str]:
        """The command line of a load."""
        mode = ("--state", str(self.state_dir))
        if self.transactional_id is not None:
            mode = ("--transactional-id", self.transactional_id)
        load = (sys.executable, "-m", "kafkaprod", "load", "-b", self.bootstrap, "-t", self.topic)
        return [*load, *mode, "-q", *arguments]

    def run(self, *arguments: str, stdin: bytes | None = None, timeout_s: float = 60) -> Finished:
        """Load and wait."""
        command = self.command(*arguments)
        if stdin is None:
            return run_here(command[3:])
        done = subprocess.run(command, input=stdin, capture_output=True, timeout=timeout_s, check=False)
        return Finished(done.returncode, done.stdout.decode(), done.stderr.decode())

    def create(self, partitions: int = 3, **options: str) -> None:
        """Make the topic."""
        more = [part for name, value in options.items() for part in ("--config", f"{name.replace('_', '.')}={value}")]
        arguments = ["topics", "create", self.topic, "-b", self.bootstrap, "--partitions", str(partitions), *more]
        assert run_here(arguments).code == 0

    def read(self, topic: str | None = None) -> dict[int, list[Seen]]:
        """Every record of the topic, by partition in order; only committed ones if the load has transactions."""
        return read_topic(self.bootstrap, topic or self.topic, is_committed=self.transactional_id is not None)

    def values(self) -> list[bytes]:
        """All values, partition after partition."""
        return [cast(bytes, record.value) for records in self.read().values() for record in records]


def run_here(arguments: list[str]) -> Finished:
    """Run a command in this process, which saves the start of another."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(arguments)
    return Finished(code, out.getvalue(), err.getvalue())


def read_topic(bootstrap: str, topic: str, *, is_committed: bool = False) -> dict[int, list[Seen]]:
    """Every record of a topic, by partition in order, as librdkafka reads it."""
    return {
        number: [
            Seen(m.key(), m.value(), cast(list[tuple[str, bytes]], m.headers() or []), m.timestamp()[1])
            for m in messages
        ]
        for number, messages in _consume(bootstrap, topic, lambda message: message, is_committed=is_committed).items()
    }


def read_values(bootstrap: str, topic: str) -> dict[int, list[bytes]]:
    """The values of a topic's records, by partition in order; of many records."""
    return _consume(bootstrap, topic, lambda message: message.value() or b"")


def _consume(
    bootstrap: str, topic: str, take: Callable[[Message], T], *, is_committed: bool = False
) -> dict[int, list[T]]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed" if is_committed else "read_uncommitted",
        }
    )
    try:
        partitions = sorted(consumer.list_topics(topic, 30).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in partitions])
        records: dict[int, list[T]] = defaultdict(list)
        left = set(partitions)
        deadline_s = time.monotonic() + PATIENCE_S
        while left:
            messages = consumer.consume(10_000, 0.05)  # waits for all of them that long: no end of a partition stops it
            assert messages or time.monotonic() < deadline_s, f"{topic}{sorted(left)} does not end"
            deadline_s = time.monotonic() + PATIENCE_S if messages else deadline_s
            for message in messages:
                error = message.error()
                if error is None:
                    records[cast(int, message.partition())].append(take(message))
                elif error.code() == KafkaError._PARTITION_EOF:
                    left.discard(message.partition())
                else:
                    raise AssertionError(error)
        return {number: records[number] for number in partitions}
    finally:
        consumer.close()
