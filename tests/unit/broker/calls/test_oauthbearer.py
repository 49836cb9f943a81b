"""Which unsigned tokens log a user in."""

from __future__ import annotations

import base64

import pytest

from kafkaprod.broker.calls.oauthbearer import BearerExchange


def message(claims: str) -> bytes:
    parts = (base64.urlsafe_b64encode(text.encode()).decode().rstrip("=") for text in ('{"alg":"none"}', claims))
    return f"n,,\x01auth=Bearer {'.'.join(parts)}.\x01\x01".encode()


@pytest.mark.parametrize("end", ["101", "101.5", "253402300799"])
def test_a_token_that_ends_later_logs_in(end: str) -> None:
    server = BearerExchange(now_s=lambda: 100)
    assert server.step(message(f'{{"sub":"ann","exp":{end}}}')) == b""
    assert (server.user, server.ends_at_s) == ("ann", float(end))


@pytest.mark.parametrize("end", ["100", "-1", "1e400", "-1e400", "NaN", "9e18", "1" * 5000, "null", '"101"'])
def test_a_token_that_has_ended_or_never_ends_is_refused(end: str) -> None:
    server = BearerExchange(now_s=lambda: 100)
    assert server.step(message(f'{{"sub":"ann","exp":{end}}}')) != b""
    assert (server.user, server.ends_at_s) == (None, None)
