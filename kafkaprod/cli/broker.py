"""`kafkaprod broker`: run the embedded broker until SIGTERM or SIGINT, then shut down cleanly."""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import signal
import sys
import tempfile

from kafkaprod.broker.calls.request_log import RequestLog
from kafkaprod.broker.config import BrokerConfig
from kafkaprod.broker.coordinator.member import GroupConfig
from kafkaprod.broker.embedding.child import broker_handlers
from kafkaprod.broker.embedding.control_socket import ControlSocket
from kafkaprod.broker.embedding.temporary import hold_temporary, sweep
from kafkaprod.broker.embedding.window import LOOPBACK, Window, checked_port
from kafkaprod.broker.listeners import parse_listeners
from kafkaprod.broker.server.calm_log import keep_calm
from kafkaprod.broker.server.process import ENDS, prepare_process, stop_on_signals
from kafkaprod.broker.server.server import BrokerServer
from kafkaprod.broker.server.tls import server_context
from kafkaprod.broker.settings.broker_options import with_options
from kafkaprod.broker.storage.log.group_commit import parse_policy
from kafkaprod.cli import broker_arguments
from kafkaprod.cli.main import examples
from kafkaprod.errors import ConfigError
from kafkaprod.text import address_text

_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}
"""Where clients of this machine reach a socket that listens on all addresses."""
_LISTENERS_HELP = "several sockets in place of --host and --port: PLAINTEXT://:9092,SSL://:9093,SASL_SSL://:9094"
_ADVERTISED_HELP = "what clients connect to, a proxy say: HOST:PORT, or NAME://HOST:PORT for each listener"
_UI_HOST_HELP = "address of the page (default: %(default)s); others than this machine's show all records to the network"
_CONTROL_HELP = "a Unix socket that takes commands: lines of JSON, as the page and `EmbeddedBroker` send them"
_DATA_DIR_HELP = "holds topics and offsets, created if missing; without it a temporary one is removed at the end"
_LOG_DIR_HELP = "a further directory for partitions, which are spread over all; needs --data-dir; repeatable"


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser(
        "broker",
        help="run a broker for development and tests",
        description="A broker on one machine with a durable log. Not a replacement for Apache Kafka.",
        epilog=examples(
            "kafkaprod broker --topic orders:3",
            "kafkaprod broker --data-dir /tmp/kafka --topic orders:3",
            "kafkaprod broker --data-dir /tmp/kafka --port 0 --sasl-users users.txt",
        ),
    )
    add = parser.add_argument
    add("--data-dir", metavar="DIR", help=_DATA_DIR_HELP)
    add("--log-dir", action="append", default=[], metavar="DIR", help=_LOG_DIR_HELP)
    add("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    add("--port", type=int, default=9092, help="port to listen on, 0 for a free one (default: %(default)s)")
    add("--listeners", metavar="LIST", help=_LISTENERS_HELP)
    add("--advertised-host", metavar="HOST", help="host name that clients connect to (default: --host)")
    add("--advertised", default="", metavar="LIST", help=_ADVERTISED_HELP)
    add("--node-id", type=int, default=0, metavar="N", help="id of this broker (default: %(default)s)")
    add("--topic", action="append", default=[], metavar="NAME[:PARTITIONS]", help="create it if missing; repeatable")
    add(
        "--auto-create-topics",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="create topics when clients first use them (default: yes)",
    )
    add("--num-partitions", type=int, default=1, metavar="N", help="of new topics (default: %(default)s)")
    add("--flush", default="interval:1000", metavar="POLICY", help="each, interval:MS or never (default: %(default)s)")
    add(
        "--rebalance-delay-ms",
        type=int,
        default=3_000,
        metavar="MS",
        help="time that new groups wait for members (default: %(default)s)",
    )
    broker_arguments.add_arguments(parser)
    add("--ui-host", default=LOOPBACK, metavar="HOST", help=_UI_HOST_HELP)
    add("--control", metavar="PATH", help=_CONTROL_HELP)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Serve until a signal comes; exit code 0 after a clean shutdown.

    Raises:
        KafkaError, OSError: The broker cannot start.
    """
    if options.data_dir is not None:
        return _serve(options, options.data_dir)
    with tempfile.TemporaryDirectory(prefix="kafkaprod-broker-") as directory:
        sweep({os.path.dirname(directory)})
        hold_temporary(directory)
        return _serve(options, os.path.join(directory, "data"))


def _run_shown(server: BrokerServer, options: argparse.Namespace, address: str) -> int:
    """Run a broker with its control socket and its page, if they are wanted; return the exit code."""
    with contextlib.ExitStack() as ends:
        if options.control is not None or options.ui is not None:
            server.broker.request_log = RequestLog()
        if options.control is not None:
            ends.callback(ControlSocket(options.control, broker_handlers(server)).close)
        port = checked_port(options.ui)
        if port is not None:
            directory = ends.enter_context(tempfile.TemporaryDirectory(prefix="kafkaprod-ui-"))
            path = os.path.join(directory, "broker")
            ends.callback(ControlSocket(path, broker_handlers(server)).close)
            window = Window({str(options.node_id): path}, port, options.ui_host)
            window.start()
            ends.callback(window.close)
            print(f"page: {window.url}", file=sys.stderr, flush=True)
            window.describe(address, {str(options.node_id): address})
            if options.ui_host != LOOPBACK:
                print("Whoever has the page's address can read all records and send some.", file=sys.stderr, flush=True)
        return 0 if server.run() else 1


def _serve(options: argparse.Namespace, data_dir: str) -> int:
    if os.path.exists(data_dir) and not os.path.isdir(data_dir):
        raise ConfigError(f"--data-dir {data_dir} is not a directory")
    if options.log_dir and options.data_dir is None:
        raise ConfigError("--log-dir needs --data-dir: topics must not be forgotten where their records are kept")
    files = broker_arguments.tls_files(options)
    config = BrokerConfig(
        data_dir=data_dir,
        log_dirs=tuple(options.log_dir),
        host=options.host,
        port=options.port,
        listeners=parse_listeners(options.listeners, options.host) if options.listeners else (),
        advertised_host=options.advertised_host,
        advertised=options.advertised,
        node_id=options.node_id,
        auto_create_topics=options.auto_create_topics,
        num_partitions=options.num_partitions,
        flush_policy=parse_policy(options.flush),
        groups=GroupConfig(initial_rebalance_delay_ms=options.rebalance_delay_ms),
        topics=dict(map(_parse_topic, options.topic)),
        tls=None if files is None else server_context(*files),
        sasl_users=broker_arguments.users(options),
    )
    config = with_options(config, broker_arguments.kafka_options(options))
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logging.getLogger("kafkaprod").handlers = [handler]
    keep_calm(logging.getLogger("kafkaprod"))
    prepare_process()
    server = BrokerServer(config)
    stop_on_signals(server.stop, (*ENDS, signal.SIGINT))
    host, port = next(iter(server.bound.values()))
    client_host, client_port = server.broker.endpoint
    fate = " (removed at the end; --data-dir keeps it)" if options.data_dir is None else ""
    print(
        f"listening on {address_text(host, port)}, data in {', '.join([config.data_dir, *config.log_dirs])}{fate}",
        flush=True,
    )
    for name, endpoint in server.bound.items() if config.listeners else ():
        print(f"  {name}://{address_text(endpoint.host, endpoint.port)}", flush=True)
    print(
        f"`kill {os.getpid()}` stops it, as does Ctrl-C in its terminal. Try: kafkaprod topics list "
        f"-b {address_text(_EVERYWHERE.get(client_host, client_host), client_port)}",
        file=sys.stderr,
        flush=True,
    )
    if client_host in _EVERYWHERE:
        print(
            f"Clients on other machines get {client_host} and would connect to themselves: set --advertised-host.",
            file=sys.stderr,
            flush=True,
        )
    return _run_shown(server, options, address_text(_EVERYWHERE.get(client_host, client_host), client_port))


def _parse_topic(text: str) -> tuple[str, int]:
    name, colon, count = text.rpartition(":")
    if not colon:
        return text, 1
    if not count.isdecimal():
        raise ConfigError(f"--topic {text!r}: {count!r} is not a number of partitions")
    return name, int(count)
