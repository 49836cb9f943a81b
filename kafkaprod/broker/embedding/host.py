"""The host of an embedded cluster: imports everything once and forks the controller and the brokers.

One thread waits for a command of the test, or the end of a child. It talks to the test in JSON lines on stdin and
stdout, to each child over a socket pair. A child that ends is reaped at once and, unless the test wants
sessions to decide, reported to the controller. Each broker's ports stay bound here, without listening, so that they are
refused while the broker is down and no other process takes them; elsewhere than on Linux the broker could not bind them
then, and they are only chosen here. The host ends with its stdin, its children with it. If that was the end of the
test's process, and no command to close, the host removes the temporary directory.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import select
import shutil
import signal
import socket
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain

from kafkaprod.broker.config import DEFAULT_HOST
from kafkaprod.broker.embedding.children import end_with_parent
from kafkaprod.broker.embedding.cluster_child import prepare_to_fork, run_broker, run_controller
from kafkaprod.broker.embedding.commands import Command, CommandError, CommandHandler, answer_to
from kafkaprod.broker.embedding.lines import NUMBER, JsonLines
from kafkaprod.broker.embedding.patience import Patience
from kafkaprod.broker.listeners import bind_error, listeners_text, parse_listeners
from kafkaprod.broker.peers.rules import CONTROLLER
from kafkaprod.broker.server.calm_log import keep_calm
from kafkaprod.broker.server.process import stop_on_signals

logger = logging.getLogger(__name__)

_ANSWER_S = 30.0
_STOP_S = 15.0
_CLOSE_S = 5.0
_ORPHAN_S = 1.0
_LINK_KEYS = ("cuts", "delays_ms", "bytes_per_s", "without_clients")
_KEEPS_PORTS = sys.platform == "linux"


@dataclass(slots=True)
class _Child:
    """A running process and the host's side of its socket."""

    name: str
    pid: int
    sock: socket.socket
    incarnation_id: str
    lines: JsonLines
    is_paused: bool = False


class ProcessHost:
    """See the module docstring.

    Attributes:
        is_orphan: Whether the test's process ended without closing the cluster.
    """

    def __init__(self, options: Command) -> None:
        """Reserve the ports; nothing is forked.

        Args:
            options: `brokers` by name and `controller`: the options of each process; `is_immediate`: report deaths;
                `keeps_data`: end brokers cleanly; `temporary`: the directory to remove without a parent.

        Raises:
            AddressError: It cannot listen on a port.
        """
        self._options = options
        self._children: dict[str, _Child] = {}
        self._reserved: dict[str, list[socket.socket]] = {}
        self._links: Command = {
            "command": "links",
            "cuts": [],
            "delays_ms": {},
            "bytes_per_s": {},
            "without_clients": [],
        }
        self._is_done = False
        self._is_terminated = False
        self.is_orphan = False
        for name, broker in options["brokers"].items():
            self._reserve(name, broker)
        self._release_ports()
        self._wake_receiver, self._wake_sender = socket.socketpair()
        for end in (self._wake_receiver, self._wake_sender):
            end.setblocking(False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wake_sender.fileno())

    @property
    def addresses(self) -> dict[str, Command]:
        """The options of each broker that say where it listens, with the ports that were chosen."""
        return {name: _address_of(broker) for name, broker in self._options["brokers"].items()}

    def _reserve(self, name: str, broker: Command) -> None:
        listeners = parse_listeners(broker["listeners"] or f"PLAINTEXT://:{broker['port']}", DEFAULT_HOST)
        bound = []
        self._reserved[name] = []
        try:
            for listener in listeners:
                sock = _bound_socket(listener.host, listener.port)
                self._reserved[name].append(sock)
                bound.append(listener._replace(port=sock.getsockname()[1]))
        except OSError:
            self._release(name)
            raise
        broker["port"] = bound[0].port
        if broker["listeners"]:
            broker["listeners"] = listeners_text(bound)

    def _release(self, name: str) -> None:
        for sock in self._reserved.pop(name, []):
            sock.close()

    def _release_ports(self) -> None:
        """Outside Linux the broker could not bind a port that this process holds: release them once all are chosen."""
        for name in [] if _KEEPS_PORTS else list(self._reserved):
            self._release(name)

    def serve(self, lines: JsonLines) -> None:
        """Obey the test until its lines end."""
        sources: list[JsonLines | socket.socket] = [lines, self._wake_receiver]
        while not self._is_done:
            ready, _, _ = select.select(sources, [], [])
            self._reap()
            if lines not in ready:
                continue
            if not lines.fill():
                self.is_orphan = True
                break
            while not self._is_done and (command := lines.take()) is not None:
                number = command.pop(NUMBER, None)
                lines.reply(number, answer_to(command, self.handlers))

    def on_terminated(self) -> None:
        """Make `serve` return (SIGTERM). A signal to the process group ends the test's process, too."""
        self._is_done = self._is_terminated = True

    def on_parent_ended(self, parent_pid: int) -> None:
        """Make `serve` return if the test's process is gone, not only the thread that started this one."""
        if os.getppid() != parent_pid:
            self._is_done = self.is_orphan = True

    def await_parent(self) -> None:
        """After SIGTERM, wait a moment for the end of the test's process."""
        if self._is_terminated and select.select([sys.stdin.fileno()], [], [], _ORPHAN_S)[0]:
            self.is_orphan |= not os.read(sys.stdin.fileno(), 65_536)

    def close(self) -> None:
        """End all children: ask those whose data is kept, and kill the others."""
        for child in list(self._children.values()):
            if child.is_paused or child.name == CONTROLLER or not self._options["keeps_data"]:
                os.kill(child.pid, signal.SIGKILL)
            else:
                child.sock.close()  # a broker whose host is gone stops at once
        deadline = time.monotonic() + _CLOSE_S
        while self._children and time.monotonic() < deadline:
            select.select([self._wake_receiver], [], [], 0.05)
            self._reap()
        for child in list(self._children.values()):
            os.kill(child.pid, signal.SIGKILL)
            os.waitpid(child.pid, 0)

    # -- commands ------------------------------------------------------------------------------------------------------

    @property
    def handlers(self) -> dict[str, CommandHandler]:
        """What the test can have done, by the name of the command."""
        return {
            "start": lambda command: self._start([command["name"]])[command["name"]],
            "start_all": lambda command: self._start(command["names"]),
            "kill": self._kill,
            "pause": self._pause,
            "resume": self._resume,
            "stop": self._stop,
            "links": self._set_links,
            "tell": lambda command: self._ask(command["name"], command["what"]),
            "add": self._add,
            "remove": self._remove,
            "processes": lambda _: {"pids": {name: child.pid for name, child in self._children.items()}},
            "close": self._end,
        }

    def _kill(self, command: Command) -> None:
        self._signal(command["name"], signal.SIGKILL)
        self._await_end(command["name"], _ANSWER_S)

    def _pause(self, command: Command) -> None:
        self._signal(command["name"], signal.SIGSTOP)
        self._children[command["name"]].is_paused = True

    def _resume(self, command: Command) -> None:
        name = command["name"]
        self._signal(name, signal.SIGCONT)
        if self._children[name].is_paused:
            self._children[name].is_paused = False
            self._ask(name, self._links)  # they may have changed meanwhile

    def _stop(self, command: Command) -> None:
        self._listening(command["name"]).lines.send({"command": "stop"})  # it may end before it could answer
        self._await_end(command["name"], _STOP_S)

    def _set_links(self, command: Command) -> None:
        self._links = {"command": "links"} | {key: command[key] for key in _LINK_KEYS}
        for child in list(self._children.values()):
            if not child.is_paused:
                self._ask(child.name, self._links)

    def _add(self, command: Command) -> Command:
        options = command["options"]
        self._reserve(command["name"], options)
        self._release_ports()
        self._options["brokers"][command["name"]] = options
        return _address_of(options)

    def _remove(self, command: Command) -> None:
        name = command["name"]
        if name in self._children:
            raise CommandError(f"process {name} still runs")
        del self._options["brokers"][name]
        self._release(name)

    def _end(self, _: Command) -> None:
        self._is_done = True

    def _start(self, names: Sequence[str]) -> dict[str, Command]:
        """Fork processes side by side; return what each says when it listens."""
        for name in names:
            if name in self._children:
                raise CommandError(f"process {name} runs already")
        self._options["controller"]["is_alone"] = not self._children
        for name in names:
            self._children[name] = self._fork(name)
        return {name: self._await_start(self._children[name]) for name in names}

    def _await_start(self, child: _Child) -> Command:
        try:
            answer = self._checked(child, lambda: child.lines.receive_patiently(Patience(_ANSWER_S, child.pid)))
        except CommandError:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child.pid, signal.SIGKILL)
            self._await_end(child.name, _ANSWER_S)
            raise
        if any(self._links[key] for key in _LINK_KEYS):
            self._ask(child.name, self._links)
        return {**answer, "pid": child.pid}

    def _fork(self, name: str) -> _Child:
        ours, theirs = socket.socketpair()
        incarnation_id = str(uuid.uuid4())
        host_pid = os.getpid()
        pid = os.fork()
        if pid:
            theirs.close()
            return _Child(name, pid, ours, incarnation_id, JsonLines(ours, ours))
        code = 1
        try:
            end_with_parent(host_pid)
            ours.close()
            self._become_child()
            if name == CONTROLLER:
                code = run_controller(self._options["controller"], theirs)
            else:
                options = self._options["brokers"][name]  # the copy of this process, which the fork has made
                options["cluster"]["incarnation_id"] = incarnation_id
                code = run_broker(options, theirs)
        except BaseException:
            logger.exception("process %s of the embedded cluster failed", name)
        finally:
            os._exit(code)

    def _become_child(self) -> None:
        """Close what belongs to the host."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for child in self._children.values():
            child.sock.close()
        for sock in (*chain.from_iterable(self._reserved.values()), self._wake_receiver, self._wake_sender):
            sock.close()
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.dup2(2, 1)  # stdout belongs to the host's answers

    def _signal(self, name: str, number: signal.Signals) -> None:
        os.kill(self._running(name).pid, number)

    def _running(self, name: str) -> _Child:
        child = self._children.get(name)
        if child is None:
            raise CommandError(f"process {name} does not run")
        return child

    def _await_end(self, name: str, timeout_s: float) -> None:
        patience = Patience(timeout_s, self._children[name].pid) if name in self._children else None
        while patience is not None and name in self._children:
            left_s = patience.left_s()
            if not left_s:
                os.kill(self._children[name].pid, signal.SIGKILL)
                raise CommandError(f"process {name} did not end within {timeout_s} s and was killed")
            select.select([self._wake_receiver], [], [], min(left_s, 0.1))
            self._reap()

    # -- children ------------------------------------------------------------------------------------------------------

    def _reap(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._wake_receiver.recv(64):
                pass
        for child in list(self._children.values()):
            pid, _ = os.waitpid(child.pid, os.WNOHANG)
            if pid:
                del self._children[child.name]
                child.sock.close()
                self._report(child)

    def _report(self, child: _Child) -> None:
        """Let the controller know of a broker's end; it does not answer."""
        controller = self._children.get(CONTROLLER)
        if child.name == CONTROLLER or controller is None or not self._options["is_immediate"]:
            return
        gone = {"command": "gone", "broker_id": int(child.name), "incarnation_id": child.incarnation_id}
        with contextlib.suppress(OSError):
            controller.lines.send(gone)

    def _ask(self, name: str, command: Command) -> Command:
        child = self._listening(name)
        return self._checked(child, lambda: child.lines.ask(command, Patience(_ANSWER_S, child.pid)))

    def _listening(self, name: str) -> _Child:
        child = self._running(name)
        if child.is_paused:
            raise CommandError(f"process {name} is paused")
        return child

    def _checked(self, child: _Child, receive: Callable[[], Command | None]) -> Command:
        try:
            answer = receive()
        except TimeoutError:
            raise CommandError(f"process {child.name} did not answer within {_ANSWER_S} s") from None
        if answer is None:
            raise CommandError(f"process {child.name} ended")
        if "error" in answer:
            raise CommandError(f"process {child.name} answered: {answer['error']}")
        return answer


def _address_of(broker: Command) -> Command:
    return {"port": broker["port"], "listeners": broker["listeners"]}


def _bound_socket(host: str, port: int) -> socket.socket:
    sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
    except OSError as error:
        sock.close()
        raise bind_error(host, port, error, "use other ports, or none for free ones") from error
    return sock


def main() -> int:
    """Run a host with the options from stdin; return the exit code."""
    logging.basicConfig(level=logging.WARNING, format="embedded cluster: %(process)d %(levelname)s %(message)s")
    keep_calm(logging.getLogger())
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which then closes stdin
    lines, parent_pid = JsonLines(sys.stdin, sys.stdout), os.getppid()
    options = lines.receive()
    if options is None:
        return 1
    number = options.pop(NUMBER)
    try:
        host = ProcessHost(options)
    except OSError as error:
        lines.reply(number, {"error": str(error)})
        return 1
    stop_on_signals(host.on_terminated)
    signal.signal(signal.SIGUSR1, lambda *_: host.on_parent_ended(parent_pid))
    end_with_parent(parent_pid, signal.SIGUSR1)  # a forked child of the test may keep stdin open
    prepare_to_fork()
    gc.collect()
    gc.freeze()
    lines.reply(number, {"addresses": host.addresses})
    try:
        host.serve(lines)
    finally:
        host.close()
    host.await_parent()
    if host.is_orphan:
        shutil.rmtree(options["temporary"], ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
