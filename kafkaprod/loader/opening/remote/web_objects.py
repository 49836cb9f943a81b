"""Objects of HTTP servers: found by one GET of their first bytes, then read by ranges under what that answer had.

                    what another object would not have    each range sends            each answer must have
strong ETag         the ETag and the size                 If-Match                    206, our range, the same two
Last-Modified       that time and the size, if the time   If-Unmodified-Since         the same; one more request at the
                    is a minute old: it has seconds only                              end shows a late change
neither, no ranges  SHA-256: see `spooled_objects`        -                           -

Bytes are as the server stores them: no Content-Encoding is wanted, none is decoded, and it must not change.
Source: RFC 9110, sections 8.8 (validators), 13 (conditions), 14 (ranges), 15.4 (redirects).
"""

from __future__ import annotations

import email.utils
import http.client
import os
import re
import ssl
import weakref
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from kafkaprod.loader.opening.errors import LoadError, LoadRefusedError
from kafkaprod.loader.opening.remote.access import Access, HeaderSource
from kafkaprod.loader.opening.remote.addresses import identity, origin_of
from kafkaprod.loader.opening.remote.connections import Connections, check_allowed, next_address
from kafkaprod.loader.opening.remote.objects import (
    Closing,
    PassingError,
    gone,
    refused,
    replaced,
)

_REDIRECTS: Final = (301, 302, 303, 307, 308)
_PASSING: Final = (408, 425, 429, 500, 502, 503, 504)
_GONE: Final = (404, 410)
_DENIED: Final = (401, 403)
_CONTENT_RANGE: Final = re.compile(r"bytes (?:([0-9]+)-([0-9]+)|\*)/([0-9]+|\*)")
_DRAINED_BYTES: Final = 64 << 10  # of an answer that is not wanted, to keep its connection
_READ_BYTES: Final = 1 << 20
_OLD_S: Final = 60


class WebFound(NamedTuple):
    """What an object was when it was found; empty: its server did not say."""

    size: int
    etag: str
    modified: str
    encoding: str


class RangeAnswer(NamedTuple):
    """An answer whose body was not read yet."""

    status: int
    reason: str
    headers: Mapping[str, str]
    response: http.client.HTTPResponse
    connection: http.client.HTTPConnection
    address: str

    @property
    def shown(self) -> str:
        """Return the status for messages."""
        return f"{self.status} {self.reason}".strip()

    @property
    def total(self) -> int | None:
        """Return the size of the whole object; None where it is not in the answer."""
        match = _CONTENT_RANGE.fullmatch(self.headers.get("content-range", "").strip())
        return None if match is None or match[3] == "*" else int(match[3])


class Asker:
    """Sends the requests for one address, and follows its redirects.

    Args:
        address: As the user gave it, checked.
        access: How to ask.
    """

    def __init__(self, address: str, access: Access) -> None:
        self.address = address
        self.name = identity(address)
        self._access = access
        self._target = address  # where redirects led to
        self._connections = Connections(address, access.patience, access.allowed_urls)
        weakref.finalize(self, self._connections.close)

    def check_allowed(self) -> None:
        """Refuse an address that may not be asked, before anything is. Raises LoadRefusedError."""
        try:
            check_allowed(self.address, self._access.allowed_urls)
        except LoadError as error:
            raise LoadRefusedError(str(error)) from None

    def ask(self, headers: Mapping[str, str]) -> RangeAnswer:
        """Send a GET.

        Raises:
            PassingError: The server cannot be reached, or is busy.
            LoadError: It may not be asked, or redirects to where a load does not go.
        """
        address, count = self._target, 0
        while True:
            answer = self._ask_once(address, headers)
            if answer.status not in _REDIRECTS:
                break
            location = answer.headers.get("location")
            self.drop(answer)
            address = next_address(self.address, address, location, count)
            count += 1
        if answer.status in (*_DENIED, *_GONE) and count == 0 and address != self.address:
            self.drop(answer)  # such addresses run out: get another one
            self._target = self.address
            return self.ask(headers)
        self._target = address
        if answer.status in _PASSING:
            pause = answer.headers.get("retry-after", "")
            self.drop(answer)
            raise PassingError(f"its server answers {answer.shown}", float(pause) if pause.isdecimal() else None)
        return answer

    def _ask_once(self, address: str, headers: Mapping[str, str]) -> RangeAnswer:
        sent = {"Accept-Encoding": "identity", "User-Agent": "kafkaprod", **headers}
        if origin_of(address) == origin_of(self.address):
            sent |= {header.name: self._value_of(header) for header in self._access.headers}
        for is_last in (False, True):
            connection, is_kept = None, False
            try:
                connection, is_kept = self._connections.take(address)
                path = address.partition("://")[2].partition("/")[2]
                connection.request("GET", f"/{path}", headers=sent)
                response = connection.getresponse()
            except (OSError, http.client.HTTPException) as error:
                if connection is not None:
                    connection.close()
                    if is_kept and not is_last and isinstance(error, ConnectionError | http.client.BadStatusLine):
                        continue  # the server closed a connection that was kept
                if isinstance(error, ssl.SSLCertVerificationError):
                    raise LoadError(f"{self.name}: the certificate is refused: {error.verify_message}") from error
                raise PassingError(_why(error)) from error
            self._access.counts.add(requests=1)
            found = {name.lower(): value for name, value in response.getheaders()}
            return RangeAnswer(response.status, response.reason, found, response, connection, address)
        raise AssertionError

    def drop(self, answer: RangeAnswer) -> None:
        """Leave the rest of an answer unread."""
        try:
            answer.response.read(_DRAINED_BYTES)
        except (OSError, http.client.HTTPException):
            answer.connection.close()
            return
        self.done(answer)

    def done(self, answer: RangeAnswer) -> None:
        """Keep the connection of an answer, if it was read to its end."""
        if answer.response.isclosed() and not answer.response.will_close:
            self._connections.give_back(answer.address, answer.connection)
        else:
            answer.response.close()
            answer.connection.close()

    def piece(self, answer: RangeAnswer) -> bytes:
        """Read some bytes of the body of an answer; none at its end, or where it was cut. Raises PassingError."""
        try:
            return answer.response.read(_READ_BYTES)
        except (OSError, http.client.HTTPException) as error:
            answer.connection.close()
            raise PassingError(_why(error)) from error

    def pieces(self, answer: RangeAnswer, room: memoryview, came: Callable[[int], None]) -> None:
        """Read the body of an answer into a room that has its size. Raises PassingError: it was cut off."""
        filled = 0
        try:
            while filled < len(room):
                count = answer.response.readinto(room[filled : filled + _READ_BYTES])
                if not count:
                    raise PassingError(f"the connection was cut {len(room) - filled:,} bytes before the end of a range")
                filled += count
                came(count)
            rest = answer.response.read(1)
        except (OSError, http.client.HTTPException) as error:
            answer.connection.close()
            if filled == len(room):
                return
            raise PassingError(_why(error)) from error
        except PassingError:
            answer.connection.close()
            raise
        if rest:
            answer.connection.close()
            raise LoadError(f"{self.name}: its server sends more than the range that was requested")
        self.done(answer)

    def _value_of(self, header: HeaderSource) -> str:
        value = os.environ.get(header.variable)
        if value is None:
            raise LoadRefusedError(f"--http-header {header.name}: the environment has no variable {header.variable}")
        if not value.isascii() or not value.isprintable():
            raise LoadRefusedError(f"--http-header {header.name}: what {header.variable} has cannot be in a header")
        return value


class WebObject:
    """An object of an HTTP server that has an identity and gives ranges. See `RemoteObject`."""

    is_near = False
    note = ""

    def __init__(self, address: str, access: Access, found: WebFound, asker: Asker | None = None) -> None:
        self.name = identity(address)
        self.size = found.size
        self.validator = f"etag:{found.etag}" if found.etag else f"modified:{found.modified}"
        self.counts = access.counts
        self._access = access
        self._found = found
        self._asker = asker or Asker(address, access)
        self._has_conditions = True

    def __reduce__(self) -> Any:
        return WebObject, (self._asker.address, self._access, self._found)

    def read_range(self, start: int, end: int, closing: Closing | None) -> bytes | bytearray:
        """Read them from the server, in as many requests as it takes."""
        room = bytearray(end - start)
        view = memoryview(room)
        tries = self._access.tries(self.name, closing)
        filled = 0

        def came(count: int) -> None:
            nonlocal filled
            filled += count
            tries.came(count)

        tries.until_done(lambda: self._read_once(start + filled, view[filled:], came))
        return room

    def check_end(self) -> None:
        """Compare its time: a time of seconds does not show a change in the second of the first answer."""
        if self.size and not self._found.etag:
            self.read_range(self.size - 1, self.size, None)

    def _read_once(self, start: int, room: memoryview, came: Callable[[int], None]) -> None:
        end = start + len(room)
        headers = {"Range": f"bytes={start}-{end - 1}"}
        has_condition = self._has_conditions
        if self._found.etag and has_condition:
            headers["If-Match"] = self._found.etag
        elif has_condition:
            headers["If-Unmodified-Since"] = self._found.modified
        answer = self._asker.ask(headers)
        if answer.status != 206:
            self._asker.drop(answer)
            if answer.status == 412 and has_condition:  # or a server that refuses all conditions: look
                self._has_conditions = False
                return self._read_once(start, room, came)
            raise self._unlike(answer)
        self.take(answer, start, room, came)
        return None

    def take(
        self, answer: RangeAnswer, start: int, room: memoryview, came: Callable[[int], None] | None = None
    ) -> None:
        """Compare an answer, and read its body. Raises LoadError: it is of another object; PassingError: it was cut."""
        try:
            self._check(answer, start, start + len(room))
        except LoadError:
            answer.connection.close()
            raise
        self._asker.pieces(answer, room, came or (lambda count: self.counts.add(size=count)))

    def _check(self, answer: RangeAnswer, start: int, end: int) -> None:
        """Compare an answer with what the object was. Raises LoadError."""
        match = _CONTENT_RANGE.fullmatch(answer.headers.get("content-range", "").strip())
        self._compare(found_of(answer, answer.total))
        if match is None or match[1] is None or (int(match[1]), int(match[2]) + 1) != (start, end):
            raise LoadError(
                f"{self.name}: the server was sent a request for bytes {start:,} to {end - 1:,} and answers with "
                f"{answer.headers.get('content-range', 'no Content-Range')!r:.80}: save the object to a file, and load "
                "that"
            )

    def _compare(self, now: WebFound) -> None:
        if now != self._found:
            raise replaced(self.name, _shown(self._found, now), _shown(now, self._found))

    def _unlike(self, answer: RangeAnswer) -> LoadError:
        if answer.status in _GONE:
            return gone(self.name, answer.shown)
        if answer.status in _DENIED:
            return refused(self.name, answer.shown)
        try:
            if answer.status in (200, 416):
                length = answer.headers.get("content-length", "")
                self._compare(
                    found_of(answer, int(length) if answer.status == 200 and length.isdecimal() else answer.total)
                )
        except LoadError as error:
            return error
        return LoadError(
            f"{self.name}: its server answers {answer.shown} to a range, as it did not before: --resume continues the "
            "load when it gives ranges again"
        )


def found_of(answer: RangeAnswer, size: int | None) -> WebFound:
    """Return what an answer says of its object; -1: no size."""
    etag = answer.headers.get("etag", "").strip()
    etag = etag if etag.startswith('"') else ""  # W/"…" may be the same for other bytes
    modified = "" if etag else answer.headers.get("last-modified", "").strip()
    return WebFound(-1 if size is None else size, etag, modified, answer.headers.get("content-encoding", "").lower())


def first_answer(asker: Asker, size: int) -> RangeAnswer:
    """Request the first bytes of an object.

    Raises:
        LoadRefusedError: There is none, or it may not be read.
        PassingError, LoadError: See Asker.ask().
    """
    asker.check_allowed()
    answer = asker.ask({"Range": f"bytes=0-{size - 1}"})
    if answer.status in (200, 206, 416):
        return answer
    asker.drop(answer)
    if answer.status in _GONE:
        raise LoadRefusedError(
            f"{asker.name}: its server answers {answer.shown}: there is no such object. HTTP has no folders and no "
            "patterns: name each object"
        )
    if answer.status in _DENIED:
        raise LoadRefusedError(str(refused(asker.name, answer.shown)))
    raise LoadRefusedError(f"{asker.name} cannot be read: its server answers {answer.shown}")


def is_identity(found: WebFound, answer: RangeAnswer) -> bool:
    """Return whether another object of the same address would look otherwise."""
    if found.size < 0:
        return False
    if found.etag:
        return True
    try:
        modified = email.utils.parsedate_to_datetime(found.modified)
        now = email.utils.parsedate_to_datetime(answer.headers.get("date", ""))
        return (now - modified).total_seconds() >= _OLD_S
    except (TypeError, ValueError):
        return False


def _shown(found: WebFound, other: WebFound) -> str:
    parts = [
        f"{found.size:,} bytes" if found.size >= 0 else "no size",
        f"the ETag {found.etag:.80}" if found.etag else "no ETag" if other.etag else "",
        f"the time {found.modified:.80}" if found.modified else "no time" if other.modified else "",
        f"the encoding {found.encoding or 'none':.40}" if found.encoding != other.encoding else "",
    ]
    return ", ".join(filter(None, parts))


def _why(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "its server sent nothing for too long"
    if isinstance(error, OSError) and error.strerror:
        return f"its server cannot be reached: {error.strerror}"
    return f"the connection broke: {type(error).__name__}"
