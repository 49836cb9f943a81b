"""What the user's code in a send costs beside other clients: CPU time of the calling thread, nanoseconds a record.

    python -m benchmarks.macro.hooks [--rounds 5] [--records 20000]

Each way sends the same records to the sink, in turns; "above" is its cheapest round less that of the same client
without the code and less the code's own time in a loop. Blocks are lists of 1,000 values.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple

import confluent_kafka
from confluent_kafka import SerializingProducer
from kafka import KafkaProducer

from benchmarks.sink import Sink
from kafkaprod import Producer

TOPIC, TEXT = "hooks", "x" * 100
DATA = TEXT.encode()
BLOCK = 1000
Send = Callable[[Any], object]


class Same:
    """An interceptor and a partitioner that do nothing."""

    def on_send(self, record: Any) -> Any:
        return record

    def partition(self, *_: Any) -> int:
        return 0


SAME = Same()


def encode(text: str) -> bytes:
    """The serializer of all clients."""
    return text.encode()


def encode_in_context(text: str, context: Any) -> bytes:
    """The same in the form that confluent-kafka calls."""
    return text.encode()


class Way(NamedTuple):
    """A client with some code of the user's.

    Attributes:
        name: For the table.
        plain: Name of the same client without the code.
        send: Sends one value, or one block.
        flush: Waits for the outcomes.
        value: What to send.
        own: The user's code, as it is called for a record.
    """

    name: str
    plain: str
    send: Send
    flush: Callable[[], object]
    value: Any
    own: Callable[[], object] | None = None

    @property
    def size(self) -> int:
        """Records of a call."""
        return len(self.value) if isinstance(self.value, list) else 1


def ours(bootstrap: str, stack: ExitStack) -> Iterator[Way]:
    """The ways of this project."""
    for code, value, options, own in (
        ("", DATA, {}, None),
        (", serializer", TEXT, {"value_serializer": encode}, lambda: encode(TEXT)),
        (", interceptor", DATA, {"interceptors": [SAME]}, lambda: SAME.on_send(DATA)),
        (", partitioner", DATA, {"partitioner": SAME}, lambda: SAME.partition(TOPIC, None, DATA, 6)),
    ):
        producer = stack.enter_context(Producer(bootstrap_servers=bootstrap, **options))
        one = lambda value, send=producer.send: send(TOPIC, value)  # noqa: E731
        many = lambda values, send=producer.send_many: send(TOPIC, values)  # noqa: E731
        yield Way(f"kafkaprod{code}", "kafkaprod", one, producer.flush, value, own)
        yield Way(f"kafkaprod, blocks{code}", "kafkaprod, blocks", many, producer.flush, [value] * BLOCK, own)


def theirs(bootstrap: str, stack: ExitStack) -> Iterator[Way]:
    """The ways of kafka-python and confluent-kafka."""
    for code, value, options, own in (
        ("", DATA, {}, None),
        (", serializer", TEXT, {"value_serializer": encode}, lambda: encode(TEXT)),
        (", partitioner", DATA, {"partitioner": SAME}, lambda: SAME.partition(TOPIC, None, DATA)),
    ):
        producer = KafkaProducer(bootstrap_servers=bootstrap, **options)
        stack.callback(producer.close)
        one = lambda value, send=producer.send: send(TOPIC, value)  # noqa: E731
        yield Way(f"kafka-python{code}", "kafka-python", one, producer.flush, value, own)
    settings = {"bootstrap.servers": bootstrap, "queue.buffering.max.messages": 10_000_000}
    plain, serializing = (
        confluent_kafka.Producer(settings),
        SerializingProducer(settings | {"value.serializer": encode_in_context}),
    )
    for code, value, other, own in (
        ("", DATA, plain, None),
        (", serializer", TEXT, serializing, lambda: encode_in_context(TEXT, None)),
    ):
        one = lambda value, send=other.produce: send(TOPIC, value=value)  # noqa: E731
        yield Way(f"confluent-kafka{code}", "confluent-kafka", one, other.flush, value, own)


def cpu_ns(work: Callable[[], object], count: int) -> float:
    """Of the calling thread, for each of `count`."""
    started = time.thread_time_ns()
    work()
    return (time.thread_time_ns() - started) / count


def own_ns(code: Callable[[], object], count: int) -> float:
    """Of the user's code, called by a loop; that of the loop and of the call of a lambda is taken off."""

    def calls(called: Callable[[], object]) -> float:
        return min(cpu_ns(lambda: [called() for _ in range(count)], count) for _ in range(5))

    return calls(code) - calls(lambda: None)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--records", type=int, default=20_000)
    options = parser.parse_args()
    best: dict[str, float] = {}
    with Sink({TOPIC: 6}) as sink, ExitStack() as stack:
        ways = [*ours(sink.bootstrap, stack), *theirs(sink.bootstrap, stack)]
        for _ in range(options.rounds):
            for way in ways:

                def send_all(send: Send = way.send, value: Any = way.value, size: int = way.size) -> None:
                    for _ in range(options.records // size):
                        send(value)

                cost = cpu_ns(send_all, options.records)
                way.flush()
                best[way.name] = min(cost, best.get(way.name, cost))
    for way in ways:
        above = ""
        if way.own is not None:
            own = own_ns(way.own, options.records)
            above = f", its own {own:5.0f}, above plain and its own {best[way.name] - best[way.plain] - own:6.0f}"
        print(f"{way.name:32} {best[way.name]:7.0f} ns a record{above}")


if __name__ == "__main__":
    main()
