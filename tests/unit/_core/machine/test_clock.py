"""The core's clock is the one of Python's monotonic times, which are compared with it."""

from __future__ import annotations

import time

from tests.support.core.faces import read_monotonic_us


def test_the_clock_is_that_of_time_monotonic() -> None:
    before_us = time.monotonic_ns() // 1_000
    now_us = read_monotonic_us()
    assert before_us <= now_us <= time.monotonic_ns() // 1_000
