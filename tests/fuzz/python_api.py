"""Call every public entry point with hostile objects: `python -m tests.fuzz.python_api --calls N --seed S`.

Numbers that differ each time they are asked, sequences that change while they are read, buffers of wrong types, and a
thread that writes to the buffers meanwhile. A crash of the interpreter, an exception that no caller could expect
(SystemError, AttributeError ...) or memory that is not given back ends the run with status 1. Call i depends on the
seed and i only: `--first i --calls 1` repeats it. No broker is needed; with `--broker` an embedded one gets them.
"""

from __future__ import annotations

import argparse
import collections
import faulthandler
import logging
import random
import resource
import sys
import traceback
from collections.abc import Callable
from typing import Any

from kafkaprod import Producer
from kafkaprod.errors import KafkaError
from tests.fuzz.hostile_objects import Buffers, PlantedError
from tests.fuzz.python_calls import TOPIC, Call, HostileHooks, Session

OPTIONS: dict[str, Any] = {
    "request_timeout_ms": 100,
    "delivery_timeout_ms": 200,
    "max_block_ms": 5,
    "linger_ms": 0,
    "batch_size": 4096,
    "buffer_memory": 1 << 20,
    "max_request_size": 1 << 16,
}
PARTITIONS = 3
EXPECTED = (KafkaError, TimeoutError, TypeError, ValueError, OverflowError, IndexError, BufferError, MemoryError)


def fuzz(
    make_session: Callable[[Buffers], Session], seed: int, first: int, calls: int
) -> tuple[collections.Counter[str], list[str]]:
    """Make the calls; return how often each outcome came, and what no caller could expect."""
    buffers = Buffers(random.Random(seed))
    outcomes: collections.Counter[str] = collections.Counter()
    wrong: list[str] = []
    session = make_session(buffers)
    with buffers.spoiled():
        for i in range(first, first + calls):
            if i % 64 == 0:
                buffers.restore()
            try:
                Call(session, random.Random(f"{seed}:{i}")).run()
                outcomes["accepted"] += 1
            except PlantedError:
                outcomes["planted"] += 1
            except EXPECTED as error:
                outcomes[type(error).__name__] += 1
            except Exception as error:
                if not isinstance(error.__cause__ or error.__context__, PlantedError):
                    wrong.append(f"--seed {seed} --first {i} --calls 1: {''.join(traceback.format_exception(error))}")
                outcomes[type(error).__name__] += 1
    return outcomes, wrong


def main(arguments: list[str] | None = None) -> int:
    """Run as the command line says; 0 if nothing was wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--calls", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--broker", action="store_true", help="deliver to an embedded broker")
    parser.add_argument(
        "--memory-limit", type=int, default=4 << 30, help="bytes of address space; 0: none (sanitizers)"
    )
    options = parser.parse_args(arguments)
    if options.memory_limit:  # a huge row count is legal: it must end in a MemoryError, not with the machine's memory
        resource.setrlimit(resource.RLIMIT_AS, (options.memory_limit, resource.getrlimit(resource.RLIMIT_AS)[1]))
    faulthandler.enable()
    logging.disable(logging.CRITICAL)
    if options.broker:
        from kafkaprod.broker.embedding.embedded import EmbeddedBroker

        with EmbeddedBroker(topics={TOPIC: PARTITIONS}) as broker:
            return report(options, broker.bootstrap_servers)
    return report(options, "127.0.0.1:9")


def report(options: argparse.Namespace, bootstrap_servers: str) -> int:
    """Fuzz producers and print what came of it."""
    hooks = HostileHooks()
    producer = Producer(bootstrap_servers=bootstrap_servers, **OPTIONS)
    hooked = Producer(
        bootstrap_servers=bootstrap_servers,
        value_serializer=hooks.serialize,
        partitioner=hooks,
        interceptors=[hooks],
        **OPTIONS,
    )
    producers = [producer, hooked]
    if not options.broker:
        for each in producers:
            each.accumulator.set_topic(TOPIC, [1] * PARTITIONS)
    sessions: list[Session] = []

    def make_session(buffers: Buffers) -> Session:
        sessions.append(Session(producer, hooked, hooks, buffers))
        return sessions[0]

    outcomes, wrong = fuzz(make_session, options.seed, options.first, options.calls)
    sessions[0].close()
    for each in producers:
        each.close(5)
        if each.accumulator.pool.in_use:
            wrong.append(f"{each.accumulator.pool.in_use} bytes of the pool were not given back")
    counts = ", ".join(f"{name} {n}" for name, n in outcomes.most_common())
    print(f"seed {options.seed}, {options.calls} calls from {options.first}:", counts)
    for text in wrong[:20]:
        print(text)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
