"""A program ends in eight ways, over each place that holds records: what did not arrive is said aloud."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from kafkaprod.broker import EmbeddedBroker

BOUND_S = 60
RECORDS = 100
MAKE_HANDLER = """
import logging
from kafkaprod.hooks.log_handler import KafkaHandler
log = logging.getLogger("shop")
log.setLevel("INFO")
log.propagate = False
log.addHandler(handler := KafkaHandler(%s))
send = lambda line: log.info(line.decode())
"""
HOLDERS = {
    "producer": """
from kafkaprod import Producer
p = Producer(bootstrap_servers=B)
send = lambda line: p.send("new", line)
""",
    "confluent": """
from kafkaprod.compat.confluent_kafka import Producer
p = Producer({"bootstrap.servers": B})
send = lambda line: p.produce("new", line)
""",
    "confluent with reports": """
from kafkaprod.compat.confluent_kafka import Producer
p = Producer({"bootstrap.servers": B})
send = lambda line: p.produce("new", line, on_delivery=lambda error, message: None)
""",
    "confluent, polled": """
from kafkaprod.compat.confluent_kafka import Producer
p = Producer({"bootstrap.servers": B})
send = lambda line: (p.produce("new", line), p.poll(0))
""",
    "serializing": """
from kafkaprod.compat.confluent_kafka import SerializingProducer
p = SerializingProducer({"bootstrap.servers": B})
send = lambda line: p.produce("new", value=line)
""",
    "kafka-python": """
from kafkaprod.compat.kafka_python import KafkaProducer
p = KafkaProducer(bootstrap_servers=B)
send = lambda line: p.send("new", line)
""",
    "handler": "from kafkaprod import Producer\np = Producer(bootstrap_servers=B)\n"
    + MAKE_HANDLER % '"new", bootstrap_servers=B',
    "handler of a producer": "from kafkaprod import Producer\np = Producer(bootstrap_servers=B)\n"
    + MAKE_HANDLER % 'p, "new"',
    "callback": """
from kafkaprod import Producer
p = Producer(bootstrap_servers=B)
send = lambda line: p.send("known", b"").add_done_callback(lambda done: p.send("new", line))
""",
}
ENDS = {
    "end of the file": "",
    "sys.exit": "sys.exit(1)",
    "exception": "raise ValueError('the program failed')",
    "producer dropped": "del p, send",
    "interrupted": "os.kill(os.getpid(), signal.SIGINT)\nsignal.pause()",
    "terminated": "signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))\nos.kill(os.getpid(), 15)\nsignal.pause()",
    "a thread ends it": "threading.Thread(target=_thread.interrupt_main).start()\nsignal.pause()",
    "closed first": "getattr(p, 'close', lambda: None)()",
}


# Each holder with three ends and each end with three holders in every run, the other pairs at night.
PAIRS = [
    pytest.param(holder, end, marks=() if (row + column) % 3 == 0 else pytest.mark.nightly, id=f"{holder}-{end}")
    for row, holder in enumerate(HOLDERS)
    for column, end in enumerate(ENDS)
]


def run(body: str) -> tuple[int, str]:
    done = subprocess.run([sys.executable, "-c", body], capture_output=True, text=True, timeout=BOUND_S, check=False)
    return done.returncode, done.stderr


def program(servers: str, holder: str, end: str) -> str:
    return (
        f"import _thread, os, signal, sys, threading\nB = {servers!r}\n{HOLDERS[holder]}\n"
        f"for n in range({RECORDS}):\n    send(b'%d' % n)\n{'p.flush()' if holder == 'callback' else ''}\n{ENDS[end]}\n"
    )


@pytest.mark.parametrize(("holder", "end"), PAIRS)
def test_everything_arrives_however_a_program_ends(holder: str, end: str) -> None:
    with EmbeddedBroker(topics={"new": 3, "known": 1}) as broker:
        _, errors = run(program(broker.bootstrap_servers, holder, end))
        arrived = sorted(int(record.value or b"-1") for record in broker.records("new"))
    assert arrived == list(range(RECORDS)), errors


@pytest.mark.parametrize("holder", HOLDERS)
def test_what_cannot_arrive_is_said_aloud_with_its_number(holder: str) -> None:
    options = ", delivery_timeout_ms=800, request_timeout_ms=500, max_block_ms=500, bootstrap_timeout_ms=500"
    body = program("127.0.0.1:1", holder, "end of the file").replace(
        "bootstrap_servers=B", f"bootstrap_servers=B{options}"
    )
    body = body.replace('"bootstrap.servers": B', '"bootstrap.servers": B, "message.timeout.ms": 800')
    if holder in ("producer", "kafka-python", "callback"):  # send() itself raises
        assert run(body)[0] == 1
        return
    _, errors = run(body)
    one_by_one = errors.count("a record was not sent, and has no callback")
    assert one_by_one == RECORDS or re.search(rf"\b{RECORDS} (records|lines)\b", errors), errors


@pytest.mark.parametrize("how", ["fork", "multiprocessing"])
def test_lines_of_a_forked_child_arrive_if_the_handler_makes_its_own_producer(how: str) -> None:
    with EmbeddedBroker(topics={"new": 1}) as broker:
        body = program(broker.bootstrap_servers, "handler", "end of the file").split("for n in range")[0]
        body += "send(b'parent')\n"
        lines = f"for n in range({RECORDS}):\n    send(b'%d' % n)\n"
        if how == "fork":
            body += f"pid = os.fork()\nif pid:\n    os.waitpid(pid, 0)\n    sys.exit()\n{lines}"
        else:
            body += "import multiprocessing\ndef work():\n    " + lines.replace("\n", "\n    ")
            body += "\nchild = multiprocessing.get_context('fork').Process(target=work)\nchild.start()\nchild.join()\n"
        _, errors = run(body)
        arrived = sorted(
            (record.value or b"" for record in broker.records("new")), key=lambda value: (len(value), value)
        )
    assert len(arrived) == RECORDS + 1, errors


def test_lines_of_a_forked_child_with_the_parents_producer_are_counted_aloud() -> None:
    with EmbeddedBroker(topics={"new": 1}) as broker:
        body = program(broker.bootstrap_servers, "handler of a producer", "end of the file").split("for n in range")[0]
        body += "send(b'parent')\npid = os.fork()\nif pid:\n    os.waitpid(pid, 0)\n    sys.exit()\n"
        body += f"for n in range({RECORDS}):\n    send(b'%d' % n)\n"
        _, errors = run(body)
        assert [record.value for record in broker.records("new")] == [b"parent"]
    assert f"KafkaHandler: {RECORDS} lines for topic 'new' dropped: the producer was made before fork()" in errors
