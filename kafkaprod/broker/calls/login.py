"""The broker's half of a SASL login: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER. Bytes in, bytes out; no I/O.

Passwords are turned into SCRAM keys once, so that an exchange costs a few HMACs. An unknown user gets the same
exchange, with a made-up salt for each mechanism, and fails at its end: nothing shows whether the user exists. Nonces
must match exactly (CVE-2024-56128). No secret is in a repr or a message. Source: RFC 4616, RFC 5802, KIP-84, KIP-152.
"""

from __future__ import annotations

import base64
import binascii
import functools
import hashlib
import hmac
import secrets
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from kafkaprod.broker.calls.oauthbearer import MAX_TOKEN_MESSAGE_BYTES, BearerExchange
from kafkaprod.errors import AuthenticationError
from kafkaprod.security.scram import MAX_MESSAGE_BYTES, MIN_ITERATIONS, random_nonce

SCRAM_HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
MECHANISMS = ("PLAIN", *SCRAM_HASHES)
OAUTHBEARER = "OAUTHBEARER"

_SALT_BYTES = 16
_CACHED_TOKENS = 1_000


class ScramKeys(NamedTuple):
    """What a server keeps of a password (RFC 5802 section 3)."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int = MIN_ITERATIONS


class TokenLogin(NamedTuple):
    """What a login with a delegation token needs: whose it is, its password, and its end in seconds since 1970."""

    owner: str
    password: bytes
    ends_at_s: float


class Credentials:
    """Users and passwords, and SCRAM keys: those made of the passwords, and others. Thread-safe.

    Attributes:
        find_token: Returns the delegation token of an id, None if there is no such one.
    """

    def __init__(self, users: Mapping[str, str]) -> None:
        self._passwords = {user: password.encode() for user, password in users.items()}
        self._keys = {
            (mechanism, user): _derive(name, password)
            for mechanism, name in SCRAM_HASHES.items()
            for user, password in self._passwords.items()
        }
        self._decoy = secrets.token_bytes(32)
        self.find_token: Callable[[str], TokenLogin | None] = lambda _: None

    def __bool__(self) -> bool:
        return bool(self._passwords)

    def is_password(self, user: str, password: bytes) -> bool:
        """Whether the password is the user's; takes the same time for every wrong one."""
        known = self._passwords.get(user)
        is_equal = hmac.compare_digest(self._decoy if known is None else known, password)
        return is_equal and known is not None

    def alter_scram_keys(self, changes: Mapping[tuple[str, str], ScramKeys | None]) -> None:
        """Replace or remove (None) keys, by mechanism and user; counts from the next login on. One thread at a time."""
        changed = {**self._keys, **changes}
        self._keys = {known: keys for known, keys in changed.items() if keys is not None}

    def has_scram_keys(self, mechanism: str, user: str) -> bool:
        """Return whether the user can log in by the mechanism."""
        return (mechanism, user) in self._keys

    def scram_users(self, mechanism: str) -> dict[str, ScramKeys]:
        """Return the users that can log in by a mechanism, and their keys."""
        return {user: keys for (known, user), keys in self._keys.items() if known == mechanism}

    def scram_keys(self, mechanism: str, user: str) -> ScramKeys:
        """Return the user's keys; for an unknown user keys that no password fits, with the same salt each time."""
        keys = self._keys.get((mechanism, user))
        return self.decoy_keys(mechanism, user) if keys is None else keys

    def decoy_keys(self, mechanism: str, user: str) -> ScramKeys:
        """Return keys that look as those of a known user: a salt for each mechanism, keys as long as its hash."""
        salt = hmac.digest(self._decoy, f"{mechanism}\0{user}".encode(), "sha256")[:_SALT_BYTES]
        size = hashlib.new(SCRAM_HASHES[mechanism]).digest_size
        return ScramKeys(salt, secrets.token_bytes(size), secrets.token_bytes(size))


class _Exchange(Protocol):
    """One login by one mechanism; `user` is set when it is complete."""

    user: str | None

    def step(self, token: bytes) -> bytes:
        """Answer the client's message, or raise AuthenticationError."""
        ...


class Login:
    """The login of one connection.

    Args:
        credentials: Users and passwords.
        takes_tokens: Whether OAUTHBEARER is offered, with tokens that have no signature.
        now_s: Seconds since 1970.

    Attributes:
        user: Who is logged in; None before that.
        is_by_token: It was with a delegation token.
        mechanisms: Those that are offered.
        ends_at_s: When the client must have logged in again (KIP-368); None: never.
    """

    def __init__(
        self, credentials: Credentials, takes_tokens: bool = False, now_s: Callable[[], float] = time.time
    ) -> None:
        self.user: str | None = None
        self.mechanisms = (*MECHANISMS, OAUTHBEARER) if takes_tokens else MECHANISMS
        self.ends_at_s: float | None = None
        self.is_by_token = False
        self._now_s = now_s
        self._credentials = credentials
        self._exchange: _Exchange | None = None

    def begin(self, mechanism: str) -> bool:
        """SaslHandshake: choose a mechanism; False if there is no such one."""
        if mechanism not in self.mechanisms:
            return False
        if mechanism == OAUTHBEARER:
            self._exchange = BearerExchange(self._now_s)
        elif mechanism == "PLAIN":
            self._exchange = _Plain(self._credentials)
        else:
            self._exchange = _Scram(self._credentials, mechanism)
        return True

    @property
    def is_over(self) -> bool:
        """Whether the login has ended and no other has followed."""
        return self.ends_at_s is not None and self._now_s() >= self.ends_at_s

    @property
    def lifetime_ms(self) -> int:
        """What is left of the login; 0: it does not end."""
        return 0 if self.ends_at_s is None else max(int((self.ends_at_s - self._now_s()) * 1000), 1)

    def step(self, token: bytes) -> bytes:
        """SaslAuthenticate: answer the client's message.

        Raises:
            AuthenticationError: Refused; close the connection.
        """
        if self._exchange is None:
            raise AuthenticationError("no mechanism was agreed on")
        limit = MAX_TOKEN_MESSAGE_BYTES if isinstance(self._exchange, BearerExchange) else MAX_MESSAGE_BYTES
        if len(token) > limit:
            raise AuthenticationError(f"message of {len(token)} bytes exceeds the limit of {limit}")
        answer = self._exchange.step(token)
        if self._exchange.user is not None:
            if self.user not in (None, self._exchange.user):
                raise AuthenticationError("a login that follows another must be the same user's")
            self.ends_at_s = getattr(self._exchange, "ends_at_s", None)
            self.is_by_token = isinstance(self._exchange, _Scram) and self._exchange.token is not None
            self.user, self._exchange = self._exchange.user, None
        return answer


class _Plain:
    """authzid NUL authcid NUL password."""

    def __init__(self, credentials: Credentials) -> None:
        self.user: str | None = None
        self._credentials = credentials

    def step(self, token: bytes) -> bytes:
        parts = token.split(b"\0")
        if len(parts) != 3:
            raise AuthenticationError("malformed PLAIN message")
        authorization_id, user, password = _text(parts[0]), _text(parts[1]), parts[2]
        is_right = self._credentials.is_password(user, password)
        if not is_right or authorization_id not in ("", user):
            raise AuthenticationError("Authentication failed: Invalid username or password")
        self.user = user
        return b""


class _Scram:
    """The server's side of the exchange drawn in `security.scram`."""

    def __init__(self, credentials: Credentials, mechanism: str) -> None:
        self.user: str | None = None
        self.ends_at_s: float | None = None
        self.token: TokenLogin | None = None
        self._credentials = credentials
        self._mechanism = mechanism
        self._hash = SCRAM_HASHES[mechanism]
        self._claimed_user = ""
        self._client_first_bare = ""
        self._server_first = ""
        self._nonce = ""

    def step(self, token: bytes) -> bytes:
        message = _text(token)
        return self._finish(message) if self._server_first else self._begin(message)

    def _begin(self, message: str) -> bytes:
        header, _, rest = message.partition(",")
        authorization_id, _, bare = rest.partition(",")
        fields = bare.split(",")
        if header != "n" or len(fields) < 2:
            raise AuthenticationError("malformed SCRAM message, or one with channel binding")
        user = _field(fields[0], "n").replace("=2C", ",").replace("=3D", "=")
        client_nonce = _field(fields[1], "r")
        if not client_nonce or authorization_id not in ("", f"a={_field(fields[0], 'n')}"):
            raise AuthenticationError("SCRAM message without a nonce, or for another user")
        self._claimed_user, self._client_first_bare = user, bare
        self._keys = self._find_keys(user, is_token=any(map(_is_token_extension, fields[2:])))
        self._nonce = client_nonce + random_nonce()
        salt = base64.b64encode(self._keys.salt).decode()
        self._server_first = f"r={self._nonce},s={salt},i={self._keys.iterations}"
        return self._server_first.encode()

    def _find_keys(self, user: str, *, is_token: bool) -> ScramKeys:
        """Return the keys of a user, or of the token whose id takes the user's place; others' keys if there is none."""
        if not is_token:
            return self._credentials.scram_keys(self._mechanism, user)
        self.token = self._credentials.find_token(user)
        if self.token is None:
            return self._credentials.decoy_keys(self._mechanism, user)
        return _token_keys(self._hash, self.token.password)

    def _finish(self, message: str) -> bytes:
        without_proof, _, last = message.rpartition(",")
        fields = without_proof.split(",")
        if len(fields) != 2 or fields[0] != "c=biws" or not hmac.compare_digest(fields[1], f"r={self._nonce}"):
            raise AuthenticationError("SCRAM message with a wrong nonce or channel binding")
        auth_message = f"{self._client_first_bare},{self._server_first},{without_proof}".encode()
        signature = hmac.digest(self._keys.stored_key, auth_message, self._hash)
        proof = _base64(_field(last, "p"))
        if len(proof) != len(signature):
            raise AuthenticationError("SCRAM proof of a wrong length")
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        if not hmac.compare_digest(hashlib.new(self._hash, client_key).digest(), self._keys.stored_key):
            raise AuthenticationError("Authentication failed during authentication due to invalid credentials")
        if self.token is None:
            self.user = self._claimed_user
        else:
            self.user, self.ends_at_s = self.token.owner, self.token.ends_at_s
        server_signature = hmac.digest(self._keys.server_key, auth_message, self._hash)
        return b"v=" + base64.b64encode(server_signature)


def _derive(hash_name: str, password: bytes) -> ScramKeys:
    salt = secrets.token_bytes(_SALT_BYTES)
    return scram_keys_of(hash_name, hashlib.pbkdf2_hmac(hash_name, password, salt, MIN_ITERATIONS), salt)


@functools.lru_cache(maxsize=_CACHED_TOKENS)
def _token_keys(hash_name: str, password: bytes) -> ScramKeys:
    """Return the keys of a delegation token, which cost milliseconds: its later logins find them."""
    return _derive(hash_name, password)


def scram_keys_of(hash_name: str, salted_password: bytes, salt: bytes, iterations: int = MIN_ITERATIONS) -> ScramKeys:
    """Return the keys that belong to a salted password."""
    client_key = hmac.digest(salted_password, b"Client Key", hash_name)
    server_key = hmac.digest(salted_password, b"Server Key", hash_name)
    return ScramKeys(salt, hashlib.new(hash_name, client_key).digest(), server_key, iterations)


def _is_token_extension(part: str) -> bool:
    name, _, value = part.partition("=")
    return name == "tokenauth" and value.lower() == "true"


def _text(token: bytes) -> str:
    try:
        return token.decode()
    except UnicodeDecodeError:
        raise AuthenticationError("message is not UTF-8") from None


def _field(part: str, name: str) -> str:
    if not part.startswith(f"{name}="):
        raise AuthenticationError(f"SCRAM message without field {name!r}")
    return part[2:]


def _base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise AuthenticationError("SCRAM proof is not base64") from None
