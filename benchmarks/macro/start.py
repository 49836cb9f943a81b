"""What a start costs: time to import, time and CPU time to the first acknowledged record.

    python -m benchmarks.macro.start [--turns 7] [--json OUT]

Each in a fresh process, clients taking turns, against the sink; medians, smallest and largest, in ms. CPU time is that
of the whole process, the start of the interpreter included. Compiled sources are kept, whatever the environment says.
"""

import argparse
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks import machine
from benchmarks.sink import Sink

TOPIC = "start"
_MEASURE = """
import sys, time
started = time.perf_counter()
{imports}
imported = time.perf_counter()
{send}
print((imported - started) * 1000, (time.perf_counter() - started) * 1000, time.process_time() * 1000)
"""
_ASYNC = """
import asyncio
async def send():
    producer = aiokafka.AIOKafkaProducer(bootstrap_servers=sys.argv[1])
    await producer.start()
    await producer.send_and_wait("start", b"value")
asyncio.run(send())
"""
# Client: what it imports, what sends one record and waits for it.
PROGRAMS = {
    "kafkaprod": (
        "from kafkaprod import Producer",
        "Producer(bootstrap_servers=sys.argv[1]).send('start', b'value').result(10)",
    ),
    "confluent-kafka": (
        "from confluent_kafka import Producer",
        "p = Producer({'bootstrap.servers': sys.argv[1]}); p.produce('start', b'value'); p.flush(10)",
    ),
    "kafka-python": (
        "from kafka import KafkaProducer",
        "KafkaProducer(bootstrap_servers=sys.argv[1]).send('start', b'value').get(10)",
    ),
    "aiokafka": ("import aiokafka", _ASYNC),
}


def measure(turns: int) -> list[dict[str, Any]]:
    """A row a client."""
    times: dict[str, list[tuple[float, ...]]] = {name: [] for name in PROGRAMS}
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    with Sink({TOPIC: 1}) as sink:
        for _ in range(turns):
            for name, (imports, send) in PROGRAMS.items():
                program = _MEASURE.format(imports=imports, send=send)
                command = [sys.executable, "-W", "ignore", "-c", program, sink.bootstrap]
                done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=60)
                times[name].append(tuple(map(float, done.stdout.split())))
    return [
        {
            "client": name,
            **{what: _spread(column) for what, column in zip(FIGURES, zip(*rows, strict=True), strict=True)},
        }
        for name, rows in times.items()
    ]


FIGURES = ("import_ms", "first_record_ms", "cpu_ms")


def _spread(values: tuple[float, ...]) -> dict[str, float]:
    return {"median": statistics.median(values), "low": min(values), "high": max(values)}


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.macro.start", description=__doc__.partition("\n")[0])
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows = measure(options.turns)
    for row in rows:
        figures = "   ".join(f"{what} {row[what]['median']:6.1f} (from {row[what]['low']:.1f})" for what in FIGURES)
        print(f"{row['client']:16} {figures}")
    machine.keep(options.json, "start", rows)


if __name__ == "__main__":
    main()
