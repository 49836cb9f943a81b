"""What a producer takes it gives back: memory over many records, descriptors and threads over many producers."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.sink import Sink
from kafkaprod import Producer
from kafkaprod.results.batch import BatchCompletion
from tests.stress.scale import scaled
from tests.support.builds.sanitized import measures_memory
from tests.support.processes import open_descriptors
from tests.support.threads import thread_count

ROOT = Path(__file__).resolve().parents[2]
MEBIBYTE = 1 << 20

GROWTH = """
import os, sys
from kafkaprod import Producer
bootstrap, kind, total = sys.argv[1], sys.argv[2], int(sys.argv[3])
STEPS = 20

def resident_bytes():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

codec = "lz4" if kind == "lz4" else "none"
# A small buffer: what is on its way, and so the memory in use, does not depend on how busy the machine is.
with Producer(bootstrap_servers=bootstrap, compression_type=codec, buffer_memory=4 << 20) as producer:
    block = [b"x" * 100] * 1000
    for step in range(STEPS):
        if kind == "blocks":
            for _ in range(total // STEPS // 1000):
                producer.send_many("t", block)
        else:
            for i in range(total // STEPS):
                future = producer.send("t", b"x" * 100, key=b"k" if i % 2 else None)
                if kind == "callbacks" and i % 10 == 0:
                    future.add_callback(lambda metadata: None)
        producer.flush()
        print(resident_bytes())
"""


@pytest.fixture(scope="module")
def sink() -> Iterator[Sink]:
    with Sink({"t": 6}) as sink:
        yield sink


@measures_memory
@pytest.mark.parametrize(
    ("kind", "total"),
    [
        ("records", scaled(2_000_000, 50_000_000)),
        ("callbacks", scaled(300_000, 10_000_000)),
        ("lz4", scaled(200_000, 10_000_000)),
        ("blocks", scaled(1_000_000, 50_000_000)),
    ],
)
def test_memory_does_not_grow_with_the_number_of_records(sink: Sink, kind: str, total: int) -> None:
    process = subprocess.run(
        [sys.executable, "-c", GROWTH, sink.bootstrap, kind, str(total)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert process.returncode == 0, process.stderr
    resident = [int(line) for line in process.stdout.split()]
    early, late = max(resident[5:12]), max(resident[13:])
    print(f"{total} records, MiB resident: {[round(each / MEBIBYTE, 1) for each in resident]}")
    assert late - early < 4 * MEBIBYTE, resident


def descriptor_count() -> int:
    return len(open_descriptors())


def test_two_hundred_producers_leave_no_descriptor_and_no_thread(sink: Sink) -> None:
    def one(number: int) -> None:
        with Producer(bootstrap_servers=sink.bootstrap) as producer:
            future = producer.send("t", b"x")
            if number % 4:
                future.result(20)
        assert producer.accumulator.pool.in_use == 0

    one(1)
    descriptors, threads = descriptor_count(), thread_count()
    for number in range(scaled(200, 5000)):
        one(number)
    gc.collect()
    assert descriptor_count() == descriptors
    assert thread_count() <= threads  # one of an earlier test may end meanwhile


def test_producers_that_never_reach_a_broker_leave_nothing_either() -> None:
    before = descriptor_count(), thread_count()
    for _ in range(20):
        producer = Producer(bootstrap_servers="127.0.0.1:1", max_block_ms=1)
        with pytest.raises((TimeoutError, ConnectionError)):
            producer.send("t", b"x")
        producer.close(5)
    assert (descriptor_count(), thread_count()) == before


def test_refused_options_leave_nothing() -> None:
    before = descriptor_count(), thread_count()
    for options in ({"acks": 7}, {"security_protocol": "SSL", "ssl_cafile": "/nowhere"}, {"nonsense": 1}):
        with pytest.raises(ValueError):
            Producer(bootstrap_servers="127.0.0.1:1", **options)
    assert (descriptor_count(), thread_count()) == before


def test_dropped_producer_delivers_and_is_collected(sink: Sink) -> None:
    threads = thread_count()
    sink.reset()
    producer = Producer(bootstrap_servers=sink.bootstrap, linger_ms=5000)
    thread, gone = producer._host._thread, weakref.ref(producer)
    futures = [producer.send("t", b"x") for _ in range(100)]
    del producer
    assert gone() is None, "nothing but the user holds a producer"
    thread.join(20)
    assert all(future.succeeded() for future in futures)
    assert sink.counts().records == 100
    assert thread_count() == threads


def test_dropped_futures_and_their_batches_are_freed(sink: Sink) -> None:
    gc.collect()
    of_others = {id(each) for each in gc.get_objects() if isinstance(each, BatchCompletion)}
    with Producer(bootstrap_servers=sink.bootstrap, batch_size=4096) as producer:
        futures = [producer.send("t", b"x" * 100) for _ in range(2000)]
        for future in futures[::3]:
            future.add_callback(lambda metadata: None)
        block = producer.send_many("t", [b"x" * 100] * 500)
        producer.flush(20)
        assert any(isinstance(each, BatchCompletion) for each in gc.get_objects())
        del futures, future, block
        gc.collect()
        left = [each for each in gc.get_objects() if isinstance(each, BatchCompletion)]
        assert not [each for each in left if id(each) not in of_others]
