"""Which requests are the page's own, by their headers alone."""

from __future__ import annotations

from email.message import Message

import pytest

from kafkaprod.broker.window.guarding import Guard

OWN = "127.0.0.1:80"
OWN_ORIGIN = f"http://{OWN}"
EVIL = "http://evil.example"


@pytest.mark.parametrize(
    ("headers", "shown", "changed"),
    [
        ([("Host", OWN)], None, 403),
        ([("Host", OWN), ("Origin", OWN_ORIGIN)], None, None),
        ([("Host", OWN.upper()), ("Origin", OWN_ORIGIN.upper())], None, None),
        ([("Host", OWN), ("Origin", OWN_ORIGIN), ("Origin", OWN_ORIGIN)], 403, 403),
        ([("Host", OWN), ("Origin", f"https://{OWN}")], 403, 403),
        ([("Host", OWN), ("Origin", EVIL)], 403, 403),
        ([("Host", OWN), ("Origin", OWN_ORIGIN), ("Sec-Fetch-Site", "same-site")], 403, 403),
        ([("Host", OWN), ("Origin", OWN_ORIGIN), ("Sec-Fetch-Site", "none")], None, None),
        (
            [
                ("Host", OWN),
                ("Origin", OWN_ORIGIN),
                ("Sec-Fetch-Site", "same-origin"),
                ("Sec-Fetch-Site", "cross-site"),
            ],
            *(403, 403),
        ),
        ([("Origin", OWN_ORIGIN)], 400, 400),
        ([("Host", OWN), ("Host", OWN), ("Origin", OWN_ORIGIN)], 400, 400),
        ([("Host", "evil.example"), ("Origin", OWN_ORIGIN)], 421, 421),
    ],
)
def test_only_the_page_of_this_address_may_ask(
    headers: list[tuple[str, str]], shown: int | None, changed: int | None
) -> None:
    guard = Guard([OWN, "localhost:80"], "token")
    message = Message()
    for name, value in headers:
        message.add_header(name, value)
    for is_change, expected in ((False, shown), (True, changed)):
        refusal = guard.check_place(message, is_page=False, is_change=is_change)
        assert (refusal and refusal.status) == expected, is_change


@pytest.mark.parametrize("token", [None, "", "toke", "tokens", "tok\ud800n"])
def test_another_token_is_not_known(token: str | None) -> None:
    guard = Guard([OWN], "token")
    assert not guard.knows(token)
    assert guard.knows("token")
