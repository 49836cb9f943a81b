"""Tokens with a signature, and the key that they are checked by: RS256, as identity providers sign."""

from __future__ import annotations

import base64
import json
import math
import time
from typing import Any

from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.hashes import SHA256


class TokenSigner:
    """Signs tokens by a key of its own.

    Args:
        claims: Of each token, besides subject and times.
    """

    def __init__(self, **claims: Any) -> None:
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self._claims = claims

    def sign(self, subject: str, lifetime_s: float) -> str:
        """Return a token; as `TokenIssuer.sign` has it."""
        now = math.ceil(time.time())  # never shorter than what the issuer says
        claims = {"sub": subject, "iat": now, "exp": now + round(lifetime_s), **self._claims}
        text = f"{_part({'alg': 'RS256', 'kid': 'one', 'typ': 'JWT'})}.{_part(claims)}"
        return f"{text}.{_base64(self._key.sign(text.encode(), padding.PKCS1v15(), SHA256()))}"

    def public_keys(self) -> dict[str, Any]:
        """Return the set of keys (JWKS) that a broker fetches."""
        numbers = self._key.public_key().public_numbers()
        key = {"kty": "RSA", "kid": "one", "alg": "RS256", "use": "sig"}
        return {"keys": [{**key, "n": _number(numbers.n), "e": _number(numbers.e)}]}


def _part(fields: dict[str, Any]) -> str:
    return _base64(json.dumps(fields).encode())


def _number(number: int) -> str:
    return _base64(number.to_bytes((number.bit_length() + 7) // 8, "big"))


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
