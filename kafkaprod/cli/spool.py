"""`kafkaprod spool`: what is in a spool, whether it is whole, sending and printing what is left there."""

from __future__ import annotations

import argparse
import json
import os
import sys
from contextlib import ExitStack
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Final, TextIO

from kafkaprod.cli.main import examples
from kafkaprod.cli.producer_arguments import above_zero, add_cluster_arguments, make_config, read_options
from kafkaprod.cli.tail import record_as_dict
from kafkaprod.clock import SystemClock, monotonic_s
from kafkaprod.config import ProducerConfig
from kafkaprod.engine.engine import Engine
from kafkaprod.errors import ConfigError, DeliveryFailedError
from kafkaprod.producer import Producer, start_producer
from kafkaprod.spool.inspection import SlotContent, read_slots
from kafkaprod.spool.journal import SlotInUseError
from kafkaprod.spool.slots import open_journal
from kafkaprod.storage.disk import Disk
from kafkaprod.text import counted, printable

INCOMPLETE: Final = 1
IN_USE: Final = os.EX_TEMPFAIL  # 75
_LOOK_S: Final = 0.2  # between looks whether a drain advances


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the subcommand and its own ones."""
    parser = subparsers.add_parser(
        "spool",
        help="show, check, send or print what is in a spool",
        epilog=examples(
            "kafkaprod spool status /var/lib/meter/spool",
            "kafkaprod spool verify /var/lib/meter/spool",
            "kafkaprod spool drain /var/lib/meter/spool -b localhost:9092",
            "kafkaprod spool export /var/lib/meter/spool -t readings --output readings.jsonl",
        ),
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    status = actions.add_parser("status", help="print the slots, and what is left in each")
    verify = actions.add_parser(
        "verify",
        help="check every entry",
        description="Exit code 1 if bytes are damaged or records cannot be read any more.",
    )
    drain = actions.add_parser(
        "drain",
        help="send what is left in slots that no producer has",
        description="Exit code 1 if records are left or were refused, 75 if those left are in slots that are in use.",
    )
    export = actions.add_parser("export", help="print what is left as lines of JSON, and leave it there")
    for action, work in ((status, _status), (verify, _verify), (drain, _drain), (export, _export)):
        action.add_argument("directory", metavar="DIR", help="the spool_dir of producers")
        action.set_defaults(run=run, work=work)
    for action in (status, verify, drain):
        action.add_argument("--json", action="store_true", help="print JSON")
    drain.add_argument(
        "--patience",
        type=above_zero,
        default=120.0,
        metavar="S",
        help="seconds without a delivered record after which it gives up (default: %(default)g)",
    )
    add_cluster_arguments(drain)
    export.add_argument("-t", "--topic", help="only this topic's records")
    export.add_argument("--output", metavar="FILE", help="a new file (default: stdout)")


def run(options: argparse.Namespace) -> int:
    """Do what the action names; return the exit code. Raises KafkaError, OSError."""
    code: int = options.work(options)
    return code


def _status(options: argparse.Namespace) -> int:
    slots = [reader.content() for reader in read_slots(options.directory)]
    if options.json:
        print(json.dumps([asdict(slot) for slot in slots]))
        return 0
    for slot in slots:
        print(_line(slot))
        for topic, count in sorted(slot.topics.items()):
            print(printable(f"  {topic}: {counted(count, 'record')}"))
    return 0


def _line(slot: SlotContent) -> str:
    state = "in use" if slot.is_in_use else "left" if slot.record_count else "free"
    size = f"{counted(slot.size_bytes, 'byte')} in {counted(slot.file_count, 'file')}"
    facts = [f"{slot.name} {state}: {counted(slot.record_count, 'record')}, {size}"]
    if slot.oldest_ms is not None:
        facts.append(f"oldest {datetime.fromtimestamp(slot.oldest_ms / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}")
    if slot.producer_id >= 0:
        facts.append(f"producer id {slot.producer_id} epoch {slot.producer_epoch}")
    if slot.cluster_id:
        facts.append(f"cluster {slot.cluster_id}")
    return printable(", ".join(facts))


def _verify(options: argparse.Namespace) -> int:
    slots = [reader.content() for reader in read_slots(options.directory)]
    if options.json:
        print(json.dumps([{"name": each.name, "damaged": each.damaged, "lost": each.lost_count} for each in slots]))
    else:
        for slot in slots:
            print(f"{slot.name}: {_verdict(slot)}")
    return INCOMPLETE if any(slot.damaged or slot.lost_count for slot in slots) else 0


def _verdict(slot: SlotContent) -> str:
    if not (slot.damaged or slot.lost_count):
        return f"whole, {counted(slot.record_count, 'record')} left"
    lost = f"{counted(slot.lost_count, 'record')} cannot be read any more"
    return f"damaged: {', '.join(slot.damaged) or 'a file is missing'}; {lost}, {slot.record_count} left"


def _export(options: argparse.Namespace) -> int:
    readers = read_slots(options.directory)
    with ExitStack() as stack:
        target: TextIO = sys.stdout
        if options.output is not None:
            try:
                target = stack.enter_context(open(options.output, "x", encoding="utf-8"))
            except OSError as error:
                raise ConfigError(f"--output {options.output!r} cannot be made: {error}") from error
        for reader in readers:
            for topic, partition, record in reader.records(options.topic):
                shown = record_as_dict(topic, partition, record)
                del shown["offset"]  # it has none yet
                print(json.dumps(shown), file=target)
    return 0


def _drain(options: argparse.Namespace) -> int:
    config = make_config(read_options(options, spool_dir=options.directory))
    outcomes = []
    for slot in [reader.content() for reader in read_slots(options.directory)]:
        if not slot.record_count:
            continue
        outcome = _Outcome(slot.name, slot.record_count)
        outcome.is_in_use = slot.is_in_use or not outcome.drain(config, options)
        outcomes.append(outcome)
        if not options.json:
            print(outcome.line())
    if options.json:
        print(json.dumps([vars(outcome) for outcome in outcomes]))
    elif not outcomes:
        print("nothing is left")
    if any(not each.is_in_use and each.left + each.refused for each in outcomes):
        return INCOMPLETE
    return IN_USE if any(each.is_in_use for each in outcomes) else 0


class _Outcome:
    """What became of one slot: records that were there, that are left, and that were refused."""

    def __init__(self, name: str, records: int) -> None:
        self.name = name
        self.records = self.left = records
        self.refused = 0
        self.is_in_use = False

    def line(self) -> str:
        """Return it for people."""
        if self.is_in_use:
            return f"{self.name}: in use, its producer sends {counted(self.records, 'record')}"
        sent = self.records - self.left - self.refused
        refused = f", {self.refused} refused" if self.refused else ""
        return f"{self.name}: {sent} of {counted(self.records, 'record')} sent, {self.left} left{refused}"

    def drain(self, config: ProducerConfig, options: argparse.Namespace) -> bool:
        """Send what the slot has; False: another producer has it."""
        slot = os.path.join(os.path.abspath(options.directory), self.name)
        try:
            journal = open_journal(slot, config.spool_max_bytes, Disk())
        except SlotInUseError:
            return False
        producer = start_producer(Producer, Engine(config, SystemClock(), journal=journal))
        spool = producer.engine.spool
        assert spool is not None
        try:
            self._wait(producer, options.patience)
        finally:
            producer.close(0)
        self.refused = spool.refused_count
        self.left = spool.record_count
        return True

    def _wait(self, producer: Producer, patience_s: float) -> None:
        accumulator = producer.engine.accumulator
        least, since_s = accumulator.incomplete_batch_count, monotonic_s()
        while monotonic_s() - since_s < patience_s:
            try:
                producer.flush(_LOOK_S)
                return
            except DeliveryFailedError:  # some were refused: the log names them
                continue
            except TimeoutError:
                if accumulator.incomplete_batch_count < least:
                    least, since_s = accumulator.incomplete_batch_count, monotonic_s()
