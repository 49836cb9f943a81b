"""RateLimit: turns come at the rate, whoever takes them."""

from __future__ import annotations

import pytest

from kafkaprod.errors import InvalidRecordError
from kafkaprod.hooks import rate_limit
from kafkaprod.hooks.rate_limit import CREDIT_S, RateLimit


class Time:
    """A clock that sleeps turn."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, delay_s: float) -> None:
        self.now_s += delay_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Time:
    clock = Time()
    monkeypatch.setattr(rate_limit, "time", clock)
    monkeypatch.setattr(rate_limit, "monotonic_s", clock.monotonic)
    return clock


def test_turns_come_at_the_rate(clock: Time) -> None:
    limit = RateLimit(records_per_s=100)
    for _ in range(501):
        limit.wait()
    assert clock.now_s == pytest.approx(1005.0)


def test_a_turn_of_many_begins_at_once_and_the_next_one_waits_for_it(clock: Time) -> None:
    limit = RateLimit(records_per_s=500)
    limit.wait(1000)
    assert clock.now_s == 1000.0
    limit.wait()
    assert clock.now_s == pytest.approx(1002.0)


def test_the_slower_of_two_rates_holds(clock: Time) -> None:
    limit = RateLimit(records_per_s=10, bytes_per_s=1000)
    limit.wait(1, 500)
    limit.wait(1, 10)
    assert clock.now_s == pytest.approx(1000.5)
    limit.wait()
    assert clock.now_s == pytest.approx(1000.6)


def test_sleeps_that_end_late_are_made_up_for_but_a_long_rest_is_not(clock: Time) -> None:
    limit = RateLimit(records_per_s=1000)
    for _ in range(1000):
        limit.wait()
        clock.now_s += 0.0002
    assert clock.now_s == pytest.approx(1001.0, abs=0.002)
    clock.now_s += 60
    before_s, count = clock.now_s, 0
    while clock.now_s == before_s:
        limit.wait()
        count += 1
    assert count == pytest.approx(1000 * CREDIT_S, abs=2)


async def test_coroutines_have_turns_too(clock: Time, monkeypatch: pytest.MonkeyPatch) -> None:
    async def sleep(delay_s: float) -> None:
        clock.sleep(delay_s)

    monkeypatch.setattr(rate_limit.asyncio, "sleep", sleep)
    limit = RateLimit(bytes_per_s=100)
    for _ in range(11):
        await limit.turn(size_bytes=10)
    assert clock.now_s == pytest.approx(1001.0)


@pytest.mark.parametrize(
    ("rates", "words"),
    [
        ({}, "needs records_per_s, bytes_per_s, or both"),
        ({"records_per_s": 0}, "records_per_s=0 must be a number above 0"),
        ({"bytes_per_s": -1.5}, "bytes_per_s=-1.5 must be"),
        ({"bytes_per_s": float("nan")}, "bytes_per_s=nan must be"),
        ({"records_per_s": float("inf")}, "records_per_s=inf must be"),
    ],
)
def test_rates_that_are_none_are_refused(rates: dict[str, float], words: str) -> None:
    with pytest.raises(InvalidRecordError, match=words):
        RateLimit(**rates)
