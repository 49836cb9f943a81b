"""Writers of numbered records while a test breaks a cluster: each way of kafkaprod, and other producers.

Each sends 0, 1, 2 ... to a topic of its own, with acks=all, and notes by partition what was acknowledged.
"""

from __future__ import annotations

import itertools
import json
import shutil
import signal
import subprocess
import tempfile
import threading
from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any

import confluent_kafka

from kafkaprod import Producer
from tests.kafka.runtime import FAST_START, java, tools_class_path

PARTITIONS = 2
DELIVERY_TIMEOUT_MS = 120_000
REQUEST_TIMEOUT_MS = 3_000
BLOCK_RECORDS = 10

_FRANZ_GO = Path(__file__).parent / "franz_go_writer"
_END_S = 150.0


class Writer(ABC):
    """See the module docstring.

    Attributes:
        topic: Its own, with `PARTITIONS` partitions.
        acknowledged: Values by partition, in the order of the acknowledgements.
        failed: Why records failed; empty if all were acknowledged.
    """

    topic: str

    def __init__(self, servers: str) -> None:
        self.servers = servers
        self.acknowledged: dict[int, list[bytes]] = {index: [] for index in range(PARTITIONS)}
        self.failed: list[str] = []

    @abstractmethod
    def start(self) -> None:
        """Begin."""

    @abstractmethod
    def stop(self) -> None:
        """End; all records have their outcome then."""


class _ThreadWriter(Writer):
    """A producer in a thread of this process."""

    def __init__(self, servers: str) -> None:
        super().__init__(servers)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=self.topic)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    @abstractmethod
    def _write(self) -> None: ...

    def _run(self) -> None:
        try:
            self._write()
        except Exception as error:
            self.failed.append(f"{type(error).__name__}: {error}")

    def _numbers(self, pause_s: float, step: int = 1) -> itertools.takewhile[int]:
        return itertools.takewhile(lambda _: not self._stop.wait(pause_s), itertools.count(0, step))

    def _note(self, partition: int, value: bytes, error: Any) -> None:
        if error is None:
            self.acknowledged[partition].append(value)
        else:
            self.failed.append(str(error))

    def _producer(self) -> Producer:
        return Producer(
            bootstrap_servers=self.servers,
            acks="all",
            delivery_timeout_ms=DELIVERY_TIMEOUT_MS,
            request_timeout_ms=REQUEST_TIMEOUT_MS,
        )


class Send(_ThreadWriter):
    """`Producer.send`, waiting for nothing."""

    topic = "sent"

    def _write(self) -> None:
        with self._producer() as producer:
            for number in self._numbers(0.005):
                for partition in range(PARTITIONS):
                    value = b"%d" % number
                    producer.send(self.topic, value, partition=partition).add_done_callback(
                        self._noter(partition, value)
                    )
            producer.flush()

    def _noter(self, partition: int, value: bytes) -> Callable[..., None]:
        return lambda future: self._note(partition, value, future.exception())


class _Blocks(_ThreadWriter):
    """Blocks of records, each waited for."""

    def _write(self) -> None:
        with self._producer() as producer:
            for first in self._numbers(0.02, BLOCK_RECORDS):
                values = [b"%d" % number for number in range(first, first + BLOCK_RECORDS)]
                for partition in range(PARTITIONS):
                    block = self._send(producer, values, partition)
                    block.wait()
                    if block.failed_count:
                        self.failed.append(f"{block.failed_count} records of a block")
                    else:
                        self.acknowledged[partition] += values

    @abstractmethod
    def _send(self, producer: Producer, values: Sequence[bytes], partition: int) -> Any: ...


class SendMany(_Blocks):
    """`Producer.send_many`."""

    topic = "sent-many"

    def _send(self, producer: Producer, values: Sequence[bytes], partition: int) -> Any:
        return producer.send_many(self.topic, values, partition=partition)


class SendColumns(_Blocks):
    """`Producer.send_columns`."""

    topic = "sent-columns"

    def _send(self, producer: Producer, values: Sequence[bytes], partition: int) -> Any:
        offsets = array("i", itertools.accumulate(map(len, values), initial=0))
        return producer.send_columns(self.topic, (offsets, b"".join(values)), partition=partition)


class Confluent(_ThreadWriter):
    """confluent-kafka's idempotent producer."""

    topic = "confluent"

    def _write(self) -> None:
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": self.servers,
                "enable.idempotence": True,
                "message.timeout.ms": DELIVERY_TIMEOUT_MS,
                "socket.timeout.ms": REQUEST_TIMEOUT_MS,
                "log_level": 0,
            }
        )
        for number in self._numbers(0.005):
            for partition in range(PARTITIONS):
                producer.produce(self.topic, b"%d" % number, partition=partition, on_delivery=self._on_delivery)
            producer.poll(0)
        if producer.flush(DELIVERY_TIMEOUT_MS / 1000):
            self.failed.append("confluent-kafka did not deliver all in time")

    def _on_delivery(self, error: Any, message: Any) -> None:
        self._note(message.partition(), message.value(), error)


class _ProcessWriter(Writer):
    """A producer in a process of its own, which prints what was acknowledged."""

    def __init__(self, servers: str) -> None:
        super().__init__(servers)
        self._directory = tempfile.TemporaryDirectory(prefix="writer-")
        self._process: subprocess.Popen[str] | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        log = (Path(self._directory.name) / "errors").open("w+")
        self._process = subprocess.Popen(
            self._command(Path(self._directory.name)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        assert self._process.stdout is not None
        self._thread = threading.Thread(target=self._read, args=(self._process.stdout,), name=self.topic)
        self._thread.start()

    def stop(self) -> None:
        assert self._process is not None
        assert self._thread is not None
        self._end(self._process)
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self.failed.append(f"{self.topic} did not end in {_END_S} s")
        self._thread.join()
        errors = (Path(self._directory.name) / "errors").read_text()
        self.failed += [line for line in errors.splitlines() if self._is_failure(line)]
        self._directory.cleanup()

    def _read(self, lines: IO[str]) -> None:
        for line in lines:
            self._take(line)

    @abstractmethod
    def _command(self, directory: Path) -> list[str]: ...

    @abstractmethod
    def _take(self, line: str) -> None: ...

    @abstractmethod
    def _end(self, process: subprocess.Popen[str]) -> None: ...

    def _is_failure(self, line: str) -> bool:
        return bool(line)


class JavaProducer(_ProcessWriter):
    """Apache Kafka's own producer, in its VerifiableProducer."""

    topic = "java"

    def _command(self, directory: Path) -> list[str]:
        config = directory / "producer.properties"
        config.write_text(
            f"enable.idempotence=true\nretries=2147483647\ndelivery.timeout.ms={DELIVERY_TIMEOUT_MS}\n"
            f"request.timeout.ms={REQUEST_TIMEOUT_MS}\nmetadata.max.age.ms=5000\n"
        )
        arguments = ["--bootstrap-server", self.servers, "--topic", self.topic, "--throughput", "300"]
        return java(
            tools_class_path(),
            "org.apache.kafka.tools.VerifiableProducer",
            [*arguments, "--command-config", str(config)],
            (*FAST_START, "-Xmx64m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"),
        )

    def _take(self, line: str) -> None:
        event: dict[str, Any] = json.loads(line) if line.startswith("{") else {"name": "a line for people"}
        if event["name"] == "producer_send_success":
            self.acknowledged[event["partition"]].append(event["value"].encode())
        elif event["name"] == "producer_send_error":
            self.failed.append(f"{event['exception']}: {event['message']}")

    def _end(self, process: subprocess.Popen[str]) -> None:
        process.send_signal(signal.SIGTERM)

    def _is_failure(self, line: str) -> bool:
        return "Exception in thread" in line


class FranzGo(_ProcessWriter):
    """franz-go's producer; its program is built when it is first used."""

    topic = "franz-go"

    def _command(self, directory: Path) -> list[str]:
        source, program = directory / "source", directory / "writer"
        shutil.copytree(_FRANZ_GO, source)
        subprocess.run(["go", "build", "-o", str(program), "."], cwd=source, check=True)
        return [str(program), self.servers, self.topic, str(PARTITIONS)]

    def _take(self, line: str) -> None:
        partition, value = line.split()
        self.acknowledged[int(partition)].append(value.encode())

    def _end(self, process: subprocess.Popen[str]) -> None:
        assert process.stdin is not None
        process.stdin.close()


WRITERS: dict[str, type[Writer]] = {
    writer.topic: writer for writer in (Send, SendMany, SendColumns, Confluent, JavaProducer, FranzGo)
}
