"""SASL mechanisms: the client's half of a login, as bytes in and bytes out.

A `Mechanism` is one exchange and is used once; `MechanismFactory` makes a fresh one for every login, re-authentication
included. Mechanisms may block (key derivation, fetching a token), so the network layer calls them off the I/O thread.
No secret ever appears in a repr or an error message.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from kafkaprod.config.secret import Secret
from kafkaprod.errors import AuthenticationError, ConfigError


class Mechanism(Protocol):
    """One login exchange. Not thread-safe; each call may block."""

    @property
    def name(self) -> str:
        """The registered name, as in `SaslHandshake`: PLAIN, SCRAM-SHA-512 ..."""
        ...

    def first(self) -> bytes:
        """Return the client's first message."""
        ...

    def step(self, challenge: bytes) -> bytes | None:
        """Answer the server's message; None when the exchange is complete and there is nothing more to send.

        Raises:
            AuthenticationError: The server broke the mechanism's rules or did not prove its identity.
        """
        ...


MechanismFactory = Callable[[str], Mechanism]
"""Makes a fresh mechanism for one login at a host, which has the name that it is connected by; must not block."""


class CheckedMechanism:
    """A mechanism whose login may not begin before a check. See `Mechanism`.

    Args:
        mechanism: The mechanism itself.
        check: Raises ConfigError where the login may not begin; it may block.
    """

    def __init__(self, mechanism: Mechanism, check: Callable[[], None]) -> None:
        self.name: Final = mechanism.name
        self._mechanism = mechanism
        self._check = check

    def first(self) -> bytes:
        """Check, and return the client's first message. Raises ConfigError as the check."""
        self._check()
        return self._mechanism.first()

    def step(self, challenge: bytes) -> bytes | None:
        """Answer the server's message, as `Mechanism`."""
        return self._mechanism.step(challenge)


class PasswordLogins:
    """The user name and password of the logins that begin from now on. Thread-safe.

    Args:
        username: The user's name.
        password: If it is in a variable or a file, it is read for each login.
    """

    def __init__(self, username: str, password: Secret) -> None:
        self._pair = (username, password)
        self._is_replaced = False

    @property
    def can_change(self) -> bool:
        """Whether a later login may have others."""
        return self._is_replaced or self._pair[1].is_live

    def replace(self, username: str, password: Secret) -> None:
        """Take others for the next logins; connections that are open keep their session."""
        self._is_replaced = True
        self._pair = (username, password)

    def reveal(self) -> tuple[str, str]:
        """Return user name and password as they are now. May block."""
        username, password = self._pair
        return username, password.reveal()


class PasswordMechanism:
    """A mechanism with a password, which is read when the login begins, not before. See `Mechanism`.

    Args:
        name: The name of the mechanism.
        credentials: The user's name and password.
        make: Makes the mechanism itself of user name and password.
    """

    def __init__(self, name: str, credentials: PasswordLogins, make: Callable[[str, str], Mechanism]) -> None:
        self.name: Final = name
        self._credentials = credentials
        self._make = make
        self._mechanism: Mechanism | None = None

    def first(self) -> bytes:
        """Read the password and return the client's first message.

        Raises:
            ConfigError: The mechanism does not take such a password.
        """
        self._mechanism = self._make(*self._credentials.reveal())
        return self._mechanism.first()

    def step(self, challenge: bytes) -> bytes | None:
        """Answer the server's message, as `Mechanism`."""
        if self._mechanism is None:
            raise AuthenticationError(f"{self.name}: the server sent a message before the client's first one")
        return self._mechanism.step(challenge)


class PlainMechanism:
    """PLAIN: user name and password in the clear. Only safe over TLS. Source: RFC 4616."""

    name = "PLAIN"

    def __init__(self, username: str, password: str, *, authorization_id: str = "") -> None:
        if not username or not password:
            raise ConfigError("PLAIN needs a user name and a password; one of them is empty")
        for part, text in (("authorization id", authorization_id), ("user name", username), ("password", password)):
            if "\0" in text:
                raise ConfigError(f"the {part} holds a NUL character, which PLAIN uses as separator")
        self._token = f"{authorization_id}\0{username}\0{password}".encode()

    def first(self) -> bytes:
        """Return the whole login: `authzid NUL authcid NUL password`."""
        return self._token

    def step(self, challenge: bytes) -> bytes | None:
        """Check the server's answer, which must be empty: PLAIN has one message."""
        if challenge:
            raise AuthenticationError(f"PLAIN server sent a challenge of {len(challenge)} bytes, expected none")
        return None
