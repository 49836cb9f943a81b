"""Delegation tokens (KIP-48): what a token is made of, and the options that they need.

    id        22 characters of URL-safe base64
    HMAC      HMAC-SHA512(secret key, id); the secret, in no record, so another key makes all tokens useless
    password  base64 of the HMAC, for a SCRAM login whose user is the id and whose extension is tokenauth=true

Pure.
"""

from __future__ import annotations

import base64
import functools
import hmac
from dataclasses import dataclass, field
from typing import Final

from kafkaprod.errors import ConfigError

USER_TYPE: Final = "User"
_DAY_MS: Final = 24 * 3_600_000
_CACHED: Final = 16_384


@dataclass(frozen=True, slots=True)
class TokenConfig:
    """Options of delegation tokens, the same at all processes of a cluster.

    Attributes:
        secret_key: delegation.token.secret.key; without one there are no tokens.
        max_lifetime_ms: delegation.token.max.lifetime.ms; no renewal makes a token live longer.
        expiry_time_ms: delegation.token.expiry.time.ms; how long a token lives without renewal.
        expiry_check_interval_ms: delegation.token.expiry.check.interval.ms; how often those that are over are removed.
    """

    secret_key: str = field(default="", repr=False)
    max_lifetime_ms: int = 7 * _DAY_MS
    expiry_time_ms: int = _DAY_MS
    expiry_check_interval_ms: int = 3_600_000

    def __post_init__(self) -> None:
        for name in ("max_lifetime_ms", "expiry_time_ms", "expiry_check_interval_ms"):
            if getattr(self, name) < 1:
                raise ConfigError(f"delegation tokens: {name}={getattr(self, name)} must be at least 1")

    @property
    def is_enabled(self) -> bool:
        """Whether there are tokens."""
        return bool(self.secret_key)

    def hmac_of(self, token_id: str) -> TokenHmac:
        """Return the HMAC of a token."""
        return _hmac_of(self.secret_key, token_id)


class TokenHmac(bytes):
    """The secret of a token, which its repr does not show."""

    def __repr__(self) -> str:
        return f"TokenHmac({len(self)} bytes)"


@functools.lru_cache(maxsize=_CACHED)
def _hmac_of(secret_key: str, token_id: str) -> TokenHmac:
    return TokenHmac(hmac.digest(secret_key.encode(), token_id.encode(), "sha512"))


def password_of(token_hmac: bytes) -> bytes:
    """Return the password of a login with a token."""
    return base64.b64encode(token_hmac)


def principal_parts(principal: str) -> tuple[str, str]:
    """Return type and name of a principal: "User:ann" is ("User", "ann")."""
    kind, _, name = principal.partition(":")
    return kind, name
