"""`kafkaprod load`: load files into a topic."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, Protocol

from kafkaprod.admin.client import ClusterClient
from kafkaprod.cli.load_arguments import (
    add_load_arguments,
    check_formats,
    expected_of,
    fingerprint_of,
    reading_of,
)
from kafkaprod.cli.load_metrics import add_metrics_arguments, progress_of
from kafkaprod.cli.load_proof import ended, proof_of
from kafkaprod.cli.load_setup import (
    check_on_error,
    check_report,
    check_topics,
    dead_letter_file,
    earlier_manifest,
    load_options,
    make_sink,
    manifest_file,
    transactional_id_of,
)
from kafkaprod.cli.main import SOME_BAD_ROWS
from kafkaprod.cli.producer_arguments import add_cluster_arguments, allowed_urls_of, open_cluster, read_options
from kafkaprod.cli.terminal import INTERRUPTED, coloured
from kafkaprod.errors import ConfigError, KafkaError
from kafkaprod.loader.attempt import INTERRUPTED_S, Job, LoadOptions
from kafkaprod.loader.bad_rows import BadRowSink
from kafkaprod.loader.finding.folders import unsent_columns
from kafkaprod.loader.finding.inputs import find_sources
from kafkaprod.loader.finding.paths import Listing
from kafkaprod.loader.formats.readers import SEPARATOR_LINE, ReadOptions, check_columns, check_readable
from kafkaprod.loader.load import Load
from kafkaprod.loader.opening.errors import LoadError, LoadRefusedError, UnexpectedInputError, is_temporary
from kafkaprod.loader.opening.pipes import input_name
from kafkaprod.loader.opening.remote.access import Access
from kafkaprod.loader.opening.source import Source
from kafkaprod.loader.positions.manifest import Manifest
from kafkaprod.loader.positions.manifest_file import ManifestFile
from kafkaprod.loader.positions.recovery import is_empty
from kafkaprod.loader.preview import print_preview
from kafkaprod.loader.progress import Quiet
from kafkaprod.loader.reports.report import LoadReport
from kafkaprod.loader.reports.spread import Spread
from kafkaprod.text import counted, printable

TRY_AGAIN: Final = os.EX_TEMPFAIL  # 75

_EPILOG = """\
exit codes: 0 every row is in the topic; 1 the load stopped at a row, or the cluster refused it; 2 refused before
anything was sent: wrong arguments, options or inputs, or the input is already loaded; 3 the load is complete, but rows
were left out or put aside; 75 it stopped for a reason that may pass, such as a broker that is down: try again; 130, 143
interrupted by Ctrl-C, SIGTERM. After 1, 75, 130 and 143 --resume continues where it stopped. --dry-run ends as the load
would with the rows that it shows.
"""


class AnyLoad(Protocol):
    """Is a load with a manifest, or one in transactions."""

    report: LoadReport
    has_sent: bool


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser(
        "load",
        help="load files into a topic",
        description="Loads CSV, JSON, Parquet, Arrow, ORC, Avro and lines into a topic. --resume continues a load that "
        "stopped, even by kill -9, without losing or duplicating a record.",
        epilog=_EPILOG,
    )
    add = parser.add_argument
    add(
        "files",
        nargs="+",
        type=input_name,
        metavar="FILE",
        help="files, patterns, directories, pipes, addresses (https://, s3://, gs://, az://), or - for stdin",
    )
    add("-t", "--topic", required=True, help="the topic to load into")
    add_cluster_arguments(parser)
    add_load_arguments(parser)
    add_metrics_arguments(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Load.

    Returns:
        The exit code; see the epilog.

    Raises:
        KafkaError, OSError: The load cannot begin or stopped, and another try will not help.
    """
    try:
        return _run(options)
    except (KafkaError, OSError) as error:
        if not is_temporary(error):
            raise
        print(f"{coloured('kafkaprod load:', 'red', sys.stderr)} {printable(str(error))}", file=sys.stderr)
        return TRY_AGAIN


def _print_notes(sources: Sequence[Source]) -> None:
    """Print the notes of objects, once each."""
    for note in dict.fromkeys(source.remote.note for source in sources if source.remote is not None):
        if note:
            print(f"kafkaprod load: {note}", file=sys.stderr)


def _run(options: argparse.Namespace) -> int:
    check_on_error(options.on_error)
    check_report(options)
    reading = reading_of(options)
    access = Access(headers=tuple(options.http_header), allowed_urls=allowed_urls_of(options))
    listing = Listing.of(options.files, access)
    sources = find_sources(
        options.files,
        options.format,
        options.compression,
        options.encoding,
        reading.column_types,
        options.table_version,
        access,
    )
    listing = listing.with_files(source.path for source in sources)  # one may have come in between
    sources = [source for source in sources if os.path.abspath(source.path) != dead_letter_file(options)]
    _print_notes(sources)
    check_formats(options, sources)
    forms: set[str] = set()
    for source in sources:
        check_readable(source, reading)
        forms |= check_columns(source, reading)
    fingerprint = fingerprint_of(options, reading, sources, forms)
    expected_of(options).watch(sources)
    if SEPARATOR_LINE in forms:
        print(
            "kafkaprod load: a first line such as `sep=;` names the separator, and is no row; with --column-names each "
            "line is one",
            file=sys.stderr,
        )
    if lost := unsent_columns(sources, reading.plan.fields):
        print(
            f"kafkaprod load: lines and JSON are sent unchanged, without the columns of folders {', '.join(lost)}: "
            "name them with --key or -H to send them",
            file=sys.stderr,
        )
    if options.engine == "spark":
        from kafkaprod.cli.load_spark import check_spark_arguments

        check_spark_arguments(sources, options.rate, has_manifest=not options.no_manifest)
    elif options.master is not None:
        raise ConfigError("--master is an option of Spark: use it with --engine spark")
    if options.dry_run is not None:
        stops = options.on_error == "stop"
        bad = print_preview(sources, reading, options.partition, options.dry_run, sys.stdout, stops=stops)
        return SOME_BAD_ROWS if bad else 0
    producer_options = read_options(options, compression_type=options.codec)
    transactional_id = transactional_id_of(options, producer_options)
    with open_cluster(options, producer_options) as client, contextlib.ExitStack() as stack:
        check_topics(client, options, producer_options)
        if transactional_id is not None:
            return _load_in_transactions(
                options, sources, listing, reading, fingerprint, producer_options, client, transactional_id
            )
        file = manifest_file(options)
        if file is not None:
            stack.enter_context(file.locked())
        return _load(options, sources, listing, reading, fingerprint, producer_options, client, file)


def _load(
    options: argparse.Namespace,
    sources: list[Source],
    listing: Listing,
    reading: ReadOptions,
    fingerprint: dict[str, Any],
    producer_options: dict[str, Any],
    client: ClusterClient,
    file: ManifestFile | None,
) -> int:
    manifest = None if file is None else earlier_manifest(file, sources, fingerprint, options, client)
    progress = progress_of(options, sources, None if manifest is None else manifest.position, producer_options)
    settings = load_options(client, options, producer_options, fingerprint, manifest, listing)
    if file is not None and options.resume:
        _check_must_resume(options, f"no manifest {file.path}", is_found=manifest is not None)
        _show_resumed(progress, str(file.path), None if manifest is None else manifest.done_at)
    new_sink = partial(make_sink, options.on_error, producer_options, can_resume=file is not None)
    sink = new_sink("", manifest, progress)
    load = Load(sources, reading, settings, client, sink, progress, file, manifest)
    work: Callable[[], object] = load.run
    if options.engine == "spark":
        assert file is not None
        work = partial(_load_on_spark, options, load, settings, new_sink, file, manifest, client, sources, reading)
    return _work(options, load, work, sources, sink, progress, client, can_resume=file is not None)


def _load_in_transactions(
    options: argparse.Namespace,
    sources: list[Source],
    listing: Listing,
    reading: ReadOptions,
    fingerprint: dict[str, Any],
    producer_options: dict[str, Any],
    client: ClusterClient,
    transactional_id: str,
) -> int:
    from kafkaprod.loader.transactional import TransactionalLoad, find_position

    is_write = options.write_id is not None
    resumes = options.resume or (is_write and not options.restart)
    committed = None
    if resumes:
        committed = find_position(client, transactional_id, options.topic, sources, is_write=is_write)
    progress = progress_of(options, sources, None if committed is None else committed.position, producer_options)
    settings = load_options(client, options, producer_options, fingerprint, None, listing)
    if options.resume:
        what = f"no committed position of transactional id {transactional_id!r} for this input"
        _check_must_resume(options, what, is_found=committed is not None and committed.is_begun)
        done_at = committed.done_at if committed is not None and committed.is_begun else None
        _show_resumed(progress, f"transactional id {transactional_id!r}", done_at)
    elif committed is not None and committed.done_at:
        rows = counted(committed.sent_count, "record")
        progress.show(f"already written at {committed.done_at}: {rows} of {printable(options.write_id)}")
    sink = make_sink(options.on_error, None, "", None, progress)
    report = LoadReport(options.topic, retention_ms=settings.retention_ms)
    job = Job(sources, reading, settings, sink, progress, None, report)
    load = TransactionalLoad(
        job, client, transactional_id, resumes=resumes, restarts=options.restart, is_write=is_write
    )
    return _work(options, load, load.run, sources, sink, progress, client, can_resume=True)


def _work(
    options: argparse.Namespace,
    load: AnyLoad,
    work: Callable[[], object],
    sources: list[Source],
    sink: BadRowSink,
    progress: Quiet,
    client: ClusterClient,
    *,
    can_resume: bool,
) -> int:
    """Load, show the report however it ends, and return the exit code."""
    patience_s: float | None = None
    options.proof = None if options.report is None else proof_of(options, client)
    if _counts_spread(options):
        load.report.spread = Spread()
    load.report.remote = next((source.remote.counts for source in sources if source.remote is not None), None)
    try:
        work()
    except KeyboardInterrupt:
        patience_s = INTERRUPTED_S
        progress.close()
        _show_report(options, load.report, sources, "It was interrupted.")
        print(f"kafkaprod load: {_interruption(load, can_resume=can_resume)}", file=sys.stderr)
        return INTERRUPTED
    except (KafkaError, OSError) as error:
        progress.close()
        if options.json or load.has_sent:
            _show_report(options, load.report, sources, str(error))
        if isinstance(error, UnexpectedInputError):
            raise UnexpectedInputError(f"{error}. {_remains(load)}") from error
        if load.has_sent and isinstance(error, LoadRefusedError):  # of a later input: the load stopped
            raise LoadError(str(error)) from error
        raise
    finally:
        sink.close(patience_s)
    progress.close()
    if options.key is not None and load.report.has_keys is False:
        print(
            f"kafkaprod load: --key {options.key}: no row has such a key, all keys are null or empty", file=sys.stderr
        )
    if load.report.passed_count and not load.report.sent_count and is_empty(client, options.topic):
        load.report.passed_count = 0
        print(
            f"kafkaprod load: the log of topic {printable(options.topic)!r} is empty: the records of this load were "
            "deleted, by retention or on request. --restart sends them again",
            file=sys.stderr,
        )
    if expired := load.report.expired(time.time_ns() // 1_000_000):
        print(f"kafkaprod load: {expired}", file=sys.stderr)
    _show_report(options, load.report, sources)
    return SOME_BAD_ROWS if load.report.bad_in_all else 0


def _load_on_spark(
    options: argparse.Namespace,
    load: Load,
    settings: LoadOptions,
    new_sink: partial[BadRowSink],
    file: ManifestFile,
    manifest: Manifest | None,
    client: ClusterClient,
    sources: list[Source],
    reading: ReadOptions,
) -> None:
    from kafkaprod.cli.load_spark import SparkLoad, load_on_spark, places_of

    load.has_sent = True  # tasks will
    places = places_of(file, sources)
    counts_spread = _counts_spread(options)
    job = SparkLoad(sources, reading, settings, new_sink, dead_letter_file(options), *places, counts_spread)
    try:
        load_on_spark(load, file, manifest, job, client, options.master)
    finally:
        load.report.manifest = str(file.path)


def _counts_spread(options: argparse.Namespace) -> bool:
    return options.json or options.report is not None


def _show_resumed(progress: Quiet, what: str, done_at: str | None) -> None:
    """Show what --resume found if there is no load to continue.

    Args:
        progress: Where to.
        what: Names the manifest, or the transactional id.
        done_at: When the load was complete; empty: it is not; None: there is no earlier load.
    """
    if done_at is None:
        progress.show(f"--resume: there is no earlier load to continue ({what}): this one begins")
    elif done_at:
        progress.show(f"--resume: already loaded at {done_at} ({what})")


def _check_must_resume(options: argparse.Namespace, what: str, *, is_found: bool) -> None:
    """Raise LoadRefusedError where the user wants to continue a load, and there is none."""
    if options.must_resume and not is_found:
        raise LoadRefusedError(
            f"--must-resume: there is {what}: it was deleted or has expired, it is that of another cluster or "
            "directory, or no earlier run reached its first checkpoint. To begin the load leave out --must-resume: "
            "what an earlier one sent comes twice"
        )


def _interruption(load: AnyLoad, *, can_resume: bool) -> str:
    if not load.has_sent:
        return "interrupted; nothing was sent"
    rows = counted(load.report.sent_in_all, "record")
    if not can_resume:
        return f"interrupted; {rows} acknowledged; without a manifest the load cannot be resumed"
    return f"interrupted; {rows} acknowledged in the topic; continue with the same command and --resume"


def _remains(load: AnyLoad) -> str:
    if not load.has_sent:
        return "Nothing was sent"
    return f"{counted(load.report.sent_in_all, 'record')} of the load are in the topic, and it is not complete"


def _show_report(options: argparse.Namespace, report: LoadReport, sources: list[Source], error: str = "") -> None:
    """Write the page and print the last line; `error` is why the load stopped."""
    if options.report is not None:
        from kafkaprod.loader.reports.report_page import write_page

        try:
            write_page(options.report, report.to_dict(), sources, error, ended(options.proof))
        except LoadError as problem:  # the rows are in the topic nevertheless
            print(f"kafkaprod load: {problem}", file=sys.stderr)
    if options.json:
        print(json.dumps(report.to_dict()))
    else:
        print(report, file=sys.stderr)
