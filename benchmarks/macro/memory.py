"""Memory with a full buffer: a far end that stops answering, and a producer that is fed until it refuses.

    python -m benchmarks.macro.memory [--json OUT]

Both clients may buffer 64 MiB. The sink is frozen after a first record in every partition; then 100-byte values are
sent until the client is full. Reported: payload bytes it took, and by how much its resident set grew; memory should
follow the data, not the number of partitions.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import machine
from benchmarks.sink import Sink

TOPIC = "memory"
PARTITIONS = (1, 100, 10_000)
BUFFER_BYTES = 64 * 1024 * 1024
VALUE = bytes(100)
_MIB = 1024 * 1024

# What sends a record, what flushes, and what a full buffer raises.
_Client = tuple[Callable[..., Any], Callable[[float], Any], type[Exception]]


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _kafkaprod(bootstrap: str) -> _Client:
    from kafkaprod import Producer
    from kafkaprod.errors import BufferFullError

    producer = Producer(bootstrap_servers=bootstrap, buffer_memory=BUFFER_BYTES, buffer_full_policy="raise")
    producer.partitions_for(TOPIC)
    return producer.send, producer.flush, BufferFullError


def _confluent(bootstrap: str) -> _Client:
    from confluent_kafka import Producer

    options = {"queue.buffering.max.kbytes": BUFFER_BYTES // 1024, "queue.buffering.max.messages": 10_000_000}
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0, **options})
    producer.list_topics(TOPIC)
    return producer.produce, producer.flush, BufferError


CLIENTS = {"kafkaprod": _kafkaprod, "confluent-kafka": _confluent}


def _fill(client: str, bootstrap: str, partitions: int) -> None:
    """Body of a client's process; it ends without waiting for what it cannot deliver."""
    send, flush, full_error = CLIENTS[client](bootstrap)
    for partition in range(partitions):
        send(TOPIC, VALUE, partition=partition)
    flush(30)
    print("ready", flush=True)
    sys.stdin.readline()  # the sink is stopped now
    resident_before, count = _resident_bytes(), 0
    try:
        while True:
            send(TOPIC, VALUE, partition=count % partitions)
            count += 1
    except full_error:
        print(json.dumps({"records": count, "grown_bytes": _resident_bytes() - resident_before}), flush=True)
    os._exit(0)


def measure(client: str, partitions: int) -> dict[str, Any]:
    """One client once."""
    with Sink({TOPIC: partitions}) as sink:
        command = [sys.executable, "-m", "benchmarks.macro.memory", "--fill", client, sink.bootstrap, str(partitions)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            if process.stdout.readline() != "ready\n":
                raise RuntimeError(f"{client} did not start")
            os.kill(sink.pid, signal.SIGSTOP)
            process.stdin.write("\n")
            process.stdin.flush()
            found = json.loads(process.stdout.readline())
        finally:
            os.kill(sink.pid, signal.SIGCONT)
            process.communicate(timeout=60)
    return {"client": client, "partitions": partitions, "payload_bytes": found["records"] * len(VALUE), **found}


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.macro.memory", description=__doc__.partition("\n")[0])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--fill", nargs=3, metavar=("CLIENT", "BOOTSTRAP", "PARTITIONS"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.fill:
        client, bootstrap, partitions = options.fill
        _fill(client, bootstrap, int(partitions))
    rows = []
    for partitions in PARTITIONS:
        for client in CLIENTS:
            row = measure(client, partitions)
            rows.append(row)
            print(
                f"{client:16} {partitions:6,} partitions: took {row['payload_bytes'] / _MIB:5.1f} MiB of values in "
                f"{row['records']:,} records, grew by {row['grown_bytes'] / _MIB:6.1f} MiB",
                flush=True,
            )
    machine.keep(options.json, "memory", rows)


if __name__ == "__main__":
    main()
