"""`kafkaprod load`: files into a topic."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, Final

from kafkaprod.admin.client import ClusterClient
from kafkaprod.admin.topics import create_topic, find_topic, is_missing, topic_options
from kafkaprod.cli.producer_arguments import (
    above_zero,
    add_cluster_arguments,
    count,
    make_config,
    open_cluster,
    read_options,
    whole,
)
from kafkaprod.errors import BrokerError, ConfigError, KafkaError
from kafkaprod.loader.bad_rows import BadRowSink, DeadLetterFile, DeadLetterTopic, Skip, Stop
from kafkaprod.loader.encodings import encoding_name
from kafkaprod.loader.errors import LoadError
from kafkaprod.loader.inputs import COMPRESSIONS, FORMATS, Source, find_sources
from kafkaprod.loader.load import Load, describe_source
from kafkaprod.loader.manifest import Manifest, ManifestFile
from kafkaprod.loader.pipes import input_name, is_pipe_name
from kafkaprod.loader.plan import AVRO, MAX_ROW_BYTES, MS_PER_UNIT, RowPlan, Template
from kafkaprod.loader.preview import print_preview
from kafkaprod.loader.progress import Quiet, make_progress
from kafkaprod.loader.readers import ReadOptions
from kafkaprod.loader.session import INTERRUPTED_S, LoadOptions
from kafkaprod.producer import Producer

SOME_BAD_ROWS: Final = 3
INTERRUPTED: Final = 130
TOPIC_PREFIX: Final = "topic:"
MAX_BATCH_BYTES: Final = 1 << 20

_EPILOG = """\
exit codes: 0 every row is in the topic; 1 the load stopped, the message says why; 2 wrong arguments; 3 the load is
complete, but rows were left out or put aside; 130 interrupted. After 1 and 130 --resume goes on where it stopped.
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser(
        "load",
        help="load files into a topic",
        description="Loads CSV, JSON, Parquet, Arrow files and lines into a topic; goes on after a crash with nothing "
        "lost and nothing twice.",
        epilog=_EPILOG,
    )
    add = parser.add_argument
    add("files", nargs="+", type=input_name, metavar="FILE", help="files, patterns, directories, pipes, or - for stdin")
    add("-t", "--topic", required=True, help="where to")
    add_cluster_arguments(parser)
    _add_input_arguments(parser)
    _add_record_arguments(parser)
    _add_run_arguments(parser)
    parser.set_defaults(run=run)


def _add_input_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("input")
    add = group.add_argument
    add("--format", choices=FORMATS, help="of the files (default: told by their names)")
    add("--compression", choices=COMPRESSIONS, help="of the files (default: told by their first bytes)")
    add("--encoding", type=_encoding, metavar="NAME", help="of texts: latin-1, utf-16 … (default: utf-8)")
    add("--max-row-bytes", type=count, default=MAX_ROW_BYTES, metavar="N", help="of the longest row (%(default)s)")
    add("-D", "--delimiter", default="\\n", metavar="CHAR", help="ends a line (default: %(default)s)")
    add("--separator", metavar="CHAR", help="between the fields of CSV (default: a comma)")
    add("--quote", metavar="CHAR", help='around fields of CSV (default: ")')
    add("--no-quote", action="store_true", help="quotes in CSV mean nothing")
    add("--columns", metavar="A,B,…", help="names of CSV columns where the first line does not have them")
    add("--column-type", action="append", default=[], metavar="COLUMN=TYPE", help="text, int, float, bool, timestamp …")
    typing = group.add_mutually_exclusive_group()
    typing.add_argument("--text-columns", action="store_true", help="other CSV columns are text (the default)")
    typing.add_argument(
        "--infer-types", action="store_true", help="other CSV columns are numbers or bools if no value changes by it"
    )
    add("--null", action="append", default=[], metavar="TEXT", help="means null in CSV columns that are not text, as "
        "the empty text does; repeatable")  # fmt: skip


def _add_record_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("records").add_argument
    add("--value", default="", metavar="json|raw|avro|COLUMN", help="json: the row as an object; raw: as it stands "
        "in the file; avro: by --schema; or one column (default: json for tables, raw for text)")  # fmt: skip
    add("--schema", metavar="FILE", help="the Avro schema of --value avro")
    add("--schema-id", type=int, metavar="N", help="its number in the schema registry, which stands before each value")
    add("--key", metavar="COLUMN|TEMPLATE", help="a column, or a text with columns: '{carrier}-{flight}'")
    add("-k", dest="fixed_key", metavar="KEY", help="the same key for all")
    add(
        "-H", "--header", action="append", default=[], metavar="NAME=VALUE", help="a text, or with {column}; repeatable"
    )
    add("--timestamp", metavar="COLUMN", help="the records' time (default: when they are sent)")
    add("--timestamp-unit", choices=list(MS_PER_UNIT), default="ms", help="of numbers in it (default: %(default)s)")
    add("-p", "--partition", type=whole, metavar="N", help="one partition for all")
    add("--partition-column", metavar="COLUMN", help="the record's partition")
    add("-z", "--compression-codec", dest="codec", metavar="CODEC", help="of batches: none, gzip, snappy, lz4, zstd")


def _add_run_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("the load").add_argument
    add("--engine", choices=("local", "spark"), default="local", help="spark: an input a task on Spark's executors")
    add("--master", metavar="URL", help="Spark's: local[4], spark://host:7077 (default: its own configuration)")
    add("--resume", action="store_true", help="go on with a load that stopped or was killed")
    add("--restart", action="store_true", help="begin anew although a load stopped: records may come twice")
    add("--state", metavar="DIR", help="where the manifest is kept (default: beside the first file)")
    add(
        "--checkpoint-interval",
        type=above_zero,
        default=1.0,
        metavar="S",
        help="seconds between manifests (%(default)s)",
    )
    add("--no-manifest", action="store_true", help="keep none: the load cannot be resumed")
    add(
        "--on-error",
        default="stop",
        metavar="stop|skip|dead-letter=FILE|dead-letter=topic:NAME",
        help="what to do with rows that cannot be sent (default: %(default)s)",
    )
    add("--create-topic", metavar="PARTITIONS", nargs="?", const=-1, type=count, help="make the topic if there is none")
    add("--rate", type=above_zero, metavar="N", help="records a second at most")
    add("--dry-run", metavar="N", nargs="?", const=5, type=count, help="show the first N records (5) and send nothing")
    add("-q", "--quiet", action="store_true", help="no progress")
    add("--json", action="store_true", help="print the summary as JSON")


def run(options: argparse.Namespace) -> int:
    """Load; see the epilog for the exit code.

    Raises:
        KafkaError, OSError: The load cannot begin or stopped.
    """
    sources = find_sources(options.files, options.format, options.compression, options.encoding)
    sources = [source for source in sources if os.path.abspath(source.path) != _dead_letters(options)]
    reading = _reading(options)
    if options.engine == "spark":
        from kafkaprod.cli.load_spark import check_spark_arguments

        check_spark_arguments(sources, options.rate, has_manifest=not options.no_manifest)
    elif options.master is not None:
        raise ConfigError("--master is Spark's: say --engine spark")
    if options.dry_run is not None:
        print_preview(sources, reading, options.partition, options.dry_run, sys.stdout)
        return 0
    producer_options = read_options(options, compression_type=options.codec)
    with open_cluster(options, producer_options) as client, contextlib.ExitStack() as stack:
        _check_topic(client, options.topic, options.create_topic)
        file = None if options.no_manifest else _manifest_file(options)
        if file is not None:
            stack.enter_context(file.locked())
        return _load(options, sources, reading, producer_options, client, file)


def _load(
    options: argparse.Namespace,
    sources: list[Source],
    reading: ReadOptions,
    producer_options: dict[str, Any],
    client: ClusterClient,
    file: ManifestFile | None,
) -> int:
    fingerprint = _fingerprint(options, reading, sources)
    manifest = None if file is None else _earlier(file, sources, fingerprint, options)
    load_options = _load_options(client, options, producer_options, fingerprint, manifest)
    progress = make_progress(sources, is_quiet=options.quiet)
    if file is not None and options.resume and (manifest is None or manifest.is_done):
        is_nothing_left = "every row is in the topic already" if manifest else "no load of it stopped: it begins"
        progress.tell(f"--resume: {is_nothing_left} ({file.path})")
    make_sink = partial(_sink, options.on_error, producer_options)
    sink = make_sink("", manifest, progress)
    load = Load(sources, reading, load_options, client, sink, progress, file, manifest)
    patience_s: float | None = None
    try:
        if options.engine == "spark":
            from kafkaprod.cli.load_spark import SparkLoad, load_on_spark, places_of

            assert file is not None
            load.has_sent = True  # tasks will
            job = SparkLoad(
                sources, reading, load_options, make_sink, _dead_letters(options), *places_of(file, sources)
            )
            load.report = load_on_spark(load, file, manifest, job, client, options.master)
        else:
            load.run()
    except KeyboardInterrupt:
        patience_s = INTERRUPTED_S
        progress.close()
        _print_report(load, options.json)
        how = "" if file is None or not load.has_sent else ": go on with the same command and --resume"
        print(f"kafkaprod load: interrupted{how}", file=sys.stderr)
        return INTERRUPTED
    except (KafkaError, OSError):
        progress.close()
        if options.json or load.has_sent:
            _print_report(load, options.json)
        raise
    finally:
        sink.close(patience_s)
    progress.close()
    _print_report(load, options.json)
    return SOME_BAD_ROWS if load.report.bad_count else 0


def _print_report(load: Load, is_json: bool) -> None:
    if is_json:
        print(json.dumps(load.report.to_dict()))
    else:
        print(load.report, file=sys.stderr)


# --- from arguments to the loader's terms -----------------------------------------------------------------------------


def _reading(options: argparse.Namespace) -> ReadOptions:
    if options.key is not None and options.fixed_key is not None:
        raise ConfigError("--key and -k are two answers to one question")
    key = None if options.fixed_key is None else Template((options.fixed_key,))
    if options.key is not None:
        key = Template.parse(options.key) if "{" in options.key else Template.of_column(options.key)
    if (options.value == AVRO) != (options.schema is not None and options.schema_id is not None):
        raise ConfigError("--value avro, --schema FILE and --schema-id N belong together")
    plan = RowPlan(
        value=options.value,
        key=key,
        headers=tuple(map(_header, options.header)),
        timestamp=options.timestamp,
        timestamp_unit=options.timestamp_unit,
        partition=options.partition_column,
        delimiter=_byte(options.delimiter, "-D"),
        avro_schema="" if options.schema is None else Path(options.schema).read_text(encoding="utf-8"),
        avro_schema_id=options.schema_id,
        max_row_bytes=options.max_row_bytes,
    )
    separator = None if options.separator is None else chr(_byte(options.separator, "--separator"))
    if options.no_quote and options.quote is not None:
        raise ConfigError("--quote and --no-quote exclude each other")
    quote = None if options.no_quote else chr(_byte(options.quote or '"', "--quote"))
    if quote is not None and quote in (separator or ",", "\r", "\n"):
        raise ConfigError(f"--quote {quote!r} cannot be the separator or a line end")
    return ReadOptions(
        plan,
        separator,
        quote,
        dict(_pair(text, "--column-type") for text in options.column_type),
        options.infer_types,
        None if options.columns is None else options.columns.split(","),
        tuple(options.null),
    )


def _header(text: str) -> tuple[str, Template]:
    name, value = _pair(text, "-H")
    return name, Template.parse(value)


def _pair(text: str, flag: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ConfigError(f"{flag} {text!r} is not NAME=VALUE")
    return name, value


def _encoding(text: str) -> str:
    try:
        return encoding_name(text)
    except LookupError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _byte(text: str, flag: str) -> int:
    data = text.encode().decode("unicode_escape").encode("latin-1")
    if len(data) != 1:
        raise ConfigError(f"{flag} {text!r} is not one byte")
    return data[0]


def _fingerprint(options: argparse.Namespace, reading: ReadOptions, sources: list[Source]) -> dict[str, Any]:
    """What decides which records a row becomes, and where they go."""
    wanted: dict[str, Any] = json.loads(json.dumps(asdict(reading)))
    if not any(source.format in ("csv", "tsv") for source in sources):
        del wanted["plan"]["max_row_bytes"]  # only in CSV does it decide where a row ends
    return wanted | {"partition": options.partition, "engine": options.engine}


def _manifest_file(options: argparse.Namespace) -> ManifestFile | None:
    if is_pipe_name(options.files[0]) and options.state is None and not options.resume:
        return None
    return ManifestFile.for_load(options.files, options.topic, options.state)


def _earlier(
    file: ManifestFile, sources: list[Source], fingerprint: dict[str, Any], options: argparse.Namespace
) -> Manifest | None:
    """The manifest to go on from; None to begin.

    Raises:
        LoadError: A load stopped and nobody said what to do about it, or it was another load.
    """
    if options.restart:
        return None
    manifest = file.read()
    if manifest is None:
        return None
    if not options.resume:
        if manifest.is_done:
            return None
        raise LoadError(
            f"a load of this input into {manifest.topic!r} stopped after {manifest.sent_count:,} records "
            f"({file.path}): go on with --resume, or begin anew with --restart"
        )
    inputs = [describe_source(source) for source in sources]
    if manifest.inputs != inputs:
        raise LoadError(
            f"the input is not what it was when {file.path} was written: {_difference(manifest, inputs)}. It can only "
            "be loaded anew, with --restart"
        )
    if {k: v for k, v in manifest.options.items() if k in fingerprint} != fingerprint:
        raise LoadError(
            f"the options are not those of {file.path}: rows would become other records. Give the same ones, or begin "
            "anew with --restart"
        )
    return manifest


def _difference(manifest: Manifest, inputs: list[dict[str, Any]]) -> str:
    if len(manifest.inputs) != len(inputs):
        return f"{len(inputs)} files instead of {len(manifest.inputs)}"
    before, now = next(pair for pair in zip(manifest.inputs, inputs, strict=True) if pair[0] != pair[1])
    names = [name for name in before if before[name] != now[name]]
    return f"{now['path']} has another {', '.join(names)}"


def _sink(
    on_error: str, producer_options: dict[str, Any], suffix: str, manifest: Manifest | None, progress: Quiet
) -> BadRowSink:
    kind, _, target = on_error.partition("=")
    if on_error == "stop":
        return Stop()
    if on_error == "skip":
        return Skip(progress.tell)
    if kind != "dead-letter" or not target:
        raise ConfigError(f"--on-error {on_error!r}: say stop, skip, dead-letter=FILE or dead-letter=topic:NAME")
    if target.startswith(TOPIC_PREFIX):
        return DeadLetterTopic(Producer(producer_options), target.removeprefix(TOPIC_PREFIX))
    return DeadLetterFile(os.path.abspath(target) + suffix, None if manifest is None else manifest.dead_letter_bytes)


def _dead_letters(options: argparse.Namespace) -> str | None:
    kind, _, target = options.on_error.partition("=")
    is_file = kind == "dead-letter" and not target.startswith(TOPIC_PREFIX)
    return os.path.abspath(target) if is_file else None


# --- the topic --------------------------------------------------------------------------------------------------------


def _check_topic(client: ClusterClient, topic: str, partitions: int | None) -> None:
    try:
        find_topic(client, topic)
    except BrokerError as error:
        if not is_missing(error):
            raise
        if partitions is None:
            raise LoadError(
                f"topic {topic!r} does not exist: make it with --create-topic [PARTITIONS] or `kafkaprod topics create`"
            ) from error
        create_topic(client, topic, partitions)


def _load_options(
    client: ClusterClient,
    options: argparse.Namespace,
    producer_options: dict[str, Any],
    fingerprint: dict[str, Any],
    manifest: Manifest | None,
) -> LoadOptions:
    """Bring the producer's options into line with the topic's."""
    config = make_config(producer_options)
    if config.acks != -1 or not config.enable_idempotence:
        raise ConfigError("a load needs acks=all and enable_idempotence=true: without them records get lost or doubled")
    try:
        topic = topic_options(client, options.topic)
    except KafkaError:  # not allowed to look: the broker will say what it does not like
        topic = {}
    limit, where = config.max_request_size, "max_request_size"
    broker_limit = int(topic.get("max.message.bytes") or limit)
    if broker_limit < limit and config.compression_type == "none":
        limit, where = broker_limit, "the topic's max.message.bytes"
    defaults: dict[str, Any] = {
        "batch_size": min(max(config.batch_size, MAX_BATCH_BYTES // 2), broker_limit),
        "max_block_ms": max(config.max_block_ms, config.delivery_timeout_ms),
    }
    needs_keys = "compact" in (topic.get("cleanup.policy") or "")
    if manifest is not None:  # what was a bad row then is one now: rows are counted
        limit, needs_keys = manifest.options["record_limit"], manifest.options["needs_keys"]
    return LoadOptions(
        topic=options.topic,
        producer=producer_options | defaults,
        record_limit=limit,
        record_limit_from=where,
        needs_keys=needs_keys,
        checkpoint_s=options.checkpoint_interval,
        partition=options.partition,
        rate=options.rate,
        fingerprint=fingerprint | {"record_limit": limit, "needs_keys": needs_keys},
    )
