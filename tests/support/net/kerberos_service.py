"""A broker's side of a login with Kerberos, by the system's library: what Kafka does, without Kafka."""

from __future__ import annotations

from pathlib import Path

import gssapi

from kafkaprod.security.sasl import Mechanism


class KerberosService:
    """Answers the tokens of one login.

    Args:
        keytab: Of the service.
    """

    def __init__(self, keytab: Path) -> None:
        credentials = gssapi.Credentials(usage="accept", store={"keytab": str(keytab)})
        self._context = gssapi.SecurityContext(creds=credentials, usage="accept")
        self._has_offered = False

    @property
    def client(self) -> str:
        """The principal that has logged in."""
        return str(self._context.initiator_name)

    def answer(self, token: bytes) -> bytes:
        """Return the next message to the client."""
        if not self._context.complete:
            return self._context.step(token) or b""
        if not self._has_offered:
            self._has_offered = True
            offer: bytes = self._context.wrap(b"\1\0\0\0", False).message
            return offer
        assert self._context.unwrap(token).message == b"\1\0\0\0"
        return b""

    def take(self, mechanism: Mechanism) -> str:
        """Let a client log in; return its principal."""
        token: bytes | None = mechanism.first()
        while token is not None:
            token = mechanism.step(self.answer(token))
        return self.client
