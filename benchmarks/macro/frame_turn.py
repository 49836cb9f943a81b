"""One way of one frame's rows into Kafka, measured: `python -m … FRAME WAY BOOTSTRAP TOPIC WARM_UP_FILE FILE`.

Prints seconds and CPU seconds from the call to the acknowledgement of all rows, as JSON; making the frame from a
Parquet file is not in it, unless the frame reads it only then. CPU time is that of this process and its descendants.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

KEY = "id"
_TICKS = os.sysconf("SC_CLK_TCK")
_LOOP_OPTIONS = {"acks": "all", "enable.idempotence": True, "linger.ms": 5, "log_level": 0}


class Frame(NamedTuple):
    """A kind of frame.

    Attributes:
        package: What it needs.
        make: Make it from a Parquet file.
        rows: Its rows as dicts, in the way its documentation shows first.
    """

    package: str
    make: Callable[[str], Any]
    rows: Callable[[Any], Iterable[dict[str, Any]]]


def _load(name: str) -> Any:
    return importlib.import_module(name)


def _of_batches(batches: Iterable[Any]) -> Iterator[dict[str, Any]]:
    for batch in batches:
        yield from batch.to_pylist()


def _of_relation(relation: Any) -> Iterator[dict[str, Any]]:
    names = relation.columns
    for row in relation.fetchall():
        yield dict(zip(names, row, strict=True))


def _ray_dataset(path: str) -> Any:
    ray = _load("ray")
    if not ray.is_initialized():
        environment = {"worker_process_setup_hook": _install} if sys.argv[2] == INSTALLED else {}
        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, runtime_env=environment)
    return _load("ray.data").read_parquet(path).materialize()


def _install() -> None:
    from kafkaprod.compat import install

    install("confluent_kafka")


FRAMES = {
    "pandas DataFrame": Frame(
        "pandas", lambda path: _load("pandas").read_parquet(path), lambda frame: frame.to_dict("records")
    ),
    "polars DataFrame": Frame(
        "polars", lambda path: _load("polars").read_parquet(path), lambda frame: frame.iter_rows(named=True)
    ),
    "polars LazyFrame": Frame(
        "polars", lambda path: _load("polars").scan_parquet(path), lambda frame: frame.collect().iter_rows(named=True)
    ),
    "pyarrow Table": Frame(
        "pyarrow",
        lambda path: _load("pyarrow.parquet").read_table(path),
        lambda table: _of_batches(table.to_batches()),
    ),
    "pyarrow Dataset": Frame(
        "pyarrow",
        lambda path: _load("pyarrow.dataset").dataset(path),
        lambda dataset: _of_batches(dataset.to_batches()),
    ),
    "pyarrow RecordBatchReader": Frame(
        "pyarrow", lambda path: _load("pyarrow.dataset").dataset(path).scanner().to_reader(), _of_batches
    ),
    "DuckDB relation": Frame("duckdb", lambda path: _load("duckdb").read_parquet(path), _of_relation),
    "list of dicts": Frame("pyarrow", lambda path: _load("pyarrow.parquet").read_table(path).to_pylist(), iter),
    "Daft DataFrame": Frame(
        "daft", lambda path: _load("daft").read_parquet(path).collect(), lambda frame: frame.iter_rows()
    ),
    "Ray Dataset": Frame("ray", _ray_dataset, lambda dataset: dataset.iter_rows()),
}
OURS = "send_table"
LOOP = "loop of confluent-kafka"
OWN = "write_kafka"
INSTALLED = "write_kafka after install()"


def ways_of(frame: str) -> list[str]:
    """What is compared: Ray has a method of its own, all others a loop."""
    return [OURS, OWN, INSTALLED] if frame == "Ray Dataset" else [OURS, LOOP]


def _with_send_table(bootstrap: str, topic: str) -> Callable[[Any], None]:
    from kafkaprod import Producer

    producer = Producer(bootstrap_servers=bootstrap, linger_ms=5)

    def send(data: Any) -> None:
        result = producer.send_table(topic, data, key=KEY, value="json").result(600)
        assert result.failed_count == 0

    return send


def _with_loop(bootstrap: str, topic: str, rows: Callable[[Any], Iterable[dict[str, Any]]]) -> Callable[[Any], None]:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, **_LOOP_OPTIONS})

    def send(data: Any) -> None:
        for row in rows(data):
            while True:
                try:
                    producer.produce(topic, json.dumps(row).encode(), row[KEY])
                    break
                except BufferError:
                    producer.poll(0.1)
            producer.poll(0)
        producer.flush()

    return send


def _with_write_kafka(bootstrap: str, topic: str) -> Callable[[Any], None]:
    return lambda data: data.write_kafka(topic, bootstrap, key_field=KEY, producer_config=_LOOP_OPTIONS)


def descendants_cpu_s() -> float:
    """CPU seconds so far of all processes below this one, to a hundredth."""
    parents, used = {}, {}
    for directory in Path("/proc").iterdir():
        if directory.name.isdigit():
            try:
                fields = (directory / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(directory.name)] = int(fields[1])
            used[int(directory.name)] = sum(map(int, fields[11:15])) / _TICKS
    total = 0.0
    for pid, seconds in used.items():
        ancestor = parents[pid]
        while ancestor != os.getpid() and ancestor in parents:
            ancestor = parents[ancestor]
        total += seconds * (ancestor == os.getpid())
    return total


def main() -> None:
    """Send a few rows, then all of them."""
    name, way, bootstrap, topic, few, everything = sys.argv[1:]
    frame = FRAMES[name]
    if way == OURS:
        send = _with_send_table(bootstrap, topic)
    elif way == LOOP:
        send = _with_loop(bootstrap, topic, frame.rows)
    else:
        send = _with_write_kafka(bootstrap, topic)
    send(frame.make(few))
    data = frame.make(everything)
    before_s, own_s, started = descendants_cpu_s(), time.process_time(), time.perf_counter()
    send(data)
    seconds, own_s = time.perf_counter() - started, time.process_time() - own_s
    print(json.dumps({"seconds": seconds, "cpu_s": own_s + descendants_cpu_s() - before_s}))


if __name__ == "__main__":
    main()
