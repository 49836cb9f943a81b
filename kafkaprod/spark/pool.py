"""The producers of a Python worker: one per configuration, kept across tasks and micro-batches.

A worker runs many tasks, one at a time. A producer copied by a fork is never used: the process id is part of the key. A
producer that failed is closed at once and not kept.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from typing import Any, Final

from pyspark import cloudpickle

from kafkaprod.errors import KafkaError
from kafkaprod.producer import Producer
from kafkaprod.spark.options import SinkOptions

# A worker has the share of one core, and Spark makes rows slower than one thread compresses them: more threads would
# only evict each other's tables from the cache.
_COMPRESSION_WORKERS: Final = "compression.workers"
# The driver has reached the brokers: what keeps a worker from them may pass, and a failed task costs more than a wait.
_BOOTSTRAP_MS: Final = 60_000
TIMEOUT_MS: Final = 900_000  # of a transaction: the brokers' own limit, unless they are configured otherwise
MAX_PRODUCERS: Final = 4  # of a worker; the least recently used one is closed

_producers: dict[tuple[int, bytes], Producer] = {}  # by process id and pickled options; the last used is the last


@contextlib.contextmanager
def borrowed_producer(kafka: Mapping[str, Any]) -> Iterator[Producer]:
    """Yield the worker's producer of this configuration, for one task.

    If the task fails for any reason, the producer is closed and its unsent records are dropped: Spark runs the task
    again, and nothing would check the outcome of those records.
    """
    dumps: Any = cloudpickle.dumps  # has no types
    key = (os.getpid(), dumps(sorted(kafka.items(), key=lambda option: option[0])))
    for other in [other for other in _producers if other[0] != key[0]]:
        del _producers[other]  # of the process that this one was forked from
    producer = _producers.pop(key, None)
    if producer is None:
        while len(_producers) >= MAX_PRODUCERS:
            _producers.pop(next(iter(_producers))).close()  # it has nothing to send: tasks end with a flush
        producer = Producer(executor_options(kafka))
    _producers[key] = producer
    try:
        yield producer
    except BaseException:
        _producers.pop(key, None)
        with contextlib.suppress(KafkaError, TimeoutError):
            producer.close(0)
        raise


def executor_options(kafka: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a producer in a worker: those given, and defaults that fit a worker."""
    given = {name.replace("_", ".") for name in kafka}
    options = dict(kafka)
    if _COMPRESSION_WORKERS not in given:
        options[_COMPRESSION_WORKERS] = 0
    if given.isdisjoint(("bootstrap.timeout.ms", "max.block.ms")):
        options["bootstrap.timeout.ms"] = _BOOTSTRAP_MS
    return options


def transactional_options(options: SinkOptions, name: str) -> dict[str, Any]:
    """Return the options of a task's producer.

    Args:
        options: The options of the write.
        name: The transactional id.
    """
    return {"transaction.timeout.ms": TIMEOUT_MS} | executor_options(options.kafka) | {"transactional.id": name}
