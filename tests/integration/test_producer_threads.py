"""A helper thread that cannot start costs an attempt, never the producer or a record."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import Any

import pytest

from kafkaprod import Producer
from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from tests.kafka.reading import read_all
from tests.support.broker.fixtures_broker import wait_until

# Python 3.12.0 to 3.12.2 starts no thread once the main thread has ended; here every version does so.
LOGIN: dict[str, Any] = {
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": "SCRAM-SHA-256",
    "sasl_plain_username": "user",
    "sasl_plain_password": "secret",
}
THEIR_LOGIN = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "SCRAM-SHA-256",
    "sasl.username": "user",
    "sasl.password": "secret",
}
PROGRAM = (
    f"LOGIN = {LOGIN}"
    + """
import sys, threading
from kafkaprod import Producer

start = threading.Thread.start
def refuse_at_the_end(self):
    if not threading.main_thread().is_alive():
        raise RuntimeError("can't create new thread at interpreter shutdown")
    start(self)
threading.Thread.start = refuse_at_the_end

producer = Producer(bootstrap_servers=sys.argv[1], linger_ms=200, **LOGIN)
# The metadata comes by the bootstrap server's connection; node 0 has one of its own, made when the program ends.
producer.partitions_for("t")
for i in range(5):
    producer.send("t", b"%d" % i)
"""
)


def named(broker: EmbeddedBroker) -> str:
    return "localhost:" + broker.bootstrap_servers.rpartition(":")[2]


def values(broker: EmbeddedBroker) -> list[bytes | None]:
    return [
        record.value
        for records in read_all(broker.bootstrap_servers, "t", config=THEIR_LOGIN).values()
        for record in records
    ]


def test_a_limit_of_threads_while_a_broker_restarts_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    start = threading.Thread.start
    refused: list[threading.Thread] = []

    def refuse(thread: threading.Thread) -> None:
        if thread.name == "kafkaprod-background" and len(refused) < 5:
            refused.append(thread)
            raise RuntimeError("can't start new thread")
        start(thread)

    with (
        EmbeddedBroker(topics={"t": 1}, sasl_users={"user": "secret"}) as broker,
        Producer(bootstrap_servers=named(broker), **LOGIN) as producer,
    ):
        producer.send("t", b"first").result(20)
        broker.stop()
        futures = [producer.send("t", b"queued") for _ in range(1_000)]
        monkeypatch.setattr(threading.Thread, "start", refuse)
        wait_until(lambda: len(refused) == 5, "five refused threads")
        broker.start()
        assert all(future.result(30) for future in futures)
        producer.send("t", b"last").result(20)
        assert len(values(broker)) == 1_002


def test_what_is_queued_at_the_end_of_the_program_is_delivered_where_no_thread_can_start() -> None:
    with EmbeddedBroker(topics={"t": 1}, sasl_users={"user": "secret"}) as broker:
        ended = subprocess.run(
            [sys.executable, "-c", PROGRAM, named(broker)], capture_output=True, text=True, timeout=60, check=False
        )
        assert (ended.returncode, ended.stderr) == (0, "")
        assert values(broker) == [b"0", b"1", b"2", b"3", b"4"]
