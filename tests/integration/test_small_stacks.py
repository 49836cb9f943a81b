"""Threads with small stacks, as programs with thousands of them have, and as musl's are by default."""

from __future__ import annotations

import subprocess
import sys

import pytest

from kafkaprod.broker import EmbeddedBroker

PROGRAM = """
import sys, threading
from kafkaprod import Producer
threading.stack_size(int(sys.argv[2]) * 1024)
def work():
    producer = Producer(bootstrap_servers=sys.argv[1])
    producer.check(10)
    producer.send("t", b"v").result(10)
    producer.send_many("t", [b"%d" % i for i in range(3000)], partitions=[i % 64 for i in range(3000)]).result(10)
    producer.close()
    print("done")
thread = threading.Thread(target=work)
thread.start()
thread.join()
"""


@pytest.mark.parametrize("stack_kib", [64, 96])
def test_a_producer_works_in_a_thread_with_a_small_stack(stack_kib: int) -> None:
    with EmbeddedBroker(topics={"t": 64}) as broker:
        ended = subprocess.run(
            [sys.executable, "-c", PROGRAM, broker.bootstrap_servers, str(stack_kib)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert (ended.returncode, ended.stdout) == (0, "done\n"), ended.stderr
