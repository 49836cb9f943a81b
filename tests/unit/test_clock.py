"""The clocks of a producer, and the timeouts of its calls."""

from __future__ import annotations

import math
import re
import time
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from kafkaprod.clock import LONGEST_S, monotonic_ns, monotonic_s, seconds_of, wall_s
from kafkaprod.errors import ArgumentTypeError, InvalidRecordError
from tests.architecture.core_sources import ROOT

# Rooms that a producer's records pass through, whose waits must not stand still.
ROOMS = ("admin", "net", "hooks", "engine", "compat", "results", "intake", "security", "marks")


def test_the_clocks_are_those_of_the_standard_library() -> None:
    assert abs(monotonic_s() - time.monotonic()) < 1
    assert abs(monotonic_ns() - time.monotonic_ns()) < 10**9
    assert abs(wall_s() - time.time()) < 1


@pytest.mark.parametrize("room", ROOMS)
def test_no_room_of_the_producer_reads_a_clock_that_tests_of_programs_replace(room: str) -> None:
    replaced = re.compile(r"\btime\.(time|time_ns|monotonic|monotonic_ns|perf_counter|perf_counter_ns)\b")
    found = {
        str(path.relative_to(ROOT)): replaced.findall(path.read_text(encoding="utf-8"))
        for path in (ROOT / "kafkaprod" / room).rglob("*.py")
        if replaced.search(path.read_text(encoding="utf-8"))
    }
    assert found == {}


@pytest.mark.parametrize(
    ("timeout", "seconds"),
    [
        (None, None),
        (2, 2.0),
        (0.5, 0.5),
        (-1, 0.0),
        (Decimal("1.5"), 1.5),
        (Fraction(1, 4), 0.25),
        (np.float32(2), 2.0),
        (timedelta(milliseconds=250), 0.25),
        (math.inf, LONGEST_S),
        (-math.inf, 0.0),
        (1e20, LONGEST_S),
        (10**400, LONGEST_S),
    ],
)
def test_a_timeout_may_be_any_kind_of_number(timeout: Any, seconds: float | None) -> None:
    assert seconds_of(timeout) == seconds


@pytest.mark.parametrize("timeout", ["5", b"5", True, [], object()])
def test_a_timeout_of_another_type_is_refused(timeout: Any) -> None:
    with pytest.raises(ArgumentTypeError, match="must be a number of seconds, a timedelta, or None, not"):
        seconds_of(timeout)


@pytest.mark.parametrize("timeout", [math.nan, Decimal("nan"), np.float64("nan")])
def test_a_timeout_that_is_not_a_number_is_refused(timeout: Any) -> None:
    with pytest.raises(InvalidRecordError, match="must be a number of seconds, or None"):
        seconds_of(timeout)
