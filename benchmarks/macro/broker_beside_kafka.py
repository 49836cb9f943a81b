"""The embedded broker beside Apache Kafka: rate of produce and consume, memory and start time, in one run.

    python -m benchmarks.macro.broker_beside_kafka [--client java] [--turns 3] [--megabytes 200] [--json OUT]

Both are one node with one topic of one partition, acks=all, no compression; neither ever syncs (Kafka's default; the
embedded broker's is every second). Clients, with batches of 256 KiB:

    java     Kafka's own tools, `ProducerPerformance` and `ConsumerPerformance`; much of a turn is their own start
    light    our producer (columns), and a loop that fetches 1 MiB at a time and walks over the batch headers: cheap
             enough for the broker to be the limit

Brokers take turns, so that a busy machine is busy for both; the first turn warms up and does not count. Medians of the
turns, with the smallest and the largest. CPU is the broker's own, all threads, a record: what other work on the machine
changes least. Memory is the broker's resident set after the last turn. Start is from the process's start to the first
answered request. Kafka runs with its optimizing compiler and 512 MiB of heap. Needs Java and Maven.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import struct
import time
from array import array
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import machine
from kafkaprod import Producer
from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from kafkaprod.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from tests.kafka.cluster import KafkaCluster
from tests.kafka.runtime import run_java, tools_class_path
from tests.support.net.raw_client import RawClient

RECORD_BYTES = (100, 1_000)
BATCH_BYTES = 256 * 1024
_TIMEOUT_S = 300
_BATCH_START = struct.Struct(">qi")  # base offset, length of what follows
_LAST_OFFSET_DELTA = struct.Struct(">i")
_HEADER_BYTES = 61
_PRODUCED = re.compile(r"(\d+) records sent, ([\d.]+) records/sec")


class Broker(NamedTuple):
    """One that runs."""

    name: str
    bootstrap: str
    pid: int
    start_s: float


def java_produce(broker: Broker, topic: str, record_bytes: int, count: int) -> float:
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


def java_consume(broker: Broker, topic: str, count: int) -> float:
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


def light_produce(broker: Broker, topic: str, record_bytes: int, count: int) -> float:
    """Records a second of our producer, from the first to the last acknowledgement."""
    rows = BATCH_BYTES // record_bytes
    column = array("i", range(0, (rows + 1) * record_bytes, record_bytes)), bytes(rows * record_bytes)
    with Producer(bootstrap_servers=broker.bootstrap, batch_size=BATCH_BYTES, linger_ms=5, acks="all") as producer:
        producer.send(topic, b"").result(_TIMEOUT_S)  # the topic is made, the connections are there
        started_s = time.perf_counter()
        for _ in range(0, count, rows):
            producer.send_columns(topic, column)
        producer.flush()
        return (count + rows - 1) // rows * rows / (time.perf_counter() - started_s)


def light_consume(broker: Broker, topic: str, count: int) -> float:
    """Records a second of a loop that only looks at the headers of the batches."""
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    request = FetchRequest(max_wait_ms=500, min_bytes=1, topics=[FetchTopic(topic=topic, partitions=[wanted])])
    started_s = time.perf_counter()
    with RawClient(broker.bootstrap) as client:
        while wanted.fetch_offset < count:
            data = client.call(request, FetchResponse, 11).responses[0].partitions[0]
            if data.error_code or not data.records:
                raise RuntimeError(f"{broker.name} gave {wanted.fetch_offset} of {count} records: {data.error_code}")
            position = 0
            while position + _HEADER_BYTES <= len(data.records):
                base_offset, length = _BATCH_START.unpack_from(data.records, position)
                (delta,) = _LAST_OFFSET_DELTA.unpack_from(data.records, position + 23)
                wanted.fetch_offset = base_offset + delta + 1
                position += _BATCH_START.size + length
    return wanted.fetch_offset / (time.perf_counter() - started_s)


CLIENTS = {"java": (java_produce, java_consume), "light": (light_produce, light_consume)}


def cpu_ns(pid: int) -> float:
    """CPU time of a process so far, all threads."""
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[11:13]
    return (int(user) + int(system)) * 1e9 / os.sysconf("SC_CLK_TCK")


def resident_mib(pid: int) -> float:
    """Resident set of a process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS:")).split()[1]) / 1024


def measure(client: str, turns: int, megabytes: int) -> list[dict[str, Any]]:
    """A row a figure and broker: workload, median, smallest, largest."""
    produce, consume = CLIENTS[client]
    started = time.perf_counter()
    with EmbeddedBroker(auto_create_topics=True, flush_policy="never") as embedded:
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
                        before_ns = cpu_ns(broker.pid)
                        produced = produce(broker, topic, record_bytes, count)
                        between_ns = cpu_ns(broker.pid)
                        consumed = consume(broker, topic, count)
                        after_ns = cpu_ns(broker.pid)
                        if turn == 0:
                            continue  # Kafka's compiler warms up
                        for what, figure in (
                            (f"produce {record_bytes} B, records/s", produced),
                            (f"consume {record_bytes} B, records/s", consumed),
                            (f"produce {record_bytes} B, CPU ns", (between_ns - before_ns) / count),
                            (f"consume {record_bytes} B, CPU ns", (after_ns - between_ns) / count),
                        ):
                            found.setdefault((what, broker.name), []).append(figure)
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
    parser.add_argument("--client", choices=CLIENTS, default="java")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--megabytes", type=int, default=200, help="of values a turn")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows = measure(options.client, options.turns, options.megabytes)
    for row in rows:
        print(f"{row['figure']:28} {row['broker']:16} {row['median']:14,.2f} ({row['low']:,.2f} to {row['high']:,.2f})")
    machine.keep(options.json, "rows", rows)


if __name__ == "__main__":
    main()
