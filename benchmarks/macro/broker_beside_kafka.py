"""The embedded broker beside Apache Kafka: rate of produce and consume, memory and start time, in one run.

    python -m benchmarks.macro.broker_beside_kafka [--turns 3] [--megabytes 200] [--json OUT]

Both are one node with one topic of one partition, acks=all, no sync before the acknowledgement (Kafka's default) and no
compression. The clients are the Java ones, by Kafka's own tools (`ProducerPerformance`, `ConsumerPerformance`), with
batches of 256 KiB; brokers take turns, so that a busy machine is busy for both. Medians of the turns, with the smallest
and the largest. Memory is the broker's resident set after the last turn. Start is from the process's start to the
first answered request. Kafka runs with its optimizing compiler and 512 MiB of heap. Needs Java and Maven.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import time
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import machine
from kafkaprod.broker.embedded import EmbeddedBroker
from tests.kafka.cluster import KafkaCluster
from tests.kafka.runtime import run_java, tools_class_path

RECORD_BYTES = (100, 1_000)
BATCH_BYTES = 256 * 1024
_TIMEOUT_S = 300
_PRODUCED = re.compile(r"(\d+) records sent, ([\d.]+) records/sec")


class Broker(NamedTuple):
    """One that runs."""

    name: str
    bootstrap: str
    pid: int
    start_s: float


def produce(broker: Broker, topic: str, record_bytes: int, count: int) -> float:
    """Records a second of the Java producer, by its own account."""
    settings = [f"batch.size={BATCH_BYTES}", "linger.ms=5", "acks=all", "buffer.memory=67108864"]
    sizes = ["--num-records", str(count), "--record-size", str(record_bytes), "--throughput", "-1"]
    properties = ["--producer-props", f"bootstrap.servers={broker.bootstrap}", *settings]
    tool = "org.apache.kafka.tools.ProducerPerformance"
    printed = run_java(tools_class_path(), tool, ["--topic", topic, *sizes, *properties], _TIMEOUT_S)
    sent, rate = _PRODUCED.findall(printed)[-1]
    if int(sent) != count:
        raise RuntimeError(f"{broker.name} took {sent} of {count} records:\n{printed}")
    return float(rate)


def consume(broker: Broker, topic: str, count: int) -> float:
    """Records a second of the Java consumer while it fetches, by its own account."""
    arguments = ["--bootstrap-server", broker.bootstrap, "--topic", topic, "--timeout", "60000"]
    limit = ["--num-records", str(count), "--fetch-size", str(1024 * 1024)]
    tool = "org.apache.kafka.tools.ConsumerPerformance"
    printed = run_java(tools_class_path(), tool, [*arguments, *limit], _TIMEOUT_S)
    header, values = ([cell.strip() for cell in line.split(",")] for line in printed.splitlines()[-2:])
    row = dict(zip(header, values, strict=True))
    if int(row["data.consumed.in.nMsg"]) < count:
        raise RuntimeError(f"{broker.name} gave {row['data.consumed.in.nMsg']} of {count} records:\n{printed}")
    return float(row["fetch.nMsg.sec"])


def resident_mib(pid: int) -> float:
    """Resident set of a process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS:")).split()[1]) / 1024


def measure(turns: int, megabytes: int) -> list[dict[str, Any]]:
    """A row a figure and broker: workload, median, smallest, largest."""
    started = time.perf_counter()
    with EmbeddedBroker(auto_create_topics=True) as embedded:
        embedded_s = time.perf_counter() - started
        started = time.perf_counter()
        with KafkaCluster(full_speed=True, overrides={"auto.create.topics.enable": "true"}) as kafka:
            brokers = (
                Broker("embedded broker", embedded.bootstrap_servers, embedded.pid, embedded_s),
                Broker("Apache Kafka", kafka.bootstrap(), kafka.pid(1), time.perf_counter() - started),
            )
            found: dict[tuple[str, str], list[float]] = {}
            for turn in range(turns + 1):
                for record_bytes in RECORD_BYTES:
                    count = megabytes * 1_000_000 // record_bytes
                    for broker in brokers if turn % 2 else reversed(brokers):
                        topic = f"r{record_bytes}-{turn}"
                        rates = produce(broker, topic, record_bytes, count), consume(broker, topic, count)
                        if turn == 0:
                            continue  # Kafka's compiler warms up
                        for what, rate in zip(("produce", "consume"), rates, strict=True):
                            found.setdefault((f"{what} {record_bytes} B, records/s", broker.name), []).append(rate)
            for broker in brokers:
                found["resident, MiB", broker.name] = [resident_mib(broker.pid)]
                found["start, s", broker.name] = [broker.start_s]
    return [
        {"figure": figure, "broker": name, "median": statistics.median(all_), "low": min(all_), "high": max(all_)}
        for (figure, name), all_ in sorted(found.items())
    ]


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.macro.broker_beside_kafka", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--megabytes", type=int, default=200, help="of values a turn")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows = measure(options.turns, options.megabytes)
    for row in rows:
        print(f"{row['figure']:28} {row['broker']:16} {row['median']:14,.2f} ({row['low']:,.2f} to {row['high']:,.2f})")
    if options.json:
        options.json.write_text(json.dumps({"machine": machine.describe(), "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
