"""`kafkaprod load --engine spark`: spread the inputs of a load over Spark's executors, one task per input.

The driver determines what the whole load has in common and writes its manifest. Each task is a load of one input with
its own manifest and producer id, and continues from them when Spark runs it again. So no record is lost or duplicated,
however often tasks fail, and a record gets the same partition as from one machine. Inputs, manifests and the
dead-letter file must be on a file system that the executors share with the driver.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from kafkaprod.admin.client import ClusterClient
from kafkaprod.admin.producer_ids import new_producer_id
from kafkaprod.cli.producer_arguments import make_config
from kafkaprod.errors import ConfigError
from kafkaprod.loader.attempt import LoadOptions
from kafkaprod.loader.bad_rows import BadRowSink, open_dead_letters
from kafkaprod.loader.finding.expected import Expected
from kafkaprod.loader.finding.paths import Listing
from kafkaprod.loader.formats.readers import ReadOptions, read_rows
from kafkaprod.loader.load import Load, describe_source
from kafkaprod.loader.opening.errors import LoadError, missing_package
from kafkaprod.loader.opening.opening import open_source
from kafkaprod.loader.opening.pipes import is_pipe_name
from kafkaprod.loader.opening.source import BINARY_FORMATS, Source
from kafkaprod.loader.positions.manifest import Manifest, PartitionState, Position
from kafkaprod.loader.positions.manifest_file import SUFFIX, ManifestFile
from kafkaprod.loader.positions.recovery import check_complete
from kafkaprod.loader.progress import Quiet
from kafkaprod.loader.reports.report import LoadReport
from kafkaprod.loader.reports.spread import Spread
from kafkaprod.tables.row_plan import RAW, RowPlan

MAX_SHOWN: Final = 100  # lines about bad rows that a task sends to the driver
_ERROR: Final = re.compile(r"^kafkaprod\.[\w.]+: (.+)$", re.MULTILINE)
_COUNTED: Final = ("records", "bytes", "bad_rows", "already_there", "retries")

MakeSink = Callable[[str, Manifest | None, Quiet], BadRowSink]


@dataclass(frozen=True, slots=True)
class SparkLoad:
    """Describes a load to its tasks.

    Attributes:
        sources: The inputs.
        reading: How to read them.
        options: Where to, and how.
        make_sink: Makes the sink of an input's bad rows from a suffix for its file, the manifest to continue from or
            None, and the progress, which shows rows that are left out.
        dead_letters: Path of the file of bad rows, without the suffix; None: there is none.
        manifests: Path of each input's manifest.
        directory: That relative paths start from.
        counts_spread: Tasks count how the records are spread.
    """

    sources: Sequence[Source]
    reading: ReadOptions
    options: LoadOptions
    make_sink: MakeSink
    dead_letters: str | None
    manifests: Sequence[str]
    directory: str
    counts_spread: bool = False


def load_on_spark(
    load: Load, file: ManifestFile, manifest: Manifest | None, job: SparkLoad, client: ClusterClient, master: str | None
) -> None:
    """Load everything.

    Args:
        load: The load of all inputs on one machine: makes the manifest that they share, and is not run. It gets the
            report, however the load ends.
        file: The manifest of the whole load.
        manifest: To continue from; None: begin.
        job: What tasks need.
        client: Asks the cluster.
        master: Spark's; None: what its configuration or spark-submit says.

    Raises:
        LoadError, KafkaError: It cannot begin, or it stopped; the manifest of each input has its position.
    """
    started_s = time.monotonic()
    parts = [] if job.dead_letters is None else [f"{job.dead_letters}.{index}" for index in range(len(job.sources))]
    if manifest is not None and manifest.is_done:
        check_complete(client, manifest)
        job.options.expected.check_rows(manifest.sent_count + manifest.bad_count, is_end=True)
        _remove([*job.manifests, *parts])  # the last run may have ended just before
        load.report = _new_report(job)
        load.report.passed_count, load.report.bad_in_all = manifest.sent_count, manifest.bad_count
        load.report.is_complete = True
        return
    # An executor may see the same file under another device.
    sources = [replace(source, inode=None) for source in job.sources]
    whole = replace(job.options, known_files=(*job.options.known_files, *parts))  # of all inputs together
    job = replace(job, sources=sources, options=replace(job.options, expected=Expected(), listing=Listing()))
    spark = _session(job, master)
    if manifest is None:
        _remove(job.manifests)
        manifest = load.begin()
    missing = [index for index, path in enumerate(job.manifests) if not os.path.exists(path)]
    if missing:
        counts = _run(spark, job, _count_rows) if _needs_counts(job) else [0] * len(job.sources)
        for index in missing:
            part = _part(manifest, job.sources[index], sum(counts[:index]), new_producer_id(client))
            ManifestFile(Path(job.manifests[index])).write(part)
    before = _progress(job)
    try:
        answers = _run(spark, job, _load_source)
    except BaseException:
        load.report = _reached(job, before)
        load.report.seconds = time.monotonic() - started_s
        raise
    report = load.report = _sum(job, answers)
    if job.dead_letters is not None:
        _join(job.dead_letters, manifest.dead_letter_bytes, parts)
    manifest.sent_count, manifest.bad_count = report.sent_count + report.passed_count, report.bad_in_all
    report.sent_in_all, report.seconds = manifest.sent_count, time.monotonic() - started_s
    whole.check_end(manifest.sent_count + manifest.bad_count)
    manifest.finish()
    file.write(manifest)
    report.is_complete = True
    _remove([*job.manifests, *parts])  # not before: whoever resumes joins them again


def places_of(file: ManifestFile, sources: Sequence[Source]) -> tuple[list[str], str]:
    """Return the paths of the inputs' manifests, beside that of the whole load, and the directory of relative paths."""
    stem = os.path.abspath(file.path).removesuffix(SUFFIX)
    return [f"{stem}.{index}{SUFFIX}" for index in range(len(sources))], os.getcwd()


def check_spark_arguments(sources: Sequence[Source], rate: float | None, *, has_manifest: bool) -> None:
    """Refuse what only one machine can do. Raises ConfigError."""
    pipe = next((source for source in sources if is_pipe_name(source.path)), None)
    if pipe is not None:
        raise ConfigError(f"--engine spark cannot read {pipe.name}: executors cannot read a pipe of this machine")
    if rate is not None:
        raise ConfigError("--rate is for one machine: leave it out with --engine spark")
    if not has_manifest:
        raise ConfigError("--engine spark needs manifests, for tasks that run again: leave out --no-manifest")


# -- on the driver -----------------------------------------------------------------------------------------------------


def _session(job: SparkLoad, master: str | None) -> Any:
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise missing_package("PySpark", "--engine spark", "spark") from error
    builder = SparkSession.builder.appName(f"kafkaprod load into {job.options.topic}")
    return (builder if master is None else builder.master(master)).getOrCreate()


def _join(path: str, length: int, parts: Sequence[str]) -> None:
    """Cut the dead-letter file to its length before the load, then append the dead letters of all inputs, in order."""
    with open_dead_letters(path) as out:
        out.truncate(length)
        for part in parts:
            with open(part, "rb") as file:
                shutil.copyfileobj(file, out)
        out.flush()
        os.fsync(out.fileno())


def _remove(paths: Sequence[str]) -> None:
    for path in paths:
        Path(path).unlink(missing_ok=True)


def _needs_counts(job: SparkLoad) -> bool:
    """Return whether partitions depend on the number of rows of the inputs before: rows without a key take turns."""
    key = job.reading.plan.key
    has_key = key is not None and not key.names
    return len(job.sources) > 1 and job.options.partition is None and not has_key


def _part(manifest: Manifest, source: Source, rows_before: int, identity: tuple[int, int]) -> Manifest:
    ends = {number: PartitionState(0, 0, state.offset) for number, state in manifest.partitions.items()}
    return replace(
        manifest,
        producer_id=identity[0],
        producer_epoch=identity[1],
        inputs=[describe_source(source)],
        position=Position(rows_before=rows_before),
        partitions=ends,
        dead_letter_bytes=0,
    )


def _run(spark: Any, job: SparkLoad, what: Callable[[SparkLoad, int], Any]) -> list[Any]:
    """Call `what` for every input in a task of its own; return the answers in the order of the inputs."""
    count = len(job.sources)
    try:
        rows = spark.range(0, count, 1, count).mapInArrow(partial(_on_executor, job, what), "answer string").collect()
    except Exception as error:
        found = _ERROR.findall(str(error))
        if not found:
            raise
        raise LoadError(found[-1]) from error
    answers = dict(json.loads(row.answer) for row in rows)
    return [answers[index] for index in range(count)]


def _new_report(job: SparkLoad) -> LoadReport:
    return LoadReport(job.options.topic, spread=Spread() if job.counts_spread else None)


def _progress(job: SparkLoad) -> tuple[int, int, int]:
    """Return how many records and bytes the manifests of all inputs know to be in the topic, and how many bad rows."""
    known = [manifest for path in job.manifests if (manifest := ManifestFile(Path(path)).read()) is not None]
    return sum(m.sent_count for m in known), sum(m.sent_bytes for m in known), sum(m.bad_count for m in known)


def _reached(job: SparkLoad, before: tuple[int, int, int]) -> LoadReport:
    """Return the report of a load that stopped: what its manifests know, which is less than the sizes of records."""
    sent_count, sent_bytes, bad_count = _progress(job)
    return LoadReport(
        job.options.topic,
        sent_count=sent_count - before[0],
        sent_bytes=sent_bytes - before[1],
        passed_count=before[0],
        bad_in_all=bad_count,
        sent_in_all=sent_count,
    )


def _sum(job: SparkLoad, answers: list[dict[str, Any]]) -> LoadReport:
    report = _new_report(job)
    for answer in answers:
        report.sent_count += answer["records"]
        report.sent_bytes += answer["bytes"]
        report.bad_in_all += answer["bad_rows"]
        report.passed_count += answer["already_there"]
        report.retry_count += answer["retries"]
        if report.spread is not None:
            report.spread.add(Spread.from_dict(answer["spread"]))
        for line in answer["shown"]:
            Quiet().show(line)
    return report


# -- on executors ------------------------------------------------------------------------------------------------------


def _on_executor(job: SparkLoad, what: Callable[[SparkLoad, int], Any], batches: Iterator[Any]) -> Iterator[Any]:
    import pyarrow as pa

    with contextlib.chdir(job.directory):
        for batch in batches:
            for index in batch.column(0).to_pylist():
                yield pa.RecordBatch.from_pydict({"answer": [json.dumps((index, what(job, index)))]})


def _count_rows(job: SparkLoad, index: int) -> int:
    source, plan = job.sources[index], job.reading.plan
    if source.format == "parquet" and source.compression == "none":
        import pyarrow.parquet as pq

        with open_source(source) as stream:
            return int(pq.ParquetFile(stream).metadata.num_rows)
    is_text = source.format not in BINARY_FORMATS
    reading = (
        replace(job.reading, plan=RowPlan(RAW, delimiter=plan.delimiter, max_row_bytes=plan.max_row_bytes))
        if is_text
        else job.reading
    )
    end_row = 0
    for block in read_rows(source, reading):
        end_row = block.end_row
    return end_row


def _load_source(job: SparkLoad, index: int) -> dict[str, Any]:
    file = ManifestFile(Path(job.manifests[index]))
    manifest = file.read()
    if manifest is None:
        raise LoadError(f"there is no manifest {file.path}: is it on a file system that executors and driver share?")
    shown = _Shown()
    with ClusterClient(make_config(dict(job.options.producer))) as client:
        sink = job.make_sink(f".{index}", manifest, shown)
        try:
            load = Load([job.sources[index]], job.reading, job.options, client, sink, shown, file, manifest)
            load.report.spread = spread = Spread()
            load.run()
            report = load.report.to_dict()
        finally:
            sink.close()
    return {name: report[name] for name in _COUNTED} | {"spread": spread.to_dict(), "shown": shown.lines}


class _Shown(Quiet):
    """Keeps the lines to show, for the driver."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def show(self, text: str) -> None:
        """Keep a line."""
        if len(self.lines) < MAX_SHOWN:
            self.lines.append(text)
