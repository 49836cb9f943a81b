"""What the page shows of bytes and names: text that says what is there, and can be mistaken for nothing else.

    kind    text                                                     of
    null                                                             None
    empty                                                            b""
    text    the text; characters that are not seen as `⟨U+202E⟩`     UTF-8 without control characters
    json    the text, and an indented one                            the same, if it is JSON
    hex     00 01 ff; with 4 or 8 bytes the number, too              all else

JSON is indented by its text, not parsed and written again: numbers, doubled keys and their order stay as sent.
"""

from __future__ import annotations

import base64
import json
import unicodedata
from collections.abc import Mapping
from typing import Any, Final

_UNSEEN: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_LINE_ENDS: Final = "\t\n"
_MOST_DEPTH: Final = 64
_HEX_LINE: Final = 16
_NUMBER_BYTES: Final = (4, 8)
_SCHEMA_HEAD: Final = 5


def visible(text: str) -> str:
    """Return a name or a text with characters that are not seen, or that change the direction, as `⟨U+202E⟩`."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(each if each in _LINE_ENDS or not _is_unseen(each) else f"⟨U+{ord(each):04X}⟩" for each in text)


def _is_unseen(character: str) -> bool:
    return unicodedata.category(character) in _UNSEEN


def shown_bytes(data: bytes | None, size: int | None = None, *, is_whole: bool = False) -> dict[str, Any]:
    """Return what the page shows of bytes.

    Args:
        data: The bytes, or the first of them.
        size: How many there are in truth; None for as many.
        is_whole: With an indented text for JSON, and lines for hexadecimal numbers.
    """
    if data is None:
        return {"kind": "null", "text": "null", "size": 0}
    true_size = len(data) if size is None else size
    if not true_size:
        return {"kind": "empty", "text": "empty", "size": 0}
    text = _decoded(data, is_cut=true_size > len(data))
    if text is None:
        return _shown_hex(data, true_size, is_whole=is_whole)
    shown: dict[str, Any] = {"kind": "text", "text": visible(text), "size": true_size}
    if text.lstrip()[:1] in ("{", "["):
        if is_whole and true_size == len(data):
            indented = indent_json(text)
            if indented is not None:
                shown |= {"kind": "json", "indented": visible(indented)}
        else:
            shown["kind"] = "json"
    return shown


def _decoded(data: bytes, *, is_cut: bool) -> str | None:
    """Return the text of UTF-8 without control characters, None for other bytes."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        if not is_cut or error.start < len(data) - 3:  # a character that was cut in two
            return None
        text = data[: error.start].decode()
    return None if any(each not in "\t\n\r" and unicodedata.category(each) == "Cc" for each in text) else text


def _shown_hex(data: bytes, size: int, *, is_whole: bool) -> dict[str, Any]:
    notes = []
    if size in _NUMBER_BYTES and size == len(data):
        notes.append(f"number {int.from_bytes(data, 'big', signed=True)}")
    if size > _SCHEMA_HEAD and data[0] == 0:
        notes.append(f"perhaps schema id {int.from_bytes(data[1:_SCHEMA_HEAD], 'big')}")
    step = _HEX_LINE if is_whole else len(data)
    lines = [data[at : at + step].hex(" ") for at in range(0, len(data), step)]
    return {"kind": "hex", "text": "\n".join(lines), "size": size, "note": ", ".join(notes)}


def indent_json(text: str) -> str | None:
    """Return JSON with two spaces for each level, and otherwise as it is; None for what is no JSON, or too deep."""
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return None
    found: list[str] = []
    depth, position, length = 0, 0, len(text)
    while position < length:
        sign = text[position]
        if sign == '"':
            end = _end_of_string(text, position)
            found.append(text[position:end])
            position = end
            continue
        position += 1
        if sign in "{[":
            depth += 1
            if depth > _MOST_DEPTH:
                return None
            following = _skip_spaces(text, position)
            if text[following] in "}]":
                found.append(sign + text[following])
                depth, position = depth - 1, following + 1
            else:
                found.append(f"{sign}\n{'  ' * depth}")
        elif sign in "}]":
            depth -= 1
            found.append(f"\n{'  ' * depth}{sign}")
        elif sign == ",":
            found.append(f",\n{'  ' * depth}")
        elif sign == ":":
            found.append(": ")
        elif not sign.isspace():
            found.append(sign)
    return "".join(found)


def _end_of_string(text: str, start: int) -> int:
    position = start + 1
    while text[position] != '"':
        position += 2 if text[position] == "\\" else 1
    return position + 1


def _skip_spaces(text: str, position: int) -> int:
    while text[position].isspace():
        position += 1
    return position


def decoded(text: str | None) -> bytes | None:
    """Return the bytes of base64; None stays None."""
    return None if text is None else base64.b64decode(text)


def newest_first(pages: Mapping[str, Mapping[str, Any]]) -> list[tuple[int, list[Any]]]:
    """Return the records of several partitions, the newest first, with the partition of each.

    Between partitions the timestamps decide; within one its order stays, whatever the timestamps are.
    """
    keyed = []
    for number, page in pages.items():
        latest = -(2**63)
        for row in page["records"]:
            latest = max(latest, row[1])
            keyed.append((latest, row[0], int(number), row))
    keyed.sort(key=lambda each: each[:3], reverse=True)
    return [(number, row) for _, _, number, row in keyed]


def shown_row(partition: int, row: list[Any]) -> dict[str, Any]:
    """Return what a list shows of a record that `log_search.cut_record` has cut."""
    offset, timestamp, key, value, headers, key_bytes, value_bytes, header_count = row
    return {
        "p": partition,
        "o": str(offset),
        "t": timestamp if abs(timestamp) <= _LAST_DATE_MS else str(timestamp),
        "k": shown_bytes(decoded(key), key_bytes),
        "v": shown_bytes(decoded(value), value_bytes),
        "h": [[visible(name), shown_bytes(decoded(content), size)] for name, content, size in headers],
        "n": header_count,
    }


def shown_record(partition: int, row: list[Any], most_bytes: int) -> dict[str, Any]:
    """Return what the page shows of a record that is opened: all of it, but for a value above `most_bytes`."""
    offset, timestamp, key, value, headers = row
    content = decoded(value)
    size = 0 if content is None else len(content)
    cut = None if content is None else content[:most_bytes]
    return {
        "p": partition,
        "o": str(offset),
        "t": timestamp if abs(timestamp) <= _LAST_DATE_MS else str(timestamp),
        "k": shown_bytes(decoded(key), is_whole=True),
        "v": {**shown_bytes(cut, size, is_whole=True), "isCut": size > most_bytes, "hex": _hex_lines(cut or b"")},
        "h": [[visible(name), shown_bytes(decoded(each))] for name, each in headers],
    }


_LAST_DATE_MS: Final = 8_640_000_000_000_000
"""The last time that a browser's Date can hold."""


def _hex_lines(data: bytes) -> str:
    lines = []
    for at in range(0, len(data), _HEX_LINE):
        part = data[at : at + _HEX_LINE]
        text = "".join(chr(each) if 0x20 <= each < 0x7F else "·" for each in part)
        lines.append(f"{at:08x}  {part.hex(' '):<47}  {text}")
    return "\n".join(lines)
