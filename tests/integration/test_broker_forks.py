"""An embedded broker whose owner forks: the child can neither end it nor delete its data, nor keep it alive."""

from __future__ import annotations

import atexit
import gc
import os
import subprocess
import sys
import weakref
from collections.abc import Callable
from pathlib import Path

import pytest

from kafkaprod import Producer
from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from kafkaprod.errors import IllegalStateError
from tests.support.broker.fixtures_broker import wait_until


def in_forked_child(work: Callable[[], None]) -> int:
    """Run `work` in a forked child that then ends as a program does, with all its finalizers; return its exit code."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            gc.collect()
            weakref.finalize._exitfunc()  # type: ignore[attr-defined]
            atexit._run_exitfuncs()
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_broker_survives_the_end_of_a_forked_child() -> None:
    with EmbeddedBroker(topics={"orders": 1}) as broker:
        assert in_forked_child(lambda: None) == 0
        assert Path(broker.data_dir).exists()
        with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            assert producer.send("orders", b"v").result(10).offset == 0


@pytest.mark.parametrize("name", ["stop", "kill", "close"])
def test_child_cannot_end_the_broker(name: str) -> None:
    with EmbeddedBroker(topics={"orders": 1}) as broker:
        assert in_forked_child(getattr(broker, name)) == 0
        assert broker.command({"command": "clear"}) == {}
        assert Path(broker.data_dir).exists()


def test_child_is_refused_with_the_owner_named() -> None:
    with EmbeddedBroker() as broker:
        owner = os.getpid()

        def use() -> None:
            for call in (broker.start, broker.faults.clear, lambda: broker.pid):
                with pytest.raises(IllegalStateError, match=f"belongs to process {owner}"):
                    call()

        assert in_forked_child(use) == 0


def test_child_of_a_fork_does_not_keep_the_broker_alive(tmp_path: Path) -> None:
    """The broker ends with its owner although a child of the owner lives on."""
    program = f"""
import os, sys, time
from kafkaprod.broker.embedding.embedded import EmbeddedBroker
broker = EmbeddedBroker({str(tmp_path / "data")!r}).start()
ready, go = os.pipe()
child = os.fork()
if child == 0:
    os.close(1)
    os.close(go)
    os.read(ready, 1)  # until the parent is gone
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        if os.path.exists({str(tmp_path / "data" / ".kafka_cleanshutdown")!r}):
            os._exit(0)
        time.sleep(0.02)
    os._exit(1)
print(child, flush=True)
os._exit(0)
"""
    done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, timeout=60, check=True)
    child = int(done.stdout)
    marker = tmp_path / "data" / ".kafka_cleanshutdown"
    wait_until(marker.exists, "the clean shutdown of the broker")
    wait_until(lambda: not Path(f"/proc/{child}").exists(), "the end of the child")
