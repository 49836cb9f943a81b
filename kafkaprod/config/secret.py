"""A text that no log shows: passwords and tokens in the configuration."""

from __future__ import annotations

import errno
import logging
import os
import stat
from collections.abc import Callable
from typing import Final

from kafkaprod.threads import importing

HIDDEN = "[hidden]"
MAX_FILE_BYTES: Final = 1 << 20  # of a secret, token or key

logger = logging.getLogger("kafkaprod.config")


@importing
def _compare_digest() -> Callable[[bytes, bytes], bool]:
    from hmac import compare_digest  # loads OpenSSL, which a plain connection does not need

    return compare_digest


class Secret:
    """Holds a text; `str`, `repr` and formatting give `[hidden]`, only `reveal` gives the text. Immutable."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    @property
    def is_live(self) -> bool:
        """Whether another `reveal` may give another text."""
        return False

    def reveal(self) -> str:
        """The text itself; the caller answers for where it goes."""
        return self._text

    def __repr__(self) -> str:
        return HIDDEN

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        mine, theirs = (text.encode("utf-8", "surrogatepass") for text in (self._text, other._text))
        return _compare_digest()(mine, theirs)

    def __hash__(self) -> int:
        return hash((Secret, self._text))

    def __bool__(self) -> bool:
        return bool(self._text)


class LiveSecret(Secret):
    """A text in a variable or a file, which is read each time: whoever rotates it restarts nothing.

    While it cannot be read, or is empty, as for a moment when a file is written, it is what was read last. Two are
    equal if they name the same place. A copy in another process, where there may be no such place, is a plain `Secret`.

    Args:
        place: `env:NAME` or `file:PATH`.

    Raises:
        OSError, KeyError, UnicodeDecodeError: There is no such text; the error has nothing of it.
    """

    __slots__ = ("_place",)

    def __init__(self, place: str) -> None:
        super().__init__(_read(place))
        self._place = place

    @property
    def is_live(self) -> bool:
        """Whether another `reveal` may give another text."""
        return True

    @property
    def place(self) -> str:
        """Where it is read: `env:NAME` or `file:PATH`."""
        return self._place

    def reveal(self) -> str:
        """The text as it is now. May block: a file is read."""
        try:
            text = _read(self._place)
        except (OSError, KeyError, UnicodeDecodeError) as error:
            logger.warning("%s cannot be read, its last text is used: %s", self._place, type(error).__name__)
        else:
            self._text = text or self._text
        return self._text

    def __eq__(self, other: object) -> bool:
        return self._place == other._place if isinstance(other, LiveSecret) else super().__eq__(other)

    def __hash__(self) -> int:
        return hash((LiveSecret, self._place))

    def __reduce__(self) -> tuple[type[Secret], tuple[str]]:
        return Secret, (self.reveal(),)


def _read(place: str) -> str:
    """Return the text in a variable or a file, without a line end at its end."""
    kind, _, name = place.partition(":")
    if kind == "env":
        return decoded(os.fsencode(os.environ[name]))
    return read_secret_file(name).removesuffix("\n").removesuffix("\r")


def read_secret_file(path: str) -> str:
    """Return the text of a file that holds a secret, a token or a key.

    Raises:
        OSError: It cannot be read; it is no regular file, which might never end or never begin; or it is too large.
        UnicodeDecodeError: It is not UTF-8.
    """
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:  # a pipe does not hold it up
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", path)
        data = file.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        raise OSError(errno.EFBIG, f"it is larger than {MAX_FILE_BYTES} bytes", path)
    return decoded(data).replace("\r\n", "\n")


def decoded(data: bytes) -> str:
    """Return the text that UTF-8 bytes are.

    Raises:
        UnicodeDecodeError: They are not; of the bytes, which may be secret, the error has the wrong ones only.
    """
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        start, end, reason = error.start, error.end, error.reason
    # Behind the block: no other error is its context.
    raise UnicodeDecodeError("utf-8", bytes(start) + data[start:end], start, end, reason)


def without_secrets(text: str, *secrets: str | None) -> str:
    """Return the text of a peer with each secret in it hidden: some peers repeat what they were sent."""
    for secret in sorted(filter(None, secrets), key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    return text


def without_query(url: str) -> str:
    """Return an address as errors show it: what stands after its ? may be secret."""
    address, mark, _ = url.partition("?")
    return f"{address}?{HIDDEN}" if mark else address
