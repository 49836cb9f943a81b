"""One client sends one workload in one way and prints what it took: run as a process of its own by `first_figure`.

    python -m benchmarks.compare.clients WAY BOOTSTRAP TOPIC RECORDS

WAY is produce (confluent-kafka), send, send_many or send_columns (kafkaprod). acks=all, idempotence on, linger 5 ms on
both sides. Prints JSON: seconds, cpu_s (this process, user and system), records. Imports and metadata are not counted.
"""

import json
import sys
import time
from collections.abc import Callable

from benchmarks.workloads import make_workload

ROUND = 20_000


def _confluent(bootstrap: str, topic: str, rounds: int) -> Callable[[], None]:
    from confluent_kafka import Producer

    workload = make_workload(ROUND, 100)
    assert workload.keys is not None
    pairs = list(zip(workload.values.as_list(), workload.keys.as_list(), strict=True))
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "enable.idempotence": True,
            "linger.ms": 5,
            "queue.buffering.max.messages": 1_000_000,
        }
    )

    def run() -> None:
        for _ in range(rounds):
            for value, key in pairs:
                while True:
                    try:
                        producer.produce(topic, value, key)
                        break
                    except BufferError:
                        producer.poll(0.01)
            producer.poll(0)
        producer.flush()

    producer.produce(topic, b"warm", b"up")
    producer.flush()
    return run


def _kafkaprod(way: str, bootstrap: str, topic: str, rounds: int) -> Callable[[], None]:
    from kafkaprod import Producer

    workload = make_workload(ROUND, 100)
    assert workload.keys is not None
    values, keys = workload.values.as_list(), workload.keys.as_list()
    pairs = list(zip(values, keys, strict=True))
    value_column = (workload.values.offsets, workload.values.data)
    key_column = (workload.keys.offsets, workload.keys.data)
    producer = Producer(bootstrap_servers=bootstrap)

    def run() -> None:
        send = producer.send
        for _ in range(rounds):
            if way == "send":
                for value, key in pairs:
                    send(topic, value, key)
            elif way == "send_many":
                producer.send_many(topic, values, keys)
            else:
                producer.send_columns(topic, value_column, key_column)
        producer.flush()

    producer.send(topic, b"warm", b"up").result(10)
    return run


def main() -> None:
    """Run once and print the figures."""
    way, bootstrap, topic, records = sys.argv[1:]
    rounds = int(records) // ROUND
    run = _confluent(bootstrap, topic, rounds) if way == "produce" else _kafkaprod(way, bootstrap, topic, rounds)
    started, cpu = time.perf_counter(), time.process_time()
    run()
    print(
        json.dumps(
            {
                "seconds": time.perf_counter() - started,
                "cpu_s": time.process_time() - cpu,
                "records": rounds * ROUND,
            }
        )
    )


if __name__ == "__main__":
    main()
