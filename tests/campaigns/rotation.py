"""Rotate password, certificates and their authority every few seconds while a producer sends; count what is lost.

    python -m tests.campaigns.rotation [--seconds 60] [--every 5] [--rate 500] [--kafka]

The embedded broker is started again at each rotation, with secrets that it has not had before; the producer is made
once, and has them as files. Apache Kafka goes on running: its stores and passwords are changed by requests, two
producers send, one by a password and one by tokens that live for seconds, and then their connections are cut.

Prints how many records were sent and delivered, in order and once, and how long the slowest took. Exit code 1 if one
was lost, doubled or out of order.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

from kafkaprod import DeliveryFuture, Producer
from tests.support.broker.rotating_broker import RotatingBroker, issue

USER = "ann"
WAIT_S = 60.0


class Load:
    """Sends numbered records at a rate, until it is ended; notes how long each took."""

    def __init__(self, producer: Producer, rate: float, topic: str = "t") -> None:
        self.futures: list[DeliveryFuture] = []
        self.latencies_s: list[float] = []
        self._producer = producer
        self._topic = topic
        self._pause_s = 1 / rate
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._is_over.wait(self._pause_s):
            begun_s = time.monotonic()
            future = self._producer.send(self._topic, b"%d" % len(self.futures), partition=0)
            future.add_done_callback(partial(self._note, begun_s))
            self.futures.append(future)

    def _note(self, begun_s: float, _: DeliveryFuture) -> None:
        self.latencies_s.append(time.monotonic() - begun_s)

    def end(self) -> list[int]:
        """Stop, and return the offsets; -1 for a record that failed."""
        self._is_over.set()
        self._thread.join()
        offsets = []
        for future in self.futures:
            error = future.exception(WAIT_S)
            if error is not None:
                print(error, file=sys.stderr)
            offsets.append(-1 if error is not None else future.result(0).offset)
        return offsets


def secrets(directory: Path, number: int) -> dict[str, Any]:
    """Write the client's files of a rotation; return the broker's options."""
    tls_files = issue(directory, f"authority-{number}")
    (directory / "password").write_text(f"word-{number}\n", encoding="utf-8")
    return {"sasl_users": {USER: f"word-{number}"}, "tls_files": tls_files}


def run(directory: Path, seconds: float, every: float, rate: float) -> bool:
    """Run it; return whether every record arrived once and in order."""
    broker = RotatingBroker(directory / "data", **secrets(directory, 0))
    options = {
        "bootstrap.servers": broker.bootstrap,
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": USER,
        "sasl.password": f"file:{directory / 'password'}",
        "ssl_cafile": directory / "client-ca",
        "ssl_certfile": directory / "client-certificate",
        "ssl_keyfile": directory / "client-key",
    }
    rotations = 0
    with Producer(options) as producer:
        load = Load(producer, rate)
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            time.sleep(every)
            rotations += 1
            broker.restart(**secrets(directory, rotations))
        is_right = report(f"{rotations} rotations", load)
    broker.close()
    return is_right


def run_on_kafka(directory: Path, seconds: float, every: float, rate: float) -> bool:
    """Run it on Apache Kafka; return whether every record of both producers arrived once and in order."""
    from tests.support.kafka.rotating_kafka import RotatingKafka

    rotations = 0
    with (
        RotatingKafka(directory) as kafka,
        Producer(kafka.options("SCRAM-SHA-256")) as by_password,
        Producer(kafka.options("OAUTHBEARER")) as by_token,
    ):
        loads = {
            "by password": Load(by_password, rate, "passwords"),
            "by tokens": Load(by_token, rate, "tokens"),
        }
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            time.sleep(every)
            rotations += 1
            kafka.rotate()
        results = [report(f"{rotations} rotations, {name}", load) for name, load in loads.items()]
        print(f"{kafka.token_count} tokens were granted")
        for name, producer in {"by password": by_password, "by tokens": by_token}.items():
            figures = producer.metrics()["producer-metrics"]
            shown = {key: value for key, value in figures.items() if "authentication" in key and value}
            print(f"{name}: {shown}")
    return all(results)


def report(what: str, load: Load) -> bool:
    """End a load, print what became of it; return whether every record arrived once and in order."""
    offsets = load.end()
    delivered = sum(offset >= 0 for offset in offsets)
    is_right = offsets == list(range(len(offsets)))
    latencies_s = sorted(load.latencies_s)
    print(
        f"{what}: {len(offsets)} records sent, {delivered} delivered, "
        f"{'each once and in order' if is_right else 'NOT each once and in order'}; "
        f"p50 {latencies_s[len(latencies_s) // 2] * 1000:.0f} ms, "
        f"p99 {latencies_s[len(latencies_s) * 99 // 100]:.2f} s, the slowest took {latencies_s[-1]:.2f} s"
    )
    return is_right


def main() -> int:
    """Run it as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--every", type=float, default=5.0)
    parser.add_argument("--rate", type=float, default=500.0)
    parser.add_argument("--kafka", action="store_true", help="on Apache Kafka, with tokens, too")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        run_it = run_on_kafka if options.kafka else run
        return 0 if run_it(Path(directory), options.seconds, options.every, options.rate) else 1


if __name__ == "__main__":
    sys.exit(main())
