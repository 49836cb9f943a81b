"""A program whose clocks a test has stopped, as freezegun does: each module's functions of `time` are replaced."""

from __future__ import annotations

import subprocess
import sys

import pytest

from kafkaprod.broker import EmbeddedBroker

FREEZE = """
import sys, time
real = {}
def freeze():
    for name, value in (("time", 1.3e9), ("time_ns", 10**18), ("monotonic", 1.3e9), ("monotonic_ns", 10**18),
                        ("perf_counter", 1.3e9), ("perf_counter_ns", 10**18)):
        found = getattr(time, name)
        real[id(found)] = found
        fake = lambda value=value: value
        for module in list(sys.modules.values()):
            for attribute, held in list(getattr(module, "__dict__", {}).items()):
                if held is found:
                    setattr(module, attribute, fake)
"""
USE = """
with producer:
    for n in range(20):
        producer.send("t", b"%d" % n).result(10)
    producer.send_many("t", [b"x"] * 20).result(10)
    producer.send("new", b"x").result(10)
    producer.flush(10)
    producer.check(10)
print("done")
"""
MAKE = """
from kafkaprod import Producer
producer = Producer(bootstrap_servers=sys.argv[1], delivery_timeout_ms=20_000, request_timeout_ms=10_000)
"""
COMPAT = """
from kafkaprod.compat.confluent_kafka import Producer
producer = Producer({"bootstrap.servers": sys.argv[1], "message.timeout.ms": 20_000})
"""
USE_COMPAT = """
reports = []
for n in range(20):
    producer.produce("t", b"x", on_delivery=lambda error, message: reports.append(error))
    producer.poll(0)
assert producer.flush(10) == 0
assert reports == [None] * 20, reports
print("done")
"""


@pytest.mark.parametrize(
    "program",
    [
        FREEZE + "import kafkaprod.producer, kafkaprod.results.block\nfreeze()" + MAKE + USE,
        FREEZE + "freeze()" + MAKE + USE,
        FREEZE + MAKE + "producer.send('t', b'first').result(10)\nfreeze()" + USE,
        FREEZE + "freeze()" + COMPAT + USE_COMPAT,
    ],
    ids=["made inside", "imported inside", "made before", "confluent"],
)
def test_records_arrive_while_the_programs_clocks_stand_still(program: str) -> None:
    with EmbeddedBroker(topics={"t": 1}) as broker:
        ended = subprocess.run(
            [sys.executable, "-c", program, broker.bootstrap_servers],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert (ended.returncode, ended.stdout) == (0, "done\n"), ended.stderr
