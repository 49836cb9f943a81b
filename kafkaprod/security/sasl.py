"""SASL mechanisms: the client's half of a login, as bytes in and bytes out.

A `Mechanism` is one exchange and is used once; `MechanismFactory` makes a fresh one for every login, re-authentication
included. Mechanisms may block (key derivation, fetching a token), so the network layer calls them off the I/O thread.
No secret ever appears in a repr or an error message.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

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


MechanismFactory = Callable[[], Mechanism]
"""Makes a fresh mechanism for one login; must not block."""


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
