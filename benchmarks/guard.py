"""Has the producer become slower? CPU time a record of its three ways in, against a kept baseline; seconds long.

    python -m benchmarks.guard [--update]

A window sends some ten thousand records and flushes: append, sender thread, socket to the sink, acknowledgement.
Between these windows, in the same process, come windows of the yardsticks, which do the least that such a window needs:
pack each record's key and value (or copy and checksum the block), and send prebuilt requests of as many bytes over a
socket to the same sink, with its answers read. What counts is the CPU time of the whole process in the cheaper windows,
as a multiple of the yardstick's. The yardstick uses the same processor, memory and kernel in the same seconds, so the
multiple follows the host where nanoseconds do not.

A way fails if its multiple is more than ALLOWED above the baseline's, plus the noise: the spread of its windows and the
yardstick's. It fails only after three attempts. A multiple as much below the baseline asks for `--update`. Outside
continuous integration a failure on a machine with more than BUSY_LOAD runnable tasks a core only says that the machine
is too busy to measure: exit status 0.

The baseline is `benchmarks/results/guard.json`. On another processor, kernel or Python than the baseline's the
multiples differ for other reasons, and ALLOWED_ELSEWHERE holds.
"""

import argparse
import json
import os
import socket
import struct
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crc32c import crc32c

from benchmarks import machine
from benchmarks.sink import Sink
from benchmarks.sink_blaster import produce_request, record_batch
from benchmarks.workloads import Workload, make_workload
from kafkaprod import Producer

BASELINE = Path(__file__).parent / "results" / "guard.json"
ALLOWED, ALLOWED_ELSEWHERE = 0.15, 0.60
BUSY_LOAD = 1.5
ATTEMPT_S = 5.0
ATTEMPTS = 3
BATCH_BYTES = 256 << 10
PARTITIONS = 6
# Of the windows: cheap, but not the one lucky one; and the next cheap, to know how much windows differ.
_CHEAP, _NEXT = 0.1, 0.3


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU nanoseconds a record in the cheap windows; ``noise``: by how much the next ones are dearer."""

    cpu_ns: float
    noise: float

    @classmethod
    def of(cls, windows_ns: Sequence[float]) -> "Cost":
        """Of at least one window."""
        ordered = sorted(windows_ns)
        cheap, after = (ordered[int(len(ordered) * part)] for part in (_CHEAP, _NEXT))
        return cls(cheap, after / cheap - 1)


@dataclass(frozen=True, slots=True)
class Verdict:
    """A way beside its baseline.

    Attributes:
        way: name of the method.
        cpu_ns: its cost; for reading only, it differs between machines.
        multiple: of the yardstick's cost.
        baseline: the multiple that is kept.
        allowed: how much dearer it may be, relative to the baseline.
        noise: how much dearer it may be because windows differ, the yardstick's and its own.
        bare_sends: its cost as a multiple of the bare send's; for reading only.
    """

    way: str
    cpu_ns: float
    multiple: float
    baseline: float
    allowed: float
    noise: float
    bare_sends: float

    @property
    def change(self) -> float:
        """0.2: a fifth dearer than the baseline."""
        return self.multiple / self.baseline - 1

    @property
    def has_failed(self) -> bool:
        """Whether it is too dear."""
        return self.change > self.allowed + self.noise

    @property
    def is_outdated(self) -> bool:
        """Whether the baseline is so far above that it guards nothing."""
        return -self.change > self.allowed

    def line(self) -> str:
        """Both figures."""
        state = "REGRESSION" if self.has_failed else "better: keep it with --update" if self.is_outdated else "ok"
        return (
            f"{self.way:13} {self.multiple:6.3f} times the yardstick ({self.cpu_ns:.0f} ns, "
            f"{self.bare_sends:.1f} bare sends), baseline "
            f"{self.baseline:6.3f}: {self.change:+.1%}, allowed {self.allowed:.0%} + noise {self.noise:.1%}: {state}"
        )


class PrebuiltRequests:
    """Sends the bytes of a workload as prebuilt requests and reads the answers: the cost of the bare socket."""

    def __init__(self, port: int, topic: str, workload: Workload) -> None:
        assert workload.keys is not None
        values = [key + value for key, value in zip(workload.keys.as_list(), workload.values.as_list(), strict=True)]
        rows = max(BATCH_BYTES // len(values[0]), 1)
        batches = [record_batch(values[first : first + rows]) for first in range(0, len(values), rows)]
        self._requests = [
            produce_request(9, 1, [(topic, index, batch) for index, batch in enumerate(batches[first:][:PARTITIONS])])
            for first in range(0, len(batches), PARTITIONS)
        ]
        self._connection = socket.create_connection(("127.0.0.1", port))

    def send(self) -> None:
        """Send every request and wait for its answer."""
        for request in self._requests:
            self._connection.sendall(request)
            size = int.from_bytes(self._connection.recv(4, socket.MSG_WAITALL))
            self._connection.recv(size, socket.MSG_WAITALL)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


class Windows:
    """What is measured in turn: each way in, and each yardstick.

    Attributes:
        works: name to what sends or handles all records of the workload, and how often a window does it.
    """

    def __init__(self, producer: Producer, topic: str, workload: Workload, prebuilt: PrebuiltRequests) -> None:
        assert workload.keys is not None
        values, keys = workload.values.as_list(), workload.keys.as_list()
        value_column = (workload.values.offsets, workload.values.data)
        key_column = (workload.keys.offsets, workload.keys.data)
        rows = list(zip(values, keys, strict=True))
        one_record = bytearray(1024)
        pack = struct.Struct(f"<{len(keys[0])}s{len(values[0])}s").pack_into
        block = bytearray(workload.values.data.nbytes)
        source = memoryview(workload.values.data)

        def send() -> None:
            send_one = producer.send
            for value, key in rows:
                send_one(topic, value, key)

        def pack_each() -> None:
            for value, key in rows:
                pack(one_record, 0, key, value)

        def copy_and_sum() -> None:
            block[:] = source
            crc32c(block)

        self.works: dict[str, tuple[Callable[[], object], int]] = {
            "send": (send, 2),
            "send_many": (lambda: producer.send_many(topic, values, keys), 4),
            "send_columns": (lambda: producer.send_columns(topic, value_column, key_column), 8),
            "pack": (pack_each, 1),
            "copy": (copy_and_sum, 4),
            "wire": (prebuilt.send, 4),
        }
        self._producer = producer
        self._records = len(values)
        self._windows_ns: dict[str, list[float]] = {name: [] for name in self.works}

    def measure(self, seconds: float) -> None:
        """Add windows for so long, at least one of each."""
        end = time.perf_counter() + seconds
        while not self._windows_ns["wire"] or time.perf_counter() < end:
            for name, (work, repeats) in self.works.items():
                started = time.process_time()
                for _ in range(repeats):
                    work()
                self._producer.flush()
                used = time.process_time() - started
                self._windows_ns[name].append(used / (self._records * repeats) * 1e9)

    def costs(self) -> dict[str, Cost]:
        """Of all windows so far."""
        return {name: Cost.of(windows) for name, windows in self._windows_ns.items()}


YARDSTICKS = {"send": ("pack", "wire"), "send_many": ("copy", "wire"), "send_columns": ("copy", "wire")}


def yardstick(costs: Mapping[str, Cost], way: str) -> Cost:
    """Return the cost of the least that a way needs: the sum of its parts, and their noise by their shares."""
    parts = [costs[name] for name in YARDSTICKS[way]]
    total = sum(part.cpu_ns for part in parts)
    return Cost(total, sum(part.cpu_ns * part.noise for part in parts) / total)


def judge(costs: Mapping[str, Cost], baseline: Mapping[str, Any], here: Mapping[str, Any]) -> list[Verdict]:
    """Compare with the baseline. Raises KeyError for a way it does not have."""
    about = baseline["machine"]
    is_same_kind = _kind(about) == _kind(here)
    return [
        Verdict(
            way,
            costs[way].cpu_ns,
            costs[way].cpu_ns / yardstick(costs, way).cpu_ns,
            baseline["multiples"][way],
            ALLOWED if is_same_kind else ALLOWED_ELSEWHERE,
            costs[way].noise + yardstick(costs, way).noise,
            costs[way].cpu_ns / costs["wire"].cpu_ns,
        )
        for way in YARDSTICKS
    ]


def _kind(about: Mapping[str, Any]) -> tuple[object, ...]:
    versions = (str(about[name]).split(".")[:2] for name in ("python", "kernel"))
    return about["processor"], about["cores"], *versions


def _baseline(costs: Mapping[str, Cost]) -> dict[str, Any]:
    multiples = {way: round(costs[way].cpu_ns / yardstick(costs, way).cpu_ns, 3) for way in YARDSTICKS}
    return {"machine": machine.describe(), "multiples": multiples}


def is_too_busy(load: float, cores: int, environment: Mapping[str, str]) -> bool:
    """Return whether a failure means nothing on this machine. Continuous integration (`CI` is set) always judges."""
    return not environment.get("CI") and load > BUSY_LOAD * cores


def attempt(windows: Windows, baseline: Mapping[str, Any]) -> bool:
    """Measure up to ATTEMPTS times, each with the windows of those before; return whether one was in bounds."""
    for _ in range(ATTEMPTS):
        windows.measure(ATTEMPT_S)
        verdicts = judge(windows.costs(), baseline, machine.describe())
        print("\n".join(verdict.line() for verdict in verdicts), flush=True)
        if not any(verdict.has_failed for verdict in verdicts):
            return True
    return False


def main() -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.guard", description=__doc__.partition("\n")[0])
    parser.add_argument("--update", action="store_true", help="keep what is measured as the baseline")
    options = parser.parse_args()
    topic, workload = "guard", make_workload(20_000, 100)
    with (
        Sink({topic: PARTITIONS}) as sink,
        Producer(bootstrap_servers=sink.bootstrap) as producer,
        closing(PrebuiltRequests(sink.ports[0], topic, workload)) as prebuilt,
    ):
        producer.partitions_for(topic)
        windows = Windows(producer, topic, workload, prebuilt)
        if options.update:
            windows.measure(ATTEMPTS * ATTEMPT_S)
            BASELINE.write_text(json.dumps(_baseline(windows.costs()), indent=1) + "\n")
            print(BASELINE.read_text())
            return 0
        if attempt(windows, json.loads(BASELINE.read_text())):
            return 0
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    if is_too_busy(load, cores, os.environ):
        print(f"machine too busy to measure: load {load:.0f} on {cores} cores; run it again on a quiet one")
        return 0
    return 1


if __name__ == "__main__":
    sys.exit(main())
