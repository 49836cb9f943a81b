"""`kafkaprod perf`: kafka-producer-perf-test's options and lines; `--json`; latency at given rates."""

from __future__ import annotations

import argparse
import json
import random
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from kafkaprod.cli.command_producer import check_topic, command_producer
from kafkaprod.cli.main import examples
from kafkaprod.cli.perf_curve import HEAD, RATES, SECONDS, MakeBlock, charts, draw, measure_rates
from kafkaprod.cli.perf_stats import Stats, Totals
from kafkaprod.cli.producer_arguments import add_cluster_arguments, count, read_options, whole
from kafkaprod.errors import ConfigError, KafkaError
from kafkaprod.producer import Producer
from kafkaprod.results.block import BlockResult

BLOCK_ROWS = 500
SEED = 0
TRANSACTION_MS = 3000  # as the Java tool
SCHEMA_VERSION = 1  # of --json; raised when a name changes its meaning or goes


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser(
        "perf",
        help="measure throughput and latency",
        description="Takes the options of kafka-producer-perf-test and prints its lines, in which MB are 2^20 bytes.",
        epilog=examples(
            "kafkaprod perf -t orders --num-records 1000000 --record-size 100 -b localhost:9092",
            "kafkaprod perf -t orders --num-records 50000 --record-size 100 --throughput 5000 --json -b localhost:9092",
            "kafkaprod perf -t orders --record-size 100 --curve 1000,10000,100000 --svg curve.svg -b localhost:9092",
        ),
    )
    add = parser.add_argument
    add("-t", "--topic", required=True, help="name of the topic")
    add("--num-records", type=count, metavar="N", help="records to send")
    payload = parser.add_mutually_exclusive_group(required=True)
    payload.add_argument("--record-size", type=whole, metavar="BYTES", help="values of random letters")
    payload.add_argument("--payload-file", metavar="FILE", help="values drawn at random from the file's lines")
    payload.add_argument("--payload-monotonic", action="store_true", help="values 1, 2, 3, ...")
    add("--payload-delimiter", default="\\n", metavar="TEXT", help="in the payload file (default: %(default)s)")
    add("--throughput", type=float, default=-1, metavar="N", help="records a second; -1: as many as possible")
    for name in ("--producer-props", "--command-property"):
        add(
            name, nargs="+", action="extend", default=[], dest="properties", metavar="NAME=VALUE", help="as -X, several"
        )
    add("--print-metrics", action="store_true", help="print the producer's metrics at the end")
    add("--transactional-id", metavar="ID", help="send in transactions (default: a new id, with the option below)")
    add(
        "--transaction-duration-ms",
        type=count,
        metavar="MS",
        help=f"commit after this time, and at the end (default: {TRANSACTION_MS})",
    )
    add("--warmup-records", type=whole, default=0, metavar="N", help="leave the first N out of a second summary")
    add("--reporting-interval", type=whole, default=5000, metavar="MS", help="of the lines (default: %(default)s)")
    add("-q", "--quiet", action="store_true", help="print only the summary")
    add("--json", action="store_true", help="print the summary as JSON")
    add(
        "--curve",
        nargs="?",
        const=RATES,
        metavar="RATE,...",
        help=f"measure latency at these records a second, from when each record was due (default: {RATES})",
    )
    add("--curve-seconds", type=float, default=SECONDS, metavar="S", help="at each rate (default: %(default)s)")
    add("--svg", metavar="FILE", help="draw the curve, with matplotlib (extra charts)")
    add_cluster_arguments(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Measure and print. Raises KafkaError: a record was not delivered, an option is wrong."""
    _check(options)
    producer_options = _producer_options(options)
    make_block = _payloads(options)
    check_topic(options, producer_options, options.topic)
    if options.curve is not None:
        return _measure_curve(options, producer_options, make_block)

    def show(line: str) -> None:
        if not (options.json or options.quiet):
            print(line, flush=True)

    totals, steady, metrics = measure(options, producer_options, make_block, show)
    if options.json:
        print(json.dumps(_summary(options, totals, steady, metrics)))
        return 0
    print(totals.line())
    if steady is not None:
        print(steady.line(is_steady_state=True))
    if options.print_metrics:
        for group, values in metrics.items():
            for name, value in sorted(values.items()):
                print(f"{group}:{name} : {value}")
    return 0


def _summary(
    options: argparse.Namespace, totals: Totals, steady: Totals | None, metrics: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    """Return the JSON object; its names and units are those of `load --json`."""
    summary = {"schema_version": SCHEMA_VERSION, "topic": options.topic} | totals.as_dict()
    summary["retries"] = int(metrics.get("producer-metrics", {}).get("record-retry-total", 0))
    if steady is not None:
        summary["steady_state"] = steady.as_dict()
    if options.print_metrics:
        summary["metrics"] = metrics
    return summary


def measure(
    options: argparse.Namespace, producer_options: dict[str, Any], make_block: MakeBlock, show: Callable[[str], None]
) -> tuple[Totals, Totals | None, Mapping[str, Mapping[str, Any]]]:
    """Send everything; return the totals, those without the warm-up, and the producer's metrics."""
    with command_producer(producer_options) as producer:
        producer.partitions_for(options.topic)
        transactions = _Transactions(producer, options.transaction_duration_ms or TRANSACTION_MS)
        stats = Stats(options.reporting_interval / 1000, show)
        steady: Stats | None = None
        started_s = time.monotonic()
        sent = 0
        while sent < options.num_records:
            count = min(_block_rows(options), options.num_records - sent)
            block = make_block(sent, count)
            if steady is None and 0 < options.warmup_records <= sent:
                steady = Stats(float("inf"), show)
            result = producer.send_many(options.topic, block)
            _watch(result, block, [stats] if steady is None else [stats, steady])
            sent += count
            transactions.step()
            if options.throughput > 0:
                time.sleep(max(started_s + sent / options.throughput - time.monotonic(), 0.0))
        transactions.end()
        return stats.totals(), None if steady is None else steady.totals(), producer.metrics()


def _block_rows(options: argparse.Namespace) -> int:
    """Records at a time: few enough that a throttled run is smooth."""
    return BLOCK_ROWS if options.throughput <= 0 else max(min(int(options.throughput / 200), BLOCK_ROWS), 1)


def _watch(result: BlockResult, block: Sequence[bytes], listeners: Sequence[Stats]) -> None:
    """Record each batch of the block when it is acknowledged."""
    sent_s = time.monotonic()
    average = sum(map(len, block)) / len(block)

    def on_done(count: int) -> None:
        latency_s = time.monotonic() - sent_s
        for stats in listeners:
            stats.record(latency_s, count, int(count * average))

    result.watch_batches(on_done)


# -- options and payloads ----------------------------------------------------------------------------------------------


def _producer_options(options: argparse.Namespace) -> dict[str, Any]:
    options.producer_property = [*options.producer_property, *options.properties]
    producer_options = read_options(options)
    if options.transactional_id is not None:
        producer_options |= {"transactional_id": options.transactional_id}
    elif options.transaction_duration_ms is not None:
        producer_options.setdefault("transactional_id", f"performance-producer-{uuid.uuid4().hex}")
    return producer_options


class _Transactions:
    """Commits a transaction when it is old enough and begins the next; does nothing without a transactional id."""

    def __init__(self, producer: Producer, duration_ms: int) -> None:
        self._producer = producer
        self._duration_s = duration_ms / 1000
        self._began_s = time.monotonic()
        self._is_used = producer.config.transactional_id is not None
        if self._is_used:
            producer.init_transactions()
            producer.begin_transaction()

    def step(self) -> None:
        """Call after each block."""
        if self._is_used and time.monotonic() - self._began_s >= self._duration_s:
            self._producer.commit_transaction()
            self._producer.begin_transaction()
            self._began_s = time.monotonic()

    def end(self) -> None:
        """Call after the last one."""
        if self._is_used:
            self._producer.commit_transaction()
        else:
            self._producer.flush()


def _payloads(options: argparse.Namespace) -> MakeBlock:
    """Return a function that makes the values of `count` records from number `first` on."""
    generator = random.Random(SEED)
    if options.payload_monotonic:
        return lambda first, count: [b"%d" % number for number in range(first, first + count)]
    if options.record_size is not None:
        letters = bytes(generator.choices(range(65, 91), k=options.record_size))  # one payload, as the Java tool has it
        return lambda _, count: [letters] * count
    delimiter = options.payload_delimiter.encode().decode("unicode_escape").encode("latin-1")
    lines = [line for line in Path(options.payload_file).read_bytes().split(delimiter) if line]
    if not lines:
        raise KafkaError(f"--payload-file {options.payload_file} is empty")
    return lambda _, count: generator.choices(lines, k=count)


# -- the curve ---------------------------------------------------------------------------------------------------------


def _check(options: argparse.Namespace) -> None:
    """Refuse options that do not fit together, before anything is sent."""
    if options.curve is None:
        if options.num_records is None:
            raise ConfigError("how many records? give --num-records N, or --curve for latency at several rates")
        if options.svg is not None:
            raise ConfigError("--svg draws what --curve measures: give both")
        return
    if options.num_records is not None:
        raise ConfigError("--curve sends rate times --curve-seconds records: leave out --num-records")
    if not 0.1 <= options.curve_seconds <= 3600:
        raise ConfigError(f"--curve-seconds {options.curve_seconds:g} is not in 0.1..3600")
    if options.svg is not None:
        charts()


def _rates(text: str) -> list[int]:
    try:
        return sorted({count(part.strip()) for part in text.split(",")})
    except argparse.ArgumentTypeError as error:
        raise ConfigError(f"--curve {text}: {error}") from error


def _measure_curve(options: argparse.Namespace, producer_options: dict[str, Any], make_block: MakeBlock) -> int:
    points = []
    with command_producer(producer_options) as producer:
        if not options.json:
            print(HEAD, flush=True)
        for point in measure_rates(producer, options.topic, _rates(options.curve), options.curve_seconds, make_block):
            points.append(point)
            if not options.json:
                print(point.line(), flush=True)
    if options.svg is not None:
        draw(points, f"kafkaprod, topic {options.topic}, linger.ms={producer.config.linger_ms}", options.svg)
    if options.json:
        about = {"schema_version": SCHEMA_VERSION, "topic": options.topic}
        print(json.dumps([about | point.as_dict() for point in points]))
    return 0
