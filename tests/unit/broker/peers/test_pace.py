"""How many bytes pass where a test limits them."""

from __future__ import annotations

import pytest

from kafkaprod.broker.peers.pace import NO_LIMIT, Pace
from kafkaprod.broker.peers.rules import LinkRules

WAY = ("1", "2")


@pytest.mark.parametrize("rate", [1, 7, 1_000, 1_000_000])
def test_as_many_pass_as_the_rate_says(rate: int) -> None:
    pace = Pace(LinkRules(bytes_per_s={WAY: rate}), WAY)
    passed, now_ms = 0, 0
    while now_ms < 20_000:
        size = pace.allowance(now_ms)
        pace.spend(size)
        passed += size
        assert pace.next_ms(now_ms) > now_ms
        now_ms = pace.next_ms(now_ms)
    assert 20 * rate - 1 <= passed + rate / 100 + 1
    assert passed <= 20 * rate + rate / 20 + 1


def test_a_pause_is_not_made_up_for() -> None:
    pace = Pace(LinkRules(bytes_per_s={WAY: 1_000}), WAY)
    assert pace.allowance(60_000) == 50


def test_the_other_direction_has_no_limit() -> None:
    pace = Pace(LinkRules(bytes_per_s={WAY: 1_000}), WAY[::-1])
    assert pace.allowance(0) == NO_LIMIT
    assert pace.next_ms(5) == 5
    views = [memoryview(b"abc"), memoryview(b"defg")]
    assert pace.first(views, 5) == views


def test_what_does_not_pass_stays() -> None:
    pace = Pace(LinkRules(bytes_per_s={WAY: 1_000}), WAY)
    views = [memoryview(b"a" * 30), memoryview(b"b" * 30), memoryview(b"c")]
    assert [bytes(view) for view in pace.first(views, 60_000)] == [b"a" * 30, b"b" * 20]
    pace.spend(50)
    assert pace.first(views, 60_000) == []
