"""Convert text in other encodings to UTF-8, and recognize byte order marks."""

from __future__ import annotations

import codecs
import io
from typing import Any, Final

from kafkaprod.loader.opening.errors import LoadError, LoadRefusedError

UTF8: Final = "utf-8"
_BOM: Final = codecs.BOM_UTF8
_WIDE_BOMS: Final = {  # the longer ones first: UTF-32's begins with UTF-16's
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
HEAD_BYTES: Final = 4
_READ_BYTES: Final = 1 << 18


def encoding_name(text: str) -> str:
    """Return the name under which Python knows an encoding; `utf-8` for its variants. Raises LookupError."""
    codec = codecs.lookup(text)
    if not getattr(codec, "_is_text_encoding", True):
        raise LookupError(f"{text} is not a text encoding")
    return UTF8 if codec.name in ("utf-8", "utf-8-sig") else codec.name


def byte_order_mark(head: bytes, name: str, *, is_structured: bool) -> int:
    """Return the length of the UTF-8 byte order mark that a text begins with, 0 if there is none.

    Args:
        head: The first HEAD_BYTES of the text.
        name: The input's name, for the message.
        is_structured: The text begins with an ASCII character if it is UTF-8 without a mark (CSV, JSON).

    Raises:
        LoadRefusedError: The text is UTF-16 or UTF-32.
    """
    for mark, encoding in _WIDE_BOMS.items():
        if head.startswith(mark):
            raise LoadRefusedError(f"{name} is {encoding.upper()}: use --encoding {encoding}")
    if is_structured and len(head) > 1 and 0 in (head[0], head[1]) and head[0] != head[1]:
        encoding = "utf-16-be" if head[0] == 0 else "utf-16-le"
        raise LoadRefusedError(f"{name} seems to be {encoding.upper()}: use --encoding {encoding}")
    return len(_BOM) if head.startswith(_BOM) else 0


class Utf8Stream(io.RawIOBase):
    """Reads another stream's text as UTF-8.

    A byte that its encoding does not have comes out as it is, which is not UTF-8: the row that has it is bad.

    Args:
        raw: Gives the text.
        encoding: The encoding of the text.
        name: The input's name, for messages.
    """

    def __init__(self, raw: Any, encoding: str, name: str) -> None:
        self._raw = raw
        self._decoder = codecs.getincrementaldecoder(encoding)("surrogateescape")
        self._encoding = encoding
        self._name = name
        self._ready = b""
        self._is_end = False

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, room: memoryview) -> int:  # type: ignore[override]
        """Read some bytes; see io.RawIOBase. Raises LoadError if the text cannot be decoded."""
        while not self._ready and not self._is_end:
            data = self._raw.read(_READ_BYTES)
            self._is_end = not data
            if self._is_end and self._decoder.getstate()[0]:
                raise LoadError(f"{self._name} is cut off: it ends within a character of {self._encoding}")
            try:
                text = self._decoder.decode(data or b"", final=self._is_end)
                self._ready = text.encode(UTF8, "surrogateescape")
            except UnicodeError as error:
                raise LoadError(f"{self._name} cannot be decoded as {self._encoding}: {error}") from error
        into = memoryview(room).cast("B")
        part, self._ready = self._ready[: len(into)], self._ready[len(into) :]
        into[: len(part)] = part
        return len(part)
