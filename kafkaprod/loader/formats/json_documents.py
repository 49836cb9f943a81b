"""Find the array that a field of a JSON object has, and check what stands around it."""

from __future__ import annotations

import json
import re
from typing import Final

from kafkaprod.loader.formats.text import TextBytes
from kafkaprod.loader.opening.errors import LoadError, LoadRefusedError
from kafkaprod.loader.opening.opening import WholeInput
from kafkaprod.loader.opening.source import Source

READ_BYTES: Final = 64 << 10
# Without possessive quantifiers a string takes 120 bytes of memory for each of its characters.
_TOKEN: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\Z)|[{}\[\]:,]', re.DOTALL)
_NOT_BLANK: Final = re.compile(rb"[^ \t\r\n]")


def not_json(source: Source, text: TextBytes, offset: int, wrong: int, wanted: str = "a JSON array") -> LoadError:
    """Return the error for a byte that has no place in JSON.

    Args:
        source: The input.
        text: A part of it.
        offset: Where that begins in the input.
        wrong: Where the byte is in `text`.
        wanted: What the input should be.
    """
    shown = bytes(text[wrong : wrong + 20]).decode(errors="backslashreplace")
    return LoadError(f"{source.name} is not {wanted}: at byte {offset + wrong:,}, {shown!r}, it is no JSON")


def find_elements(stream: WholeInput, source: Source, field: str, max_bytes: int) -> int:
    """Return where the elements of an array begin that is a field of the document.

    Args:
        stream: The input, at its beginning.
        source: The input.
        field: The name of the field.
        max_bytes: The most that may stand before it.

    Raises:
        LoadError: The document is cut off, or the array begins too late.
        LoadRefusedError: It is no object, or has no such array.
    """
    head = bytearray()
    while True:
        data = stream.head(1, max(READ_BYTES, len(head)))
        head += data
        at, names = _find_array(bytes(head), field.encode())
        if at is not None:
            _check_document(bytes(head[:at]), source)
            return at
        if names is not None:
            shown = ", ".join(name.decode(errors="replace") for name in names[:20]) or "none"
            raise LoadRefusedError(
                f"{source.name}: --elements {field}: the document has no array of this name on its first level; its "
                f"fields are: {shown}"
            )
        if not data:
            raise LoadError(f"{source.name} is cut off: its document ends before the array {field!r} begins")
        if len(head) > max_bytes:
            raise LoadError(
                f"{source.name}: more than {max_bytes:,} bytes stand before the array {field!r}: raise --max-row-bytes"
            )


def _check_document(head: bytes, source: Source) -> None:
    try:
        json.loads(head.removeprefix(b"\xef\xbb\xbf") + b"]}")
    except (ValueError, RecursionError) as error:
        raise LoadRefusedError(f"{source.name} is not a JSON document: {error}") from error


def _find_array(text: bytes, field: bytes) -> tuple[int | None, list[bytes] | None]:
    """Return where the array's elements begin; else the names of all fields; both None: the text is too short."""
    names: list[bytes] = []
    depth = 0
    name: bytes | None = None
    is_key = is_value = False
    first = _NOT_BLANK.search(text.removeprefix(b"\xef\xbb\xbf"))
    if first is not None and first[0] != b"{":
        return None, []
    for found in _TOKEN.finditer(text):
        token = found[0]
        if token[:1] == b'"':
            if token[-1:] != b'"' or len(token) == 1:
                return None, None
            if depth == 1 and is_key:
                name = _text_of(token)
                names.append(name)
                is_key = False
        elif token == b":":
            is_value = depth == 1 and name == field
            continue
        elif token in b"{[":
            if token == b"[" and is_value:
                return found.end(), names
            depth += 1
            is_key = depth == 1
        elif token == b",":
            is_key = depth == 1
        else:
            depth -= 1
            if depth == 0:
                return None, names
        is_value = False
    return None, None


def _text_of(token: bytes) -> bytes:
    try:
        return str(json.loads(token)).encode(errors="surrogatepass")
    except ValueError:
        return token[1:-1]


def check_rest_of_object(stream: WholeInput, source: Source, rest: bytes, max_bytes: int) -> None:
    """Read what follows the array up to the end of the input. Raises LoadError: it is not the rest of an object."""
    while len(rest) <= max_bytes and (data := stream.read(READ_BYTES)):
        rest += data
    if len(rest) > max_bytes:
        raise LoadError(
            f"{source.name}: more than {max_bytes:,} bytes follow the array of --elements: raise --max-row-bytes"
        )
    try:
        json.loads(b'{"":0' + rest)
    except (ValueError, RecursionError) as error:
        raise LoadError(
            f"{source.name} is cut off or damaged: what follows the array does not end its document: {error}"
        ) from error
