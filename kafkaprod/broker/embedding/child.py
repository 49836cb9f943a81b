"""The process an `EmbeddedBroker` runs in. It talks to its parent in JSON lines: options and commands on stdin,
answers on stdout.

    parent: {"data_dir": ..., "port": 0, ...}                                       child: {"host": ..., "port": ...}
    parent: {"command": "on", "api": 0, "kind": "delay", "value": 5, "times": 1}        child: {"rule": 1}
    parent: {"command": "client_metrics"}                                           child: {"pushes": [...]}
    parent: {"command": "clear"}   {"command": "fired_count", "api": 0}             child: {}   {"count": 3}
    parent: {"command": "topics"}   {"command": "records", ...}                     child: as in `log_reading`
    parent: {"command": "newest", ...}   {"command": "groups"}                       child: as in `log_search`
    parent: {"command": "stop"}
Each line of the parent has a number, which its answer repeats (`lines`); an answer {"error": text} means that it could
not. "stop", which has no answer, and the end of stdin stop the broker cleanly. The end of stdin without it means that
the parent is gone: then the broker removes its temporary directory.
"""

from __future__ import annotations

import base64
import logging
import os
import queue
import shutil
import signal
import sys
import threading
from typing import Any

from kafkaprod.broker.calls.faults import Fault, FaultKind, Faults, Selection
from kafkaprod.broker.calls.request_log import RequestLog
from kafkaprod.broker.config import DEFAULT_HOST, BrokerConfig
from kafkaprod.broker.coordinator.member import GroupConfig
from kafkaprod.broker.coordinator.transaction_coordinator import TransactionConfig
from kafkaprod.broker.embedding.commands import Command, CommandError, CommandHandler, answer_to
from kafkaprod.broker.embedding.control_socket import ControlSocket
from kafkaprod.broker.embedding.group_reading import group_handlers
from kafkaprod.broker.embedding.lines import NUMBER, JsonLines
from kafkaprod.broker.embedding.log_reading import reading_handlers
from kafkaprod.broker.embedding.log_search import searching_handlers
from kafkaprod.broker.embedding.own_requests import own_handlers
from kafkaprod.broker.listeners import parse_listeners
from kafkaprod.broker.server.calm_log import keep_calm
from kafkaprod.broker.server.process import prepare_process, stop_on_signals
from kafkaprod.broker.server.server import BrokerServer
from kafkaprod.broker.server.tls import server_context
from kafkaprod.broker.settings.broker_options import with_options
from kafkaprod.broker.settings.client_metrics import Push
from kafkaprod.broker.storage.format.log_config import LogConfig
from kafkaprod.broker.storage.log.group_commit import parse_policy
from kafkaprod.errors import ConfigError, KafkaError
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.storage.disk import Disk, UnsyncedDisk
from kafkaprod.text import address_text

_CONTROL_TIMEOUT_S = 30.0
_ORPHAN_S = 1.0


def main() -> int:
    """Run a broker with the options from stdin; return the exit code."""
    logging.basicConfig(level=logging.WARNING, format="embedded broker: %(levelname)s %(message)s")
    keep_calm(logging.getLogger())
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which then closes stdin
    prepare_process()
    lines = JsonLines(sys.stdin, sys.stdout)
    options = lines.receive()
    if options is None:
        return 1
    number = options.pop(NUMBER)
    try:
        temporary, control = options.pop("temporary"), options.pop("control", None)
        records_requests = options.get("record_requests")
        server = BrokerServer(parse_config(options))
        if records_requests:
            server.broker.request_log = RequestLog()
        if control is not None:
            ControlSocket(control, broker_handlers(server))
    except KafkaError as error:
        lines.reply(number, {"error": str(error)})
        return 1
    except (OSError, ValueError) as error:
        lines.reply(number, {"error": f"{type(error).__name__}: {error}"})
        return 1
    stop_on_signals(server.stop)
    host, port = next(iter(server.bound.values()))
    listeners = {name: address_text(place.host, place.port) for name, place in server.bound.items()}
    lines.reply(number, {"host": host, "port": port, "listeners": listeners})
    is_orphan = threading.Event()
    obeying = threading.Thread(
        target=_obey, args=(server, lines, is_orphan), name="kafkaprod-broker-commands", daemon=True
    )
    obeying.start()
    is_clean = server.run()
    obeying.join(_ORPHAN_S)  # a signal to the process group ends the parent, too
    if temporary is not None and is_orphan.is_set():
        shutil.rmtree(temporary, ignore_errors=True)
    return 0 if is_clean else 1


def parse_config(options: dict[str, Any]) -> BrokerConfig:
    """The configuration in the first line: fields of BrokerConfig, with these written as plain values.

    `flush_policy` is text, `outlives_power_cut` is whether anything is synced to the disk, `retention_ms` stands for
    the topics' options and `initial_rebalance_delay_ms` for those of groups, `transactions` has fields of
    TransactionConfig, `tls_files` and `log_dirs` are paths, `options` have Kafka's names, `listeners` is their list,
    `max_versions` has the numbers of the APIs as text.
    """
    options.pop("record_requests", None)
    delay_ms = options.pop("initial_rebalance_delay_ms")
    transactions = TransactionConfig(**options.pop("transactions"))
    policy = parse_policy(options.pop("flush_policy"))
    disk = Disk() if options.pop("outlives_power_cut") else UnsyncedDisk()
    log = LogConfig(retention_ms=options.pop("retention_ms"))
    tls_files = options.pop("tls_files")
    further = options.pop("options")
    log_dirs = tuple(options.pop("log_dirs"))
    directory = options["data_dir"]
    if not log_dirs and os.path.exists(directory) and not os.path.isdir(directory):  # of several, one may fail
        raise ConfigError(f"{directory} cannot hold data: it is not a directory")
    listeners = options.pop("listeners")
    max_versions = {ApiKey(int(api)): version for api, version in options.pop("max_versions").items()}
    config = BrokerConfig(
        **options,
        log_dirs=log_dirs,
        listeners=parse_listeners(listeners, DEFAULT_HOST) if listeners else (),
        flush_policy=policy,
        log=log,
        groups=GroupConfig(initial_rebalance_delay_ms=delay_ms),
        transactions=transactions,
        tls=None if tls_files is None else server_context(*tls_files),
        max_versions=max_versions,
        disk=disk,
    )
    return with_options(config, further)


def _obey(server: BrokerServer, lines: JsonLines, is_orphan: threading.Event) -> None:
    handlers = {**broker_handlers(server), "client_metrics": lambda _: _take_metrics(server)}
    try:
        while (command := lines.receive()) is not None:
            number = command.pop(NUMBER, None)
            if command.get("command") == "stop":
                return
            lines.reply(number, answer_to(command, handlers))
        is_orphan.set()
    finally:
        server.stop()


def _take_metrics(server: BrokerServer) -> Command:
    pushes: queue.SimpleQueue[list[Push]] = queue.SimpleQueue()
    server.submit_control(lambda: pushes.put(server.broker.client_metrics.take_all()))
    return {
        "pushes": [
            {
                "client_id": push.client_id,
                "instance_id": str(push.instance_id),
                "is_last": push.is_last,
                "metrics": base64.b64encode(push.metrics).decode(),
            }
            for push in pushes.get(timeout=_CONTROL_TIMEOUT_S)
        ]
    }


def broker_handlers(server: BrokerServer) -> dict[str, CommandHandler]:
    """Return what a test and a window can have of any broker, by the name of the command."""
    return {
        **fault_handlers(server.broker.faults),
        **reading_handlers(server.broker),
        **searching_handlers(server.broker),
        **group_handlers(server),
        **own_handlers(server),
        "requests": lambda command: _requests(server, command),
        "request_counts": lambda _: {"counts": _request_log(server).counts()},
    }


def _requests(server: BrokerServer, command: Command) -> Command:
    numbers = command.get("since_of")
    since = 0 if numbers is None else numbers.get(str(server.broker.config.node_id), 0)
    return _request_log(server).describe({"since": since, **command})


def _request_log(server: BrokerServer) -> RequestLog:
    log = server.broker.request_log
    if log is None:
        raise CommandError("requests are not recorded here: make it with record_requests=True, or ui=True")
    return log


def fault_handlers(faults: Faults) -> dict[str, CommandHandler]:
    """What a test scripts of a broker's faults, by the name of the command."""

    def on(command: Command) -> Command:
        fault = Fault(FaultKind(command["kind"]), command["value"])
        selected = {name: tuple(values) for name, values in command.get("selected", {}).items()}
        number = faults.on(
            ApiKey(command["api"]),
            fault,
            times=command.get("times"),
            rate=command.get("rate", 1.0),
            seed=command.get("seed"),
            selection=Selection(**selected),
            after=command.get("after", 0),
            note=command.get("note", ""),
        )
        return {"rule": number}

    return {
        "on": on,
        "clear": lambda _: faults.clear(),
        "remove_rule": lambda command: faults.remove(command["rule"]),
        "rules": lambda _: {"rules": faults.describe()},
        "fired": lambda command: {"fired": faults.last_fired(command.get("since", 0))},
        "fired_count": lambda command: {"count": faults.fired_count(ApiKey(command["api"]))},
    }


if __name__ == "__main__":
    sys.exit(main())
