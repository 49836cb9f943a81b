"""Text for people: counts with their nouns, addresses, and foreign text that may be shown on a terminal."""

from __future__ import annotations

import re
from typing import Final

# Control characters (C0 but the tab, DEL, C1), line and paragraph separators, changes of direction and marks of it,
# tags (texts that no terminal shows), lone surrogates.
_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0a-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff\U000e0000-\U000e007f]"
)
_SHORT = {"\n": "\\n", "\r": "\\r"}


def plain_text(text: str) -> str:
    """Return the characters of a member of a StrEnum, a numpy.str_ or another subclass of str as a str itself."""
    return text if type(text) is str else str.__str__(text)


def printable(text: str, limit: int | None = None) -> str:
    r"""Escape what a terminal or a log would obey: control characters, line ends, changes of direction.

    Use it for everything that comes from a broker, a record or a file: it could forge lines of a log or control a
    terminal. An escape has the form `\n`, `\x1b` or `\u2028`. Every message of a KafkaError goes through it.

    Args:
        text: A text of any origin.
        limit: Most characters to keep; None: all.
    """
    if limit is not None and len(text) > limit:
        text = f"{text[:limit]}..."
    return _UNPRINTABLE.sub(_escaped, text)


def _escaped(match: re.Match[str]) -> str:
    character = match[0]
    number = ord(character)
    if number > 0xFFFF:
        return f"\\U{number:08x}"
    return _SHORT.get(character) or (f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}")


def address_text(host: str, port: int) -> str:
    """Return `host:port` as options take it: an IPv6 address has brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


MAX_PROTOCOL_TEXT_BYTES: Final = 32_767
"""The longest text in a request: most of Kafka's texts have a length of 16 bits."""


def why_unsendable(text: str) -> str | None:
    """Return why a text cannot be in a request of Kafka's protocol, as the end of a sentence; None if it can be."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        return f"has the lone surrogate {text[error.start]!r} at position {error.start}, which UTF-8 cannot hold"
    if size > MAX_PROTOCOL_TEXT_BYTES:
        return f"has {size} bytes in UTF-8, and Kafka's protocol holds at most {MAX_PROTOCOL_TEXT_BYTES}"
    return None


def counted(count: int, noun: str, plural: str = "") -> str:
    """Return a count and its noun: "1 record", "1,234 records".

    Args:
        count: How many.
        noun: The singular.
        plural: Where it is not the singular with an s.
    """
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"
