from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkaprod.retry import ExponentialBackoff


def middle() -> float:
    return 0.5


def test_delays_double_until_the_maximum() -> None:
    backoff = ExponentialBackoff(50, 1000)
    assert [backoff.delay_ms(attempt, middle) for attempt in range(7)] == [50, 100, 200, 400, 800, 1000, 1000]


def test_jitter_spreads_by_twenty_percent_and_never_passes_the_maximum() -> None:
    backoff = ExponentialBackoff(100, 1000)
    assert backoff.delay_ms(0, lambda: 0.0) == 80
    assert backoff.delay_ms(0, lambda: 0.999999) == 120
    assert backoff.delay_ms(9, lambda: 0.0) == 800
    assert backoff.delay_ms(9, lambda: 0.999999) == 1000


def test_no_room_to_grow_gives_the_constant_maximum_without_jitter() -> None:
    def no_random() -> float:
        raise AssertionError("a constant delay draws no random number")

    assert ExponentialBackoff(500, 200).delay_ms(3, no_random) == 200
    assert ExponentialBackoff(200, 200).delay_ms(3, no_random) == 200
    assert ExponentialBackoff(0, 200).delay_ms(3, no_random) == 0


def test_huge_attempt_numbers_cost_nothing() -> None:
    assert ExponentialBackoff(1, 30_000).delay_ms(2**31 - 1, middle) == 30_000


@pytest.mark.parametrize("arguments", [(-1, 5), (5, -1), (1, 2, 1), (1, 2, 2, 1.0), (1, 2, 2, -0.1)])
def test_senseless_arguments_are_refused(arguments: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="backoff"):
        ExponentialBackoff(*arguments)


@given(initial=st.integers(1, 10_000), maximum=st.integers(1, 100_000), attempt=st.integers(0, 100), seed=st.integers())
def test_every_delay_stays_within_the_spread_of_its_step(initial: int, maximum: int, attempt: int, seed: int) -> None:
    delay = ExponentialBackoff(initial, maximum).delay_ms(attempt, random.Random(seed).random)
    step = min(initial * 2**attempt, maximum)
    if initial >= maximum:
        assert delay == maximum
    else:
        assert round(step * 0.8) - 1 <= delay <= min(round(step * 1.2) + 1, maximum)
