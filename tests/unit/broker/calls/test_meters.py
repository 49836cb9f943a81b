"""Meters of quotas, against the numbers that Apache Kafka's arithmetic gives."""

from __future__ import annotations

import pytest

from kafkaprod.broker.calls import meters
from kafkaprod.broker.calls.meters import Meters, TokenBucket, WindowedRate


def test_a_rate_is_measured_over_ten_seconds_at_least() -> None:
    """The last use ends the time of the first sample, which was used half a second after its beginning."""
    steps = [(0, 20_000, 10_000), (500, 1, 9_501), (1_000, 1, 10_002), (9_999, 1, 9_004), (10_000, 1, 10_004)]
    steps += [(10_999, 1, 9_006), (11_000, 1, 9_006), (11_500, 1, 0)]
    rate = WindowedRate()
    for now_ms, amount, wait_ms in steps:
        rate.add(amount, now_ms)
        assert rate.wait_ms(1_000, now_ms) == wait_ms, now_ms


@pytest.mark.parametrize(("amount", "wait_ms"), [(0, 0), (10_000, 0), (10_001, 1), (12_000, 2_000)])
def test_ten_times_the_quota_may_come_at_once(amount: int, wait_ms: int) -> None:
    rate = WindowedRate()
    rate.add(amount, 77)
    assert rate.wait_ms(1_000, 77) == wait_ms


def test_what_was_taken_back_was_not_used() -> None:
    rate = WindowedRate()
    rate.add(20_000, 0)
    rate.add(-20_000, 0)
    assert rate.wait_ms(1_000, 0) == 0


def test_a_changed_quota_counts_at_once_with_the_old_sums() -> None:
    rate = WindowedRate()
    rate.add(20_000, 0)
    assert [rate.wait_ms(quota, 0) for quota in (1_000, 2_000, 500)] == [10_000, 0, 30_000]


def test_tokens_may_be_overdrawn_once_and_come_back_at_the_rate_of_the_quota() -> None:
    bucket, found = TokenBucket(), []
    for now_ms, amount in ((0, 30), (0, 1), (3_999, 1), (4_000, 1), (4_000, 1)):
        wait_ms = bucket.wait_ms(2, now_ms)
        found.append(wait_ms)
        if not wait_ms:
            bucket.add(amount)
    assert found == [0, 4_000, 1, 0, 500]


def test_entities_have_their_own_meters_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meters, "MAX_METERS", 2)
    table: Meters[WindowedRate] = Meters(WindowedRate)
    ann, bob = table.of("ann", "ann", 0), table.of("bob", "bob", 0)
    assert ann is table.of("ann", "ann", 10)
    assert ann is not bob
    assert table.of("eve 1", "eve", 0) is table.of("eve 2", "eve", 0)
    assert table.of("eve 3", "eve", 3_600_000 + 9) is not table.of("eve 1", "eve", 3_600_000 + 9)
    assert table.of("ann", "ann", 3_600_000 + 9) is ann
