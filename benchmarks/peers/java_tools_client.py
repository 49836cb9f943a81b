"""kafka-producer-perf-test, Apache Kafka's own. Way: ``perf_test``: key-less random records of the task's value size.

It is told a number of records, not a time: as many as RECORDS_PER_S make likely. Its CPU time is that of the whole
process, the start of the virtual machine included.
"""

import re
import resource
import subprocess
import sys

from benchmarks.peers import build
from benchmarks.peers.task import Figures, Task, read_records

RECORDS_PER_S = 1_500_000
_RESULT = re.compile(r"(\d+) records sent, ([\d.]+) records/sec")


def main() -> None:
    """Run it and print its figures."""
    task = Task.from_arguments(sys.argv[1:])
    count = int(RECORDS_PER_S * task.seconds)
    settings = {
        "acks": task.acks,
        "enable.idempotence": str(task.idempotence).lower(),
        "linger.ms": str(task.linger_ms),
        "compression.type": task.compression,
        "batch.size": str(task.batch_bytes or 262_144),
        "buffer.memory": "67108864",
    }
    command = [
        *build.command("java_tools"),
        *("--topic", task.topic, "--num-records", str(count), "--throughput", "-1"),
        *("--record-size", str(len(read_records(task.records).values[0]))),
        *("--producer-props", f"bootstrap.servers={task.bootstrap}"),
        *(f"{name}={value}" for name, value in settings.items()),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    found = list(_RESULT.finditer(done.stdout))
    if not found or int(found[-1][1]) != count:
        raise RuntimeError(f"no final line in:\n{done.stdout}{done.stderr}")
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    figures = Figures(
        records=count,
        all_records=count,
        seconds=count / float(found[-1][2]),
        cpu_s=used.ru_utime + used.ru_stime,
        max_rss_mb=used.ru_maxrss / 1024,
        version="4.3.1",
        settings=settings,
    )
    print(figures.to_json())


if __name__ == "__main__":
    main()
