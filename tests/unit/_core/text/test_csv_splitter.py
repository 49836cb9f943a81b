"""Cutting CSV into rows, against the same rule a character at a time in Python."""

from __future__ import annotations

import mmap

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkaprod._core.columns.columns import Column
from kafkaprod._core.text.csv_splitter import ROW_OPEN_QUOTE, ROW_TEXT_AFTER_QUOTE, split_csv
from kafkaprod._core.text.row_splitter import split_lines
from kafkaprod.errors import InvalidRecordError


def rows(views: bytes, text: bytes) -> list[bytes | None]:
    """Views as bytes."""
    column = Column.from_views(views, [text])
    return [column[i] for i in range(len(column))]


def csv_row(text: str, start: int, limit: int) -> tuple[int, int]:
    """Where the CSV row at `start` ends, and its status: the rule of split_csv(), a character at a time."""
    first_end = next((i for i in range(start, len(text)) if text[i] in "\r\n"), len(text))
    at = start
    while True:
        if text[at : at + 1] == '"':
            at += 1
            while True:
                at = text.find('"', at, start + limit) + 1
                if at == 0:
                    return first_end, ROW_OPEN_QUOTE
                if text[at : at + 1] != '"':
                    break
                at += 1
            if text[at : at + 1] not in ("", ",", "\r", "\n"):
                return first_end, ROW_TEXT_AFTER_QUOTE
        while at < len(text) and text[at] not in ",\r\n":
            at += 1
        if text[at : at + 1] != ",":
            return at, 0
        at += 1


def csv_rows(text: str, limit: int) -> tuple[list[bytes], dict[int, int]]:
    found: list[bytes] = []
    malformed = {}
    at = 0
    while at < len(text):
        end, status = csv_row(text, at, limit)
        if status:
            malformed[len(found)] = status
        found.append(text[at:end].encode())
        at = end + (2 if text[end : end + 2] == "\r\n" else 1)
    return found, malformed


@settings(max_examples=500)
@given(st.text(',"ab\r\n', max_size=40), st.integers(0, 40), st.sampled_from([5, 1000]))
def test_csv_rows_are_those_of_the_rule_wherever_the_text_is_cut(text: str, place: int, limit: int) -> None:
    data = text.encode()
    found: list[bytes | None] = []
    malformed: dict[int, int] = {}
    at = 0
    for end in (min(place, len(data)), len(data)):
        views, count, used, bad = split_csv(data[at:end], ord(","), ord('"'), end == len(data), limit)
        malformed |= {len(found) + i: status for i, status in bad.items()}
        found += rows(views, data[at:end])
        assert count == len(views) // 16
        at += used
    assert at == len(data)
    assert (found, malformed) == csv_rows(text, limit)


@given(st.text("a,\r\n", max_size=60))
def test_csv_rows_without_quotes_are_those_of_splitlines(text: str) -> None:
    for quote in (-1, ord('"')):
        views, _, used, malformed = split_csv(text.encode(), ord(","), quote, True, 100)
        assert rows(views, text.encode()) == text.encode().splitlines()
        assert (used, malformed) == (len(text), {})


def test_text_of_2_gib_is_refused() -> None:
    with mmap.mmap(-1, 1 << 31) as text:  # not a byte of it is touched
        for split in (lambda: split_csv(text, ord(","), -1, True, 100), lambda: split_lines(text)):
            with pytest.raises(InvalidRecordError, match="2147483648 bytes"):
                split()


def test_csv_rows_can_be_counted_out() -> None:
    views, count, used, _ = split_csv(b'"a\r\nb"\r\nc\r\n', ord(","), ord('"'), True, 100, 1)
    assert (rows(views, b'"a\r\nb"'), count, used) == ([b'"a\r\nb"'], 1, 8)


def test_quotes_that_begin_no_field_cost_no_time() -> None:
    """Of a text without the closing quote each row would otherwise be searched to its end."""
    text = b'1,"open\n' + b'2,x""y\n3,""\n' * 200_000
    _, count, used, malformed = split_csv(text, ord(","), ord('"'), True, 1 << 24)
    assert (count, used, malformed) == (400_001, len(text), {0: ROW_OPEN_QUOTE})
    text = b"1,2\r" * 400_000
    assert split_csv(text, ord(","), ord('"'), True, 1 << 24)[1] == 400_000


def test_a_limit_beyond_all_texts_is_none() -> None:
    text = b'a\n"b\n'
    assert split_csv(text, ord(","), ord('"'), True, 2**63 - 1) == split_csv(text, ord(","), ord('"'), True, 2**31)
    assert split_csv(text, ord(","), ord('"'), False, 2**63 - 1)[2] == 2  # the quoted field may go on
