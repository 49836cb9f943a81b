"""Rates of new connections: what passes at once, what waits, and what does not count."""

from __future__ import annotations

from typing import Any

import pytest

from kafkaprod.broker.server.connection_rates import MAX_WAIT_MS, ConnectionRates
from kafkaprod.broker.settings.quotas import QuotaTable
from kafkaprod.structs import INT32_MAX


def rates(
    of_addresses: dict[str, float], limit: int = INT32_MAX, of_listeners: dict[str, int] | None = None
) -> ConnectionRates:
    entries: list[dict[str, Any]] = [
        {"entity": {"ip": None if name == "default" else name}, "values": {"connection_creation_rate": value}}
        for name, value in of_addresses.items()
    ]
    table = QuotaTable(entries)
    assert not table.keys, "no client has a quota"
    return ConnectionRates(lambda: table, lambda: limit, lambda name: (of_listeners or {}).get(name, INT32_MAX))


def test_of_an_address_ten_seconds_worth_come_at_once_and_refused_ones_do_not_count() -> None:
    """Kafka's arithmetic: a window of at least ten seconds."""
    some = rates({"10.0.0.1": 2.0})
    assert [some.hold_ms("10.0.0.1", 0) for _ in range(20)] == [0] * 20
    assert [some.hold_ms("10.0.0.1", 0) for _ in range(3)] == [500] * 3, "each as the first one too many"
    assert some.hold_ms("10.0.0.2", 0) == 0
    assert some.hold_ms("10.0.0.1", 1_000) == 500
    assert some.hold_ms("10.0.0.1", 12_000) == 0


def test_a_default_is_for_each_address_by_itself_and_names_are_compared_as_addresses() -> None:
    some = rates({"default": 1.0, "0:0:0:0:0:0:0:1": 5.0})
    for host in ("127.0.0.1", "127.0.0.2"):
        assert [some.hold_ms(host, 0) for _ in range(11)] == [*[0] * 10, 1_000]
    assert [some.hold_ms("::1", 0) for _ in range(51)] == [*[0] * 50, 200]


@pytest.mark.parametrize("limit", [1, 4])
def test_in_all_each_counts_and_a_wait_is_a_second_at_most(limit: int) -> None:
    some = rates({}, limit)
    assert [some.pause_ms("PLAINTEXT", 0) for _ in range(10 * limit)] == [0] * 10 * limit
    first, second = some.pause_ms("PLAINTEXT", 0), some.pause_ms("SSL", 0)
    assert 0 < first <= second <= MAX_WAIT_MS
    assert rates({}).pause_ms("PLAINTEXT", 0) == 0


def test_a_listener_waits_for_its_own_rate_and_for_that_of_all() -> None:
    some = rates({}, limit=2, of_listeners={"SSL": 1})
    assert [some.pause_ms("SSL", 0) for _ in range(10)] == [0] * 10
    assert some.pause_ms("SSL", 0) > 0
    assert [some.pause_ms("PLAINTEXT", 0) for _ in range(9)] == [0] * 9, "20 in all, with the one that waited"
    assert some.pause_ms("PLAINTEXT", 0) > 0
