"""`kafkaprod topics`: list, create, describe and delete topics."""

from __future__ import annotations

import argparse
import json
from typing import Any

from kafkaprod.admin.client import ClusterClient
from kafkaprod.admin.topics import (
    EARLIEST,
    LATEST,
    TopicInfo,
    create_topic,
    delete_topic,
    find_topic,
    list_topics,
    log_offsets,
    topic_options,
)
from kafkaprod.cli.main import examples
from kafkaprod.cli.producer_arguments import add_cluster_arguments, count, open_cluster, read_options
from kafkaprod.errors import BrokerError, ConfigError
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.text import counted, printable


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the subcommand and its own ones."""
    parser = subparsers.add_parser(
        "topics",
        help="list, create, describe, delete topics",
        epilog=examples(
            "kafkaprod topics list -b localhost:9092",
            "kafkaprod topics create orders -b localhost:9092 --partitions 6 --config cleanup.policy=compact",
            "kafkaprod topics describe orders -b localhost:9092 --json",
            "kafkaprod topics delete orders -b localhost:9092 --if-exists",
        ),
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    listing = actions.add_parser("list", help="print the names of topics, one a line")
    listing.add_argument("--internal", action="store_true", help="include internal topics")
    making = actions.add_parser("create", help="create a topic")
    making.add_argument("--partitions", type=count, default=-1, metavar="N", help="default: the broker's")
    making.add_argument("--replication-factor", type=count, default=-1, metavar="N", help="default: the broker's")
    making.add_argument("--config", action="append", default=[], metavar="NAME=VALUE", help="an option; repeatable")
    making.add_argument("--if-not-exists", action="store_true", help="succeed if the topic already exists")
    describing = actions.add_parser("describe", help="print partitions, leaders, offsets, options")
    deleting = actions.add_parser("delete", help="delete a topic and its records")
    deleting.add_argument("--if-exists", action="store_true", help="succeed if the topic does not exist")
    for action in (making, describing, deleting):
        action.add_argument("topic", nargs="?", help="name of the topic")
        action.add_argument(
            "-t", "--topic", dest="topic_flag", metavar="TOPIC", help="the same, as Kafka's tools spell it"
        )
    for action in (making, deleting):
        action.add_argument("-q", "--quiet", action="store_true", help="print only errors")
    for action in (listing, describing):
        action.add_argument(
            "-q", "--quiet", action="store_true", help="no effect: nothing but the result is printed without it, too"
        )
    for action, work in ((listing, _list), (making, _create), (describing, _describe), (deleting, _delete)):
        add_cluster_arguments(action, asks_only=action in (listing, describing))
        action.add_argument("--json", action="store_true", help="print JSON")
        action.set_defaults(run=run, work=work)


def run(options: argparse.Namespace) -> int:
    """Do what the action names. Raises KafkaError."""
    if options.work is not _list:
        if (options.topic is None) == (options.topic_flag is None):
            raise ConfigError(f"name one topic: kafkaprod topics {options.action} TOPIC")
        options.topic = options.topic or options.topic_flag
    with open_cluster(options, read_options(options)) as client:
        options.work(client, options)
    return 0


def _list(client: ClusterClient, options: argparse.Namespace) -> None:
    topics = [topic for topic in list_topics(client) if options.internal or not topic.is_internal]
    if options.json:
        print(json.dumps([{"name": topic.name, "partitions": len(topic.partitions)} for topic in topics]))
    else:
        for topic in topics:
            print(printable(topic.name))


def _create(client: ClusterClient, options: argparse.Namespace) -> None:
    configs = {}
    for text in options.config:
        name, equals, value = text.partition("=")
        if not equals:
            raise ConfigError(f"--config {text!r} is not NAME=VALUE")
        configs[name] = value
    try:
        create_topic(client, options.topic, options.partitions, options.replication_factor, configs)
    except BrokerError as error:
        if not (options.if_not_exists and error.code == ErrorCode.TOPIC_ALREADY_EXISTS):
            raise
        _report(options, "exists")
        return
    partitions = len(find_topic(client, options.topic).partitions)
    _report(options, "created", f" with {counted(partitions, 'partition')}", partitions=partitions)


def _delete(client: ClusterClient, options: argparse.Namespace) -> None:
    try:
        delete_topic(client, options.topic)
    except BrokerError as error:
        if not (options.if_exists and error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
            raise
        _report(options, "does not exist")
        return
    _report(options, "deleted")


def _report(options: argparse.Namespace, outcome: str, more: str = "", **facts: int) -> None:
    if options.json:
        print(json.dumps({"name": options.topic, "outcome": outcome, **facts}))
    elif not options.quiet:
        print(f"topic {printable(options.topic)} {outcome}{more}")


def _describe(client: ClusterClient, options: argparse.Namespace) -> None:
    topic = find_topic(client, options.topic)
    starts = log_offsets(client, topic.name, EARLIEST)
    ends = log_offsets(client, topic.name, LATEST)
    configs = topic_options(client, topic.name)
    if options.json:
        print(json.dumps(_as_dict(topic, starts, ends, configs)))
        return
    partitions = counted(len(topic.partitions), "partition")
    print(f"topic {printable(topic.name)}, id {topic.topic_id or 'unknown'}, {partitions}")
    for partition in topic.partitions:
        number = partition.number
        print(
            f"  {number:>4}  leader {partition.leader}  replicas {_nodes(partition.replicas)}  "
            f"in sync {_nodes(partition.in_sync)}  offsets {starts[number]}..{ends[number]}"
        )
    for name, value in sorted(configs.items()):
        print(printable(f"  {name}={value}"))


def _nodes(nodes: tuple[int, ...]) -> str:
    return ",".join(map(str, nodes))


def _as_dict(
    topic: TopicInfo, starts: dict[int, int], ends: dict[int, int], configs: dict[str, str | None]
) -> dict[str, Any]:
    partitions = [
        {
            "partition": p.number,
            "leader": p.leader,
            "replicas": list(p.replicas),
            "in_sync": list(p.in_sync),
            "start_offset": starts[p.number],
            "end_offset": ends[p.number],
        }
        for p in topic.partitions
    ]
    return {"name": topic.name, "id": topic.topic_id, "partitions": partitions, "options": configs}
