r"""Java's `.properties` files, as the Kafka tools take them.

    # a comment          ! another
    linger.ms=5          acks : all          bootstrap.servers a:9092,\
                                                 b:9092

Source: java.util.Properties.load: key and value are parted by the first `=`, `:` or blank that is not escaped; a line
that ends in an odd number of backslashes continues in the next, whose leading blanks are dropped; `\t \n \r \f \uXXXX`
are escapes and any other escaped character stands for itself. Files are UTF-8. `${...}` is not expanded.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Final

from kafkaprod.config.secret import decoded
from kafkaprod.errors import ConfigError

_MARK: Final = "\ufeff"
_BLANKS: Final = " \t\f"
_KEY = re.compile(r"(?:[^\\=: \t\f]|\\.)*")
_SEPARATOR = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|u|.)", re.DOTALL)
_LINE_END = re.compile(r"\r\n|\r|\n")
_CONTROL: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_SURROGATES: Final = re.compile("[\ud800-\udbff][\udc00-\udfff]")


def read_properties(path: str | os.PathLike[str]) -> dict[str, str]:
    """The properties in a file.

    Raises:
        ConfigError: The file cannot be read, is not UTF-8, or is malformed; says the line.
    """
    try:
        with open(path, "rb") as file:
            text = decoded(file.read()).removeprefix(_MARK)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{os.fspath(path)} cannot be read as a .properties file: {error}") from error
    try:
        return parse_properties(text)
    except ConfigError as error:
        raise ConfigError(f"{os.fspath(path)}: {error}") from None


def parse_properties(text: str) -> dict[str, str]:
    """The properties in a text.

    Raises:
        ConfigError: A key is given twice (Java takes the last) or an escape is malformed; says the line.
    """
    properties: dict[str, str] = {}
    for number, line in _logical_lines(text):
        key_end = _end(_KEY, line, 0)
        key = _unescape(line[:key_end], number)
        if key in properties:
            raise ConfigError(f"line {number}: {key} is given twice")
        properties[key] = _unescape(line[_end(_SEPARATOR, line, key_end) :], number)
    return properties


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines with their continuations, without comments and empty ones, each with the number of its first line."""
    pending: str | None = None
    first = 0
    for number, raw in enumerate(_LINE_END.split(text), 1):
        line = raw.lstrip(_BLANKS)
        if pending is None:
            if not line or line[0] in "#!":
                continue
            pending, first = "", number
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            pending += line[:-1]
            continue
        yield first, pending + line
        pending = None
    if pending is not None:
        yield first, pending


def _end(pattern: re.Pattern[str], line: str, start: int) -> int:
    match = pattern.match(line, start)
    assert match is not None  # both patterns match the empty text
    return match.end()


def _unescape(text: str, number: int) -> str:
    def replace(match: re.Match[str]) -> str:
        escaped = match.group(1)
        if escaped == "u":
            raise ConfigError(f"line {number}: \\u needs four hexadecimal digits")
        return chr(int(escaped[1:], 16)) if len(escaped) == 5 else _CONTROL.get(escaped, escaped)

    plain = _ESCAPE.sub(replace, text)
    # Java's characters are UTF-16: two escapes make one character beyond the first plane.
    return _SURROGATES.sub(lambda pair: pair.group().encode("utf-16", "surrogatepass").decode("utf-16"), plain)
