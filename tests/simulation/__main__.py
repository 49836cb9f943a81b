"""`python -m tests.simulation --seeds 2000` runs simulated clusters; `--seed N` runs one and prints its history."""

from __future__ import annotations

import argparse
import gc
import logging
import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Any

from tests.simulation.bad_day import BadDay
from tests.simulation.case_rules import CASES, play
from tests.simulation.checker import ViolationError
from tests.simulation.disk_day import DiskDay
from tests.simulation.disk_rules import DISK_RULES
from tests.simulation.job_day import JobDay
from tests.simulation.job_rules import JOB_RULES
from tests.simulation.rules import BAD_DAY_RULES, BY_CASE, RULES
from tests.simulation.run import Outcome, Simulation
from tests.simulation.transaction_day import TransactionDay
from tests.simulation.transaction_rules import TRANSACTION_RULES

ALL_RULES = {**RULES, **TRANSACTION_RULES, **DISK_RULES, **JOB_RULES}


def collect_rarely() -> None:
    """Let the garbage collector leave out what is imported, and run seldom: a seed takes a sixth less CPU."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


def run_seed(seed: int, kind: type[Simulation] = Simulation) -> Outcome | str:
    """Run one seed; return what it did, or what was violated."""
    try:
        return kind(seed).run()
    except Exception as error:  # a broken rule may break anything
        return f"seed {seed}: {error}"


def run_one(seed: int, kind: type[Simulation]) -> int:
    """Run one seed and print its history; return the exit status."""
    simulation = kind(seed)
    try:
        outcome = simulation.run()
    except (ViolationError, AssertionError) as error:
        print("\n".join(simulation.world.history))
        print(f"seed {seed} at {simulation.world.now_ms} ms: {error}")
        return 1
    print("\n".join(simulation.world.history))
    print(outcome)
    return 0


def seeds_until_noticed(rule: str, start: int, most: int) -> tuple[int, str] | None:
    """Return after how many seeds a rule that is switched off was noticed, and how; None if it was not."""
    kind: type[Simulation] = Simulation
    if rule in BAD_DAY_RULES:
        kind = BadDay
    elif rule in TRANSACTION_RULES:
        kind = TransactionDay
    elif rule in DISK_RULES:
        kind = DiskDay
    elif rule in JOB_RULES:
        kind = JobDay
    with ALL_RULES[rule]():
        for count in range(1, most + 1):
            outcome = run_seed(start + count - 1, kind)
            if isinstance(outcome, str):
                return count, outcome
    return None


def run_without(rules: list[str], start: int, most: int) -> int:
    """Switch rules off in turn; return the exit status: 1 if one was noticed neither here nor by a case of its own."""
    logging.disable(logging.CRITICAL)
    missed = 0
    for rule in rules:
        noticed, bug = seeds_until_noticed(rule, start, most), BY_CASE.get(rule)
        missed += noticed is None and bug is None
        elsewhere = "NOT noticed" if bug is None else f"noticed by the case of {bug}, not"
        print(
            f"{rule}: " + (f"noticed after {noticed[0]}: {noticed[1]}" if noticed else f"{elsewhere} in {most} seeds")
        )
        sys.stdout.flush()
    return 1 if missed else 0


def play_cases() -> int:
    """Play each case with its rule, and without; return the exit status."""
    logging.disable(logging.CRITICAL)
    wrong = 0
    for rule in CASES:
        with_rule, without = play(rule, is_on=True), play(rule, is_on=False)
        wrong += with_rule is not None or without is None
        print(
            f"{rule}: " + (f"FAILED: {with_rule}" if with_rule else f"without it: {without or 'NOT noticed'}"),
            flush=True,
        )
    return 1 if wrong else 0


def _kind(arguments: argparse.Namespace) -> type[Simulation]:
    if arguments.transactions:
        return TransactionDay
    if arguments.jobs:
        return JobDay
    if arguments.disks:
        return DiskDay
    return BadDay if arguments.bad_day else Simulation


def _rules(arguments: argparse.Namespace) -> dict[str, Callable[[], Any]]:
    if arguments.transactions:
        return TRANSACTION_RULES
    if arguments.jobs:
        return JOB_RULES
    return DISK_RULES if arguments.disks else RULES


def main() -> int:
    """Run what the arguments ask for; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=100, help="how many")
    parser.add_argument("--start", type=int, default=0, help="the first seed")
    parser.add_argument("--seed", type=int, help="run this one only, and print its history")
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="how many seeds run at once")
    parser.add_argument(
        "--without", metavar="RULE", choices=sorted(ALL_RULES), help="switch a rule off: a seed must fail"
    )
    parser.add_argument("--rules", action="store_true", help="switch each rule off in turn")
    parser.add_argument(
        "--cases", action="store_true", help="play the case of each rule for bad days, with it and without"
    )
    parser.add_argument("--bad-day", action="store_true", help="with hanging brokers, thin links and far ones")
    parser.add_argument("--transactions", action="store_true", help="with transactions and their coordinators")
    parser.add_argument("--jobs", action="store_true", help="with jobs that are run again until their rows are there")
    parser.add_argument("--disks", action="store_true", help="with several log directories, of which some fail")
    arguments = parser.parse_args()
    kind = _kind(arguments)
    collect_rarely()
    if arguments.cases:
        return play_cases()
    if arguments.rules or arguments.without:
        all_of_kind = _rules(arguments)
        wanted = sorted(all_of_kind) if arguments.rules else [arguments.without]
        return run_without(wanted, arguments.start, arguments.seeds)
    if arguments.seed is not None:
        return run_one(arguments.seed, kind)
    logging.disable(logging.CRITICAL)
    started = time.monotonic()
    failures: list[str] = []
    totals = [0, 0, 0, 0]
    with ProcessPoolExecutor(arguments.processes, initializer=collect_rarely) as executor:
        seeds = range(arguments.start, arguments.start + arguments.seeds)
        for outcome in executor.map(partial(run_seed, kind=kind), seeds, chunksize=8):
            if isinstance(outcome, str):
                failures.append(outcome)
                print(outcome, flush=True)
                continue
            figures = (outcome.acknowledged, outcome.read, outcome.faults, outcome.elections)
            totals = [total + figure for total, figure in zip(totals, figures, strict=True)]
    acknowledged, read, faults, elections = totals
    print(
        f"{arguments.seeds} seeds in {time.monotonic() - started:.1f} s: {acknowledged} records acknowledged,"
        f" {read} read, {faults} faults, {elections} elections; {len(failures)} seeds failed"
    )
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
