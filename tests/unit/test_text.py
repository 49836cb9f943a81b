"""Counts with nouns, and foreign text for terminals."""

from __future__ import annotations

import pytest

from kafkaprod.protocol.error_codes import ErrorCode, error_for
from kafkaprod.structs import Node
from kafkaprod.text import address_text, counted, printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain, with\ttabs and \N{SNOWMAN}", "plain, with\ttabs and \N{SNOWMAN}"),
        ("\x1b]52;c;aGk=\x07", r"\x1b]52;c;aGk=\x07"),
        ("two\r\nlines", r"two\r\nlines"),
        ("\x9b31m \x85 \x7f \x00", r"\x9b31m \x85 \x7f \x00"),
        ("\u202egnp.exe\u2028", r"\u202egnp.exe\u2028"),
        ("\ud800", r"\ud800"),
        ("a\u200eb\u200f\u061c", r"a\u200eb\u200f\u061c"),
        ("\U000e0041\U000e007f", r"\U000e0041\U000e007f"),
    ],
)
def test_what_a_terminal_would_obey_is_escaped(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_a_brokers_words_in_an_error_are_escaped() -> None:
    error = error_for(ErrorCode.INVALID_CONFIG, "\x1b[31mred\nline", topic="t\x1b")
    assert str(error).isprintable()


@pytest.mark.parametrize(("count", "text"), [(0, "0 records"), (1, "1 record"), (163099, "163,099 records")])
def test_counts_have_their_noun_and_separators(count: int, text: str) -> None:
    assert counted(count, "record") == text


def test_a_plural_can_be_irregular() -> None:
    assert counted(2, "entry", "entries") == "2 entries"


@pytest.mark.parametrize(
    ("host", "expected"),
    [("kafka", "kafka:1"), ("127.0.0.1", "127.0.0.1:1"), ("::1", "[::1]:1"), ("fe80::1%eth0", "[fe80::1%eth0]:1")],
)
def test_an_address_is_as_options_take_it(host: str, expected: str) -> None:
    assert address_text(host, 1) == expected
    assert Node(-1, host, 1).name == f"bootstrap server {expected}"
