"""The processes of an embedded cluster as a test sees them: what can be done to the controller and to each broker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kafkaprod.broker.embedding import arguments
from kafkaprod.broker.embedding.child_process import EmbeddedBrokerError
from kafkaprod.broker.embedding.cluster_host import ClusterHost
from kafkaprod.broker.embedding.disturbance import Disturbance
from kafkaprod.broker.embedding.faults import FaultScript, RemoteFaults
from kafkaprod.broker.embedding.power_cut import cut_power
from kafkaprod.errors import ConfigError, IllegalStateError
from kafkaprod.protocol.error_codes import ErrorCode, describe


class ClusterProcess:
    """A process of the cluster: the controller, or what all brokers have in common."""

    def __init__(self, host: ClusterHost, name: str) -> None:
        self._host = host
        self._name = name

    @property
    def pid(self) -> int:
        """The process id.

        Raises:
            IllegalStateError: It does not run.
        """
        pids = self._host.ask({"command": "processes"})["pids"]
        if self._name not in pids:
            raise IllegalStateError(f"process {self._name} of the embedded cluster does not run")
        return int(pids[self._name])

    @property
    def is_running(self) -> bool:
        """Whether there is a process, paused or not."""
        return self._host.is_running and self._name in self._host.ask({"command": "processes"})["pids"]

    def kill(self) -> None:
        """Kill the process (SIGKILL)."""
        self._command("kill")

    def start(self) -> None:
        """Start the process again, on the same ports with the same data; return when it listens."""
        self.note_start(self._command("start"))

    def note_start(self, answer: Mapping[str, Any]) -> None:
        """Take what the process has answered when it listened."""

    def restart(self) -> None:
        """Stop, and start again."""
        self.stop()
        self.start()

    def stop(self) -> None:
        """Shut down cleanly: a broker first hands its partitions over (controlled shutdown)."""
        self._command("stop")

    def pause(self) -> Disturbance:
        """Stop the process where it is (SIGSTOP), as a long garbage collection does, until `resume`.

        Returns:
            What resumes it at the end of a `with` block.
        """
        self._command("pause")
        return Disturbance(self._resume_if_running)

    def resume(self) -> None:
        """Let a paused process run on."""
        self._command("resume")

    def _resume_if_running(self) -> None:
        if self.is_running:
            self.resume()

    def tell(self, what: Mapping[str, Any]) -> dict[str, Any]:
        """Send the process a command and return its answer (`cluster_child`)."""
        return self._host.ask({"command": "tell", "name": self._name, "what": dict(what)})

    def _command(self, command: str) -> dict[str, Any]:
        return self._host.ask({"command": command, "name": self._name})


class ClusterBroker(ClusterProcess):
    """One broker of the cluster.

    Attributes:
        id: Its id, from 1.
        rack: Where it is.
        log_dirs: The paths of its log directories; the first one is its own.
        listeners: Name of a listener -> its address, "127.0.0.1:40001" say; the same after each start.
        faults: Scripts what it does wrong, as `EmbeddedBroker.faults`; empty after each start.
    """

    def __init__(self, host: ClusterHost, broker_id: int, options: Mapping[str, Any]) -> None:
        super().__init__(host, str(broker_id))
        self._journal: str = options["journal"]
        self.id = broker_id
        self.rack: str | None = options["cluster"]["rack"]
        self.log_dirs: tuple[str, ...] = (options["data_dir"], *options["log_dirs"])
        self.listeners: dict[str, str] = {}
        self.faults: FaultScript = RemoteFaults(self.tell)

    def __repr__(self) -> str:
        return f"<ClusterBroker {self.id} port={self.port}>"

    def note_start(self, answer: Mapping[str, Any]) -> None:
        """Take over where it listens."""
        self.listeners = dict(answer["listeners"])

    @property
    def port(self) -> int:
        """Where clients reach it; the same after each start. Of several listeners the first one's; 0 before a start."""
        return int(next(iter(self.listeners.values()), ":0").rpartition(":")[2])

    def power_cut(self, seed: int = 0) -> int:
        """Kill the broker and take away what it had not synced, all or a part; return the bytes lost.

        Its syncs are those of Kafka's defaults: hardly any, so that a replica alone loses what it acknowledged.

        Args:
            seed: Decides how much of it goes.

        Raises:
            ConfigError: `seed` is not a whole number.
        """
        arguments.whole("seed", seed, -arguments.INT64_MAX)
        self.kill()
        return sum(sum(cut_power(path, self._journal, seed).values()) for path in self.log_dirs)

    def fail_log_dir(self, number: int) -> None:
        """Let a log directory's disk fail: its replicas are offline until the broker starts again, and others lead.

        Args:
            number: Which, counted from 1. The first one has what the broker cannot do without.

        Raises:
            ConfigError: It is not one of the broker's further directories.
            EmbeddedBrokerError: The broker does not run.
        """
        arguments.whole("number", number, 2, max(len(self.log_dirs), 2))
        if len(self.log_dirs) < 2:
            raise ConfigError("the broker has one log directory: log_dirs= of the cluster gives it more")
        self.tell({"command": "fail_log_dir", "path": self.log_dirs[number - 1]})

    @property
    def address(self) -> str:
        """The address for clients, host and port; of several listeners the first one's.

        Raises:
            IllegalStateError: The cluster does not run.
        """
        if not self._host.is_running:
            raise IllegalStateError("the embedded cluster does not run: its addresses are known while it does")
        return next(iter(self.listeners.values()))


def ask_controller(controller: ClusterProcess, command: Mapping[str, Any], ignores: Sequence[ErrorCode] = ()) -> None:
    """Have the controller change the cluster.

    Args:
        controller: Its process.
        command: What it does.
        ignores: Codes that count as success.

    Raises:
        EmbeddedBrokerError: It refused, or did not answer.
    """
    answer = controller.tell(command)
    if answer["code"] not in (ErrorCode.NONE, *ignores):
        error = describe(answer["code"])
        text = answer["message"] or error.text
        raise EmbeddedBrokerError(f"the controller answered {error.name} to {command['command']}: {text}")
