"""A broker in a process of its own, for tests and quick starts.

    with EmbeddedBroker(topics={"orders": 3}) as broker:
        producer = Producer(bootstrap_servers=broker.bootstrap_servers)
        broker.faults.on(ApiKey.PRODUCE, delay(200), times=1)

It listens on the loopback interface, has its data in a temporary directory unless one is given, and ends with its
parent, however that ends. It belongs to the process that made it: a forked child leaves it alone, and cannot use it.
As a pytest fixture: `pytest_plugins = ["kafkaprod.broker.embedding.pytest_plugin"]`.
"""

from __future__ import annotations

import base64
import contextlib
import io
import os
import uuid
import weakref
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self, cast

from kafkaprod.broker.embedding import arguments
from kafkaprod.broker.embedding.arrivals import Arrivals, ArrivedRecord, ExpectedRecord
from kafkaprod.broker.embedding.child_process import ChildProcess, EmbeddedBrokerError, start_module
from kafkaprod.broker.embedding.faults import FaultScript, RemoteFaults
from kafkaprod.broker.embedding.inspection import BrokerInspection
from kafkaprod.broker.embedding.temporary import make_temporary, name_temporary, remove_of_owner
from kafkaprod.broker.embedding.window import Window, checked_port
from kafkaprod.broker.settings.client_metrics import Push
from kafkaprod.errors import ConfigError, IllegalStateError
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.structs import INT32_MAX
from kafkaprod.text import address_text

__all__ = ["EmbeddedBroker", "EmbeddedBrokerError"]

_START_TIMEOUT_S = 120.0
_ANSWER_TIMEOUT_S = 30.0
_STOP_TIMEOUT_S = 30.0
_TRANSACTION_CHECK_MS = 100  # much less than Kafka's 10 s: tests wait for timeouts
_ARGUMENTS = {
    "advertised.listeners": "advertised",
    "listeners": "listeners or port",
    "log.dir": "data_dir",
    "log.dirs": "data_dir and log_dirs",
    "port": "port",
    "ssl.keystore.location": "tls_files",
}
"""Options of Kafka's brokers that arguments set."""

_brokers: weakref.WeakSet[EmbeddedBroker] = weakref.WeakSet()


class EmbeddedBroker(BrokerInspection):
    """See the module docstring. Not thread-safe, except `faults`.

    Attributes:
        listeners: Name -> `host:port`, of each listener; the name is its protocol unless it was given another.
        bootstrap_servers: `host:port` for clients, of the first listener. Ports stay the same when it starts
            again.
        faults: Scripts what the broker does wrong; empty after each start.
        data_dir: Where its data is.
    """

    def __init__(
        self,
        data_dir: str | os.PathLike[str] | None = None,
        *,
        log_dirs: Sequence[str | os.PathLike[str]] = (),
        port: int = 0,
        listeners: str | None = None,
        advertised: str | None = None,
        topics: Mapping[str, int] | None = None,
        auto_create_topics: bool = True,
        num_partitions: int = 1,
        flush_policy: str = "interval:1000",
        retention_ms: int = -1,
        initial_rebalance_delay_ms: int = 0,
        transaction_version: int | None = None,
        transaction_max_timeout_ms: int = 900_000,
        transactional_id_expiration_ms: int = 7 * 24 * 3_600_000,
        sasl_users: Mapping[str, str] | None = None,
        sasl_oauthbearer: bool = False,
        tls_files: Sequence[str | os.PathLike[str]] | None = None,
        client_metrics: bool = False,
        max_versions: Mapping[ApiKey, int] | None = None,
        options: Mapping[str, str | int | bool] | None = None,
        ui: bool | int = False,
        record_requests: bool = False,
    ) -> None:
        """Describe what to run; `start` or a `with` statement runs it.

        Args:
            data_dir: Kept; None for a temporary one that goes with the broker: in memory (/dev/shm) where that
                has 2 GiB free and TMPDIR is not set.
            log_dirs: Further directories, which are kept: partitions are spread over all of them, and move between
                them (AlterReplicaLogDirs, `kafka-reassign-partitions.sh`). If one of these fails, its partitions
                answer KAFKA_STORAGE_ERROR, and the others continue.
            port: 0 for a free one.
            listeners: Several sockets in one broker, "PLAINTEXT://:0,SSL://:0,SASL_PLAINTEXT://:0" say, in place of
                `port`; see the attribute of this name. Those with TLS need `tls_files`, those with SASL `sasl_users`.
                Several of one protocol need names: "PLAINTEXT://:0,PROXIED:PLAINTEXT://:0".
            advertised: The address that clients get to connect to, where it is not the broker's own: a proxy's or a
                container's, "127.0.0.1:39091" say, or with several listeners "PROXIED://127.0.0.1:39091,SSL://h:1".
            topics: Name -> partition count, made at the start if missing.
            auto_create_topics: Create topics that clients request, as Kafka does by default.
            num_partitions: The number of partitions of topics made without a count.
            flush_policy: "each", "interval:<ms>" or "never". In a temporary directory only "each" syncs anything.
            retention_ms: The retention of topics that say nothing else; -1: records stay however old their timestamps
                are, which brokers with Kafka's default of 7 days look at every 5 minutes.
            initial_rebalance_delay_ms: How long a new group waits for its first members.
            transaction_version: Level of the feature `transaction.version`: 2 for the protocol of Kafka 4 (KIP-890),
                0 or 1 for the one before. None keeps the level that a data directory has; new ones have 2.
            transaction_max_timeout_ms: Longest transaction timeout a producer may request.
            transactional_id_expiration_ms: Transactional ids that are not used for this time are forgotten.
            sasl_users: User name -> password; clients must log in if there are any (PLAIN, SCRAM-SHA-256, -512).
            sasl_oauthbearer: Clients can log in by OAUTHBEARER, with JSON web tokens that have no signature, a subject
                and an end, at which they must have logged in again. For tests: anyone can make such a token.
            tls_files: Certificate chain, private key and, to ask clients for certificates, their authority; PEM files.
            client_metrics: Take the metrics that clients push (KIP-714), see `take_client_metrics`. A subscription says
                which: a resource of the type CLIENT_METRICS, as `kafka-client-metrics.sh` makes it.
            max_versions: API -> highest version to announce and to take: how a client speaks to older brokers.
            options: Further options under Kafka's names, {"message.max.bytes": 2_000_000} say; they count more than
                the arguments above. An unknown one, or a wrong value, makes `start` raise.
            ui: Show the broker on a page, see `ui_url`: True, or its port.
            record_requests: Keep what clients ask, for `requests`; a page has it, too.

        Raises:
            ConfigError: An argument has a wrong type or value.
        """
        self._options = _checked_options(
            log_dirs=log_dirs,
            listeners=listeners,
            advertised=advertised,
            topics=topics,
            auto_create_topics=auto_create_topics,
            num_partitions=num_partitions,
            flush_policy=flush_policy,
            retention_ms=retention_ms,
            initial_rebalance_delay_ms=initial_rebalance_delay_ms,
            transaction_version=transaction_version,
            transaction_max_timeout_ms=transaction_max_timeout_ms,
            transactional_id_expiration_ms=transactional_id_expiration_ms,
            sasl_users=sasl_users,
            sasl_oauthbearer=sasl_oauthbearer,
            tls_files=tls_files,
            client_metrics=client_metrics,
            max_versions=max_versions,
            options=options,
        )
        self._options["record_requests"] = arguments.flag("record_requests", record_requests) or ui is not False
        self._port = arguments.whole("port", port, 0, 65_535)
        self._owner_pid = os.getpid()
        self._temporary: str | None = None
        if data_dir is None:
            if self._options["log_dirs"]:
                raise ConfigError("log_dirs needs data_dir: topics must not be forgotten where their records are kept")
            self._temporary = name_temporary("kafkaprod-broker-")
            weakref.finalize(self, remove_of_owner, self._temporary, self._owner_pid)
            data_dir = os.path.join(self._temporary, "data")
        self.data_dir = arguments.path("data_dir", data_dir)
        # A power cut ends the test, too; but "each" is there to show what syncs cost.
        self._options["outlives_power_cut"] = self._temporary is None or flush_policy == "each"
        self.listeners: dict[str, str] = {}
        self._host = ""
        self._process: ChildProcess | None = None
        self.faults: FaultScript = RemoteFaults(self.command)
        self._arrivals = Arrivals(lambda command: [self.command(command)])
        self._window: Window | None = None
        self._control: str | None = None
        port_of_page = checked_port(ui)
        if port_of_page is not None:
            self._control_dir = name_temporary("kafkaprod-ui-", most_bytes=80)
            weakref.finalize(self, remove_of_owner, self._control_dir, self._owner_pid)
            self._control = os.path.join(self._control_dir, "broker")
            self._window = Window({"0": self._control}, port_of_page)
        _brokers.add(self)

    def __repr__(self) -> str:
        where = f"at {address_text(self._host, self._port)}" if self._host else "without an address"
        return f"<EmbeddedBroker {where}, {'running' if self.is_running else 'not running'}>"

    @property
    def bootstrap_servers(self) -> str:
        """See the class docstring. A broker that is killed or stopped keeps its address.

        Raises:
            IllegalStateError: It was not started, or is closed.
        """
        if not self._host:
            raise IllegalStateError("the embedded broker was not started, or is closed: it has no address")
        return address_text(self._host, self._port)

    @property
    def ui_url(self) -> str:
        """The address of the page that shows the broker, with its secret; `ui` asks that there is one.

        The page stays while the broker is killed and started again, and asks nothing of any other machine.

        Raises:
            IllegalStateError: There is no page.
            EmbeddedBrokerError: The page could not be served.
        """
        if self._window is None:
            raise IllegalStateError("the embedded broker has no page: make it with ui=True")
        return self._window.url

    @property
    def is_running(self) -> bool:
        """Whether there is a process."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The process id of the running broker.

        Raises:
            IllegalStateError: It does not run.
        """
        return self._running().pid

    def start(self) -> Self:
        """Start the process; return when clients can connect.

        Raises:
            EmbeddedBrokerError: It could not start; the message says why.
            IllegalStateError: It runs already.
        """
        self._check_owner()
        if self._process is not None:
            raise IllegalStateError(f"the embedded broker runs already, as process {self._process.pid}")
        if self._temporary is not None:
            make_temporary(self._temporary)
        if self._window is not None:
            make_temporary(self._control_dir)
            self._window.start()
        self._process = start_module("kafkaprod.broker.embedding.child")
        where = {"data_dir": self.data_dir, "port": self._port, "temporary": self._temporary, "control": self._control}
        try:
            address = self.command({**where, **self._options}, _START_TIMEOUT_S)
        except BaseException:
            self.kill()
            if self._temporary is not None and not self._host:  # nothing of use is in it; another start makes it
                remove_of_owner(self._temporary, self._owner_pid)
            raise
        self._host, self._port = address["host"], address["port"]
        self.listeners = address["listeners"]
        if self._options["listeners"]:  # the same ports after a restart
            labels = [part.partition("://")[0].strip() for part in self._options["listeners"].split(",")]
            self._options["listeners"] = ",".join(
                f"{label}://{self.listeners[label.partition(':')[0]]}" for label in labels
            )
        if self._window is not None:
            self._window.begin()
            self._window.describe(self.bootstrap_servers, {"0": self.bootstrap_servers})
        return self

    def stop(self) -> None:
        """Shut down cleanly and wait for it. Does nothing if it does not run, or belongs to another process."""
        process = self._process
        if process is None:
            return
        process.say_last("stop")
        try:
            process.wait_patiently(_STOP_TIMEOUT_S)
        finally:
            self.kill()

    def kill(self) -> None:
        """Kill the process (SIGKILL), as a crash would. Does nothing where `stop` does nothing."""
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            with contextlib.suppress(OSError):
                pipe.close()

    def close(self) -> None:
        """Stop, and remove the temporary directory. Idempotent."""
        if self._temporary is None:
            self.stop()
        else:
            self.kill()  # what it would write goes with the directory
            remove_of_owner(self._temporary, self._owner_pid)
        self._host = ""
        if self._window is not None:
            self._window.close()
            remove_of_owner(self._control_dir, self._owner_pid)

    def restore(self) -> None:
        """Undo what tests did: clear the faults, or start it again if it does not run."""
        if self.is_running:
            self.faults.clear()
        else:
            self.kill()  # what is left of a process that ended by itself
            self.start()

    def command(self, command: Mapping[str, Any], timeout_s: float = _ANSWER_TIMEOUT_S) -> dict[str, Any]:
        """Send a line to the process and return its answer (`child`). Thread-safe.

        Raises:
            EmbeddedBrokerError: No answer in time, or an error.
        """
        answer = self._running().exchange(command, timeout_s, "the embedded broker")
        if "error" in answer:
            raise EmbeddedBrokerError(f"the embedded broker answered: {answer['error']}")
        return answer

    def records(self, topic: str, *, at_least: int = 0, timeout: float = 5.0) -> list[ArrivedRecord]:
        """Return the records of a topic, by partition and offset: what a test's program has sent.

        They are read from the log, whatever the listeners demand of clients. Records of open and aborted transactions
        are left out. A topic that does not exist has none. In a cluster, a partition that has no leader is waited for.

        Args:
            topic: Its name.
            at_least: Wait until there are as many.
            timeout: For how long, in seconds; after that, partitions without a leader are left out.

        Raises:
            MissingRecordsError: An AssertionError: there are fewer; its note shows what there is.
            EmbeddedBrokerError: No answer in time.
        """
        return self._arrivals.records(topic, at_least, timeout)

    def check_records(
        self, topic: str, *expected: ExpectedRecord, timeout: float = 5.0, settle: float = 0.0
    ) -> list[ArrivedRecord]:
        """Assert that a topic has these records and no others, in any order; return them as `records` does.

        Args:
            topic: Its name.
            expected: The value of each, or pairs of its key and value. Text stands for its UTF-8 bytes.
            timeout: How long to wait for as many, in seconds.
            settle: Look again after so many seconds: `check_records("t", settle=0.5)` asserts that nothing is sent.

        Raises:
            MissingRecordsError: An AssertionError: there are fewer, more or others; its note shows what there is.
        """
        return self._arrivals.check(topic, expected, timeout, settle)

    def create_topic(
        self, name: str, partitions: int = 1, *, configs: Mapping[str, str | int | bool] | None = None
    ) -> None:
        """Make a topic; return when clients can use it.

        Args:
            name: The topic.
            partitions: How many.
            configs: Options of the topic under Kafka's names.

        Raises:
            EmbeddedBrokerError: There is one of this name, or it cannot be made.
        """
        self.command(
            {
                "command": "create",
                "topic": arguments.text("name", name),
                "partitions": arguments.whole("partitions", partitions, 1, INT32_MAX),
                "configs": arguments.options(configs or {}, {}, "configs"),
            }
        )

    def _ask_each(self, command: Mapping[str, Any]) -> dict[int, Mapping[str, Any]]:
        return {0: self.command(command)}

    def _ask_broker(self, node: int, command: Mapping[str, Any]) -> Mapping[str, Any]:
        return self.command(command)

    def take_client_metrics(self) -> list[Push]:
        """Return what clients have pushed since the last call, oldest first; the last 1,000 pushes are kept.

        Raises:
            EmbeddedBrokerError: No answer in time.
        """
        return [
            Push(each["client_id"], uuid.UUID(each["instance_id"]), each["is_last"], base64.b64decode(each["metrics"]))
            for each in self.command({"command": "client_metrics"})["pushes"]
        ]

    def child_options(self) -> dict[str, Any]:
        """Return the options of the process as plain values, without data directory and port."""
        return dict(self._options)

    def _running(self) -> ChildProcess:
        self._check_owner()
        if self._process is None:
            raise IllegalStateError("the embedded broker does not run")
        return self._process

    def _check_owner(self) -> None:
        if self._owner_pid != os.getpid():
            raise IllegalStateError(
                f"the embedded broker belongs to process {self._owner_pid}, not to its forked child"
            )

    def disown(self) -> None:
        """In a forked child: drop what belongs to the parent, without touching the process or the directory."""
        process, self._process = self._process, None
        if self._window is not None:
            self._window.disown()
        if process is not None:
            process.returncode = 0  # nothing to wait for
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:  # the broker must see the end of its stdin when the parent ends
                    cast(io.BufferedReader, pipe).raw.close()  # not its buffer, whose lock another thread may hold

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _checked_options(
    *,
    log_dirs: object,
    listeners: object,
    advertised: object,
    topics: object,
    auto_create_topics: object,
    num_partitions: object,
    flush_policy: object,
    retention_ms: object,
    initial_rebalance_delay_ms: object,
    transaction_version: object,
    transaction_max_timeout_ms: object,
    transactional_id_expiration_ms: object,
    sasl_users: object,
    sasl_oauthbearer: object,
    tls_files: object,
    client_metrics: object,
    max_versions: object,
    options: object,
) -> dict[str, Any]:
    """Return the options of the process as plain values. Raises ConfigError for a wrong type or value."""
    expiration_ms = arguments.milliseconds("transactional_id_expiration_ms", transactional_id_expiration_ms, 1)
    directories = arguments.elements("log_dirs", log_dirs, '["/disk2/kafka"]')
    return {
        "log_dirs": [arguments.path("log_dirs", each) for each in directories],
        "listeners": "" if listeners is None else arguments.text("listeners", listeners),
        "advertised": "" if advertised is None else arguments.text("advertised", advertised),
        "topics": {} if topics is None else arguments.topics(topics),
        "auto_create_topics": arguments.flag("auto_create_topics", auto_create_topics),
        "num_partitions": arguments.whole("num_partitions", num_partitions, 1, INT32_MAX),
        "flush_policy": arguments.text("flush_policy", flush_policy),
        "retention_ms": arguments.milliseconds("retention_ms", retention_ms, -1),
        "initial_rebalance_delay_ms": arguments.milliseconds("initial_rebalance_delay_ms", initial_rebalance_delay_ms),
        "transactions": {
            "version": None
            if transaction_version is None
            else arguments.whole("transaction_version", transaction_version, 0, 2),
            "max_timeout_ms": arguments.milliseconds("transaction_max_timeout_ms", transaction_max_timeout_ms, 1),
            "timeout_check_ms": _TRANSACTION_CHECK_MS,
            "id_expiration_ms": expiration_ms,
            "expiration_check_ms": max(min(expiration_ms // 2, 3_600_000), _TRANSACTION_CHECK_MS),
        },
        "sasl_users": {} if sasl_users is None else arguments.users(sasl_users),
        "sasl_oauthbearer": arguments.flag("sasl_oauthbearer", sasl_oauthbearer),
        "tls_files": None if tls_files is None else arguments.tls_files(tls_files),
        "client_metrics": arguments.flag("client_metrics", client_metrics),
        "max_versions": {} if max_versions is None else arguments.max_versions(max_versions),
        "options": {} if options is None else arguments.options(options, _ARGUMENTS),
    }


def _disown_all() -> None:
    for broker in list(_brokers):
        broker.disown()


os.register_at_fork(after_in_child=_disown_all)
