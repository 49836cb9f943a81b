"""The processes of an embedded cluster after the fork: a broker, or the controller."""

from __future__ import annotations

import socket
import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from kafkaprod.broker.calls.request_log import RequestLog
from kafkaprod.broker.cluster import clustered
from kafkaprod.broker.cluster_config import ClusterConfig
from kafkaprod.broker.config import BrokerConfig
from kafkaprod.broker.controller.cluster_view import COMMANDS, asked_of, describe, outcome_of
from kafkaprod.broker.controller.context import MIN_ISR_OPTION, UNCLEAN_OPTION
from kafkaprod.broker.controller.process import ControllerConfig, ControllerProcess
from kafkaprod.broker.embedding.child import broker_handlers, parse_config
from kafkaprod.broker.embedding.children import HostChannel, in_loop
from kafkaprod.broker.embedding.cluster_changes import send_signal
from kafkaprod.broker.embedding.commands import Command, CommandHandler
from kafkaprod.broker.embedding.control_socket import ControlSocket
from kafkaprod.broker.metadata.records import RECORD_TYPES
from kafkaprod.broker.server.process import prepare_process, stop_on_signals
from kafkaprod.broker.server.router import announced_versions
from kafkaprod.broker.server.server import BrokerServer
from kafkaprod.broker.settings.broker_options import with_options
from kafkaprod.broker.storage.log.group_commit import parse_policy
from kafkaprod.errors import KafkaError
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.messages import REQUESTS, RESPONSES
from kafkaprod.storage.disk import UnsyncedDisk
from kafkaprod.text import address_text

PRELOADED = (clustered,)
"""What brokers of a cluster import late: the host has it before it forks."""

_SENT_AT_START = {
    ApiKey.API_VERSIONS: 4,
    ApiKey.BROKER_REGISTRATION: 3,
    ApiKey.BROKER_HEARTBEAT: 1,
    ApiKey.REPLICATE_METADATA: 0,
    ApiKey.ALLOCATE_PRODUCER_IDS: 0,
    ApiKey.FETCH: 18,
    ApiKey.ALTER_PARTITION: 3,
}
"""What a broker and the others send each other until it is in sync: API -> version."""


def prepare_to_fork() -> None:
    """Do once what each process would do at its start: load the messages, compile what reads and writes them."""
    announced_versions()
    for api, version in _SENT_AT_START.items():
        for message in (REQUESTS[api], RESPONSES[api]):
            message.codec(version, message.is_flexible(version))
    for record, (_, version) in RECORD_TYPES.items():
        record.codec(version, True)


def run_broker(options: Command, sock: socket.socket) -> int:
    """Run a broker until it is stopped; return the exit code.

    Args:
        options: Those of `child.parse_config`, and under `cluster` the fields of `ClusterConfig`,
            and `journal` of `UnsyncedDisk`.
        sock: To the host.
    """
    channel = HostChannel(sock)
    prepare_process()
    cluster, journal = dict(options.pop("cluster")), options.pop("journal")
    control, records_requests = options.pop("control", None), options.get("record_requests")
    cluster["incarnation_id"] = uuid.UUID(cluster["incarnation_id"])
    try:
        config = replace(parse_config(options), cluster=ClusterConfig(**cluster), disk=UnsyncedDisk(journal))
        server = BrokerServer(config)
        if records_requests:
            server.broker.request_log = RequestLog()
        if control is not None:
            ControlSocket(control, broker_handlers(server))
    except (KafkaError, OSError, ValueError) as error:
        channel.say({"error": f"{type(error).__name__}: {error}"})
        return 1
    stop_on_signals(server.shut_down)
    channel.say({"listeners": {name: address_text(place.host, place.port) for name, place in server.bound.items()}})
    channel.obey(_broker_handlers(server), server.stop)
    return 0 if server.run() else 1


def run_controller(options: Command, sock: socket.socket) -> int:
    """Run the controller until it is stopped; return the exit code."""
    channel = HostChannel(sock)
    try:
        brokers = with_options(BrokerConfig(data_dir=options["data_dir"]), options["options"])
        process = ControllerProcess(
            ControllerConfig(
                directory=options["directory"],
                data_dir=options["data_dir"],
                cluster_id=options["cluster_id"],
                session_timeout_ms=options["session_timeout_ms"],
                seed=options["seed"],
                default_configs={
                    MIN_ISR_OPTION: str(options["min_insync_replicas"]),
                    UNCLEAN_OPTION: str(options["unclean_elections"]).lower(),
                },
                tokens=brokers.tokens,
                flush_policy=parse_policy(options["flush_policy"]),
                disk=UnsyncedDisk(),
                snapshot_bytes=brokers.metadata_snapshot_bytes,
                is_alone=options["is_alone"],
            )
        )
    except (KafkaError, OSError, ValueError) as error:
        channel.say({"error": f"{type(error).__name__}: {error}"})
        return 1
    stop_on_signals(process.stop)
    channel.say({})
    channel.obey(_controller_handlers(process), process.stop)
    process.run()
    return 0


def _broker_handlers(server: BrokerServer) -> dict[str, CommandHandler]:
    assert isinstance(server.broker.standing, clustered.Clustered)
    member = server.broker.standing.member

    def set_links(command: Command) -> None:
        in_loop(
            server.post, lambda: member.rules.replace(command["cuts"], command["delays_ms"], command["bytes_per_s"])
        )
        is_cut = str(server.broker.config.node_id) in command["without_clients"]
        in_loop(server.post, lambda: server.cut_clients(is_cut=is_cut))

    def fail_log_dir(command: Command) -> None:
        in_loop(server.post, lambda: server.broker.log_dirs.fail(command["path"]))

    return {
        **broker_handlers(server),
        "stop": lambda _: server.shut_down(),
        "links": set_links,
        "fail_log_dir": fail_log_dir,
        "replicas": lambda _: in_loop(server.post, member.describe_replicas),
    }


def _controller_handlers(process: ControllerProcess) -> dict[str, CommandHandler]:
    def set_links(command: Command) -> None:
        in_loop(
            process.post, lambda: process.rules.replace(command["cuts"], command["delays_ms"], command["bytes_per_s"])
        )

    return {
        **dict.fromkeys(COMMANDS, lambda command: _await_answer(process, command)),
        "stop": lambda _: process.stop(),
        "links": set_links,
        "view": lambda command: in_loop(process.post, lambda: _view(process, command.get("wake"))),
        "history": lambda _: {"lines": in_loop(process.post, lambda: list(process.history))},
    }


def _view(process: ControllerProcess, wake: str | None) -> Command:
    """Describe the cluster; have the socket at `wake` sent a signal once that is no longer so."""
    if wake is not None:
        process.call_at_change(wake, lambda: send_signal(wake))
    return describe(process.controller)


def _await_answer(process: ControllerProcess, command: Command) -> Command:
    """Ask the controller and return its answer."""

    def begin() -> Callable[[], list[Any]]:
        answers: list[Any] = []
        process.take(asked_of(process.controller.context.image, command, answers.append), answers.append)
        return lambda: answers

    answers = in_loop(process.post, begin)()
    in_loop(process.post, lambda: True)  # the turn that handled it is over
    code, message = outcome_of(answers[0])
    return {"code": code, "message": message}
