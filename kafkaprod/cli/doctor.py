"""`kafkaprod doctor`: connect, compare the configuration with cluster and topic, report what will go wrong."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from typing import Final

from kafkaprod.admin.checkup import ClusterFacts, Finding, Level, examine
from kafkaprod.admin.client import ClusterClient
from kafkaprod.admin.producer_ids import new_producer_id
from kafkaprod.admin.topics import find_topic, topic_options
from kafkaprod.admin.transaction_checkup import examine_transactions, query_transactions
from kafkaprod.cli.doctor_redaction import look_at_redaction
from kafkaprod.cli.doctor_spark import examine_spark, look_at_spark
from kafkaprod.cli.main import examples
from kafkaprod.cli.producer_arguments import (
    add_cluster_arguments,
    make_config,
    open_cluster,
    read_options,
    spelled_options,
)
from kafkaprod.cli.terminal import coloured
from kafkaprod.clock import SystemClock
from kafkaprod.config import ProducerConfig
from kafkaprod.errors import AuthenticationError, KafkaError
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.text import counted, printable

REACH_MS: Final = 5000
_COLOURS: Final = {Level.OK: "green", Level.WARNING: "yellow", Level.PROBLEM: "red"}


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser(
        "doctor",
        help="find what will go wrong with a cluster, a topic and your options",
        description="Connects, compares the effective configuration with the cluster and the topic, and reports what "
        "will go wrong and what to change; with a transactional.id among the options, also what transactions need. "
        "Exit code 1 if something will go wrong.",
        epilog=examples(
            "kafkaprod doctor -b localhost:9092 -t orders",
            "kafkaprod doctor -F producer.properties -t orders --json",
            "kafkaprod doctor -b localhost:9092 -t orders -X transactional.id=orders-0",
            "kafkaprod doctor -b localhost:9092 --spark",
        ),
    )
    parser.add_argument("-t", "--topic", help="the topic that you will write to")
    parser.add_argument(
        "--spark",
        action="store_true",
        help="examine the Python that Spark's workers run, and what Spark would show of secrets, too",
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="print only warnings and problems")
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_cluster_arguments(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the findings; exit code 1 if one is a problem. Raises ConfigError."""
    producer_options = read_options(options)
    with open_cluster(options, producer_options) as client:
        findings = examine_cluster(client, make_config(producer_options), options.topic)
    if options.spark:
        findings += examine_spark(look_at_spark()) + look_at_redaction(spelled_options(options))
    if options.json:
        print(json.dumps([asdict(finding) | {"level": finding.level.name.lower()} for finding in findings]))
    else:
        for finding in findings:
            if finding.level is not Level.OK or not options.quiet:
                _show(finding)
    return int(any(finding.level is Level.PROBLEM for finding in findings))


def _show(finding: Finding) -> None:
    level = f"{finding.level.value:<8}"
    print(f"{coloured(level, _COLOURS[finding.level], sys.stdout)} {finding.subject}: {printable(finding.text)}")
    if finding.remedy:
        print(f"{'':<8} {'':<{len(finding.subject)}}  -> {printable(finding.remedy)}")


def examine_cluster(client: ClusterClient, config: ProducerConfig, topic_name: str | None) -> list[Finding]:
    """Query the cluster, and examine the answers."""
    refusals: list[str] = []
    topic = topic_config = None
    try:
        cluster = client.metadata([])
    except AuthenticationError as error:
        return [Finding(Level.PROBLEM, "login", str(error), "correct the credentials or sasl_mechanism")]
    except KafkaError as error:
        remedy = "check the address, that a broker listens there, and security_protocol"
        return [Finding(Level.PROBLEM, "connection", str(error), remedy)]
    found = [
        Finding(Level.OK, "connection", f"cluster {cluster.cluster_id} answers"),
        *_reach(client, len(cluster.brokers)),
    ]
    if found[-1].level is Level.PROBLEM:
        return found
    if config.enable_idempotence and config.transactional_id is None:
        try:
            new_producer_id(client)
        except KafkaError as error:
            remedy = "every record will fail: do as the text says, or ask who runs the cluster"
            found.append(Finding(Level.PROBLEM, "producer id", str(error), remedy))
    if topic_name is not None:
        try:
            topic = find_topic(client, topic_name, operations=True)
        except KafkaError as error:
            how = f"kafkaprod topics create {topic_name}"
            return [
                *found,
                Finding(Level.PROBLEM, "topic", str(error), f"create it ({how}), or grant DESCRIBE on it"),
            ]
        try:
            topic_config = topic_options(client, topic_name)
        except KafkaError as error:
            refusals.append(f"the topic's options cannot be read: {error}")
    facts = ClusterFacts(len(cluster.brokers), client.api_versions(ApiKey.PRODUCE), topic, topic_config, refusals)
    findings = [*found, *examine(config, facts)]
    if config.transactional_id is not None:
        transactions = query_transactions(client, config, topic_name)
        findings += examine_transactions(config, transactions, SystemClock().wall_ms())
    return findings


def _reach(client: ClusterClient, broker_count: int) -> list[Finding]:
    """Connect to every broker at the address that the cluster names; return a finding if some cannot be reached."""
    failed = client.unreachable(REACH_MS)
    if not failed:
        return []
    text = f"{len(failed)} of {counted(broker_count, 'broker')} cannot be reached: " + "; ".join(
        map(str, failed.values())
    )
    level = Level.PROBLEM if len(failed) == broker_count else Level.WARNING
    remedy = "set advertised.listeners of the brokers to addresses that this machine reaches, or bring them back"
    return [Finding(level, "brokers", text, remedy)]
