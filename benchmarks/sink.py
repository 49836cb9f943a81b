"""A broker-less sink: the peer of a producer benchmark when a broker would be the limit.

It speaks just enough Kafka to accept and acknowledge Produce requests of any client, counts what it gets from the
batch headers, and keeps nothing. It runs as a process of its own:

    with Sink({"bench": 6}) as sink:
        producer = Producer({"bootstrap.servers": sink.bootstrap})
        ...
        print(sink.counts().records)

By hand: ``python -m benchmarks.sink --topic bench:6``; it prints its addresses and stops at the end of its input.
"""

import argparse
import json
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from benchmarks.sink_server import Server
from benchmarks.sink_wire import Layout

_REPOSITORY = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True)
class SinkCounts:
    """What the sink accepted since the last reset.

    Attributes:
        requests: Produce requests.
        batches: record batches.
        records: records, as the batch headers say.
        batch_bytes: bytes of the batches, headers included.
        crc_errors: batches whose CRC-32C is wrong (only with ``check_crc``).
        cpu_s: CPU seconds the sink's process used.
    """

    requests: int
    batches: int
    records: int
    batch_bytes: int
    crc_errors: int
    cpu_s: float


class Sink:
    """A sink process, from construction to `close`. Not for use from several threads.

    Args:
        topics: topic name to number of partitions; other topics do not exist.
        nodes: brokers to pretend; the leader of partition p is node p modulo nodes.
        check_crc: verify the CRC-32C of each batch (about 5 GB/s).
        keep_bytes: read every byte into memory as a broker would, instead of dropping batches in the kernel.
        advertised: ports that clients are told, one a node, if others than its own: those of a proxy.
        host: address to listen at and to tell.
        within: command that the sink's process runs under, such as one that enters a network namespace.
    """

    def __init__(
        self,
        topics: Mapping[str, int],
        *,
        nodes: int = 1,
        check_crc: bool = False,
        keep_bytes: bool = False,
        advertised: Sequence[int] = (),
        host: str = "127.0.0.1",
        within: Sequence[str] = (),
    ) -> None:
        command = [*within, sys.executable, "-m", "benchmarks.sink", "--nodes", str(nodes), "--host", host]
        for name, partition_count in topics.items():
            command += ["--topic", f"{name}:{partition_count}"]
        command += ["--check-crc"] if check_crc else []
        command += ["--keep-bytes"] if keep_bytes else []
        for port in advertised:
            command += ["--advertise", str(port)]
        self._process = subprocess.Popen(
            command, cwd=_REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.ports: list[int] = self._answer()
        self.bootstrap = ",".join(f"{host}:{port}" for port in advertised or self.ports)

    @property
    def pid(self) -> int:
        """Process id, for pinning it to a core."""
        return self._process.pid

    def counts(self) -> SinkCounts:
        """The counters now."""
        return SinkCounts(**self._ask("counts"))

    def reset(self) -> SinkCounts:
        """Counters to zero (offsets go on); returns what they were."""
        return SinkCounts(**self._ask("reset"))

    def offsets(self) -> dict[str, list[int]]:
        """Next offset of each partition: how many records each has taken since the start."""
        return self._ask("offsets")

    def close(self) -> None:
        """End the process; may be called twice."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait(10)
        if self._process.stdout is not None:
            self._process.stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask(self, command: str) -> Any:
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> Any:
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the sink process ended with {self._process.wait(10)}")
        return json.loads(line)


def main() -> None:
    """Body of the sink process."""
    parser = argparse.ArgumentParser(description="Accept and acknowledge Kafka Produce requests, keep nothing.")
    parser.add_argument("--topic", action="append", required=True, metavar="NAME:PARTITIONS")
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--check-crc", action="store_true")
    parser.add_argument("--keep-bytes", action="store_true")
    parser.add_argument("--advertise", action="append", type=int, metavar="PORT", help="of each node, if not its own")
    options = parser.parse_args()
    checksum = None
    if options.check_crc:
        from crc32c import crc32c as checksum
    listeners = [socket.create_server((options.host, 0), backlog=128) for _ in range(options.nodes)]
    ports = [listener.getsockname()[1] for listener in listeners]
    topics = {name: int(count) for name, _, count in (text.rpartition(":") for text in options.topic)}
    layout = Layout(options.advertise or ports, topics, options.host)
    server = Server(layout, checksum=checksum, keep_bytes=options.keep_bytes)
    print(json.dumps(ports), flush=True)
    server.run(listeners, sys.stdin.fileno(), sys.stdout.fileno())


if __name__ == "__main__":
    main()
