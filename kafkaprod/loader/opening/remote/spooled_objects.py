"""Objects that are copied to a temporary file first, as their server gives no ranges or nothing to know them by.

The SHA-256 of the copy is the object's identity: a resumed load copies it again, and compares.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import weakref
from typing import IO, Any

from kafkaprod.loader.opening.errors import LoadError
from kafkaprod.loader.opening.remote.access import Access
from kafkaprod.loader.opening.remote.objects import Closing, PassingError, Tries, replaced
from kafkaprod.loader.opening.remote.web_objects import Asker, RangeAnswer


class SpooledObject:
    """A copy of an object. See `RemoteObject`.

    Args:
        address: The object's.
        access: How to read it.
        validator: What its copy must have; empty: it is the first one.
    """

    is_near = True

    def __init__(self, address: str, access: Access, validator: str = "") -> None:
        self._asker = Asker(address, access)
        self.name = self._asker.name
        self.counts = access.counts
        self._access = access
        self._file: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        weakref.finalize(self, self._file.close)
        self.size, self.validator = 0, ""
        tries = access.tries(self.name)
        tries.until_done(lambda: self._copy(tries))
        if validator and validator != self.validator:
            raise replaced(self.name, validator, self.validator)
        self.note = (
            f"{self.name} was copied to a temporary file of {self.size:,} bytes first, because its server gives no "
            "ranges, or no ETag and no old Last-Modified: each run copies it again, and compares its SHA-256"
        )

    def __reduce__(self) -> Any:
        return SpooledObject, (self._asker.address, self._access, self.validator)

    def read_range(self, start: int, end: int, closing: Closing | None) -> bytes | bytearray:
        """Read them from the copy."""
        data = os.pread(self._file.fileno(), end - start, start)
        if len(data) < end - start:
            raise LoadError(f"the copy of {self.name} was cut off: is the disk of {tempfile.gettempdir()} full?")
        return data

    def check_end(self) -> None:
        """Return: a copy does not change."""

    def _copy(self, tries: Tries) -> None:
        """Copy the whole object, from its beginning. Raises PassingError, LoadError."""
        self._file.seek(0)
        self._file.truncate()
        answer = self._asker.ask({})
        if answer.status != 200:
            self._asker.drop(answer)
            raise LoadError(f"{self.name} cannot be read: its server answers {answer.shown}")
        length = self._length_of(answer)
        digest, count = hashlib.sha256(), 0
        while data := self._asker.piece(answer):
            self._file.write(data)
            digest.update(data)
            count += len(data)
            tries.came(len(data))
        if length is not None and count != length:
            answer.connection.close()
            raise PassingError(f"the connection was cut at byte {count:,} of {length:,}")
        self._asker.done(answer)
        self._file.flush()
        self.size, self.validator = count, f"sha256:{digest.hexdigest()}"

    def _length_of(self, answer: RangeAnswer) -> int | None:
        """Return the length; None: the body has a mark at its end."""
        length = answer.headers.get("content-length", "")
        if answer.response.chunked:
            return None
        if not length.isdecimal():
            answer.connection.close()
            raise LoadError(
                f"{self.name}: its server says neither how long the object is nor where it ends, so a cut would seem "
                "to be its end: load it through a pipe, with what is known of it: --expect-bytes, --expect-sha256 or "
                "--expect-rows"
            )
        return int(length)
