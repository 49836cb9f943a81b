"""The loop people write today: read a row, make it JSON, produce, poll. `python -m … BOOTSTRAP TOPIC FORMAT FILE`."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterator

from confluent_kafka import Producer


def values(format_name: str, path: str) -> Iterator[bytes]:
    """The value of each record."""
    if format_name in ("lines", "jsonl"):
        with open(path, "rb") as file:
            for line in file:
                yield line.rstrip(b"\n")
    elif format_name == "json":
        with open(path, "rb") as file:
            for row in json.load(file):
                yield json.dumps(row).encode()
    elif format_name == "csv":
        with open(path, newline="") as file:
            for row in csv.DictReader(file):
                yield json.dumps(row).encode()
    else:
        for row in table_rows(format_name, path):
            yield json.dumps(row, default=str).encode()


def table_rows(format_name: str, path: str) -> Iterator[dict[str, object]]:
    """Rows of a Parquet or Arrow file."""
    if format_name == "parquet":
        import pyarrow.parquet as pq

        for batch in pq.ParquetFile(path).iter_batches():
            yield from batch.to_pylist()
        return
    import pyarrow.ipc

    with pyarrow.ipc.open_file(path) as file:
        for number in range(file.num_record_batches):
            yield from file.get_batch(number).to_pylist()


def main() -> None:
    """Send everything."""
    bootstrap, topic, format_name, path = sys.argv[1:]
    producer = Producer(
        {"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True, "linger.ms": 5, "log_level": 0}
    )
    for value in values(format_name, path):
        while True:
            try:
                producer.produce(topic, value)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    producer.flush()


if __name__ == "__main__":
    main()
