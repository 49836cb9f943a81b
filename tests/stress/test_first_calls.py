"""An exception of a signal handler in a first call, which imports what the later ones need: the next one works."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Iterator

import pytest

from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from tests.stress.scale import scaled

PROGRAM = textwrap.dedent(
    """
    import signal, sys
    from kafkaprod import Producer

    class SoftLimit(Exception):
        pass

    def limit(*_):
        raise SoftLimit

    servers, way, after_s = sys.argv[1:]
    send = {
        "send_many": lambda: producer.send_many("t", [b"v"] * 10),
        "send_table": lambda: producer.send_table("t", {"value": [b"a", b"b"]}),
    }[way]
    signal.signal(signal.SIGALRM, limit)
    with Producer(bootstrap_servers=servers) as producer:
        producer.send("t", b"first").result(20)
        try:
            signal.setitimer(signal.ITIMER_REAL, float(after_s))
            send()
        except SoftLimit:
            print("interrupted")
        signal.setitimer(signal.ITIMER_REAL, 0)
        print(send().result(20).row_count)
    """
)
COUNT = scaled(4, 40)
LONGEST_S = 0.2  # as long as NumPy's import takes on a machine that has other work


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with EmbeddedBroker(topics={"t": 1}) as broker:
        yield broker.bootstrap_servers


@pytest.mark.parametrize("way", ["send_many", "send_table"])
def test_a_first_call_that_was_interrupted_leaves_nothing_broken(servers: str, way: str) -> None:
    interrupted = 0
    for number in range(1, COUNT + 1):
        after_s = LONGEST_S * number / COUNT
        program = [sys.executable, "-c", PROGRAM, servers, way, str(after_s)]
        done = subprocess.run(program, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, f"after {after_s} s: {done.stderr}"
        assert done.stdout.split()[-1] in ("10", "2")
        interrupted += "interrupted" in done.stdout
    assert interrupted
