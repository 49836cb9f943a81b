"""`kafkaprod cluster`: run an embedded cluster until its input or a signal ends it; lines on stdin break things."""

from __future__ import annotations

import argparse
import os
import queue
import signal
import sys
import threading

from kafkaprod.broker.embedding.cluster import EmbeddedCluster
from kafkaprod.broker.embedding.embedded import EmbeddedBrokerError
from kafkaprod.cli import broker_arguments
from kafkaprod.cli.main import examples
from kafkaprod.errors import ConfigError, KafkaError

_BROKER_COMMANDS = ("kill", "start", "stop", "pause", "resume", "restart", "isolate")
_LISTENERS_HELP = "several sockets of each broker in place of --port; the ports are the first one's, 0 for free ones"
_ADVERTISED_HELP = "what clients connect to, proxies say, as for `kafkaprod broker`; once for each broker"
_COMMANDS = (
    f"{', '.join(_BROKER_COMMANDS)} with a broker's id or `controller`; add [rack]; remove ID; heal; status; history"
)


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser(
        "cluster",
        help="run several brokers for tests of failures",
        description=f"A cluster of brokers on this machine. Lines on standard input: {_COMMANDS}.",
        epilog=examples(
            "kafkaprod cluster --brokers 3 --topic orders:6",
            "kafkaprod cluster --brokers 3 --racks a,b,c --port 9092 --data-dir /tmp/cluster",
            "kafkaprod cluster --listeners PLAINTEXT://:9092,SASL_PLAINTEXT://:9192 --sasl-users users.txt",
        ),
    )
    add = parser.add_argument
    add("--brokers", type=int, default=3, metavar="N", help="how many (default: %(default)s)")
    add("--racks", default="", metavar="LIST", help="one for each broker: a,b,c")
    add("--topic", action="append", default=[], metavar="NAME[:PARTITIONS]", help="create it; repeatable")
    add("--replication-factor", type=int, metavar="N", help="of topics (default: 3, or all brokers)")
    add("--min-insync-replicas", type=int, default=1, metavar="N", help="of topics (default: %(default)s)")
    add("--port", type=int, default=0, metavar="N", help="of the first broker, the others follow; 0 for free ones")
    add("--listeners", metavar="LIST", help=_LISTENERS_HELP)
    add("--advertised", action="append", default=[], metavar="LIST", help=_ADVERTISED_HELP)
    add("--data-dir", metavar="DIR", help="kept; without it a temporary one is removed at the end")
    add("--log-dirs", type=int, default=1, metavar="N", help="log directories of each broker (default: %(default)s)")
    broker_arguments.add_arguments(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the cluster; exit code 0 when it was ended on purpose.

    Raises:
        KafkaError, OSError: It cannot start.
    """
    cluster = EmbeddedCluster(
        options.brokers,
        racks=tuple(filter(None, options.racks.split(","))),
        topics=dict(map(_parse_topic, options.topic)),
        replication_factor=options.replication_factor,
        min_insync_replicas=options.min_insync_replicas,
        ports=tuple(range(options.port, options.port + options.brokers)) if options.port else (),
        listeners=options.listeners,
        advertised=options.advertised,
        sasl_users=broker_arguments.users(options),
        tls_files=broker_arguments.tls_files(options),
        options=broker_arguments.kafka_options(options),
        data_dir=options.data_dir,
        log_dirs=options.log_dirs,
        ui=False if options.ui is None else options.ui,
    )
    over: queue.SimpleQueue[None] = queue.SimpleQueue()  # its put() is right in a signal handler, that of an Event not
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: over.put(None))
    with cluster:
        print(f"listening on {cluster.bootstrap_servers}, data in {cluster.data_dir}", flush=True)
        for name, addresses in cluster.listeners.items() if options.listeners else ():
            print(f"  {name}://{addresses}", flush=True)
        if options.ui is not None:
            print(f"  page: {cluster.ui_url}", file=sys.stderr, flush=True)
        print(
            f"`kill {os.getpid()}` stops it, as does Ctrl-C in its terminal. Lines: {_COMMANDS}",
            file=sys.stderr,
            flush=True,
        )
        threading.Thread(target=_obey, args=(cluster,), daemon=True).start()
        over.get()
    return 0


def _obey(cluster: EmbeddedCluster) -> None:
    for line in sys.stdin:
        try:
            print(_do(cluster, line.split()), flush=True)
        except (KafkaError, ValueError) as error:
            print(f"{error}", file=sys.stderr, flush=True)


def _do(cluster: EmbeddedCluster, words: list[str]) -> str:
    """Obey a line; return what to print.

    Raises:
        EmbeddedBrokerError: It cannot be done.
        ValueError: There is no such broker.
    """
    match words:
        case ["status"]:
            return str(cluster.view())
        case ["history"]:
            return "\n".join(cluster.history())
        case ["heal"]:
            cluster.heal()
        case ["add"] | ["add", _]:
            broker = cluster.add_broker(*words[1:])
            return f"broker {broker.id} listens on {broker.address}"
        case ["remove", name]:
            cluster.remove_broker(_broker_id(name))
        case ["isolate", name]:
            cluster.isolate(cluster.broker(_broker_id(name)).id)
        case [command, name] if command in _BROKER_COMMANDS:
            process = cluster.controller if name == "controller" else cluster.broker(_broker_id(name))
            getattr(process, command)()
        case _:
            raise EmbeddedBrokerError(f"{' '.join(words)!r} is not one of: {_COMMANDS}")
    return "done"


def _broker_id(text: str) -> int:
    if not text.isdecimal():
        raise EmbeddedBrokerError(f"{text!r} is not the id of a broker")
    return int(text)


def _parse_topic(text: str) -> tuple[str, int]:
    name, _, count = text.partition(":")
    if not name or (count and not count.isdecimal()):
        raise ConfigError(f"--topic {text} is not NAME or NAME:PARTITIONS")
    return name, int(count or 1)
