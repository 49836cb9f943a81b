"""`kafkaprod tail`: show records of a topic. It is not a consumer: it joins no group and commits nothing."""

from __future__ import annotations

import argparse
import base64
import json
import sys
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from kafkaprod._core.records.batch_reader import Record
from kafkaprod.admin.client import ClusterClient
from kafkaprod.admin.reading import PartitionReader
from kafkaprod.admin.topics import EARLIEST, LATEST, READ_COMMITTED, READ_UNCOMMITTED, log_offsets
from kafkaprod.cli.main import examples
from kafkaprod.cli.producer_arguments import add_cluster_arguments, open_cluster, read_options, whole
from kafkaprod.errors import ConfigError
from kafkaprod.text import counted, printable

_ISOLATIONS = {"read_committed": READ_COMMITTED, "read_uncommitted": READ_UNCOMMITTED}


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser(
        "tail",
        help="show records of a topic",
        description="Prints PARTITION:OFFSET, the key, the value and [headers] of each record, parted by tabs. On a "
        "terminal control characters are escaped.",
        epilog=examples(
            "kafkaprod tail orders -b localhost:9092",
            "kafkaprod tail orders -b localhost:9092 -f -o end --json",
            "kafkaprod tail orders -b localhost:9092 -p 0 -o -100",
            "kafkaprod tail orders -b localhost:9092 --from 2026-11-28T09:00",
        ),
    )
    add = parser.add_argument
    add("topic", nargs="?", help="name of the topic")
    add("-t", "--topic", dest="topic_flag", metavar="TOPIC", help="the same, as kcat and Kafka's tools spell it")
    add(
        *("-n", "--records"),
        type=whole,
        default=10,
        metavar="N",
        help="the last N of each partition (default: %(default)s)",
    )
    add(
        *("-o", "--offset"),
        metavar="OFFSET|beginning|end|-N",
        help="start there instead of at the last N; -N: N before the end",
    )
    add(
        "--from",
        dest="from_ms",
        type=time_ms,
        metavar="TIME",
        help="start at the first record of this time or later: 2026-11-28T09:00, in this machine's zone unless it "
        "names one, or milliseconds since 1970",
    )
    add("-p", "--partition", type=int, action="append", metavar="N", help="only this partition; repeatable")
    add("-f", "--follow", action="store_true", help="wait for new records, until Ctrl-C")
    add(
        "--isolation",
        choices=list(_ISOLATIONS),
        default="read_committed",
        help="read_uncommitted shows records of open and aborted transactions, too (default: %(default)s)",
    )
    add("-q", "--quiet", action="store_true", help="no effect: nothing but records is printed without it, too")
    add("--json", action="store_true", help="one JSON object a line, with all fields")
    add("--raw", action="store_true", help="do not escape control characters on a terminal")
    add_cluster_arguments(parser)
    parser.set_defaults(run=run)


def time_ms(text: str) -> int:
    """Parse a time, for argparse; return ms since the epoch."""
    try:
        return int(text) if text.isdecimal() else int(datetime.fromisoformat(text).astimezone().timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        raise argparse.ArgumentTypeError(f"{text!r} is not a time such as 2026-11-28T09:00, nor milliseconds") from None


def run(options: argparse.Namespace) -> int:
    """Print the records; exit code 0. Raises KafkaError."""
    if options.from_ms is not None and options.offset is not None:
        raise ConfigError("--from and -o exclude each other: both say where to start")
    if (options.topic is None) == (options.topic_flag is None):
        raise ConfigError("name one topic: kafkaprod tail TOPIC")
    options.topic = options.topic or options.topic_flag
    options.escapes = sys.stdout.isatty() and not options.raw
    with open_cluster(options, read_options(options)) as client:
        try:
            _print_records(client, options)
        except KeyboardInterrupt:
            if not options.follow:
                raise
    return 0


def _print_records(client: ClusterClient, options: argparse.Namespace) -> None:
    isolation = _ISOLATIONS[options.isolation]
    starts, ends = (log_offsets(client, options.topic, which, isolation) for which in (EARLIEST, LATEST))
    wanted = options.partition or list(ends)
    missing = [number for number in wanted if number not in ends]
    if missing:
        raise ConfigError(
            f"topic {options.topic!r} has {counted(len(ends), 'partition')}, but no partition {missing[0]}"
        )
    timed = {} if options.from_ms is None else log_offsets(client, options.topic, options.from_ms)
    places = {}
    readers = {number: PartitionReader(client, options.topic, number, isolation) for number in wanted}
    for number in wanted:
        places[number] = _first(options, starts[number], ends[number])
        if timed:
            places[number] = timed[number] if timed[number] >= 0 else ends[number]  # -1: no record is that late
        for record in readers[number].records(places[number], ends[number]):
            _show(options, number, record)
        places[number] = max(ends[number], places[number])
    while options.follow:
        for number, reader in readers.items():
            for record in _next_records(reader, places, number, 500 // len(readers)):
                _show(options, number, record)


def _first(options: argparse.Namespace, start: int, end: int) -> int:
    if options.offset is None:
        return max(start, end - int(options.records))
    if options.offset in ("beginning", "end"):
        return start if options.offset == "beginning" else end
    try:
        offset = int(options.offset)
        return max(offset if offset >= 0 else end + offset, start)
    except ValueError:
        raise ConfigError(f"-o {options.offset!r} is not an offset, beginning or end") from None


def _next_records(reader: PartitionReader, places: dict[int, int], number: int, max_wait_ms: int) -> Iterator[Record]:
    for batch in reader.fetch(places[number], max_wait_ms):
        if reader.is_visible(batch):
            yield from (record for record in batch if record.offset >= places[number])
        places[number] = batch.last_offset + 1


def _show(options: argparse.Namespace, partition: int, record: Record) -> None:
    if options.json:
        print(json.dumps(record_as_dict(options.topic, partition, record)), flush=options.follow)
        return
    key = "" if record.key is None else f"{_text(record.key)}\t"
    headers = "".join(f"[{name}={_text(value)}]" for name, value in record.headers)
    line = f"{partition}:{record.offset}\t{key}{_text(record.value)}{headers and ' '}{headers}"
    print(printable(line) if options.escapes else line, flush=options.follow)


def _text(data: bytes | None) -> str:
    return "null" if data is None else data.decode("utf-8", "backslashreplace")


def record_as_dict(topic: str, partition: int, record: Record) -> dict[str, Any]:
    """Return a record as it is printed with --json."""
    shown: dict[str, Any] = {
        "topic": topic,
        "partition": partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
    }
    for name, data in (("key", record.key), ("value", record.value)):
        shown |= _encoded(name, data)
    shown["headers"] = [{"name": name} | _encoded("value", value) for name, value in record.headers]
    return shown


def _encoded(name: str, data: bytes | None) -> dict[str, str | None]:
    try:
        return {name: None if data is None else data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data or b"").decode()}
