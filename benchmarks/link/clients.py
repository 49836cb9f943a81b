"""A client program of the link benchmark: ``python -m benchmarks.link.clients NAME BOOTSTRAP TOPIC SECONDS ...``.

It sends 1,000-byte values with keys as fast as the client takes them, or at a pace, with the client's default options,
and prints what became of them as JSON. It ends without waiting for the rest: at 1 Mbit/s that takes minutes.
"""

import argparse
import json
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

VALUE = b"x" * 1000
PAUSE_S = 0.001
_FAST_MBIT_S = 50
_MANY = 20  # of fast links every so-manieth record is looked at: looking costs more than sending

Send = Callable[[str, int, bool], None]


class Outcomes:
    """What became of the records that are looked at."""

    def __init__(self) -> None:
        self.latencies: list[tuple[float, float]] = []
        self.errors: Counter[str] = Counter()

    def watch(self) -> Callable[[str | None], None]:
        """Begin to measure; what is returned takes the name of an error, or None."""
        sent = time.monotonic()

        def done(error: str | None) -> None:
            now = time.monotonic()
            if error is None:
                self.latencies.append((now, now - sent))
            else:
                self.errors[error] += 1

        return done


def kafkaprod_send(bootstrap: str, outcomes: Outcomes) -> tuple[Send, str]:
    """kafkaprod's send()."""
    import kafkaprod
    from kafkaprod.errors import KafkaError

    producer = kafkaprod.Producer(bootstrap_servers=bootstrap)

    def send(topic: str, number: int, is_watched: bool) -> None:
        done = outcomes.watch() if is_watched else None
        try:
            future = producer.send(topic, VALUE, key=b"%d" % number)
        except KafkaError as error:
            outcomes.errors[f"send: {type(error).__name__}"] += 1
            return
        if done is not None:
            report = done
            future.add_done_callback(lambda ended: report(_error_name(ended.exception())))

    return send, kafkaprod.__version__


def _error_name(error: BaseException | None) -> str | None:
    return None if error is None else type(error).__name__


def confluent_send(bootstrap: str, outcomes: Outcomes, options: Mapping[str, Any]) -> tuple[Send, str]:
    """confluent-kafka's produce(); a full queue is waited out in poll()."""
    import confluent_kafka

    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "log_level": 0, **options})

    def send(topic: str, number: int, is_watched: bool) -> None:
        report: dict[str, Any] = {}
        if is_watched:
            done = outcomes.watch()
            report["on_delivery"] = lambda error, _: done(None if error is None else error.name())
        while True:
            try:
                producer.produce(topic, VALUE, key=b"%d" % number, **report)
                break
            except BufferError:
                producer.poll(0.01)
        if number % 100 == 0 or is_watched:
            producer.poll(0)

    return send, f"{confluent_kafka.__version__} (librdkafka {confluent_kafka.libversion()[0]})"


CLIENTS: Mapping[str, Callable[[str, Outcomes], tuple[Send, str]]] = {
    "kafkaprod": kafkaprod_send,
    "confluent-kafka": lambda bootstrap, outcomes: confluent_send(bootstrap, outcomes, {}),
    "confluent-kafka idempotent": lambda bootstrap, outcomes: confluent_send(
        bootstrap, outcomes, {"enable.idempotence": True}
    ),
}

COMPILED: Mapping[str, str] = {"Java producer": "java", "franz-go": "go"}
"""Those with a program of their own, by name: what builds it."""


def looked_at_every(mbit_s: float, rate: float) -> int:
    """Every so-manieth record is looked at."""
    return _MANY if mbit_s > _FAST_MBIT_S and not rate else 1


def _send_all(send: Send, topic: str, every: int, rate: float) -> None:
    started, number = time.monotonic(), 0
    while True:
        if rate and number >= (time.monotonic() - started) * rate:
            time.sleep(PAUSE_S)
            continue
        send(topic, number, number % every == 0)
        number += 1


def main() -> None:
    """Body of the program."""
    parser = argparse.ArgumentParser()
    parser.add_argument("name", choices=list(CLIENTS))
    parser.add_argument("bootstrap")
    parser.add_argument("topic")
    parser.add_argument("seconds", type=float)
    parser.add_argument("--mbit-s", type=float, default=0, help="of the link: how many records are looked at")
    parser.add_argument("--rate", type=float, default=0, help="records a second; 0: as fast as it goes")
    parser.add_argument("--from-s", type=float, default=0, help="latencies count from then on")
    options = parser.parse_args()
    outcomes = Outcomes()
    send, version = CLIENTS[options.name](options.bootstrap, outcomes)
    every = looked_at_every(options.mbit_s, options.rate)
    started = time.monotonic()
    arguments = (send, options.topic, every, options.rate)
    threading.Thread(target=_send_all, args=arguments, daemon=True).start()
    threading.Event().wait(options.seconds)
    times = sorted(taken for at, taken in outcomes.latencies if at >= started + options.from_s)
    quantiles = [times[int(len(times) * part)] * 1000 if times else -1 for part in (0.5, 0.99)]
    failed = {error: count * every for error, count in outcomes.errors.items()}
    print(
        json.dumps({"version": version, "p50_ms": quantiles[0], "p99_ms": quantiles[1], "failed": failed}), flush=True
    )
    os._exit(0)  # what is still under way is not waited for


if __name__ == "__main__":
    main()
