"""SCRAM-SHA-256 and SCRAM-SHA-512: password login where both sides prove that they know the password's key.

    client                                             server
    n,,n=<user>,r=<client nonce>              ->
                                              <-       r=<client nonce + server nonce>,s=<salt>,i=<iterations>
    c=biws,r=<both nonces>,p=<client proof>   ->
                                              <-       v=<server signature>   or   e=<error>

Source: RFC 5802, RFC 7677; Kafka: KIP-84. The server is not trusted until its signature is checked: every field is
bounded before it is used, and the iteration count is checked before anything is hashed. `step` may take long
(one PBKDF2 run: about 0.6 us an iteration), so it runs off the I/O thread.

Apache Kafka hashes the password's UTF-8 bytes as they are (it does not apply SASLprep, and neither do its clients),
which is the default here; pass `prepare=saslprep` for servers that follow the RFC to the letter. The two differ
only for passwords with compatibility characters, non-ASCII spaces or unnormalised accents.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
import stringprep
import unicodedata
from collections.abc import Callable

from kafkaprod.errors import AuthenticationError, ConfigError, printable

MIN_ITERATIONS = 4096  # RFC 7677 section 4; also the least Kafka's broker accepts for a new credential
DEFAULT_MAX_ITERATIONS = 1_000_000
MAX_MESSAGE_BYTES = 4096
_MAX_REASON_CHARACTERS = 100  # of the server's text
NONCE_BYTES = 24  # 192 bits of the operating system's randomness

_GS2_HEADER = "n,,"  # no channel binding, no authorization id
_CHANNEL_BINDING = base64.b64encode(_GS2_HEADER.encode()).decode()  # "biws"
_HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}


def random_nonce() -> str:
    """Return a nonce of 192 random bits in printable ASCII without a comma."""
    return secrets.token_urlsafe(NONCE_BYTES)


class ScramMechanism:
    """One SCRAM login.

    Args:
        name: SCRAM-SHA-256 or SCRAM-SHA-512.
        username: User name; `=` and `,` are escaped here.
        password: Password, kept only for the life of this object.
        max_iterations: Upper bound of the server's iteration count; more is refused unhashed (CVE-2026-10143).
        prepare: Applied to user name and password first, e.g. `saslprep`.
        delegation_token: The user name is a Kafka delegation token id and the password its HMAC (KIP-48).
        nonce: Source of the client nonce; only tests replace it.
    """

    def __init__(
        self,
        name: str,
        username: str,
        password: str,
        *,
        max_iterations: int = DEFAULT_MAX_ITERATIONS,
        prepare: Callable[[str], str] = str,
        delegation_token: bool = False,
        nonce: Callable[[], str] = random_nonce,
    ) -> None:
        if name not in _HASHES:
            raise ConfigError(f"unknown SCRAM mechanism {name!r}: use one of {', '.join(_HASHES)}")
        if not username or not password:
            raise ConfigError(f"{name} needs a user name and a password; one of them is empty")
        if max_iterations < MIN_ITERATIONS:
            raise ConfigError(f"max_iterations={max_iterations} is below the least allowed, {MIN_ITERATIONS}")
        self.name = name
        self._hash = _HASHES[name]
        self._password = prepare(password).encode()
        self._max_iterations = max_iterations
        self._nonce = nonce()
        user = prepare(username).replace("=", "=3D").replace(",", "=2C")
        extension = ",tokenauth=true" if delegation_token else ""
        self._client_first_bare = f"n={user},r={self._nonce}{extension}"
        self._server_signature: bytes | None = None
        self._is_done = False

    def first(self) -> bytes:
        """Return the client-first message."""
        return (_GS2_HEADER + self._client_first_bare).encode()

    def step(self, challenge: bytes) -> bytes | None:
        """Answer server-first with client-final; check server-final and return None.

        Raises:
            AuthenticationError: A field is missing, malformed, out of bounds or forged, or the server refused.
        """
        if self._is_done:
            raise AuthenticationError(f"{self.name}: the server sent a message after its final one")
        if len(challenge) > MAX_MESSAGE_BYTES:
            raise AuthenticationError(
                f"{self.name}: server message of {len(challenge)} bytes exceeds the limit of {MAX_MESSAGE_BYTES}"
            )
        try:
            message = challenge.decode()
        except UnicodeDecodeError:
            raise AuthenticationError(f"{self.name}: the server message is not UTF-8") from None
        if self._server_signature is None:
            return self._answer_server_first(message)
        self._check_server_final(message)
        self._is_done = True
        return None

    def _answer_server_first(self, message: str) -> bytes:
        nonce, salt, iterations = self._parse_server_first(message)
        salted_password = hashlib.pbkdf2_hmac(self._hash, self._password, salt, iterations)
        client_key = self._hmac(salted_password, b"Client Key")
        stored_key = hashlib.new(self._hash, client_key).digest()
        without_proof = f"c={_CHANNEL_BINDING},r={nonce}"
        auth_message = f"{self._client_first_bare},{message},{without_proof}".encode()
        client_signature = self._hmac(stored_key, auth_message)
        proof = bytes(a ^ b for a, b in zip(client_key, client_signature, strict=True))
        self._server_signature = self._hmac(self._hmac(salted_password, b"Server Key"), auth_message)
        self._password = b""
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def _parse_server_first(self, message: str) -> tuple[str, bytes, int]:
        """Check r=, s= and i= in exactly this order; return (both nonces, salt, iterations)."""
        parts = message.split(",")
        if parts[0].startswith("m="):
            raise AuthenticationError(f"{self.name}: the server demands an extension that is not supported")
        if parts[0].startswith("e="):
            raise AuthenticationError(
                f"{self.name}: the server refused the login: {printable(parts[0][2:], _MAX_REASON_CHARACTERS)}"
            )
        if len(parts) < 3:
            raise AuthenticationError(f"{self.name}: server-first message has {len(parts)} fields, expected r, s, i")
        nonce = self._field(parts[0], "r")
        if not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce):
            raise AuthenticationError(f"{self.name}: the server did not extend the client's nonce: not a live answer")
        if not all("!" <= character <= "~" for character in nonce):
            raise AuthenticationError(f"{self.name}: the server nonce holds characters that are not printable ASCII")
        salt = self._base64(self._field(parts[1], "s"), "salt")
        if not salt:
            raise AuthenticationError(f"{self.name}: the server sent an empty salt")
        return nonce, salt, self._iterations(self._field(parts[2], "i"))

    def _iterations(self, text: str) -> int:
        # At most 10 digits: the check itself must be cheap.
        if not (text.isascii() and text.isdigit() and len(text) <= 10):
            raise AuthenticationError(f"{self.name}: iteration count {text[:20]!r} is not a small number")
        iterations = int(text)
        if not MIN_ITERATIONS <= iterations <= self._max_iterations:
            raise AuthenticationError(
                f"{self.name}: iteration count {iterations} is outside {MIN_ITERATIONS}..{self._max_iterations}"
            )
        return iterations

    def _check_server_final(self, message: str) -> None:
        field = message.split(",", 1)[0]
        if field.startswith("e="):
            raise AuthenticationError(
                f"{self.name}: the server refused the login: {printable(field[2:], _MAX_REASON_CHARACTERS)}"
            )
        signature = self._base64(self._field(field, "v"), "server signature")
        assert self._server_signature is not None
        if not hmac.compare_digest(signature, self._server_signature):
            raise AuthenticationError(f"{self.name}: wrong server signature: the server does not know the password")

    def _field(self, part: str, name: str) -> str:
        if not part.startswith(f"{name}="):
            raise AuthenticationError(f"{self.name}: expected field {name!r} in the server message")
        return part[2:]

    def _base64(self, text: str, what: str) -> bytes:
        try:
            return base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            raise AuthenticationError(f"{self.name}: the {what} is not base64") from None

    def _hmac(self, key: bytes, message: bytes) -> bytes:
        return hmac.digest(key, message, self._hash)


_PROHIBITED = (
    stringprep.in_table_c12,
    stringprep.in_table_c21_c22,
    stringprep.in_table_c3,
    stringprep.in_table_c4,
    stringprep.in_table_c5,
    stringprep.in_table_c6,
    stringprep.in_table_c7,
    stringprep.in_table_c8,
    stringprep.in_table_c9,
    stringprep.in_table_a1,  # unassigned: SCRAM treats names and passwords as stored strings
)


def saslprep(text: str) -> str:
    """Normalise a user name or password. Source: RFC 4013.

    Raises:
        ConfigError: A character is prohibited, or left-to-right and right-to-left text are mixed.
    """
    mapped = "".join(
        " " if stringprep.in_table_c12(character) else character
        for character in text
        if not stringprep.in_table_b1(character)
    )
    prepared = unicodedata.normalize("NFKC", mapped)
    if any(is_in_table(character) for character in prepared for is_in_table in _PROHIBITED):
        raise ConfigError("a user name or password holds a character that SASLprep prohibits")
    if any(map(stringprep.in_table_d1, prepared)):
        is_framed = stringprep.in_table_d1(prepared[0]) and stringprep.in_table_d1(prepared[-1])
        if any(map(stringprep.in_table_d2, prepared)) or not is_framed:
            raise ConfigError("a user name or password mixes left-to-right and right-to-left text")
    return prepared
