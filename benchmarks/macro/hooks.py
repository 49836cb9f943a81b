"""What the user's code in a send costs beside other clients: CPU time of the calling thread, nanoseconds a record.

    python -m benchmarks.macro.hooks [--rounds 5] [--records 20000]

Each way sends the same records to the sink, in turns; "above" is its cheapest round less that of the same client
without the code and less the function's own time in a loop.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import confluent_kafka
from confluent_kafka import SerializingProducer
from kafka import KafkaProducer

from benchmarks.sink import Sink
from kafkaprod import Producer

TOPIC, TEXT = "hooks", "x" * 100
Send = Callable[[Any], object]


class Same:
    """An interceptor and a partitioner that do nothing."""

    def on_send(self, record: Any) -> Any:
        return record

    def partition(self, *_: Any) -> int:
        return 0


def encode(text: str) -> bytes:
    """The serializer of all clients."""
    return text.encode()


def encode_in_context(text: str, context: Any) -> bytes:
    """The same in the form that confluent-kafka calls."""
    return text.encode()


def ways(bootstrap: str, stack: ExitStack) -> Iterator[tuple[str, str, Send, Callable[[], object], Any]]:
    """Name, name of the same client without the code, send, flush and what to send."""
    data = TEXT.encode()
    for name, value, options in (
        ("kafkaprod", data, {}),
        ("kafkaprod, serializer", TEXT, {"value_serializer": encode}),
        ("kafkaprod, interceptor", data, {"interceptors": [Same()]}),
        ("kafkaprod, partitioner", data, {"partitioner": Same()}),
    ):
        ours = stack.enter_context(Producer(bootstrap_servers=bootstrap, **options))
        yield name, "kafkaprod", lambda value, send=ours.send: send(TOPIC, value), ours.flush, value
    for name, value, options in (
        ("kafka-python", data, {}),
        ("kafka-python, serializer", TEXT, {"value_serializer": encode}),
    ):
        theirs = KafkaProducer(bootstrap_servers=bootstrap, **options)
        stack.callback(theirs.close)
        yield name, "kafka-python", lambda value, send=theirs.send: send(TOPIC, value), theirs.flush, value
    settings = {"bootstrap.servers": bootstrap, "queue.buffering.max.messages": 10_000_000}
    for name, value, other in (
        ("confluent-kafka", data, confluent_kafka.Producer(settings)),
        ("confluent-kafka, serializer", TEXT, SerializingProducer(settings | {"value.serializer": encode_in_context})),
    ):
        yield name, "confluent-kafka", lambda value, send=other.produce: send(TOPIC, value=value), other.flush, value


def cpu_ns(work: Callable[[], object], count: int) -> float:
    """Of the calling thread, for each of `count`."""
    started = time.thread_time_ns()
    work()
    return (time.thread_time_ns() - started) / count


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--records", type=int, default=20_000)
    options = parser.parse_args()
    best: dict[str, float] = {}
    plain: dict[str, str] = {}
    with Sink({TOPIC: 6}) as sink, ExitStack() as stack:
        every = list(ways(sink.bootstrap, stack))
        for _ in range(options.rounds):
            for name, without, send, flush, value in every:

                def send_all(send: Send = send, value: Any = value) -> None:
                    for _ in range(options.records):
                        send(value)

                cost = cpu_ns(send_all, options.records)
                flush()
                best[name], plain[name] = min(cost, best.get(name, cost)), without
        own = min(cpu_ns(lambda: [encode(TEXT) for _ in range(options.records)], options.records) for _ in range(5))
    for name, cost in best.items():
        above = "" if plain[name] == name else f", above plain and the function {cost - best[plain[name]] - own:6.0f}"
        print(f"{name:28} {cost:7.0f} ns a record{above}")


if __name__ == "__main__":
    main()
