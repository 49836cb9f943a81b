"""Has the producer become slower? CPU time a record of its three ways in, against a kept baseline; seconds long.

    python -m benchmarks.guard [--update]

The whole way is measured: append, sender thread, socket to the sink, acknowledgement, in windows of some milliseconds
that end with a flush. Between them, in the same process, comes the yardstick: a fixed work of the same nature in C (a
call a record that packs its key and value; a copy and a CRC of a block). What counts is the CPU time of the whole
process in the cheaper windows, as a multiple of the yardstick's: on a busy machine there are quiet moments for both,
and the multiple holds where nanoseconds do not (within 5 % on two cores with fifteen other processes).

A way fails if its multiple is more than ALLOWED above the baseline's, plus the noise: how far the windows are apart. It
fails only after three attempts. A multiple as much below the baseline asks for ``--update``.

The baseline is `benchmarks/results/guard.json`. On another processor, kernel or Python than it was taken on, the
multiples differ for other reasons, and ALLOWED_ELSEWHERE holds.
"""

import argparse
import json
import struct
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crc32c import crc32c

from benchmarks import machine
from benchmarks.sink import Sink
from benchmarks.workloads import Workload, make_workload
from kafkaprod import Producer

BASELINE = Path(__file__).parent / "results" / "guard.json"
ALLOWED, ALLOWED_ELSEWHERE = 0.15, 0.60
ATTEMPT_S = 5.0
ATTEMPTS = 3
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
    """

    way: str
    cpu_ns: float
    multiple: float
    baseline: float
    allowed: float
    noise: float

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
            f"{self.way:13} {self.multiple:6.3f} times the yardstick ({self.cpu_ns:.0f} ns), baseline "
            f"{self.baseline:6.3f}: {self.change:+.1%}, allowed {self.allowed:.0%} + noise {self.noise:.1%}: {state}"
        )


class Windows:
    """What is measured in turn: each way in, and each yardstick.

    Attributes:
        works: name to what sends or handles all records of the workload, and how often a window does it.
    """

    def __init__(self, producer: Producer, topic: str, workload: Workload) -> None:
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
        }
        self._producer = producer
        self._records = len(values)
        self._windows_ns: dict[str, list[float]] = {name: [] for name in self.works}

    def measure(self, seconds: float) -> None:
        """Add windows for so long, at least one of each."""
        end = time.perf_counter() + seconds
        while not self._windows_ns["copy"] or time.perf_counter() < end:
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


YARDSTICKS = {"send": "pack", "send_many": "copy", "send_columns": "copy"}


def judge(costs: Mapping[str, Cost], baseline: Mapping[str, Any], here: Mapping[str, Any]) -> list[Verdict]:
    """Compare with the baseline. Raises KeyError for a way it does not have."""
    about = baseline["machine"]
    is_same_kind = _kind(about) == _kind(here)
    return [
        Verdict(
            way,
            costs[way].cpu_ns,
            costs[way].cpu_ns / costs[yardstick].cpu_ns,
            baseline["multiples"][way],
            ALLOWED if is_same_kind else ALLOWED_ELSEWHERE,
            costs[way].noise + costs[yardstick].noise,
        )
        for way, yardstick in YARDSTICKS.items()
    ]


def _kind(about: Mapping[str, Any]) -> tuple[object, ...]:
    versions = (str(about[name]).split(".")[:2] for name in ("python", "kernel"))
    return about["processor"], about["cores"], *versions


def _baseline(costs: Mapping[str, Cost]) -> dict[str, Any]:
    multiples = {way: round(costs[way].cpu_ns / costs[yardstick].cpu_ns, 3) for way, yardstick in YARDSTICKS.items()}
    return {"machine": machine.describe(), "multiples": multiples}


def main() -> int:
    """Command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.guard", description=__doc__.partition("\n")[0])
    parser.add_argument("--update", action="store_true", help="keep what is measured as the baseline")
    options = parser.parse_args()
    topic = "guard"
    with Sink({topic: 6}) as sink, Producer(bootstrap_servers=sink.bootstrap) as producer:
        producer.partitions_for(topic)
        windows = Windows(producer, topic, make_workload(20_000, 100))
        if options.update:
            windows.measure(ATTEMPTS * ATTEMPT_S)
            BASELINE.write_text(json.dumps(_baseline(windows.costs()), indent=1) + "\n")
            print(BASELINE.read_text())
            return 0
        baseline = json.loads(BASELINE.read_text())
        for _ in range(ATTEMPTS):
            windows.measure(ATTEMPT_S)
            verdicts = judge(windows.costs(), baseline, machine.describe())
            print("\n".join(verdict.line() for verdict in verdicts), flush=True)
            if not any(verdict.has_failed for verdict in verdicts):
                return 0
        return 1


if __name__ == "__main__":
    sys.exit(main())
