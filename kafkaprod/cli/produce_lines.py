"""Lines with more in them than key and value: headers as Java's console producer reads them, and JSON envelopes.

`LineForm`s turn lines into `Rows`. An envelope is a line of `kcat -J` or of `kafkaprod tail --json`.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, Protocol

from kafkaprod._core.columns.columns import Column, Headers
from kafkaprod.errors import ConfigError
from kafkaprod.text import printable

Header = tuple[str, bytes | None]

_LATEST_MS: Final = (1 << 63) - 1


class Rows(NamedTuple):
    """Records for `send_columns`.

    Attributes:
        key: None: no keys.
        value: As many as there are rows.
        headers: None: no headers.
        timestamps_ms: One for each row; None: now.
        row_count: How many rows there are.
    """

    key: Column | None
    value: Column
    headers: Headers | None
    timestamps_ms: list[int] | None
    row_count: int

    def first(self, count: int) -> Rows:
        """Return the first rows."""
        key, value = self.key, self.value
        if key is not None and key.row_count >= 0:
            key = Column.from_list([key[i] for i in range(count)])
        headers = self.headers
        return Rows(
            key,
            Column.from_list([value[i] for i in range(count)]),
            headers.slice(0, count) if headers is not None and headers.row_count >= 0 else headers,
            None if self.timestamps_ms is None else self.timestamps_ms[:count],
            count,
        )


class LineForm(Protocol):
    """What lines mean."""

    def rows(self, lines: Sequence[bytes], first_line: int, now_ms: int) -> Rows:
        """Return their records. Raises ConfigError, which names the line, counted from 1."""
        ...


class HeaderedLines:
    """Lines of `parse.headers=true`: `name:value,name:value`, a delimiter, and the rest.

    Args:
        delimiter: Ends the headers (headers.delimiter).
        separator: Parts them (headers.separator).
        key_separator: Parts name and value (headers.key.separator).
        record_separator: Parts the record's key and value; None: there are no keys.
        null_marker: A part that is equal to it is null; None: there is none.
        always: Headers of every record, before those of the line.
    """

    def __init__(
        self,
        delimiter: bytes,
        separator: bytes,
        key_separator: bytes,
        record_separator: bytes | None,
        null_marker: bytes | None,
        always: Sequence[Header],
    ) -> None:
        self._delimiter = delimiter
        self._separator = separator
        self._key_separator = key_separator
        self._record_separator = record_separator
        self._null_marker = null_marker
        self._always = always

    def rows(self, lines: Sequence[bytes], first_line: int, now_ms: int) -> Rows:
        """Return their records; `now_ms` is not needed."""
        keys: list[bytes | None] = []
        values: list[bytes | None] = []
        headers: list[list[Header]] = []
        for number, line in enumerate(lines, first_line):
            text, found, rest = line.partition(self._delimiter)
            if not found:
                raise ConfigError(
                    f"line {number} has no headers.delimiter {self._delimiter!r} behind its headers: "
                    f"{printable(line.decode('utf-8', 'replace'))}"
                )
            headers.append([*self._always, *self._headers(text, number)])
            key, found, value = (
                (None, b"", rest) if self._record_separator is None else rest.partition(self._record_separator)
            )
            keys.append(self._part(key) if found else None)
            values.append(self._part(value if found or self._record_separator is None else rest))
        key_column = None if self._record_separator is None else Column.from_list(keys)
        return Rows(key_column, Column.from_list(values), Headers.from_python(headers), None, len(lines))

    def _headers(self, text: bytes, number: int) -> list[Header]:
        if not text or text == self._null_marker:
            return []
        pairs = [pair.partition(self._key_separator) for pair in text.split(self._separator)]
        wrong = next((name for name, found, _ in pairs if not found), None)
        if wrong is not None:
            raise ConfigError(
                f"line {number}: header {printable(wrong.decode('utf-8', 'replace'))!r} has no headers.key.separator "
                f"{self._key_separator!r}"
            )
        return [(name.decode("utf-8", "replace"), self._part(value)) for name, _, value in pairs]

    def _part(self, data: bytes | None) -> bytes | None:
        return None if data == self._null_marker else data


class Envelopes:
    """Lines that are JSON objects with `key`, `payload` or `value`, `headers`, `ts` or `timestamp`.

    Topic, partition, offset and broker of the record that was read are not taken.

    Args:
        always: Headers of every record, before those of the line.
    """

    def __init__(self, always: Sequence[Header]) -> None:
        self._always = always

    def rows(self, lines: Sequence[bytes], first_line: int, now_ms: int) -> Rows:
        """Return their records; one without a timestamp has `now_ms`."""
        keys, values, headers, timestamps = [], [], [], []
        for number, line in enumerate(lines, first_line):
            try:
                envelope = _object(line)
                keys.append(_data(envelope, ("key",)))
                values.append(_data(envelope, ("payload", "value")))
                headers.append([*self._always, *_headers(envelope.get("headers"))])
                timestamps.append(_timestamp(envelope, now_ms))
            except ValueError as error:
                raise ConfigError(f"line {number} is no record as kcat -J prints it: {error}") from error
        return Rows(
            Column.from_list(keys),
            Column.from_list(values),
            Headers.from_python(headers),
            timestamps,
            len(lines),
        )


def _object(line: bytes) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(found, dict):
        raise ValueError("it is not a JSON object")
    return found


def _data(envelope: dict[str, Any], names: tuple[str, ...]) -> bytes | None:
    """Return what the first of these fields holds; what is not a text goes as JSON."""
    for name in names:
        if f"{name}_base64" in envelope:
            text = envelope[f"{name}_base64"]
            if not isinstance(text, str):
                raise ValueError(f"{name}_base64 is not a text")
            return base64.b64decode(text, validate=True)
        if name in envelope:
            data = envelope[name]
            if data is None or isinstance(data, str):
                return None if data is None else data.encode()
            return json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode()
    if names == ("key",):
        return None
    raise ValueError(f"it has no {' or '.join(names)}")


def _headers(found: Any) -> list[Header]:
    """Return the headers of kcat, names and values in turn, or of `tail --json`, objects."""
    if found is None:
        return []
    if not isinstance(found, list):
        raise ValueError("headers is not a list")
    if all(isinstance(each, dict) for each in found):
        return [(str(each["name"]), _data(each, ("value",))) for each in found if "name" in each]
    if len(found) % 2 or not all(isinstance(each, str | None) for each in found):
        raise ValueError("headers is not a list of names and values in turn")
    return [
        (str(name), None if value is None else value.encode())
        for name, value in zip(found[::2], found[1::2], strict=True)
    ]


def _timestamp(envelope: dict[str, Any], now_ms: int) -> int:
    found = envelope.get("ts", envelope.get("timestamp"))
    if found is None or found == -1:
        return now_ms
    if isinstance(found, bool) or not isinstance(found, int) or not 0 <= found <= _LATEST_MS:
        raise ValueError("ts is not a number of milliseconds")
    return found
