"""What the page shows of bytes is text that says what is there."""

from __future__ import annotations

import json

import pytest

from kafkaprod.broker.window.showing import indent_json, shown_bytes, visible


@pytest.mark.parametrize(
    ("data", "kind", "text"),
    [
        (None, "null", "null"),
        (b"", "empty", "empty"),
        (b"null", "text", "null"),
        (b"plain \xc3\xa9\n", "text", "plain é\n"),
        (b'{"a": 1}', "json", '{"a": 1}'),
        (b"\x00\xff", "hex", "00 ff"),
        ("a\u202eb".encode(), "text", "a⟨U+202E⟩b"),
        ("a\u200bb\u2028".encode(), "text", "a⟨U+200B⟩b⟨U+2028⟩"),
        (b"a\x07b", "hex", "61 07 62"),
    ],
)
def test_null_empty_text_and_bytes_look_different(data: bytes | None, kind: str, text: str) -> None:
    shown = shown_bytes(data)
    assert (shown["kind"], shown["text"]) == (kind, text)


def test_a_text_that_is_cut_inside_a_character_is_still_text() -> None:
    shown = shown_bytes("é".encode() * 3 + b"\xc3", 1000)
    assert (shown["kind"], shown["text"], shown["size"]) == ("text", "ééé", 1000)


def test_numbers_and_schema_ids_are_named() -> None:
    assert shown_bytes(b"\x00\x00\x00\x2a")["note"] == "number 42"
    assert shown_bytes(b"\x00\x00\x00\x00\x07\xff")["note"] == "perhaps schema id 7"


@pytest.mark.parametrize(
    "text",
    ['{"a":1.10,"a":2,"b":[],"c":{},"d":[1,{"e":"x\\"}{"}]}', "[9223372036854775807]", '"x"', "[ ]", '{"a" : [1 , 2]}'],
)
def test_json_is_indented_as_it_was_written(text: str) -> None:
    indented = indent_json(text)
    assert indented is not None
    assert "".join(indented.split()) == "".join(text.split())
    assert json.loads(indented) == json.loads(text)


@pytest.mark.parametrize("text", ["{", "[" * 65 + "]" * 65, "[" * 100_000, '{"a": }'])
def test_what_is_no_json_or_too_deep_is_not_indented(text: str) -> None:
    assert indent_json(text) is None


def test_names_show_what_cannot_be_seen() -> None:
    assert visible("a\x00\ud800\ufeff") == "a⟨U+0000⟩⟨U+D800⟩⟨U+FEFF⟩"
    assert visible("<img src=x>") == "<img src=x>"
