"""`kafkaprod transactions`: list and describe transactions, find those that hang, abort one."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from kafkaprod.admin.client import ClusterClient
from kafkaprod.admin.topics import list_topics
from kafkaprod.admin.transactions import (
    ProducerInfo,
    abort_in_partition,
    describe_producers,
    describe_transaction,
    find_hanging,
    list_transactions,
)
from kafkaprod.cli.main import examples
from kafkaprod.cli.producer_arguments import add_cluster_arguments, open_cluster, read_options, whole
from kafkaprod.clock import SystemClock
from kafkaprod.errors import ConfigError
from kafkaprod.text import counted, printable

_MINUTE_MS = 60_000


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the subcommand and its own ones."""
    parser = subparsers.add_parser(
        "transactions",
        help="list, describe, find hanging, abort transactions",
        epilog=examples(
            "kafkaprod transactions list -b localhost:9092 --state Ongoing",
            "kafkaprod transactions describe my-id -b localhost:9092",
            "kafkaprod transactions producers orders -p 0 -b localhost:9092",
            "kafkaprod transactions find-hanging -t orders -b localhost:9092",
            "kafkaprod transactions abort orders -p 0 --start-offset 1234 -b localhost:9092",
        ),
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    _add_list(actions)
    describing = actions.add_parser("describe", help="print the state of a transactional id")
    describing.add_argument("transactional_id", metavar="ID")
    producers = actions.add_parser("producers", help="print the producers that a partition remembers")
    producers.add_argument("topic", metavar="TOPIC")
    producers.add_argument("-p", "--partition", type=whole, required=True, metavar="N")
    _add_find_hanging(actions)
    _add_abort(actions)
    for name, work in (
        ("list", _list),
        ("describe", _describe),
        ("producers", _producers),
        ("find-hanging", _find_hanging),
        ("abort", _abort),
    ):
        action = actions.choices[name]
        add_cluster_arguments(action)
        action.add_argument("--json", action="store_true", help="print JSON")
        action.set_defaults(run=run, work=work)


def _add_list(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    listing = actions.add_parser("list", help="print transactional ids, their coordinators, producers and states")
    listing.add_argument(
        "--state", action="append", default=[], metavar="STATE", help="only this state, such as Ongoing; repeatable"
    )
    listing.add_argument(
        "--producer-id", type=whole, action="append", default=[], metavar="N", help="only this producer; repeatable"
    )
    listing.add_argument(
        "--longer-than", type=whole, default=-1, metavar="MS", help="only transactions that are open for longer"
    )
    listing.add_argument(
        "--id-pattern",
        metavar="REGEX",
        help="only ids that match this regular expression of RE2 as a whole (Kafka 4.1)",
    )


def _add_find_hanging(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    finding = actions.add_parser(
        "find-hanging",
        help="print open transactions that no coordinator will end",
        description="Such a transaction holds back readers of committed data for ever. End it with `abort`.",
    )
    finding.add_argument("-t", "--topic", action="append", metavar="TOPIC", help="repeatable (default: all topics)")
    finding.add_argument(
        "--max-transaction-timeout",
        type=whole,
        default=15,
        metavar="MINUTES",
        help="the brokers' transaction.max.timeout.ms; younger ones are left alone (default: %(default)s)",
    )


def _add_abort(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    aborting = actions.add_parser(
        "abort",
        help="abort a hanging transaction in a partition",
        description="The coordinator is not informed: use it for transactions that `find-hanging` shows.",
    )
    aborting.add_argument("topic", metavar="TOPIC")
    aborting.add_argument("-p", "--partition", type=whole, required=True, metavar="N")
    aborting.add_argument(
        "--start-offset", type=whole, required=True, metavar="N", help="of the transaction's first record"
    )


def run(options: argparse.Namespace) -> int:
    """Do what the action names. Raises KafkaError."""
    with open_cluster(options, read_options(options)) as client:
        options.work(client, options)
    return 0


def _list(client: ClusterClient, options: argparse.Namespace) -> None:
    found = list_transactions(
        client,
        states=options.state,
        producer_ids=options.producer_id,
        longer_than_ms=options.longer_than,
        id_pattern=options.id_pattern,
    )
    _print(options, [asdict(listing) for listing in found])


def _describe(client: ClusterClient, options: argparse.Namespace) -> None:
    info = describe_transaction(client, options.transactional_id)
    is_open = info.start_ms >= 0 and info.partitions
    shown = asdict(info) | {
        "open_ms": SystemClock().wall_ms() - info.start_ms if is_open else None,
        "partitions": [f"{topic}-{partition}" for topic, partition in info.partitions],
    }
    if options.json:
        print(json.dumps(shown))
        return
    for name, value in shown.items():
        text = " ".join(value) if isinstance(value, list) else value
        print(f"{name:<17} {'-' if text in (None, '') else printable(str(text))}")


def _producers(client: ClusterClient, options: argparse.Namespace) -> None:
    _print(options, map(_as_row, describe_producers(client, options.topic, options.partition)))


def _find_hanging(client: ClusterClient, options: argparse.Namespace) -> None:
    topics = options.topic or [topic.name for topic in list_topics(client)]
    max_timeout_ms = options.max_transaction_timeout * _MINUTE_MS
    found = [_as_row(each) for each in find_hanging(client, topics, max_timeout_ms, SystemClock().wall_ms())]
    _print(options, found)
    if not found:
        print(f"no transaction hangs in {counted(len(topics), 'topic')}", file=sys.stderr)


def _abort(client: ClusterClient, options: argparse.Namespace) -> None:
    producers = describe_producers(client, options.topic, options.partition)
    found = [producer for producer in producers if producer.transaction_start == options.start_offset]
    where = f"{options.topic}-{options.partition}"
    if not found:
        raise ConfigError(f"no open transaction of {where} begins at offset {options.start_offset}")
    abort_in_partition(client, found[0])
    if options.json:
        print(json.dumps({**_as_row(found[0]), "outcome": "aborted"}))
    else:
        print(printable(f"transaction of producer {found[0].producer_id} in {where} aborted"))


def _as_row(producer: ProducerInfo) -> dict[str, Any]:
    row = asdict(producer)
    topic, partition = row.pop("partition")
    return {"topic": topic, "partition": partition, **row}


def _print(options: argparse.Namespace, rows: Iterable[Mapping[str, Any]]) -> None:
    """Print rows as JSON, or as columns under their names."""
    shown = list(rows)
    if options.json:
        print(json.dumps(shown))
        return
    if not shown:
        return
    names = list(shown[0])
    lines = [names, *([printable(str(row[name])) for name in names] for row in shown)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        print("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip())
