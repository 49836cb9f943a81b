"""A program that SIGTERM ends: its exit code tells whether all records were delivered."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

from kafkaprod.broker import EmbeddedBroker

BOUND_S = 60
THREADS = """
    with Producer(sys.argv[1], delivery_timeout_ms=2000, request_timeout_ms=1000, linger_ms=5) as producer:
        producer.send("t", b"first").result(20)
        end(producer)
"""
ASYNCIO = """
    async def main():
        async with AsyncProducer(sys.argv[1], delivery_timeout_ms=2000, request_timeout_ms=1000) as producer:
            await (await producer.send("t", b"first"))
            end(producer)

    asyncio.run(main())
"""
PROGRAM = """
    import asyncio, os, signal, sys
    from kafkaprod import AsyncProducer, Producer

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))

    def end(producer):
        print("sent", flush=True)
        sys.stdin.readline()
        for _ in range(10):
            producer._path.begin_send("t", b"x") if isinstance(producer, AsyncProducer) else producer.send("t", b"x")
        os.kill(os.getpid(), signal.SIGTERM)
        signal.pause()
"""


@pytest.mark.parametrize("is_broker_gone", [False, True])
@pytest.mark.parametrize("program", [THREADS, ASYNCIO], ids=["threads", "asyncio"])
def test_exit_code_tells_of_records_that_are_left(program: str, is_broker_gone: bool) -> None:
    text = textwrap.dedent(PROGRAM) + textwrap.dedent(program).replace("(sys.argv[1]", "(bootstrap_servers=sys.argv[1]")
    with EmbeddedBroker(topics={"t": 1}) as broker:
        command = [sys.executable, "-c", text, broker.bootstrap_servers]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        with subprocess.Popen(command, text=True, **pipes) as process:  # type: ignore[call-overload]
            assert process.stdout.readline() == "sent\n"
            if is_broker_gone:
                broker.stop()
            _, errors = process.communicate("go\n", BOUND_S)
    assert process.returncode == (1 if is_broker_gone else 143)
    assert ("10 records not delivered before the program ended" in errors) == is_broker_gone
