"""Cut JSON documents that stand one after another, pretty or not, and find the array that a field of an object has.

Brackets and strings are looked at, nothing else: what a document has is forwarded unchanged, as lines are.
"""

from __future__ import annotations

import json
import re
from typing import Final

import numpy as np

from kafkaprod.loader.formats.text import Cut, TextBytes
from kafkaprod.loader.opening.errors import LoadError, LoadRefusedError
from kafkaprod.loader.opening.opening import WholeInput
from kafkaprod.loader.opening.source import Source

READ_BYTES: Final = 64 << 10
_LONGEST_INLINE: Final = 12  # bytes of a row that a view has itself
_TOKEN: Final = re.compile(rb'"(?:[^"\\]|\\.)*(?:"|\Z)|[{}\[\]]', re.DOTALL)
_TOKEN_OF_OBJECT: Final = re.compile(rb'"(?:[^"\\]|\\.)*(?:"|\Z)|[{}\[\]:,]', re.DOTALL)
_CLOSING: Final = {b"{": b"}", b"[": b"]"}
_NOT_BLANK: Final = re.compile(rb"[^ \t\r\n]")


def split_documents(source: Source, text: TextBytes, is_last: bool) -> Cut:
    """Cut whole documents off a text.

    Raises:
        LoadError: It is cut off within a document, has none, or brackets that do not belong together.
    """
    starts: list[int] = []
    ends: list[int] = []
    open_brackets: list[bytes] = []
    end = start = 0
    for found in _TOKEN.finditer(text):
        token = found[0]
        if not open_brackets:
            start = found.start()
            if token not in _CLOSING or _NOT_BLANK.search(text, end, start):
                raise _other_text(source)
            open_brackets.append(_CLOSING[token])
        elif token in _CLOSING:
            open_brackets.append(_CLOSING[token])
        elif token[:1] == b'"':
            if token[-1:] != b'"' or len(token) == 1:
                break
        elif token != open_brackets.pop():
            raise LoadError(f"{source.name}: a bracket is not closed in a document behind {len(starts):,} of this part")
        elif not open_brackets:
            end = found.end()
            starts.append(start)
            ends.append(end)
    if is_last and open_brackets:
        raise LoadError(f"{source.name} is cut off: its last document does not end")
    if is_last and _NOT_BLANK.search(text, end):
        raise _other_text(source)
    used = len(text) if is_last else end
    return Cut(_views_of(text, starts, ends), len(starts), used)


def _other_text(source: Source) -> LoadError:
    return LoadError(f"{source.name} is not a sequence of JSON objects and arrays: other text stands beside them")


def _views_of(text: TextBytes, starts: list[int], ends: list[int]) -> bytes:
    """Return views of parts of a text: length and first bytes, then the place, or all bytes of a short one."""
    views = np.zeros((len(starts), 4), dtype=np.int32)
    views[:, 3] = starts
    views[:, 0] = np.array(ends, dtype=np.int32) - views[:, 3]
    heads = views.view(np.uint8)
    for place, (start, end) in enumerate(zip(starts, ends, strict=True)):
        part = bytes(text[start : end if end - start <= _LONGEST_INLINE else start + 4])
        if end - start <= _LONGEST_INLINE:
            views[place, 1:] = 0
        heads[place, 4 : 4 + len(part)] = np.frombuffer(part, dtype=np.uint8)
    return views.tobytes()


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
    for found in _TOKEN_OF_OBJECT.finditer(text):
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
