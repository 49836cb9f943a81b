"""`kafkaprod quickstart`: start a broker, load real data, read every record back and compare."""

from __future__ import annotations

import argparse
import sys
import sysconfig
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from kafkaprod.admin.client import ClusterClient
from kafkaprod.admin.reading import PartitionReader
from kafkaprod.admin.topics import log_offsets
from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from kafkaprod.cli.load_setup import check_on_error, make_sink
from kafkaprod.cli.main import SOME_BAD_ROWS, examples
from kafkaprod.compression import CODEC_LIST
from kafkaprod.config import ProducerConfig
from kafkaprod.errors import ConfigError
from kafkaprod.loader.attempt import LoadOptions
from kafkaprod.loader.feed import Feed
from kafkaprod.loader.finding.inputs import find_sources
from kafkaprod.loader.formats.readers import ReadOptions
from kafkaprod.loader.load import Load
from kafkaprod.loader.opening.errors import LoadError
from kafkaprod.loader.opening.source import Source
from kafkaprod.loader.positions.manifest import Position
from kafkaprod.loader.progress import make_progress
from kafkaprod.tables.row_plan import RowPlan
from kafkaprod.text import counted

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

TOPIC: Final = "quickstart"
PARTITIONS: Final = 4
STANDARD_LIBRARY: Final = "the source of Python's standard library, line by line"

_NEXT = """\
Every record is in its place. What to try next:
  kafkaprod broker --data-dir /tmp/kafka &
      runs a broker until `kill %1`
  kafkaprod load FILE -t TOPIC -b localhost:9092 --create-topic
      loads a file of yours: CSV, JSON, Parquet, Arrow, lines
  kafkaprod load FILE -t TOPIC --dry-run --key COLUMN
      shows its records without sending them
  kafkaprod tail TOPIC -b localhost:9092
      shows the last records
A first program:
  from kafkaprod import Producer
  with Producer(bootstrap_servers="localhost:9092") as producer:
      print(producer.send("orders", b"value", key=b"key").result())"""


def add_parser(subparsers: Subparsers) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser(
        "quickstart",
        help="start a broker, load real data, read it back",
        description="Starts the embedded broker, loads a file, reads every record back and compares.",
        epilog=examples("kafkaprod quickstart", "kafkaprod quickstart -z zstd flights.csv"),
    )
    parser.add_argument("file", nargs="*", metavar="FILE", help=f"files to load (default: {STANDARD_LIBRARY})")
    parser.add_argument("--format", help="of the files (default: from their names, else lines)")
    parser.add_argument(
        *("-z", "--compression-codec", "--compression-type"),
        dest="compression_type",
        default="none",
        metavar="CODEC",
        help=f"{CODEC_LIST} (default: %(default)s)",
    )
    parser.add_argument(
        "--on-error",
        metavar="stop|skip|dead-letter=FILE",
        default="stop",
        help="what to do with rows that cannot be sent (default: %(default)s)",
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Load, read back, compare; exit code 1 if a single record differs, 3 if rows were left out.

    Raises:
        KafkaError, OSError: A file cannot be read, or the broker cannot be started.
    """
    check_on_error(options.on_error)
    if options.on_error.startswith("dead-letter=topic:"):
        raise ConfigError("--on-error dead-letter=topic: the broker of the quickstart has no such topic; name a file")
    sources = _sources(options)
    size = sum(source.size or 0 for source in sources)
    what = "" if options.file else f": {STANDARD_LIBRARY}"
    print(f"input: {size / 1e6:,.1f} MB in {counted(len(sources), 'file')}{what}")
    reading = ReadOptions(RowPlan(value=""))
    with EmbeddedBroker(topics={TOPIC: PARTITIONS}) as broker:
        print(f"broker at {broker.bootstrap_servers}")
        producer = {"bootstrap_servers": broker.bootstrap_servers, "compression_type": options.compression_type}
        with ClusterClient(ProducerConfig.from_options(producer)) as client:
            progress = make_progress(sources, is_quiet=options.quiet)
            settings = LoadOptions(TOPIC, producer, 1 << 20)
            sink = make_sink(options.on_error, producer, "", None, progress, can_resume=False)
            load = Load(sources, reading, settings, client, sink, progress)
            try:
                load.run()
            finally:
                sink.close()
                progress.close()
            print(f"records sent and acknowledged: {load.report}")
            started = time.perf_counter()
            feed = Feed(sources, reading, settings.target(PARTITIONS, load.run_rows), rate=None)
            wrong = _compare(client, feed)
        seconds = time.perf_counter() - started
        print(
            f"read back and compared in {seconds:.2f} s: {load.report.sent_count / seconds:,.0f} records/s, "
            f"{load.report.sent_bytes / 1e6 / seconds:,.1f} MB/s of keys and values"
        )
    if wrong:
        print(f"{counted(wrong, 'record')} differ from what was sent", file=sys.stderr)
        return 1
    print(_NEXT)
    return SOME_BAD_ROWS if load.report.bad_in_all else 0


def _sources(options: argparse.Namespace) -> list[Source]:
    if not options.file:
        files = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("[a-z]*/*.py"))
        return find_sources([str(file) for file in files if "site-packages" not in file.parts], "lines")
    try:
        return find_sources(options.file, options.format)
    except LoadError:
        if options.format is not None:
            raise
        return find_sources(options.file, "lines")


def _compare(client: ClusterClient, feed: Feed) -> int:
    """Read the input and every partition side by side; return how many records differ."""
    ends = log_offsets(client, TOPIC)
    records = {number: PartitionReader(client, TOPIC, number).records(0, end) for number, end in ends.items()}
    wrong = 0
    for turn in feed.turns(Position(), ()):
        value = turn.block.value
        for number in range(PARTITIONS):
            for place in np.flatnonzero(turn.partitions == number).tolist():
                record = next(records[number], None)
                wrong += record is None or value is None or record.value != value[place]
    return wrong + sum(1 for rest in records.values() for _ in rest)
