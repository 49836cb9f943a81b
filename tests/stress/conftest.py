"""Fixtures of the tests of Ctrl-C."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from benchmarks.sink import Sink
from tests.stress.interrupts import Stalled


@pytest.fixture
def sink() -> Iterator[Sink]:
    with Sink({"t": 1, "other": 1}) as sink:
        yield sink
        os.kill(sink.pid, signal.SIGCONT)


@pytest.fixture(autouse=True)
def ctrl_c() -> Iterator[None]:
    """SIGINT raises KeyboardInterrupt, as it does in a program, and ends the programs that are started."""
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, previous)


@pytest.fixture
def stalled(sink: Sink, ctrl_c: None) -> Iterator[Stalled]:
    stalled = Stalled(sink)
    try:
        yield stalled
    finally:
        os.kill(sink.pid, signal.SIGCONT)
        stalled.producer.close(20)
