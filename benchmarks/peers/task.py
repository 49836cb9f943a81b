"""What a client is asked to do, what it answers, and the file the records come from.

A task is a list of ``name=value`` arguments, so that a client in any language reads it without a library. Times are
measured by the client itself, between the end of its warm-up and the return of its flush, so that neither imports nor
metadata nor a virtual machine's start are in them.
"""

import dataclasses
import itertools
import json
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from benchmarks.workloads import Workload

_LENGTH = struct.Struct(">i")


@dataclass(frozen=True, slots=True)
class Task:
    """One run of one client.

    Attributes:
        bootstrap: where to connect.
        topic: topic name; with ``topics`` above one, a prefix: ``name-0`` to ``name-<topics - 1>``, taken in turn.
        records: file of `write_records`; a round sends all of them once.
        way: which of the client's ways in; each client names its own.
        results: what happens to each record's outcome: ``ignored`` (the far end's count tells whether all arrived);
            ``callback``: a function is called with it; ``read``: every record's offset is read at the round's end.
        seconds: whole rounds are sent until so much time has passed; then flush.
        warm_up_s: the same before, not measured.
        rate: records a second, evenly spaced, from one thread; 0: as fast as it goes. See `benchmarks.macro.latency`.
        sample_every: with a rate, the latency of every so-manieth record is taken.
        flush_rounds: flush after every round, not only at the end.
        transactional: each round is a transaction, which is committed at its end; with one thread.
        threads: application threads that send at the same time.
        call_records: rows of one call where a call takes many; 0: a whole round.
        batch_bytes: largest batch; 0: what the client's documentation advises, else its default.
        buffer_bytes: what may wait in the client; 0: as each client program says.
        tls_ca: file of the authority to check the far end's certificate with; empty: no TLS.
    """

    bootstrap: str
    topic: str
    records: str
    way: str
    topics: int = 1
    results: str = "ignored"
    seconds: float = 1.0
    warm_up_s: float = 0.3
    rate: int = 0
    sample_every: int = 1
    flush_rounds: bool = False
    transactional: bool = False
    threads: int = 1
    call_records: int = 0
    acks: str = "all"
    idempotence: bool = True
    linger_ms: int = 5
    batch_bytes: int = 0
    buffer_bytes: int = 0
    compression: str = "none"
    tls_ca: str = ""

    def arguments(self) -> list[str]:
        """The command line: booleans as 0 and 1."""
        pairs = dataclasses.asdict(self).items()
        return [f"{name}={int(value) if isinstance(value, bool) else value}" for name, value in pairs]

    @classmethod
    def from_arguments(cls, arguments: Iterable[str]) -> Self:
        """Read a command line. Raises ValueError for what is not a field."""
        types = {field.name: field.type for field in dataclasses.fields(cls)}
        values: dict[str, Any] = {}
        for argument in arguments:
            name, _, text = argument.partition("=")
            if name not in types:
                raise ValueError(f"{argument!r}: a task has only the fields {', '.join(types)}")
            values[name] = bool(int(text)) if types[name] is bool else types[name](text)  # type: ignore[operator]
        return cls(**values)

    def topic_names(self) -> list[str]:
        """Every topic of the task."""
        return [self.topic] if self.topics == 1 else [f"{self.topic}-{index}" for index in range(self.topics)]


@dataclass(slots=True)
class Turn:
    """What is kept of one run of one client.

    Attributes:
        records: sent and acknowledged (acks=0: written) within the measurement.
        seconds: wall time of the measurement, the last flush included.
        cpu_s: CPU time of the client's process in it, user and system, all threads.
        max_rss_mb: largest resident set of the process so far, in 2**20 bytes.
    """

    records: int
    seconds: float
    cpu_s: float
    max_rss_mb: float

    @property
    def rate(self) -> float:
        """Records a second."""
        return self.records / self.seconds

    @property
    def cpu_ns(self) -> float:
        """CPU nanoseconds a record."""
        return self.cpu_s / self.records * 1e9


@dataclass(slots=True)
class Figures(Turn):
    """What a client answers.

    Attributes:
        all_records: those of the measurement and of the warm-up: what must have arrived.
        version: of the client library.
        settings: what it was set to, under the client's own names.
        transactions: committed, with those of the warm-up: each leaves a control record in every partition.
        latencies_us: with a rate: of each sampled record from the time it was to be sent to its acknowledgement.
    """

    all_records: int
    version: str
    settings: Mapping[str, Any]
    transactions: int = 0
    latencies_us: list[int] = field(default_factory=list)

    def turn(self) -> Turn:
        """Without what is the same in every run."""
        return Turn(self.records, self.seconds, self.cpu_s, self.max_rss_mb)

    def to_json(self) -> str:
        """One line."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The opposite of `to_json`."""
        return cls(**json.loads(text))


@dataclass(frozen=True, slots=True)
class Records:
    """A workload as a Python client takes it; ``keys`` is None if there are none."""

    values: list[bytes]
    keys: list[bytes] | None
    headers: list[tuple[str, bytes]]

    def rows(self, topics: Sequence[str]) -> list[tuple[str, bytes, bytes | None]]:
        """Topic, value and key of each record; topics are taken in turn."""
        keys: Iterable[bytes | None] = itertools.repeat(None) if self.keys is None else self.keys
        return list(zip(itertools.cycle(topics), self.values, keys, strict=False))


def write_records(path: Path, workload: Workload) -> None:
    """Write a workload for clients of any language.

    Big-endian int32 lengths before each string, -1 for null: number of headers, each header's name and value; number of
    records, each record's key and value.
    """
    parts = [_LENGTH.pack(len(workload.headers))]
    for name, value in workload.headers:
        parts += [_string(name.encode()), _string(value)]
    parts.append(_LENGTH.pack(len(workload.values)))
    keys = [None] * len(workload.values) if workload.keys is None else workload.keys.as_list()
    for key, value in zip(keys, workload.values.as_list(), strict=True):
        parts += [_string(key), _string(value)]
    path.write_bytes(b"".join(parts))


def read_records(path: str) -> Records:
    """The opposite of `write_records`."""
    data = Path(path).read_bytes()
    position = 0

    def count() -> int:
        nonlocal position
        position += _LENGTH.size
        (number,) = _LENGTH.unpack_from(data, position - _LENGTH.size)
        return int(number)

    def string() -> bytes | None:
        nonlocal position
        length = count()
        if length < 0:
            return None
        position += length
        return data[position - length : position]

    headers = [((string() or b"").decode(), string() or b"") for _ in range(count())]
    pairs = [(string(), string() or b"") for _ in range(count())]
    keys = [key for key, _ in pairs if key is not None]
    return Records([value for _, value in pairs], keys if keys else None, headers)


def _string(data: bytes | None) -> bytes:
    return _LENGTH.pack(-1) if data is None else _LENGTH.pack(len(data)) + data
