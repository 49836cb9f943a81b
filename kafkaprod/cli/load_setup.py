"""Prepare a load: check its topics, find the manifest to continue from, set the options of its producer."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, Final

from kafkaprod.admin.client import ClusterClient
from kafkaprod.admin.topics import create_topic, demand_topic, find_topic, is_missing, topic_options
from kafkaprod.cli.load_arguments import expected_of
from kafkaprod.cli.load_changes import changed_options
from kafkaprod.cli.producer_arguments import make_config
from kafkaprod.config import ProducerConfig, options_for_topic
from kafkaprod.errors import BrokerError, ConfigError, KafkaError, TopicNotFoundError
from kafkaprod.loader.attempt import LoadOptions
from kafkaprod.loader.bad_rows import BadRowSink, DeadLetterFile, DeadLetterTopic, Skip, Stop
from kafkaprod.loader.finding.paths import Listing
from kafkaprod.loader.load import describe_source
from kafkaprod.loader.opening.errors import LoadError, LoadRefusedError
from kafkaprod.loader.opening.pipes import is_pipe_name
from kafkaprod.loader.opening.source import Source
from kafkaprod.loader.positions.manifest import Manifest
from kafkaprod.loader.positions.manifest_file import ManifestFile
from kafkaprod.loader.progress import Quiet
from kafkaprod.marks.place import DEFAULT_PREFIX, mark_name
from kafkaprod.producer import Producer
from kafkaprod.text import counted

TOPIC_PREFIX: Final = "topic:"
MAX_BATCH_BYTES: Final = 1 << 20

# -- the manifest ------------------------------------------------------------------------------------------------------


def manifest_file(options: argparse.Namespace) -> ManifestFile | None:
    """Return the file of the load's manifest; None if it has none. Raises LoadError."""
    has_place = options.state is not None or options.resume
    if options.no_manifest or (is_pipe_name(options.files[0]) and not has_place):
        return None
    return ManifestFile.for_load(options.files, options.topic, options.state)


def transactional_id_of(options: argparse.Namespace, producer_options: dict[str, Any]) -> str | None:
    """Return the transactional id of the load, and take it out of the options, which other clients use too.

    Raises:
        ConfigError: Other arguments have no place beside it.
    """
    from_options = producer_options.pop("transactional_id", None)
    transactional_id: str | None = options.transactional_id or from_options
    others = {
        "--engine spark": options.engine == "spark",
        "--state": options.state,
        "--no-manifest": options.no_manifest,
    }
    what = "--transactional-id"
    if options.write_id is not None:
        what, others["--transactional-id"] = "--write-id", transactional_id
        transactional_id = mark_name(DEFAULT_PREFIX, options.write_id)
    for name, is_given in others.items():
        if transactional_id is not None and is_given:
            raise ConfigError(f"{what} and {name} exclude each other")
    return transactional_id


def earlier_manifest(
    file: ManifestFile,
    sources: Sequence[Source],
    fingerprint: dict[str, Any],
    options: argparse.Namespace,
    client: ClusterClient,
) -> Manifest | None:
    """Return the manifest to continue from; None to begin.

    Raises:
        LoadRefusedError: The load is complete or stopped before, and the arguments do not say what to do, or it was
            another load.
    """
    if options.restart:
        return None
    manifest = file.read()
    if manifest is None:
        return None
    inputs = [describe_source(source) for source in sources]
    if not options.resume:
        # A pipe may have other content.
        known = {json.dumps(each, sort_keys=True) for each in manifest.inputs}
        again = sum(json.dumps(each, sort_keys=True) in known and not is_pipe_name(each["path"]) for each in inputs)
        _refuse_to_begin(manifest, file, again, len(inputs), client=client)
        return None
    if manifest.inputs != inputs:
        version = manifest.options.get("table_versions")
        remedy = f"--table-version {version[0]} to continue, or " if version and len(version) == 1 else ""
        raise LoadRefusedError(
            f"the input is not what it was when {file.path} was written: {_difference(manifest, inputs)}. Use "
            f"{remedy}--restart to load it from the beginning"
        )
    if manifest.is_done and any(source.pipe is not None for source in sources):
        raise LoadRefusedError(
            f"--resume: a load of a pipe is complete since {manifest.done_at} ({file.path}), and whether this one "
            "has the same bytes cannot be compared. If it is another input, leave out --resume"
        )
    changes = changed_options(manifest.options, fingerprint)
    if changes:
        raise LoadRefusedError(
            f"the options are not those of {file.path}: {'; '.join(changes)}. Rows would become other records: give "
            "the same options, or start over with --restart"
        )
    return manifest


def _refuse_to_begin(manifest: Manifest, file: ManifestFile, again: int, count: int, *, client: ClusterClient) -> None:
    """Raise LoadRefusedError unless an earlier load is complete and was of other files, or into another topic.

    Args:
        manifest: That of the earlier load.
        file: Its file.
        again: How many inputs of this load are files of that one, as they were.
        count: How many inputs this load has.
        client: Asks the cluster.
    """
    rows = counted(manifest.sent_count, "record")
    if not manifest.is_done:
        raise LoadRefusedError(
            f"a load of this input into {manifest.topic!r} stopped after {rows} ({file.path}): continue it with "
            "--resume, or start over with --restart"
        )
    if not again or _is_another_topic(manifest, client):
        return
    if again < count:
        raise LoadRefusedError(
            f"{again:,} of {counted(count, 'file')} are already loaded into {manifest.topic!r} at {manifest.done_at} "
            f"({file.path}): name only the others. --restart sends the rows of all again"
        )
    raise LoadRefusedError(
        f"already loaded into {manifest.topic!r} at {manifest.done_at}: {rows} ({file.path}). --restart sends them "
        "again"
    )


def _is_another_topic(manifest: Manifest, client: ClusterClient) -> bool:
    """Return whether the topic was deleted since, and created again."""
    cluster = client.metadata([manifest.topic])
    topic_id = cluster.topics[0].topic_id
    ids = ((manifest.cluster_id, cluster.cluster_id), (manifest.topic_id, topic_id and str(topic_id)))
    return any(before is not None and now is not None and before != now for before, now in ids)


def _difference(manifest: Manifest, inputs: list[dict[str, Any]]) -> str:
    if len(manifest.inputs) != len(inputs):
        return f"{len(inputs)} files instead of {len(manifest.inputs)}"
    before, now = next(pair for pair in zip(manifest.inputs, inputs, strict=True) if pair[0] != pair[1])
    names = [name for name in before if before[name] != now[name]]
    return f"{now['path']} has another {', '.join(names)}"


# -- bad rows ----------------------------------------------------------------------------------------------------------


def check_on_error(on_error: str) -> None:
    """Check the argument. Raises ConfigError."""
    kind, _, target = on_error.partition("=")
    if on_error not in ("stop", "skip") and (kind != "dead-letter" or target in ("", TOPIC_PREFIX)):
        raise ConfigError(f"--on-error {on_error!r}: use stop, skip, dead-letter=FILE or dead-letter=topic:NAME")
    if kind != "dead-letter" or target.startswith(TOPIC_PREFIX):
        return
    directory = os.path.dirname(os.path.abspath(target))
    if os.path.isdir(target) or not os.access(target if os.path.exists(target) else directory, os.W_OK):
        raise ConfigError(f"the dead-letter file {target} cannot be written: is {directory} a directory of yours?")


def check_report(options: argparse.Namespace) -> None:
    """Check --report before hours of work. Raises ConfigError."""
    if options.report is None:
        return
    directory = os.path.dirname(os.path.abspath(options.report))
    if not os.access(directory, os.W_OK) or os.path.isdir(options.report):
        raise ConfigError(f"--report {options.report} cannot be written: is {directory} a directory of yours?")
    directory = os.path.realpath(directory)
    for name in filter(os.path.isdir, options.files):
        folder = os.path.realpath(name)
        if os.path.commonpath([folder, directory]) == folder:
            raise ConfigError(
                f"--report {options.report} would be a file of the next load of {name}: name another place"
            )


def make_sink(
    on_error: str,
    producer_options: dict[str, Any] | None,
    suffix: str,
    manifest: Manifest | None,
    progress: Quiet,
    *,
    can_resume: bool = True,
) -> BadRowSink:
    """Return where bad rows go.

    Args:
        on_error: The argument.
        producer_options: The options of the producer for a topic of bad rows; None: the load's own producer sends them.
        suffix: The suffix of the file of bad rows.
        manifest: To continue from; None: the load begins.
        progress: Shows what is left out.
        can_resume: Whether --resume continues the load.
    """
    check_on_error(on_error)
    target = on_error.partition("=")[2]
    if on_error == "stop":
        return Stop(can_resume=can_resume)
    if on_error == "skip":
        return Skip(progress.show)
    if target.startswith(TOPIC_PREFIX):
        producer = None if producer_options is None else Producer(producer_options)
        return DeadLetterTopic(producer, target.removeprefix(TOPIC_PREFIX))
    return DeadLetterFile(os.path.abspath(target) + suffix, None if manifest is None else manifest.dead_letter_bytes)


def dead_letter_file(options: argparse.Namespace) -> str | None:
    """Return the path of the file of bad rows; None if there is none."""
    kind, _, target = options.on_error.partition("=")
    is_file = kind == "dead-letter" and not target.startswith(TOPIC_PREFIX)
    return os.path.abspath(target) if is_file else None


# -- the topics --------------------------------------------------------------------------------------------------------


def check_topics(client: ClusterClient, options: argparse.Namespace, producer_options: dict[str, Any]) -> None:
    """Find the topic of dead letters, and find or create the topic. Raises LoadError, KafkaError."""
    _check_delivery(options_for_topic(producer_options, options.topic))
    kind, _, target = options.on_error.partition("=")
    if kind == "dead-letter" and target.startswith(TOPIC_PREFIX):
        _check_dead_letter_topic(client, target.removeprefix(TOPIC_PREFIX))
    _check_topic(client, options.topic, options.create_topic, options.partition)


def _check_dead_letter_topic(client: ClusterClient, name: str) -> None:
    try:
        demand_topic(client, name)
    except TopicNotFoundError as error:
        raise LoadError(
            f"the dead-letter topic {name!r} does not exist: create it with `kafkaprod topics create {name}`"
        ) from error


def _check_topic(client: ClusterClient, topic: str, partitions: int | None, partition: int | None) -> None:
    try:
        find_topic(client, topic)
    except BrokerError as error:
        if not is_missing(error):
            raise
        if partitions is None:
            raise LoadError(
                f"topic {topic!r} does not exist: create it with --create-topic [PARTITIONS], or with "
                f"`kafkaprod topics create {topic}`"
            ) from error
        if partition is not None and 0 < partitions <= partition:
            raise ConfigError(
                f"--create-topic {partitions} makes partitions 0 to {partitions - 1}, but no partition {partition}"
            ) from error
        create_topic(client, topic, partitions)


def _retention_ms(topic: Mapping[str, str | None]) -> int | None:
    """Return how long a topic with these options keeps records by the timestamps that a load gives them."""
    is_by_age = "delete" in (topic.get("cleanup.policy") or "")
    if not is_by_age or topic.get("message.timestamp.type") == "LogAppendTime":
        return None
    kept_ms = int(topic.get("retention.ms") or -1)
    return None if kept_ms < 0 else kept_ms


def _check_delivery(producer_options: dict[str, Any]) -> ProducerConfig:
    """Return the configuration of the load's producer. Raises ConfigError."""
    config = make_config(producer_options)
    if config.acks != -1 or not config.enable_idempotence:
        raise ConfigError("a load needs acks=all and enable_idempotence=true: else records may be lost or sent twice")
    return config


def load_options(
    client: ClusterClient,
    options: argparse.Namespace,
    producer_options: dict[str, Any],
    fingerprint: dict[str, Any],
    manifest: Manifest | None,
    listing: Listing,
) -> LoadOptions:
    """Return the options of the load, which fit those of the topic. Raises ConfigError, LoadError."""
    producer_options = options_for_topic(producer_options, options.topic)  # its batch_size is the load's to choose
    config = _check_delivery(producer_options)
    try:
        topic = topic_options(client, options.topic)
    except KafkaError:  # no right to read topic options: use our limits, the broker refuses larger records
        topic = {}
    limit, where = config.max_request_size, "max_request_size"
    broker_limit = int(topic.get("max.message.bytes") or limit)
    if broker_limit < limit and config.compression_type == "none":
        limit, where = broker_limit, "the topic's max.message.bytes"
    defaults: dict[str, Any] = {
        "batch_size": min(
            max(config.batch_size, MAX_BATCH_BYTES // 2),
            broker_limit,
            producer_options.get("max_batch_size", broker_limit),
        ),
        "max_block_ms": max(config.max_block_ms, config.delivery_timeout_ms),
    }
    needs_keys = "compact" in (topic.get("cleanup.policy") or "")
    if manifest is not None:  # the first run's limits apply: other bad rows would shift every row number
        try:
            limit, needs_keys = int(manifest.options["record_limit"]), bool(manifest.options["needs_keys"])
        except (KeyError, TypeError, ValueError) as error:
            raise LoadError("the manifest is damaged: it has no record_limit. Start over with --restart") from error
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
        expected=expected_of(options),
        listing=listing,
        known_files=tuple(filter(None, [dead_letter_file(options)])),
        retention_ms=_retention_ms(topic),
    )
